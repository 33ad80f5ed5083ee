use std::sync::Arc;

use tonic::Code;

use super::*;
use crate::leader::{Change, ChangeObserver, LeaderError};
use crate::proto::etcdserverpb::kv_client::KvClient;
use crate::proto::etcdserverpb::{RangeRequest, RangeResponse};
use crate::proto::health::HealthCheckRequest;
use crate::proto::health::health_client::HealthClient;
use crate::proto::pdpb::{GetMembersRequest, Member, TsoRequest};
use prost::Message;

async fn range(leader: &EmbeddedLeader, request: RangeRequest) -> RangeResponse {
    KvClient::new(channel(leader).await)
        .range(request)
        .await
        .unwrap()
        .into_inner()
}

fn key(key: &str) -> RangeRequest {
    RangeRequest {
        key: key.to_owned().into(),
        ..RangeRequest::default()
    }
}

#[tokio::test]
async fn the_leader_key_tells_the_term_and_the_member() {
    let leader = leader().await;
    let answer = range(&leader, key("/pd/7/leader")).await;
    assert_eq!((answer.count, answer.more), (1, false));
    assert_eq!(answer.kvs[0].create_revision, leader.term());
    let member = Member::decode(answer.kvs[0].value.clone()).unwrap();
    assert_eq!(member.client_urls, [leader.url()]);
    let id = range(&leader, key("/pd/cluster_id")).await;
    assert_eq!(&id.kvs[0].value[..], 7_u64.to_be_bytes());
    assert!(range(&leader, key("/pd/8/leader")).await.kvs.is_empty());
    leader.stop().await;
}

#[tokio::test]
async fn a_range_of_keys_is_answered_as_etcd_does() {
    let leader = leader().await;
    let prefix = RangeRequest {
        range_end: "/pd0".into(),
        ..key("/pd/")
    };
    let both = range(&leader, prefix.clone()).await;
    assert_eq!(both.count, 2);
    assert!(both.kvs[0].key < both.kvs[1].key);
    let one = range(
        &leader,
        RangeRequest {
            limit: 1,
            keys_only: true,
            ..prefix.clone()
        },
    )
    .await;
    assert_eq!((one.kvs.len(), one.count, one.more), (1, 2, true));
    assert!(one.kvs[0].value.is_empty());
    let count = range(
        &leader,
        RangeRequest {
            count_only: true,
            ..prefix
        },
    )
    .await;
    assert_eq!((count.kvs.len(), count.count), (0, 2));
    let all = range(
        &leader,
        RangeRequest {
            range_end: vec![0].into(),
            ..key("/pd/c")
        },
    )
    .await;
    assert_eq!(all.count, 1);
    let error = KvClient::new(channel(&leader).await)
        .range(key(""))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    leader.stop().await;
}

#[tokio::test]
async fn every_reign_has_a_term_of_its_own_on_the_same_address() {
    let first = leader().await;
    let (addr, term) = (first.addr(), first.term());
    first.report_region(region(1, "", "", 2)).unwrap();
    let id = first.alloc_id().unwrap();
    let mut state = first.stop().await;
    assert_eq!(state.next_index(), 1);
    state.rewind_index(1);
    state.report_region(region(1, "", "m", 3)).unwrap();

    let second = EmbeddedLeader::start_with(config(), state).await.unwrap();
    assert_eq!(second.addr(), addr);
    assert!(second.term() > term);
    assert_eq!(
        second.next_index(),
        0,
        "moved back; the change made meanwhile has no record"
    );
    assert_eq!(second.regions().pin().get(b"a").unwrap().epoch().version, 3);
    assert!(second.regions().pin().get(b"x").is_none());
    assert!(second.alloc_id().unwrap() > id);
    let kv = range(&second, key("/pd/7/leader")).await;
    assert_eq!(kv.kvs[0].create_revision, second.term());
    second.stop().await;
}

#[tokio::test]
async fn timestamps_grow_over_a_restart() {
    async fn one(leader: &EmbeddedLeader) -> (i64, i64) {
        let request = TsoRequest {
            header: header(),
            count: 3,
            ..TsoRequest::default()
        };
        let mut answers = client(leader)
            .await
            .tso(tokio_stream::iter([request]))
            .await
            .unwrap()
            .into_inner();
        let answer = answers.message().await.unwrap().unwrap();
        assert_eq!(answer.count, 3);
        let timestamp = answer.timestamp.unwrap();
        (timestamp.physical, timestamp.logical)
    }
    let first = leader().await;
    let before = one(&first).await;
    let again = one(&first).await;
    assert!(again > before);
    let second = EmbeddedLeader::start_with(config(), first.stop().await)
        .await
        .unwrap();
    let after = one(&second).await;
    assert!(after > again, "{after:?} follows {again:?}");
    second.stop().await;
}

#[tokio::test]
async fn a_stopped_leader_answers_nobody_and_frees_its_address() {
    let leader = leader().await;
    let mut idle = client(&leader).await;
    idle.get_members(GetMembersRequest::default())
        .await
        .unwrap();
    let addr = leader.addr();
    leader.stop().await;
    assert!(
        idle.get_members(GetMembersRequest::default())
            .await
            .is_err()
    );
    drop(std::net::TcpListener::bind(addr).expect("the address is free"));
}

#[tokio::test]
async fn an_open_stream_does_not_hold_a_stop_up() {
    let leader = leader().await;
    let (_questions, requests) = tokio::sync::mpsc::channel::<TsoRequest>(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut answers = client(&leader)
        .await
        .tso(requests)
        .await
        .unwrap()
        .into_inner();
    leader.stop().await;
    assert_eq!(
        answers.message().await.unwrap_err().code(),
        Code::Unavailable
    );
}

#[tokio::test]
async fn an_occupied_address_is_an_error_that_names_it() {
    let leader = leader().await;
    let twin = LeaderConfig {
        listen: leader.addr(),
        ..config()
    };
    let error = EmbeddedLeader::start(twin).await.unwrap_err();
    assert!(matches!(error, LeaderError::Listen { .. }));
    assert!(
        error.to_string().contains(&leader.addr().to_string()),
        "{error}"
    );
    let zero = EmbeddedLeader::start(LeaderConfig {
        cluster_id: 0,
        ..config()
    })
    .await;
    assert_eq!(zero.unwrap_err().to_string(), "cluster_id must not be 0");
    leader.stop().await;
}

#[tokio::test]
async fn health_is_serving_until_the_leader_stops() {
    let leader = leader().await;
    let mut health = HealthClient::new(channel(&leader).await);
    let ask = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };
    assert_eq!(health.check(ask("")).await.unwrap().get_ref().status, 1);
    assert_eq!(
        health.check(ask("other")).await.unwrap_err().code(),
        Code::NotFound
    );
    let mut watch = health.watch(ask("")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    leader.stop().await;
    assert_eq!(watch.message().await.unwrap().unwrap().status, 2);
}

/// Counts by the sequence of the changes.
#[derive(Debug, Default)]
struct Sequences(std::sync::Mutex<Vec<u64>>);

impl ChangeObserver for Sequences {
    fn changed(&self, change: &Change<'_>) {
        self.0.lock().unwrap().push(change.sequence);
    }
}

#[tokio::test]
async fn an_observer_hears_of_changes_through_a_restart() {
    let heard = Arc::new(Sequences::default());
    let config = || LeaderConfig {
        observer: Some(Arc::<Sequences>::clone(&heard)),
        ..config()
    };
    let first = EmbeddedLeader::start(config()).await.unwrap();
    first.report_region(region(1, "", "", 2)).unwrap();
    let mut state = first.stop().await;
    state.report_region(region(1, "", "m", 3)).unwrap();
    let second = EmbeddedLeader::start_with(config(), state).await.unwrap();
    second.report_region(region(2, "m", "", 3)).unwrap();
    assert_eq!(*heard.0.lock().unwrap(), [1, 2, 3]);
    second.stop().await;
}
