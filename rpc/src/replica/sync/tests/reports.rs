//! What has gone wrong in followers of PD, played against this one: leaders that are quiet, gone, empty or merged.

use tonic::Status;

use super::peer::Key;
use super::*;
use crate::proto::metapb::Buckets;
use crate::proto::pdpb::RegionStat;

/// Region 1 in the place of the first three, after two merges.
fn merged(version: u64) -> PbRegion {
    PbRegion {
        end_key: region(3, 1).end_key,
        ..region(1, version)
    }
}

#[tokio::test(start_paused = true)]
async fn g2_a_quiet_cluster_leaves_the_gate_open_and_a_silent_stream_shuts_it() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.prove().await;
    let answer = || async {
        pass(Duration::from_millis(100)).await;
        world.quiet().await;
        if let Some(probe) = world.pd.try_accept(Lane::Calls) {
            probe.send(frame(100, vec![]));
        }
        world.quiet().await;
    };
    for tenth in 0..600 {
        if tenth % 100 == 99 {
            stream.send(frame(100, vec![]));
        }
        answer().await;
        assert!(world.serves(), "{tenth}: {:?}", world.shared.gate.view());
    }
    // From here on nothing comes but answers to probes, as from a leader that has forgotten the stream.
    let heard = world.shared.clock.now();
    let since = || world.shared.clock.now().saturating_since(heard);
    while world.serves() {
        answer().await;
        assert!(since() <= Duration::from_secs(30), "the time threshold");
    }
    let again = world.stream().await;
    assert!(since() <= Duration::from_secs(32), "{:?}", since());
    assert!(stream.is_cancelled());
    assert_eq!(again.start_index(), 100);
    again.send(frame(100, vec![]));
    world.prove().await;
    assert!(world.serves());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_leader_has_no_more_is_gone_after_a_full_sync() {
    let world = World::start();
    let stream = world.follow(regions([1, 2, 3, 9]), 100).await;
    world.prove().await;
    world.pd.set_term(6);
    stream.fail(Status::unavailable("stopped"));
    let stream = world.stream().await;
    stream.send(frame(0, vec![merged(2)]));
    world.quiet().await;
    assert_eq!(world.ids(), [1, 2, 3, 9], "the new map is not whole yet");
    stream.send(frame(40, vec![]));
    world.prove().await;
    world
        .until("the new map answers", || world.ids() == [1])
        .await;
    assert!(world.shared.map.pin().by_id(9).is_none());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_breaks_off_is_asked_for_anew_and_nothing_of_it_answers() {
    let world = World::start();
    let stream = world.stream().await;
    stream.send(frame(0, regions([1])));
    stream.send(frame(1, regions([2])));
    world.quiet().await;
    drop(stream);
    let again = world.stream().await;
    assert!(again.asks_for_everything());
    assert!(world.ids().is_empty() && !world.serves());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_snapshot_with_a_catch_up_waits_for_its_completion() {
    let world = World::start();
    let stream = world.stream().await;
    stream.send(frame(0, regions([1, 2])));
    world.quiet().await;
    assert!(world.ids().is_empty() && !world.serves());
    stream.send(frame(52, vec![]));
    world
        .until("it is complete", || world.shared.gate.applied() == 52)
        .await;
    assert_eq!(world.ids(), [1, 2]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn m4_a_merge_takes_the_absorbed_away_by_key_and_by_id() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    // The two merges, of which only the last is told; and what is older comes late.
    stream.send(frame(100, vec![merged(4)]));
    stream.send(frame(101, vec![region(2, 2), region(3, 3)]));
    world
        .until("both are applied", || world.shared.gate.applied() == 103)
        .await;
    assert_eq!(world.ids(), [1]);
    let snapshot = world.shared.map.pin();
    let at = |id: u64| {
        let key = id.to_be_bytes();
        snapshot.get(&key).map(|entry| entry.region().id())
    };
    assert_eq!([1, 2, 3].map(at), [Some(1); 3]);
    assert!([2, 3].iter().all(|&id| snapshot.by_id(id).is_none()));
    drop(snapshot);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_region_whose_leader_is_not_known_has_none() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    let mut unknown = frame(100, vec![region(2, 2)]);
    unknown.region_leaders = vec![PbPeer::default()];
    stream.send(unknown);
    world
        .until("it is applied", || world.shared.gate.applied() == 101)
        .await;
    assert_eq!([1, 2].map(|id| world.leader_of(id)), [Some(1), None]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn flow_and_buckets_come_with_a_record() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    let mut record = frame(100, vec![region(2, 1)]);
    record.region_stats = vec![RegionStat {
        bytes_written: 7_000,
        ..RegionStat::default()
    }];
    record.buckets = vec![Buckets {
        region_id: 2,
        version: 3,
        keys: vec![region(2, 1).start_key, region(2, 1).end_key],
        ..Buckets::default()
    }];
    stream.send(record);
    world
        .until("it is applied", || world.shared.gate.applied() == 101)
        .await;
    let snapshot = world.shared.map.pin();
    let entry = snapshot.by_id(2).expect("it");
    let details = entry.region().details().expect("details");
    assert_eq!(details.stats.bytes_written, 7_000);
    let buckets = details.buckets.as_ref().expect("buckets");
    assert_eq!((buckets.version, buckets.keys.len()), (3, 2));
    drop(snapshot);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_is_followed_without_sleeping_out_a_long_pause() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.pd.set_key(Key::Absent);
    world.pd.set_leader(None);
    stream.fail(Status::unavailable("server not started"));
    pass(Duration::from_secs(20)).await;
    assert!(world.pd.try_accept(Lane::Stream).is_none());
    // Attempts have been made all the while, with growing pauses.
    let url = world.pd.url();
    world.pd.set_leader(Some(&url));
    world.pd.set_term(6);
    let elected = world.shared.clock.now();
    let next = world.stream().await;
    let waited = world.shared.clock.now().saturating_since(elected);
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
    assert!(next.asks_for_everything());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_attempt_after_a_lost_stream_is_made_within_a_second() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    let lost = world.shared.clock.now();
    drop(stream);
    let again = world.stream().await;
    let waited = world.shared.clock.now().saturating_since(lost);
    assert!(waited <= Duration::from_secs(1), "{waited:?}");
    assert_eq!(again.start_index(), 100);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_accepts_and_says_nothing_is_refused_for_and_left() {
    let world = World::start();
    let mute = world.stream().await;
    let opened = world.shared.clock.now();
    pass(Duration::from_secs(5)).await;
    assert!(!world.serves(), "connected is not synced");
    let next = world.stream().await;
    let waited = world.shared.clock.now().saturating_since(opened);
    assert!(mute.is_cancelled());
    assert!(waited <= Duration::from_secs(32), "{waited:?}");
    assert!(next.asks_for_everything());
    world.end().await;
}
