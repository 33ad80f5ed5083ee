//! The leader's side of the sync stream, against scripted followers under virtual time.

mod full;
mod handshake;
mod live;
mod release85;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tidegate_core::{KeyRange, Peer, PeerRole, Region, RegionEpoch};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::*;
use crate::leader::cluster::Counters;
use crate::leader::{LeaderConfig, LeaderState};
use crate::proto::pdpb::{Member, RequestHeader};

const CLUSTER: u64 = 7;
const SECOND: Duration = Duration::from_secs(1);

/// A small leader: frames of 4 regions, a history of 16 records, no budget for full syncs.
fn config() -> LeaderConfig {
    LeaderConfig {
        cluster_id: CLUSTER,
        ring_capacity: 16,
        ring_limit: 64,
        max_batch: 4,
        full_sync_rate: 0,
        ..LeaderConfig::default()
    }
}

fn cluster_with(config: LeaderConfig, next_index: u64) -> Arc<Cluster> {
    let mut state = LeaderState::fresh(&config);
    state.seed.next_index = next_index;
    state.bootstrapped = true;
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 2379));
    let cluster = Arc::new(Cluster::new(config, addr, state));
    if cluster.config.dialect == Dialect::Release85 {
        tokio::spawn(broadcast(Arc::clone(&cluster)));
    }
    cluster
}

fn cluster() -> Arc<Cluster> {
    cluster_with(config(), 0)
}

fn region(id: u64, version: u64) -> Region {
    // Ids in key order, without holes.
    let range = KeyRange::new(
        format!("{id:04}").as_str(),
        format!("{:04}", id + 1).as_str(),
    );
    let peer = Peer {
        id: id * 10,
        store_id: 1,
        role: PeerRole::Voter,
        is_witness: false,
    };
    Region::builder(
        id,
        range.unwrap(),
        RegionEpoch {
            conf_ver: 1,
            version,
        },
    )
    .peers([peer])
    .leader(Some(peer))
    .build()
    .unwrap()
}

/// Reports one record for each id, at a version that is new.
fn report(cluster: &Cluster, ids: impl IntoIterator<Item = u64>) {
    for id in ids {
        let version = 2 + cluster.regions.next_index();
        let reported = cluster.regions.report(region(id, version), 0).unwrap();
        assert!(reported.index.is_some());
    }
}

fn request(name: &str, start_index: u64) -> SyncRegionRequest {
    SyncRegionRequest {
        header: Some(RequestHeader {
            cluster_id: CLUSTER,
            ..RequestHeader::default()
        }),
        member: Some(Member {
            name: name.to_owned(),
            client_urls: vec!["http://127.0.0.1:1".to_owned()],
            ..Member::default()
        }),
        start_index,
    }
}

/// The other end of a stream.
struct Follower {
    requests: mpsc::Sender<Result<SyncRegionRequest, Status>>,
    frames: Outflow<SyncRegionResponse>,
}

/// A frame in short: its start index and the ids of its regions.
type Brief = (u64, Vec<u64>);

impl Follower {
    fn silent(cluster: &Arc<Cluster>) -> Self {
        let (requests, receiver) = mpsc::channel(4);
        Self {
            requests,
            frames: open(Arc::clone(cluster), ReceiverStream::new(receiver)),
        }
    }

    async fn send(&self, request: SyncRegionRequest) {
        self.requests.send(Ok(request)).await.unwrap();
    }

    async fn open(cluster: &Arc<Cluster>, name: &str, start_index: u64) -> Self {
        let follower = Self::silent(cluster);
        follower.send(request(name, start_index)).await;
        follower
    }

    /// The next frame. Virtual time runs until it comes, for a day at most.
    async fn frame(&mut self) -> SyncRegionResponse {
        let frame = timeout(86_400 * SECOND, self.frames.next())
            .await
            .expect("a frame in time");
        let frame = frame.expect("the stream goes on").expect("a frame");
        let sizes = [
            frame.region_stats.len(),
            frame.region_leaders.len(),
            frame.buckets.len(),
        ];
        assert_eq!(sizes, [frame.regions.len(); 3], "parallel lists");
        frame
    }

    async fn brief(&mut self) -> Brief {
        let frame = self.frame().await;
        assert_eq!(frame.header.unwrap().error, None);
        (
            frame.start_index,
            frame.regions.iter().map(|region| region.id).collect(),
        )
    }

    async fn briefs(&mut self, count: usize) -> Vec<Brief> {
        let mut briefs = Vec::new();
        for _ in 0..count {
            briefs.push(self.brief().await);
        }
        briefs
    }

    async fn end(&mut self) -> Status {
        loop {
            let next = timeout(86_400 * SECOND, self.frames.next())
                .await
                .expect("an end in time");
            if let Err(status) = next.expect("a status before the end") {
                return status;
            }
        }
    }

    /// Asserts that nothing comes for `time`.
    async fn quiet(&mut self, time: Duration) {
        let frame = timeout(time, self.frames.next()).await;
        assert!(frame.is_err(), "expected silence, got {frame:?}");
    }
}
