use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::*;
use crate::proto::convert::{leader_to_pb, region_to_pb};
use crate::proto::pdpb::{ErrorType, RegionHeartbeatRequest, RegionHeartbeatResponse};

fn beat(region: &Region) -> RegionHeartbeatRequest {
    RegionHeartbeatRequest {
        header: header(),
        region: Some(region_to_pb(region)),
        leader: leader_to_pb(region),
        ..RegionHeartbeatRequest::default()
    }
}

/// Sends the heartbeats and returns what comes back until the stream ends.
async fn send(
    leader: &EmbeddedLeader,
    beats: Vec<RegionHeartbeatRequest>,
) -> (Vec<RegionHeartbeatResponse>, Option<tonic::Status>) {
    let (sender, requests) = mpsc::channel(beats.len().max(1));
    for beat in beats {
        sender.send(beat).await.unwrap();
    }
    drop(sender);
    let mut client = client(leader).await;
    let mut answers = client
        .region_heartbeat(ReceiverStream::new(requests))
        .await
        .unwrap()
        .into_inner();
    let mut got = Vec::new();
    loop {
        match answers.message().await {
            Ok(Some(answer)) => got.push(answer),
            Ok(None) => return (got, None),
            Err(status) => return (got, Some(status)),
        }
    }
}

fn text(answer: &RegionHeartbeatResponse) -> String {
    let error = answer.header.as_ref().unwrap().error.as_ref().unwrap();
    assert_eq!(error.r#type, i32::from(ErrorType::Unknown));
    error.message.clone()
}

#[tokio::test]
async fn a_heartbeat_that_is_taken_is_not_answered() {
    let leader = leader().await;
    leader.put_store(store(1)).unwrap();
    let beats = vec![beat(&region(1, "", "m", 2)), beat(&region(2, "m", "", 2))];
    let (answers, end) = send(&leader, beats).await;
    assert!(answers.is_empty() && end.is_none());
    assert_eq!(leader.regions().pin().len(), 2);
    assert_eq!(leader.next_index(), 2);
    leader.stop().await;
}

#[tokio::test]
async fn a_faulty_heartbeat_is_answered_and_the_stream_goes_on() {
    let leader = leader().await;
    leader.put_store(store(1)).unwrap();
    let good = region(1, "", "", 5);
    let mut no_id = beat(&good);
    no_id.region.as_mut().unwrap().id = 0;
    let mut no_peers = beat(&good);
    no_peers.region.as_mut().unwrap().peers.clear();
    let mut no_epoch = beat(&good);
    no_epoch.region.as_mut().unwrap().region_epoch = None;
    let mut inverted = beat(&region(1, "a", "b", 5));
    inverted.region.as_mut().unwrap().start_key = "c".into();
    let stale = beat(&region(1, "", "", 4));
    let beats = vec![no_id, no_peers, no_epoch, inverted, beat(&good), stale];
    let (answers, end) = send(&leader, beats).await;
    assert!(end.is_none(), "{end:?}");
    let texts: Vec<_> = answers.iter().map(text).collect();
    assert_eq!(
        texts,
        [
            "malformed region 0: id is 0",
            "invalid region, zero region peer count",
            "malformed region 1: region_epoch is absent",
            "malformed region 1: end_key is not above start_key",
            "region is stale: region id:1 region_epoch:<conf_ver:1 version:4> \
             origin id:1 region_epoch:<conf_ver:1 version:5>",
        ]
    );
    assert_eq!(leader.next_index(), 1);
    leader.stop().await;
}

#[tokio::test]
async fn a_heartbeat_from_an_unknown_store_ends_the_stream() {
    let leader = leader().await;
    leader.put_store(store(2)).unwrap();
    let (_, end) = send(&leader, vec![beat(&region(1, "", "", 2))]).await;
    let end = end.unwrap();
    assert_eq!(
        (end.code(), end.message()),
        (Code::Unknown, "invalid store ID 1, not found")
    );
    let leaderless = RegionHeartbeatRequest {
        leader: None,
        ..beat(&region(1, "", "", 2))
    };
    let (_, end) = send(&leader, vec![leaderless]).await;
    assert_eq!(end.unwrap().message(), "invalid store ID 0, not found");
    assert_eq!(leader.next_index(), 0);
    leader.stop().await;
}

#[tokio::test]
async fn heartbeats_of_a_store_that_left_are_skipped() {
    let leader = leader().await;
    let gone = metapb::Store {
        state: metapb::StoreState::Tombstone.into(),
        ..store(1)
    };
    leader.put_store(gone).unwrap();
    let (answers, end) = send(&leader, vec![beat(&region(1, "", "", 2))]).await;
    assert!(answers.is_empty() && end.is_none());
    assert!(leader.regions().pin().is_empty());
    leader.stop().await;
}

#[tokio::test]
async fn heartbeats_before_the_bootstrap_are_answered_once() {
    let leader = leader().await;
    let report = beat(&region(1, "", "", 2));
    let (answers, end) = send(&leader, vec![report.clone(), report]).await;
    assert!(end.is_none());
    let errors: Vec<_> = answers
        .into_iter()
        .map(|answer| answer.header.unwrap().error.unwrap())
        .collect();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].r#type, i32::from(ErrorType::NotBootstrapped));
    leader.stop().await;
}

#[tokio::test]
async fn a_foreign_heartbeat_ends_the_stream() {
    let leader = leader().await;
    leader.put_store(store(1)).unwrap();
    let foreign = RegionHeartbeatRequest {
        header: None,
        ..beat(&region(1, "", "", 2))
    };
    let (_, end) = send(&leader, vec![foreign]).await;
    assert_eq!(end.unwrap().code(), Code::FailedPrecondition);
    leader.stop().await;
}
