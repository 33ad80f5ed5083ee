//! Child processes on loopback: started in a directory of their own, stopped by their own pid.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::error::InteropError;

/// How long a child may take to end after it was asked to.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A running child. Dropping it kills it; [`Process::stop`] asks first.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program` with its output in `log`.
    pub fn start(program: &Path, args: &[String], log: PathBuf) -> Result<Self, InteropError> {
        let out = std::fs::File::create(&log).map_err(InteropError::system("create a log file"))?;
        let err = out
            .try_clone()
            .map_err(InteropError::system("share a log file"))?;
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| InteropError::Start {
                path: program.to_owned(),
                source,
            })?;
        Ok(Self { child, log })
    }

    /// The child's pid while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The last lines that the child printed, for an error report.
    pub fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(15).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Whether the child has ended by itself, and how.
    pub fn ended(&mut self) -> Option<String> {
        self.child
            .try_wait()
            .ok()
            .flatten()
            .map(|status| status.to_string())
    }

    /// Sends the child a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), InteropError> {
        let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id as i32)) else {
            return Ok(());
        };
        kill_process(pid, signal).map_err(|e| InteropError::System {
            what: "signal a child",
            source: e.into(),
        })
    }

    /// Waits until the child has ended by itself; returns how, and all that it printed.
    pub async fn finish(
        mut self,
        limit: Duration,
    ) -> Result<(std::process::ExitStatus, String), InteropError> {
        match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(status) => Ok((
                status.map_err(InteropError::system("wait for a child"))?,
                std::fs::read_to_string(&self.log).unwrap_or_default(),
            )),
            Err(_) => Err(InteropError::Timeout {
                what: "the end of a child",
                limit,
                detail: format!("; its last lines:\n{}", self.tail()),
            }),
        }
    }

    /// Kills the child (SIGKILL) and waits until it is gone.
    pub async fn kill(mut self) -> Result<(), InteropError> {
        self.child
            .kill()
            .await
            .map_err(InteropError::system("kill a child"))
    }

    /// Asks the child to end (SIGTERM) and waits; kills it when it does not. Returns its exit status.
    pub async fn stop(mut self) -> Result<std::process::ExitStatus, InteropError> {
        self.signal(Signal::TERM)?;
        match tokio::time::timeout(STOP_LIMIT, self.child.wait()).await {
            Ok(status) => status.map_err(InteropError::system("wait for a child")),
            Err(_) => {
                let detail = format!("; its last lines:\n{}", self.tail());
                self.child
                    .kill()
                    .await
                    .map_err(InteropError::system("kill a child"))?;
                Err(InteropError::Timeout {
                    what: "the end of a child after SIGTERM",
                    limit: STOP_LIMIT,
                    detail,
                })
            }
        }
    }
}

/// A port on loopback that was free a moment ago.
pub fn free_port() -> Result<u16, InteropError> {
    Ok(bound("find a free port")?.1.port())
}

/// A listener on a free port of loopback, and its address; `what` says what for, should there be none.
pub fn listen(what: &'static str) -> Result<(tokio::net::TcpListener, SocketAddr), InteropError> {
    let (listener, addr) = bound(what)?;
    listener
        .set_nonblocking(true)
        .and_then(|()| tokio::net::TcpListener::from_std(listener))
        .map(|listener| (listener, addr))
        .map_err(InteropError::system(what))
}

fn bound(what: &'static str) -> Result<(TcpListener, SocketAddr), InteropError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(InteropError::system(what))?;
    let addr = listener
        .local_addr()
        .map_err(InteropError::system("read a port"))?;
    Ok((listener, addr))
}
