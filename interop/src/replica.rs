//! The replica under test: the built program, started as an operator starts it.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::{Asker, Question, connect};
use crate::error::InteropError;
use crate::process::{Process, free_port};

/// How long the replica may take from its start to its first answer.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The bounds that the replica is started with: tighter than its defaults, so that a short run can judge them.
pub const MAX_AGE: Duration = Duration::from_secs(2);
/// See [`MAX_AGE`].
pub const STALL_THRESHOLD: Duration = Duration::from_secs(1);

/// A running replica.
#[derive(Debug)]
pub struct Replica {
    process: Process,
    url: String,
}

impl Replica {
    /// Starts `program` against `backend` and waits until it answers.
    pub async fn start(
        program: &Path,
        dir: &Path,
        backend: &str,
        cluster_id: u64,
    ) -> Result<Self, InteropError> {
        let config = dir.join("tidegate.toml");
        let text = format!(
            "max-age = \"{}ms\"\nstall-threshold = \"{}ms\"\nprobe-interval = \"300ms\"\n",
            MAX_AGE.as_millis(),
            STALL_THRESHOLD.as_millis()
        );
        std::fs::write(&config, text)
            .map_err(InteropError::system("write the replica's config"))?;
        let url = format!("http://127.0.0.1:{}", free_port()?);
        let args = [
            "serve".to_owned(),
            format!("--backend-endpoints={backend}"),
            format!("--listen-addr={url}"),
            format!("--config={}", config.display()),
            "--when-stale=refuse".to_owned(),
        ];
        let process = Process::start(program, &args, dir.join("tidegate.out"))?;
        let mut replica = Self { process, url };
        replica.wait_until_ready(cluster_id).await?;
        Ok(replica)
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

    /// Where it answers.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its pid while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
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
