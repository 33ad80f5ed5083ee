//! A sync stream that its follower gives up ends at the leader, too. One that did not would fill its window, unread, and
//! then hold up the broadcast of a leader of release 8.5, to everybody.

mod support;

use std::sync::Arc;
use std::time::Duration;

use tidegate::leader::LeaderConfig;
use tidegate::pd::{ChannelSettings, Dialect, FrameSource, Lane, PdTransport, Remote};
use tidegate::proto::pdpb::{Member, RequestHeader, SyncRegionRequest};
use tokio::time::{sleep, timeout};

fn request(name: &str) -> SyncRegionRequest {
    SyncRegionRequest {
        header: Some(RequestHeader {
            cluster_id: 7,
            ..Default::default()
        }),
        member: Some(Member {
            name: name.to_owned(),
            client_urls: vec!["http://127.0.0.1:1".to_owned()],
            ..Default::default()
        }),
        ..Default::default()
    }
}

async fn ends_at_the_leader(dialect: Dialect) {
    let config = LeaderConfig {
        cluster_id: 7,
        dialect,
        ..LeaderConfig::default()
    };
    let leader = support::leader_with(config, 3).await;
    let remote = Arc::new(Remote::new(ChannelSettings::default(), None));
    let (url, mut streams) = (leader.url(), Vec::new());
    for name in ["read", "kept", "unread"] {
        let opened = remote.sync_regions(&url, Lane::Stream, request(name));
        streams.push(opened.await.expect("a leader"));
    }
    for stream in &mut streams[..2] {
        stream.next_frame().await.expect("a leader");
    }
    assert_eq!(leader.sync_streams(), 3);

    let kept = streams.remove(1);
    drop(streams);
    let only_one = async {
        while leader.sync_streams() != 1 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(support::PATIENCE, only_one)
        .await
        .expect("what was given up ends");
    drop(kept);
    leader.stop().await;
}

#[tokio::test]
async fn a_stream_that_is_given_up_ends_at_a_leader_of_master() {
    ends_at_the_leader(Dialect::Master).await;
}

#[tokio::test]
async fn a_stream_that_is_given_up_ends_at_a_leader_of_release_85() {
    ends_at_the_leader(Dialect::Release85).await;
}
