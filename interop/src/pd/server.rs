//! Real pd-servers: started with their flags on loopback, asked over their own gRPC and HTTP.
//!
//! Each member has a directory with its data and its log. What is asked for here beyond a start are things that PD does
//! only over HTTP: handing the lead to another member, and taking a member off the list.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tidegate::proto::pdpb;
use tokio::time::{Instant, sleep};

use crate::client::connect;
use crate::error::InteropError;
use crate::process::{Process, free_port};
use crate::status::http;

/// How long members may take from their start to the leadership of one of them.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// For `-V`.
const VERSION_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at who leads.
const LOOK: Duration = Duration::from_millis(100);

/// What the program says that it is, in a few words.
///
/// # Errors
///
/// It cannot be run, or `-V` does not end well: no pd-server.
pub async fn version(program: &Path, dir: &Path) -> Result<String, InteropError> {
    let not_one = |what: String| {
        InteropError::Pd(format!(
            "{} is none: {what}; give the path of a pd-server",
            program.display()
        ))
    };
    let asked = Process::start(program, &["-V".to_owned()], dir.join("version.out"))
        .map_err(|error| InteropError::Pd(error.to_string()))?;
    let (status, text) = asked
        .finish(VERSION_LIMIT)
        .await
        .map_err(|_| not_one(format!("-V did not end within {VERSION_LIMIT:?}")))?;
    if !status.success() {
        return Err(not_one(format!("-V ended with {status}")));
    }
    let named = text
        .lines()
        .find_map(|line| line.strip_prefix("Release Version:"))
        .map_or("of an unknown version", str::trim);
    Ok(format!("pd-server {named}"))
}

/// One member: where it is, and its process while it runs.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    name: String,
    dir: PathBuf,
    client: String,
    args: Vec<String>,
    process: Option<Process>,
}

impl Server {
    /// Starts `count` members of one new cluster, with their data under `dir`. They need not lead yet.
    pub fn cluster(program: &Path, dir: &Path, count: usize) -> Result<Vec<Self>, InteropError> {
        let mut urls = Vec::new();
        for i in 0..count {
            let url = || Ok::<_, InteropError>(format!("http://127.0.0.1:{}", free_port()?));
            urls.push((format!("pd-{i}"), url()?, url()?));
        }
        let initial: Vec<_> = urls
            .iter()
            .map(|(name, _, peer)| format!("{name}={peer}"))
            .collect();
        let initial = initial.join(",");
        let mut servers = Vec::new();
        for (name, client, peer) in urls {
            let args = vec![
                format!("--name={name}"),
                format!("--data-dir={}", dir.join(&name).display()),
                format!("--client-urls={client}"),
                format!("--peer-urls={peer}"),
                format!("--initial-cluster={initial}"),
                format!("--log-file={}", dir.join(format!("{name}.log")).display()),
            ];
            let mut server = Self {
                program: program.to_owned(),
                name,
                dir: dir.to_owned(),
                client,
                args,
                process: None,
            };
            server.start()?;
            servers.push(server);
        }
        Ok(servers)
    }

    /// Starts it, for the first time or again on the data that it left.
    pub fn start(&mut self) -> Result<(), InteropError> {
        let out = self.dir.join(format!("{}.out", self.name));
        self.process = Some(Process::start(&self.program, &self.args, out)?);
        Ok(())
    }

    /// The member's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its client URL.
    pub fn url(&self) -> &str {
        &self.client
    }

    /// Its process while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref()?.pid()
    }

    /// Kills it (SIGKILL), as a crash does.
    pub async fn kill(&mut self) -> Result<(), InteropError> {
        match self.process.take() {
            Some(process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Ends it with SIGTERM.
    pub async fn stop(&mut self) -> Result<(), InteropError> {
        match self.process.take() {
            Some(process) => process.stop().await.map(drop),
            None => Ok(()),
        }
    }

    /// Its last words: PD's own log, or what it printed where there is none.
    pub fn tail(&self) -> String {
        const LINES: usize = 15;
        let log = std::fs::read_to_string(self.dir.join(format!("{}.log", self.name)));
        let log = log.unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(LINES).collect();
        let printed = self
            .process
            .as_ref()
            .map_or_else(String::new, Process::tail);
        let lines: Vec<_> = lines.into_iter().rev().collect();
        format!("{}\n{printed}", lines.join("\n"))
    }

    fn ended(&mut self) -> Option<String> {
        self.process.as_mut()?.ended()
    }

    /// Asks it over HTTP for something, until `limit`: while members turn, a PD says no for a moment.
    pub async fn order(
        &self,
        method: &'static str,
        path: &str,
        limit: Duration,
    ) -> Result<(), InteropError> {
        let begun = Instant::now();
        loop {
            let answer = http(method, &self.client, path).await;
            let said = match answer {
                Some((200..=299, _)) => return Ok(()),
                Some((code, body)) => format!("it answers {code}: {}", body.trim()),
                None => "it does not answer".to_owned(),
            };
            if begun.elapsed() > limit {
                return Err(InteropError::Pd(format!(
                    "{} was asked for {method} {path}: {said}",
                    self.name
                )));
            }
            sleep(LOOK).await;
        }
    }
}

/// Waits until one of the running members leads and answers as the leader; with `bootstrapped`, for its cluster, too.
/// Returns which, and the cluster's id.
pub async fn leading(
    servers: &mut [Server],
    bootstrapped: bool,
) -> Result<(usize, u64), InteropError> {
    let begun = Instant::now();
    loop {
        for at in 0..servers.len() {
            if servers[at].process.is_none() {
                continue;
            }
            if let Some(found) = leader_by(&servers[at], servers, bootstrapped).await {
                return Ok(found);
            }
            if let Some(status) = servers[at].ended() {
                let (name, tail) = (servers[at].name.clone(), servers[at].tail());
                return Err(InteropError::Pd(format!(
                    "{name} ended with {status}; its last lines:\n{tail}"
                )));
            }
        }
        if begun.elapsed() > READY_LIMIT {
            let tails: Vec<_> = servers.iter().map(Server::tail).collect();
            return Err(InteropError::Timeout {
                what: "PD's leadership",
                limit: READY_LIMIT,
                detail: format!("; the members' last lines:\n{}", tails.join("\n")),
            });
        }
        sleep(LOOK).await;
    }
}

/// Who leads by the word of one member, if that one says the same of itself.
async fn leader_by(
    witness: &Server,
    servers: &[Server],
    bootstrapped: bool,
) -> Option<(usize, u64)> {
    let mut client = connect(&witness.client).await.ok()?;
    let answer = client.get_members(pdpb::GetMembersRequest::default()).await;
    let answer = answer.ok()?.into_inner();
    let (cluster_id, leader) = (answer.header?.cluster_id, answer.leader?);
    let at = servers
        .iter()
        .position(|server| server.name == leader.name && server.process.is_some())?;
    let mut client = connect(&servers[at].client).await.ok()?;
    let asked = pdpb::IsBootstrappedRequest {
        header: Some(pdpb::RequestHeader {
            cluster_id,
            ..Default::default()
        }),
    };
    let answer = client.is_bootstrapped(asked).await.ok()?.into_inner();
    let serves = answer.header?.error.is_none() && (answer.bootstrapped || !bootstrapped);
    (cluster_id != 0 && serves).then_some((at, cluster_id))
}

/// Sends SIGKILL to all that run, at once, and waits until they are gone.
pub async fn kill_all(servers: &mut [Server]) -> Result<(), InteropError> {
    for server in servers.iter() {
        if let Some(process) = &server.process {
            process.signal(Signal::KILL)?;
        }
    }
    for server in servers {
        server.kill().await?;
    }
    Ok(())
}
