//! Heartbeats: the model's regions told to PD as TiKV's stores tell it, over one stream per store.

use std::collections::HashMap;
use std::time::Duration;

use tidegate::proto::pdpb;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use crate::client::{Asker, PdClient, Question, connect};
use crate::cluster::{ModelRegion, STORES};
use crate::error::InteropError;

/// Heartbeats under way on one stream.
const QUEUE: usize = 64;
/// For PD to take a heartbeat.
const TAKEN_LIMIT: Duration = Duration::from_secs(10);

/// The heartbeat streams of every store.
#[derive(Debug)]
pub struct Feeder {
    streams: HashMap<u64, mpsc::Sender<pdpb::RegionHeartbeatRequest>>,
    readers: Vec<JoinHandle<()>>,
    cluster_id: u64,
}

impl Feeder {
    /// Opens the streams.
    pub async fn open(client: &PdClient<Channel>, cluster_id: u64) -> Result<Self, InteropError> {
        let mut streams = HashMap::new();
        let mut readers = Vec::new();
        for store in STORES {
            let (sender, receiver) = mpsc::channel(QUEUE);
            let mut client = client.clone();
            // PD answers only when it has something to order; what it orders is not played here. The stream has to be
            // read all the same, or it would block. Nothing waits for its headers: they come with the first answer.
            readers.push(tokio::spawn(async move {
                if let Ok(answers) = client.region_heartbeat(ReceiverStream::new(receiver)).await {
                    let mut answers = answers.into_inner();
                    while let Ok(Some(_)) = answers.message().await {}
                }
            }));
            streams.insert(store, sender);
        }
        Ok(Self {
            streams,
            readers,
            cluster_id,
        })
    }

    /// Reports regions in order, each by its leader's store.
    pub async fn report(&self, regions: &[ModelRegion]) -> Result<(), InteropError> {
        for region in regions {
            let heartbeat = pdpb::RegionHeartbeatRequest {
                header: Some(pdpb::RequestHeader {
                    cluster_id: self.cluster_id,
                    ..Default::default()
                }),
                region: Some(region.meta()),
                leader: Some(region.leader_peer()),
                approximate_size: 10 << 20,
                approximate_keys: 10_000,
                interval: Some(pdpb::TimeInterval {
                    start_timestamp: 0,
                    end_timestamp: 60,
                }),
                ..Default::default()
            };
            let sent = match self.streams.get(&region.leader_store()) {
                Some(stream) => matches!(
                    timeout(TAKEN_LIMIT, stream.send(heartbeat)).await,
                    Ok(Ok(()))
                ),
                None => false,
            };
            if !sent {
                return Err(InteropError::Answer {
                    call: "RegionHeartbeat",
                    message: format!(
                        "the stream of store {} was closed by PD, or is not read",
                        region.leader_store()
                    ),
                });
            }
        }
        Ok(())
    }

    /// Ends the streams.
    pub fn close(self) {
        drop(self.streams);
        for reader in self.readers {
            reader.abort();
        }
    }
}

/// For the leader to have what it was told.
const TOLD_LIMIT: Duration = Duration::from_secs(60);

/// The stores' streams to the leader, and a client of it to see that it has what they told.
#[derive(Debug)]
pub struct Stores {
    feeder: Feeder,
    leader: Asker,
}

impl Stores {
    /// Opens the streams to the leader at `url`.
    pub async fn open(url: &str, cluster_id: u64) -> Result<Self, InteropError> {
        let client = connect(url).await?;
        Ok(Self {
            feeder: Feeder::open(&client, cluster_id).await?,
            leader: Asker::new(client, cluster_id),
        })
    }

    /// Tells the leader of regions, none of them twice, and returns once it has them all.
    pub async fn tell(&mut self, regions: &[ModelRegion]) -> Result<(), InteropError> {
        self.feeder.report(regions).await?;
        let started = Instant::now();
        // Each store's stream is taken in order, so the last of each is enough.
        for store in STORES {
            let Some(last) = regions.iter().rev().find(|r| r.leader_store() == store) else {
                continue;
            };
            let (meant, question) = (last.found(), Question::Id(last.id));
            while self.leader.ask(&question).await?.region() != Some(&meant) {
                if started.elapsed() > TOLD_LIMIT {
                    return Err(InteropError::Timeout {
                        what: "the leader's knowing what the stores told",
                        limit: TOLD_LIMIT,
                        detail: format!(": {meant:?} is meant"),
                    });
                }
                sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(())
    }

    /// Ends the streams.
    pub fn close(self) {
        self.feeder.close();
    }
}
