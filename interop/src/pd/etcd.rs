//! A real etcd beside the played members: it holds the leader key, whose create-revision is the term, and what routers
//! register.

use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message;
use tidegate::pd::leader_key_name;
use tidegate::proto::etcdserverpb::kv_client::KvClient;
use tidegate::proto::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest};
use tidegate::proto::{mvccpb, pdpb};
use tokio::time::{Instant, sleep};
use tonic::transport::{Channel, Endpoint};

use crate::error::InteropError;
use crate::process::{Process, free_port};

/// How long etcd may take from its start to its first answer.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// A running etcd of one member, with its data in a directory that outlives it.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    dir: PathBuf,
    client: String,
    peer: String,
    process: Option<Process>,
    channel: Channel,
}

impl Etcd {
    /// Starts `program` with its data in `dir` and waits until it answers.
    pub async fn start(program: &Path, dir: &Path) -> Result<Self, InteropError> {
        let client = format!("http://127.0.0.1:{}", free_port()?);
        let peer = format!("http://127.0.0.1:{}", free_port()?);
        let channel = Endpoint::from_shared(client.clone())
            .map_err(|e| InteropError::Leader(e.to_string()))?
            .connect_timeout(Duration::from_secs(1))
            .connect_lazy();
        let mut etcd = Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            client,
            peer,
            process: None,
            channel,
        };
        etcd.resume().await?;
        Ok(etcd)
    }

    /// Starts it again on the data that it left.
    pub async fn resume(&mut self) -> Result<(), InteropError> {
        let args = [
            "--name=etcd".to_owned(),
            format!("--data-dir={}", self.dir.join("etcd").display()),
            format!("--listen-client-urls={}", self.client),
            format!("--advertise-client-urls={}", self.client),
            format!("--listen-peer-urls={}", self.peer),
            format!("--initial-advertise-peer-urls={}", self.peer),
            format!("--initial-cluster=etcd={}", self.peer),
            "--log-level=warn".to_owned(),
        ];
        let process = Process::start(&self.program, &args, self.dir.join("etcd.out"))?;
        let process = self.process.insert(process);
        let started = Instant::now();
        let mut kv = KvClient::new(self.channel.clone());
        let question = RangeRequest {
            key: b"/".to_vec().into(),
            ..Default::default()
        };
        while kv.range(question.clone()).await.is_err() {
            if process.ended().is_some() || started.elapsed() > READY_LIMIT {
                return Err(InteropError::Timeout {
                    what: "etcd's first answer",
                    limit: READY_LIMIT,
                    detail: format!("; its last lines:\n{}", process.tail()),
                });
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Ends it at once, as a crash does.
    pub async fn kill(&mut self) -> Result<(), InteropError> {
        match self.process.take() {
            Some(process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// The way to it.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Begins a reign: the leader key is deleted and written anew, so that its create-revision is a new one.
    pub async fn begin_reign(
        &self,
        cluster_id: u64,
        member: &pdpb::Member,
    ) -> Result<(), InteropError> {
        self.end_reign(cluster_id).await?;
        KvClient::new(self.channel.clone())
            .put(PutRequest {
                key: leader_key_name(cluster_id).into_bytes().into(),
                value: member.encode_to_vec().into(),
                ..Default::default()
            })
            .await
            .map_err(InteropError::call("etcd's Put"))?;
        Ok(())
    }

    /// Takes the leader key away, as the end of its lease does.
    pub async fn end_reign(&self, cluster_id: u64) -> Result<(), InteropError> {
        KvClient::new(self.channel.clone())
            .delete_range(DeleteRangeRequest {
                key: leader_key_name(cluster_id).into_bytes().into(),
                ..Default::default()
            })
            .await
            .map_err(InteropError::call("etcd's DeleteRange"))?;
        Ok(())
    }
}

/// What is registered of routers in the etcd behind `channel`.
pub async fn routers(
    channel: Channel,
    cluster_id: u64,
) -> Result<Vec<mvccpb::KeyValue>, InteropError> {
    let prefix = format!("/ms/{cluster_id}/router/registry/");
    // The first key behind all that begin with the prefix: its last byte is '/'.
    let end = format!("/ms/{cluster_id}/router/registry0");
    let answer = KvClient::new(channel)
        .range(RangeRequest {
            key: prefix.into_bytes().into(),
            range_end: end.into_bytes().into(),
            ..Default::default()
        })
        .await
        .map_err(InteropError::call("etcd's Range"))?;
    Ok(answer.into_inner().kvs)
}
