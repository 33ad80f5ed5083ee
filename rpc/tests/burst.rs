//! A burst: cold clients look regions up at a replica whose gate is shut. With read-through that costs the leader a
//! fraction of what the clients would cost it themselves.
//!
//! The same proportions as twenty clients with 50,000 lookups each over 20,000 regions, in small: each region is looked
//! up fifty times.

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tidegate::config::{ServeConfig, WhenStale};
use tidegate::leader::EmbeddedLeader;
use tidegate::proto::pdpb::pd_client::PdClient;
use tidegate::proto::pdpb::{GetRegionRequest, GetRegionResponse, QueryRegionRequest};
use tidegate::replica::Replica;
use tidegate::replica::hooks::{ApplyLayer, Hooks};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Request;
use tonic::transport::Channel;

const REGIONS: u64 = 100;
const CLIENTS: u64 = 20;
const LOOKUPS: u64 = 250;

/// Nothing that is received is ever applied, so that the gate stays shut.
struct Never;

impl ApplyLayer for Never {
    fn before_apply(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

async fn shut_replica(leader: &EmbeddedLeader, when_stale: WhenStale) -> Replica {
    let config = ServeConfig {
        backend_endpoints: vec![leader.url().parse().expect("a URL")],
        listen: "http://127.0.0.1:0".parse().expect("a URL"),
        when_stale,
        ..ServeConfig::default()
    };
    let hooks = Hooks {
        apply_layer: Some(Arc::new(Never)),
        ..Hooks::default()
    };
    let replica = Replica::start(config, hooks).await.expect("a free port");
    let knows_the_leader = async {
        let mut pd = replica.shared().watch_pd();
        let leads = |pd: &Option<Arc<tidegate::replica::state::PdView>>| {
            pd.as_ref().is_some_and(|pd| pd.leader.is_some())
        };
        let _ = pd.wait_for(leads).await.expect("a replica");
    };
    timeout(support::PATIENCE, knows_the_leader)
        .await
        .expect("in time");
    replica
}

/// What a burst has cost.
#[derive(Debug)]
struct Cost {
    /// Calls and batches at the leader.
    rpcs: u64,
    /// Keys that it was asked for.
    keys: u64,
    /// Answers by the replica.
    by_replica: u64,
}

/// Whether the answer has the region, as a stock client sees it: a header error sends it to the leader.
fn is_answered(answer: &GetRegionResponse) -> bool {
    answer
        .header
        .as_ref()
        .is_some_and(|header| header.error.is_none())
        && answer.region.is_some()
}

fn to_follower(key: Vec<u8>) -> Request<GetRegionRequest> {
    let request = GetRegionRequest {
        header: support::header(),
        region_key: key.into(),
        need_buckets: false,
    };
    let mut request = Request::new(request);
    request
        .metadata_mut()
        .insert("pd-allow-follower-handle", "".parse().expect("ascii"));
    request
}

/// One cold client's lookups, one after another, in an order of its own; the number that it asked the leader itself.
async fn client(number: u64, replica: Channel, leader: Channel) -> u64 {
    let (mut replica, mut leader) = (PdClient::new(replica), PdClient::new(leader));
    let mut own = 0;
    for turn in 0..LOOKUPS {
        let region = (turn * 37 + number * 11) % REGIONS + 1;
        let key = format!("{region:04}").into_bytes();
        let answer = replica
            .get_region(to_follower(key.clone()))
            .await
            .expect("no status");
        if is_answered(answer.get_ref()) {
            continue;
        }
        own += 1;
        let request = GetRegionRequest {
            header: support::header(),
            region_key: key.into(),
            need_buckets: false,
        };
        let answer = leader.get_region(request).await.expect("no status");
        assert!(
            is_answered(answer.get_ref()),
            "client {number}: no answer to {region}"
        );
    }
    own
}

async fn burst(when_stale: WhenStale) -> Cost {
    let leader = support::leader(support::CLUSTER, REGIONS).await;
    let replica = shut_replica(&leader, when_stale).await;
    let before = leader.lookups();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (to_replica, to_leader) = (
            support::channel(replica.addr()).await,
            support::channel(leader.addr()).await,
        );
        clients.spawn(client(number, to_replica, to_leader));
    }
    let mut own = 0;
    while let Some(done) = clients.join_next().await {
        own += done.expect("no panic");
    }
    let asks = replica.status().asks.unwrap_or_default();
    let cost = Cost {
        rpcs: own + asks.batches + asks.unary + asks.scans + asks.looks,
        keys: leader.lookups() - before,
        by_replica: replica.status().lookups.answered(),
    };
    replica.stop(support::PATIENCE).await;
    leader.stop().await;
    cost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f7_a_burst_of_cold_clients_costs_the_leader_a_fraction_and_no_client_an_error() {
    let refused = burst(WhenStale::Refuse).await;
    let through = burst(WhenStale::ReadThrough).await;
    let lookups = CLIENTS * LOOKUPS;
    assert_eq!(
        (refused.rpcs, refused.keys, refused.by_replica),
        (lookups, lookups, 0)
    );
    assert_eq!(through.by_replica, lookups, "{through:?}");
    assert!(
        through.rpcs * 10 <= refused.rpcs,
        "{through:?} against {refused:?}"
    );
    assert!(
        through.keys * 4 <= refused.keys,
        "{through:?} against {refused:?}"
    );
}

/// Batches of QueryRegion, which a refusal would cost most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f7_batches_of_a_burst_are_answered_whole() {
    let leader = support::leader(support::CLUSTER, REGIONS).await;
    let replica = shut_replica(&leader, WhenStale::ReadThrough).await;
    let before = leader.lookups();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let channel = support::channel(replica.addr()).await;
        clients.spawn(async move {
            let batches = (0..10).map(move |batch| QueryRegionRequest {
                header: support::header(),
                keys: (0..25)
                    .map(|key| (batch * 25 + key) * 37 + number * 11)
                    .map(|key| format!("{:04}", key % REGIONS + 1).into_bytes().into())
                    .collect(),
                ..QueryRegionRequest::default()
            });
            let answers = PdClient::new(channel)
                .query_region(tokio_stream::iter(batches))
                .await;
            let mut answers = answers.expect("a stream").into_inner();
            let mut answered = 0;
            while let Some(answer) = answers.message().await.expect("no status") {
                assert!(answer.header.is_some_and(|header| header.error.is_none()));
                assert!(answer.key_id_map.iter().all(|id| *id != 0));
                answered += answer.key_id_map.len() as u64;
            }
            answered
        });
    }
    let mut answered = 0;
    while let Some(done) = clients.join_next().await {
        answered += done.expect("no panic");
    }
    assert_eq!(answered, CLIENTS * LOOKUPS);
    let keys = leader.lookups() - before;
    assert!(keys * 4 <= answered, "{keys} keys asked for {answered}");
    replica.stop(support::PATIENCE).await;
    leader.stop().await;
}
