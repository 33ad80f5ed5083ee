//! The plan of the first proposal where it takes a stream that is really slow, stuck or cut off: under
//! `when-stale = refuse` a stale replica says PD's own "region not found", and a client that treats it as stock clients
//! treat a PD follower gets its answer from the leader.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{CLUSTER, PATIENCE, channel, header, leader_with, serving};
use tidegate::config::{ServeConfig, WhenStale};
use tidegate::leader::{EmbeddedLeader, LeaderConfig};
use tidegate::pd::Dialect;
use tidegate::playground::faults::{Relay, Stall};
use tidegate::proto::pdpb::pd_client::PdClient;
use tidegate::proto::pdpb::{GetRegionByIdRequest, GetRegionResponse};
use tidegate::replica::Replica;
use tidegate::replica::hooks::Hooks;
use tidegate_core::RegionEpoch;
use tonic::Request;
use tonic::transport::Channel;

const REGIONS: u64 = 100;
const REGION_NOT_FOUND: i32 = 6;

/// A leader, a replica behind a relay, and a client of both.
struct World {
    leader: EmbeddedLeader,
    relay: Relay,
    stall: Arc<Stall>,
    replica: Replica,
    client: Client,
}

/// Does what a stock client does with a PD follower.
struct Client {
    leader: PdClient<Channel>,
    follower: PdClient<Channel>,
    /// The follower is not asked: it was found to have no answer. For 10 s, in stock clients; here, until the test says
    /// that they are over.
    rests: bool,
}

impl World {
    async fn start(config: LeaderConfig) -> Self {
        let config = LeaderConfig {
            cluster_id: CLUSTER,
            keepalive: Duration::from_secs(1),
            ..config
        };
        let leader = leader_with(config, REGIONS).await;
        let relay = Relay::start(leader.addr()).await.expect("a free port");
        let stall = Arc::new(Stall::new());
        let through_relay = format!("http://{}", relay.addr());
        let hooks = Hooks {
            apply_layer: Some(stall.clone()),
            redial: Some(Arc::new(move |_| through_relay.clone())),
            ..Hooks::default()
        };
        let usual = ServeConfig::default();
        let config = ServeConfig {
            backend_endpoints: vec![leader.url().parse().expect("a URL")],
            listen: "http://127.0.0.1:0".parse().expect("a URL"),
            when_stale: WhenStale::Refuse,
            ..usual
        };
        let replica = Replica::start(config.scaled(10), hooks).await;
        let replica = replica.expect("a free port");
        serving(replica.addr()).await;
        let client = Client {
            leader: PdClient::new(channel(leader.addr()).await),
            follower: PdClient::new(channel(replica.addr()).await),
            rests: false,
        };
        Self {
            leader,
            relay,
            stall,
            replica,
            client,
        }
    }

    /// Changes every region at the leader.
    fn change(&self) {
        let changed = |id| {
            let snapshot = self.leader.regions().pin();
            let old = snapshot.by_id(id).expect("never removed").region().clone();
            let epoch = RegionEpoch {
                conf_ver: old.epoch().conf_ver + 1,
                ..old.epoch()
            };
            old.to_builder().epoch(epoch).build().expect("a region")
        };
        for reported in self
            .leader
            .report_regions((1..=REGIONS).map(changed).collect())
        {
            reported.expect("newer");
        }
    }

    fn conf_ver(&self, id: u64) -> u64 {
        let snapshot = self.leader.regions().pin();
        let entry = snapshot.by_id(id).expect("never removed");
        entry.epoch().conf_ver
    }

    /// Goes on with `meanwhile` until the replica refuses, in PD's words and without a region.
    async fn until_refused(&mut self, meanwhile: impl Fn(&Self)) {
        let wait = async {
            loop {
                meanwhile(self);
                let answer = self.client.ask_follower(1).await;
                let error = answer.header.expect("set").error;
                if let Some(error) = error {
                    assert_eq!(error.r#type, REGION_NOT_FOUND);
                    assert_eq!(error.message, "region not found");
                    assert_eq!(answer.region, None);
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let refused = tokio::time::timeout(PATIENCE, wait).await;
        refused.expect("refused in time");
    }

    /// Waits until the replica answers again, and with what the leader has. (Its first answers may be behind that by less
    /// than `max-age`.)
    async fn until_answered(&mut self) {
        let expected = self.conf_ver(50);
        let wait = async {
            loop {
                let answer = self.client.ask_follower(50).await;
                if answer.region.is_some() && conf_ver(&answer) == expected {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let answered = tokio::time::timeout(PATIENCE, wait).await;
        answered.expect("answered in time");
    }

    fn reasons(&self) -> Vec<&'static str> {
        let refused = self.replica.status().lookups.refused_by_reason;
        refused.into_keys().collect()
    }
}

impl Client {
    async fn ask_follower(&mut self, region_id: u64) -> GetRegionResponse {
        let mut request = by_id(region_id);
        let key = "pd-allow-follower-handle";
        request
            .metadata_mut()
            .insert(key, "".parse().expect("text"));
        let answer = self.follower.get_region_by_id(request).await;
        answer.expect("a header").into_inner()
    }

    /// The follower first, unless it rests; then the leader.
    async fn get(&mut self, region_id: u64) -> GetRegionResponse {
        if !self.rests {
            let answer = self.ask_follower(region_id).await;
            let error = answer.header.as_ref().expect("set").error.as_ref();
            if error.is_none() {
                return answer;
            }
            self.rests = true;
        }
        let answer = self.leader.get_region_by_id(by_id(region_id)).await;
        answer.expect("an answer").into_inner()
    }
}

fn by_id(region_id: u64) -> Request<GetRegionByIdRequest> {
    Request::new(GetRegionByIdRequest {
        header: header(),
        region_id,
        need_buckets: false,
    })
}

fn conf_ver(answer: &GetRegionResponse) -> u64 {
    let region = answer.region.as_ref().expect("a region");
    region.region_epoch.expect("set").conf_ver
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p0_a_throttled_stream_means_a_refusal_the_leaders_answer_and_a_rest_for_the_follower() {
    let mut world = World::start(LeaderConfig::default()).await;
    assert_eq!(conf_ver(&world.client.get(1).await), world.conf_ver(1));
    assert!(!world.client.rests, "answered by the follower");

    world.relay.throttle().limit(Some(64));
    world.until_refused(World::change).await;
    let answer = world.client.get(7).await;
    assert!(world.client.rests);
    assert_eq!(conf_ver(&answer), world.conf_ver(7), "the leader's");
    // While it rests it hears of nothing.
    let before = world.replica.status().lookups.all();
    for id in 1..=20 {
        assert_eq!(conf_ver(&world.client.get(id).await), world.conf_ver(id));
    }
    assert_eq!(world.replica.status().lookups.all(), before);

    world.relay.throttle().limit(None);
    world.client.rests = false;
    world.until_answered().await;
    assert_eq!(conf_ver(&world.client.get(9).await), world.conf_ver(9));
    assert!(!world.client.rests, "answered by the follower again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p0_a_stalled_apply_is_refused_although_the_stream_delivers_and_the_lag_is_small() {
    let mut world = World::start(LeaderConfig::default()).await;
    world.stall.set(true);
    world.change();
    world.until_refused(|_| ()).await;
    let status = world.replica.status();
    assert!(status.lag <= Some(REGIONS), "{:?}", status.lag);
    assert!(status.lag < Some(ServeConfig::default().index_threshold));
    assert!(
        world.reasons().contains(&"apply_stall"),
        "{:?}",
        world.reasons()
    );
    world.stall.set(false);
    world.until_answered().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p0_past_the_ring_a_follower_refuses_until_a_full_sync_has_brought_it_back() {
    for dialect in [Dialect::Master, Dialect::Release85] {
        let ring = LeaderConfig {
            dialect,
            ring_capacity: 32,
            ring_limit: 32,
            ..LeaderConfig::default()
        };
        let mut world = World::start(ring).await;
        let before = world.replica.status().sync.full_syncs_published;
        world.relay.cut(true);
        // Three times what the leader remembers.
        world.change();
        world.until_refused(|_| ()).await;
        assert!(!world.reasons().is_empty(), "{dialect}");
        world.relay.cut(false);
        world.until_answered().await;
        let after = world.replica.status().sync.full_syncs_published;
        assert_eq!(after, before + 1, "{dialect}");
    }
}
