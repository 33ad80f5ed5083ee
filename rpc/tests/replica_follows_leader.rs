//! A replica beside an embedded PD leader, both over real sockets: what the leader knows, the replica comes to answer.

use std::time::Duration;

use tidegate::config::{ServeConfig, WhenStale};
use tidegate::leader::{EmbeddedLeader, LeaderConfig};
use tidegate::proto::pdpb::pd_client::PdClient;
use tidegate::proto::pdpb::{
    GetRegionByIdRequest, GetRegionRequest, GetRegionResponse, RequestHeader, ScanRegionsRequest,
};
use tidegate::replica::Replica;
use tidegate::replica::hooks::Hooks;
use tidegate_core::{KeyRange, Peer, PeerRole, Region, RegionEpoch};
use tokio::time::timeout;
use tonic::Request;
use tonic::transport::Channel;

const CLUSTER: u64 = 7;
/// For a whole test; ends what hangs, measures nothing.
const DEADLINE: Duration = Duration::from_secs(60);

fn config() -> LeaderConfig {
    LeaderConfig {
        cluster_id: CLUSTER,
        keepalive: Duration::from_secs(1),
        ..LeaderConfig::default()
    }
}

async fn replica(leader: &EmbeddedLeader) -> Replica {
    let config = ServeConfig {
        name: "replica".to_owned(),
        backend_endpoints: vec![leader.url().parse().unwrap()],
        listen: "http://127.0.0.1:0".parse().unwrap(),
        when_stale: WhenStale::Refuse,
        ..ServeConfig::default()
    };
    Replica::start(config.scaled(10), Hooks::default())
        .await
        .unwrap()
}

fn key(id: u64) -> String {
    format!("{id:06}")
}

fn region(id: u64, version: u64) -> Region {
    let peer = |n| Peer {
        id: id * 10 + n,
        store_id: n,
        role: PeerRole::Voter,
        is_witness: false,
    };
    let range = KeyRange::new(key(id).as_str(), key(id + 1).as_str()).unwrap();
    Region::builder(
        id,
        range,
        RegionEpoch {
            conf_ver: 1,
            version,
        },
    )
    .peers([peer(1), peer(2), peer(3)])
    .leader(Some(peer(1 + version % 3)))
    .build()
    .unwrap()
}

/// A client of the leader or of a replica.
struct Client(PdClient<Channel>);

impl Client {
    async fn new(url: &str) -> Self {
        let channel = Channel::from_shared(url.to_owned()).unwrap();
        Self(PdClient::new(channel.connect().await.unwrap()))
    }

    fn ask<T>(message: T) -> Request<T> {
        let mut request = Request::new(message);
        let follower = "".parse().unwrap();
        request
            .metadata_mut()
            .insert("pd-allow-follower-handle", follower);
        request
    }

    async fn at(&mut self, id: u64) -> GetRegionResponse {
        let message = GetRegionRequest {
            header: header(),
            region_key: key(id).into(),
            need_buckets: false,
        };
        let answer = self.0.get_region(Self::ask(message)).await;
        answer.unwrap().into_inner()
    }

    /// Asks until the answer is given, and given as `wanted`.
    async fn until(&mut self, id: u64, wanted: impl Fn(&GetRegionResponse) -> bool) {
        let mut pause = tokio::time::interval(Duration::from_millis(5));
        loop {
            let answer = self.at(id).await;
            if answer.header.as_ref().unwrap().error.is_none() && wanted(&answer) {
                return;
            }
            pause.tick().await;
        }
    }
}

fn header() -> Option<RequestHeader> {
    Some(RequestHeader {
        cluster_id: CLUSTER,
        ..RequestHeader::default()
    })
}

fn version(answer: &GetRegionResponse) -> u64 {
    let region = answer.region.as_ref().unwrap();
    region.region_epoch.unwrap().version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_answers_what_the_leader_answers() {
    const REGIONS: u64 = 3000;
    let test = async {
        let leader = EmbeddedLeader::start(config()).await.unwrap();
        // With as many records as regions its dialect would not show.
        leader.report_region(region(1, 1)).unwrap();
        for done in leader.report_regions((1..=REGIONS).map(|id| region(id, 2)).collect()) {
            done.unwrap();
        }
        let replica = replica(&leader).await;
        let mut here = Client::new(&format!("http://{}", replica.addr())).await;
        let mut there = Client::new(&leader.url()).await;
        here.until(1, |answer| answer.region.is_some()).await;
        for id in (1..=REGIONS).step_by(101) {
            assert_eq!(here.at(id).await, there.at(id).await);
            let by_id = || {
                Client::ask(GetRegionByIdRequest {
                    header: header(),
                    region_id: id,
                    need_buckets: false,
                })
            };
            assert_eq!(
                here.0.get_region_by_id(by_id()).await.unwrap().into_inner(),
                there
                    .0
                    .get_region_by_id(by_id())
                    .await
                    .unwrap()
                    .into_inner()
            );
        }
        let all = || {
            Client::ask(ScanRegionsRequest {
                header: header(),
                ..ScanRegionsRequest::default()
            })
        };
        let one = here.0.scan_regions(all()).await.unwrap().into_inner();
        assert_eq!(one.regions.len() as u64, REGIONS);
        assert_eq!(one, there.0.scan_regions(all()).await.unwrap().into_inner());

        leader.report_region(region(5, 3)).unwrap();
        here.until(5, |answer| version(answer) == 3).await;
        assert_eq!(here.at(5).await, there.at(5).await);
        assert_eq!(leader.full_syncs(), 1);
        assert!(replica.stop(Duration::from_secs(5)).await.graceful);
        leader.stop().await;
    };
    timeout(DEADLINE, test).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_term_is_followed_by_a_full_sync_although_the_index_fits() {
    let test = async {
        let leader = EmbeddedLeader::start(config()).await.unwrap();
        for done in leader.report_regions((1..=50).map(|id| region(id, 2)).collect()) {
            done.unwrap();
        }
        let replica = replica(&leader).await;
        let mut here = Client::new(&format!("http://{}", replica.addr())).await;
        here.until(1, |answer| answer.region.is_some()).await;

        // The next leader starts some records back, knows a change that has no record, and makes as many records as
        // bring it to the very index at which the replica is.
        let mut state = leader.stop().await;
        state.rewind_index(10);
        state.report_region(region(7, 3)).unwrap();
        let leader = EmbeddedLeader::start_with(config(), state).await.unwrap();
        for id in 11..=20 {
            leader.report_region(region(id, 3)).unwrap();
        }
        assert_eq!(leader.next_index(), 50);
        here.until(7, |answer| version(answer) == 3).await;
        here.until(20, |answer| version(answer) == 3).await;
        assert!(leader.full_syncs() >= 1);
        assert!(replica.stop(Duration::from_secs(5)).await.graceful);
        leader.stop().await;
    };
    timeout(DEADLINE, test).await.unwrap();
}
