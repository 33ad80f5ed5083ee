use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use super::*;
use crate::proto::convert::region_from_pb;
use crate::proto::pdpb::{Member, SyncRegionRequest, SyncRegionResponse};

/// The sender keeps the follower's half of the stream open.
type Stream = (
    mpsc::Sender<SyncRegionRequest>,
    Streaming<SyncRegionResponse>,
);

async fn sync(leader: &EmbeddedLeader, name: &str, start_index: u64) -> Stream {
    let (sender, requests) = mpsc::channel(1);
    let member = Member {
        name: name.to_owned(),
        client_urls: vec!["http://127.0.0.1:1".to_owned()],
        ..Member::default()
    };
    let request = SyncRegionRequest {
        header: header(),
        member: Some(member),
        start_index,
    };
    sender.send(request).await.unwrap();
    let mut client = client(leader).await.max_decoding_message_size(64 << 20);
    let frames = client
        .sync_regions(ReceiverStream::new(requests))
        .await
        .unwrap();
    (sender, frames.into_inner())
}

fn keys(id: u64) -> (String, String) {
    (format!("{id:06}"), format!("{:06}", id + 1))
}

fn nth(id: u64, version: u64) -> Region {
    let (start, end) = keys(id);
    region(id, &start, &end, version)
}

#[tokio::test]
async fn a_follower_on_the_wire_ends_with_the_leaders_map() {
    const REGIONS: u64 = 5000;
    let leader = leader().await;
    let all = (1..=REGIONS).map(|id| nth(id, 2)).collect();
    for done in leader.report_regions(all) {
        done.unwrap();
    }
    let (_open, mut frames) = sync(&leader, "a", 0).await;
    let mut copy = BTreeMap::new();
    let mut changed = 0;
    let mut live = false;
    let mut next = 0;
    while changed < 500 || !live || next < leader.next_index() {
        let frame = frames.message().await.unwrap().unwrap();
        assert!(frame.regions.len() <= 1000);
        live |= frame.regions.is_empty();
        next = frame.start_index + frame.regions.len() as u64;
        for (region, leader) in frame.regions.iter().zip(&frame.region_leaders) {
            let region = region_from_pb(region, Some(leader), None, None).unwrap();
            copy.insert(region.id(), region);
        }
        // Changes while the snapshot is under way, and after it.
        while changed < 100 || (live && changed < 500) {
            changed += 1;
            leader.report_region(nth(changed * 7, 3)).unwrap();
        }
    }
    let snapshot = leader.regions().pin();
    assert_eq!(copy.len(), snapshot.len());
    for entry in &snapshot {
        assert_eq!(copy.get(&entry.id()), Some(entry.region()));
    }
    drop(snapshot);
    assert_eq!(leader.full_syncs(), 1);

    leader.stop().await;
    let farewell = frames.message().await.unwrap().unwrap();
    assert!(farewell.header.unwrap().error.is_some());
    assert_eq!(
        frames.message().await.unwrap_err().code(),
        Code::Unavailable
    );
}

#[tokio::test]
async fn a_short_handshake_under_another_name_disturbs_nobody() {
    let leader = leader().await;
    leader.report_region(nth(1, 2)).unwrap();
    let (_open, mut frames) = sync(&leader, "replica", 1).await;
    assert_eq!(frames.message().await.unwrap().unwrap().start_index, 1);
    for version in 3..=6 {
        leader.report_region(nth(1, version)).unwrap();
        let (_open, mut probe) = sync(&leader, "replica-probe", 1).await;
        let first = probe.message().await.unwrap().unwrap();
        let head = first.start_index + first.regions.len() as u64;
        assert_eq!(head, leader.next_index());
        drop(probe);
        let frame = frames.message().await.unwrap().unwrap();
        assert_eq!((frame.start_index, frame.regions.len()), (version - 2, 1));
    }
    assert_eq!(leader.full_syncs(), 0);
    leader.stop().await;
}
