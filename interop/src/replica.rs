//! The replica under test: the built program, started as an operator starts it.

use std::path::Path;
use std::time::Duration;

use tidegate::pd::Dialect;
use tokio::time::Instant;

use crate::client::{Asker, Question, connect};
use crate::error::InteropError;
use crate::process::{Process, free_port};
use crate::status::status;

/// How long the replica may take from its start to its first answer.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The bounds that the replica is started with: tighter than its defaults, so that a short run can judge them.
pub const MAX_AGE: Duration = Duration::from_secs(2);
/// The same behind a leader of release 8.5, which proves a quiet time only by its keepalives.
pub const BROADCAST_MAX_AGE: Duration = Duration::from_secs(4);
/// See [`MAX_AGE`].
pub const STALL_THRESHOLD: Duration = Duration::from_secs(1);

/// See [`MAX_AGE`].
pub const PROBE_INTERVAL: Duration = Duration::from_millis(300);

/// What a leader of release 8.5 needs that has nothing to say from the start: with as many regions as fill its frames
/// the copy of its map ends with the next keepalive, and two more are the first proof, of the time before the first.
pub const QUIET_MAX_AGE: Duration = Duration::from_secs(45);

/// What an answer of a replica with these bounds may be behind at most, while regions change.
pub fn max_age(dialect: Dialect) -> Duration {
    match dialect {
        Dialect::Master => MAX_AGE,
        Dialect::Release85 => BROADCAST_MAX_AGE,
    }
}

/// What differs from one replica to another.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name, also that of its files.
    pub name: &'static str,
    /// `refuse` or `read-through`.
    pub when_stale: &'static str,
    /// Its config file.
    pub config: String,
}

/// A config file with the tight bounds, and further lines.
pub fn tight(further: &str) -> String {
    bounds(BROADCAST_MAX_AGE, further)
}

/// The same for a replica that is to answer while nothing changes.
pub fn tight_at_rest() -> String {
    bounds(QUIET_MAX_AGE, "")
}

fn bounds(broadcast_max_age: Duration, further: &str) -> String {
    format!(
        "max-age = \"{}ms\"\nbroadcast-max-age = \"{}ms\"\nstall-threshold = \"{}ms\"\nprobe-interval = \"{}ms\"\n{further}",
        MAX_AGE.as_millis(),
        broadcast_max_age.as_millis(),
        STALL_THRESHOLD.as_millis(),
        PROBE_INTERVAL.as_millis()
    )
}

/// A running replica.
#[derive(Debug)]
pub struct Replica {
    process: Process,
    url: String,
}

impl Replica {
    /// Starts `program` against the PD members at `backend` and waits until it answers.
    pub async fn start(
        program: &Path,
        dir: &Path,
        backend: &str,
        cluster_id: u64,
        setting: &Setting,
    ) -> Result<Self, InteropError> {
        let mut replica = Self::spawn(program, dir, backend, setting)?;
        replica.wait_until_ready(cluster_id).await?;
        Ok(replica)
    }

    /// Starts `program` and does not wait.
    pub fn spawn(
        program: &Path,
        dir: &Path,
        backend: &str,
        setting: &Setting,
    ) -> Result<Self, InteropError> {
        let config = dir.join(format!("{}.toml", setting.name));
        std::fs::write(&config, &setting.config)
            .map_err(InteropError::system("write the replica's config"))?;
        let url = format!("http://127.0.0.1:{}", free_port()?);
        let args = [
            "serve".to_owned(),
            format!("--name={}", setting.name),
            format!("--backend-endpoints={backend}"),
            format!("--listen-addr={url}"),
            format!("--config={}", config.display()),
            format!("--when-stale={}", setting.when_stale),
        ];
        let log = dir.join(format!("{}.out", setting.name));
        let process = Process::start(program, &args, log)?;
        Ok(Self { process, url })
    }

    async fn wait_until_ready(&mut self, cluster_id: u64) -> Result<(), InteropError> {
        let started = Instant::now();
        loop {
            if let Ok(client) = connect(&self.url).await
                && let Ok(answer) = Asker::new(client, cluster_id)
                    .ask(&Question::Key(Vec::new()))
                    .await
                && answer.region().is_some()
            {
                return Ok(());
            }
            let detail = match self.process.ended() {
                Some(status) => format!("; it ended with {status}:\n{}", self.process.tail()),
                None if started.elapsed() > READY_LIMIT => {
                    format!("; its last lines:\n{}", self.process.tail())
                }
                None => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            return Err(InteropError::Timeout {
                what: "the replica's first answer",
                limit: READY_LIMIT,
                detail,
            });
        }
    }

    /// Waits until it knows the PD leader.
    pub async fn knows_leader(&self) -> Result<(), InteropError> {
        let started = Instant::now();
        loop {
            let page = status(&self.url).await;
            if page.is_some_and(|page| page["leader"]["url"].is_string()) {
                return Ok(());
            }
            if started.elapsed() > READY_LIMIT {
                return Err(InteropError::Timeout {
                    what: "the replica's knowing the leader",
                    limit: READY_LIMIT,
                    detail: format!("; its last lines:\n{}", self.tail()),
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Where it answers.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its pid while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) -> Result<(), InteropError> {
        self.process.signal(signal)
    }

    /// The last lines of its log.
    pub fn tail(&self) -> String {
        self.process.tail()
    }

    /// Kills it.
    pub async fn kill(self) -> Result<(), InteropError> {
        self.process.kill().await
    }

    /// Ends it with SIGTERM and demands a clean exit.
    pub async fn stop(self) -> Result<(), InteropError> {
        let status = self.process.stop().await?;
        if status.success() {
            Ok(())
        } else {
            Err(InteropError::Verdict(format!(
                "the replica ended with {status} after SIGTERM, not with 0"
            )))
        }
    }
}
