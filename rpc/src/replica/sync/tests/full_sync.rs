//! From nothing to a map that follows: full syncs, whole frames, indexes, what counts on receipt.

use tidegate_core::Provenance;

use super::*;
use crate::pd::Dialect;

#[tokio::test(start_paused = true)]
async fn the_request_carries_a_unique_name_an_address_and_the_cluster() {
    let world = World::start();
    let other = World::start();
    let (stream, others) = (world.stream().await, other.stream().await);
    assert!(stream.asks_for_everything());
    assert_eq!(stream.request.header.as_ref().unwrap().cluster_id, CLUSTER);
    assert_eq!(stream.member().client_urls, ["http://replica:1"]);
    assert!(stream.member().name.starts_with("replica-"));
    assert_ne!(stream.member().name, others.member().name);
    world.end().await;
    other.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_ready_before_the_completion_frame() {
    let world = World::start();
    let stream = world.stream().await;
    stream.send(frame(0, regions(1..4)));
    stream.send(frame(3, regions(4..6)));
    world
        .until("the snapshot is received", || {
            world.shared.stream() == StreamState::Snapshot
                && world.shared.counters.regions.get() == 5
        })
        .await;
    assert_eq!(world.shared.map.generation(), 0);
    assert!(world.ids().is_empty());
    assert!(!world.serves());
    let dialect = || world.shared.dialect().map(|seen| seen.dialect);
    assert_eq!(
        dialect(),
        Some(Dialect::Release85),
        "until master's is shown"
    );

    stream.send(frame(900, vec![region(2, 2)]));
    stream.send(frame(901, vec![]));
    world
        .until("it follows", || world.shared.stream() == StreamState::Live)
        .await;
    assert_eq!(world.ids(), [1, 2, 3, 4, 5]);
    assert_eq!(world.shared.gate.applied(), 901);
    assert_eq!(dialect(), Some(Dialect::Master));
    assert!(!world.serves(), "not without a proof");
    world.prove().await;
    assert!(world.serves());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_leader_is_followed_too() {
    let world = World::start();
    let stream = world.stream().await;
    stream.send(frame(12, vec![]));
    // Release 8.5's keepalive looks like that, too: a copy of the map is asked for.
    let copy = world.stream().await;
    assert_eq!(copy.start_index(), 0);
    copy.send(frame(12, vec![]));
    world
        .until("it follows", || world.shared.gate.applied() == 12)
        .await;
    assert_eq!(world.pd.scans().len(), 1, "no key has a region");
    stream.send(frame(12, regions([3])));
    world
        .until("the first region comes", || world.ids() == [3])
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn masters_completion_frame_after_no_snapshot_frames_empties_the_map() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    stream.send(frame(40, vec![]));
    let again = world.stream().await;
    assert_eq!(again.start_index(), 0, "it has shown its dialect");
    again.send(frame(40, vec![]));
    world
        .until("the map is empty", || world.shared.gate.applied() == 40)
        .await;
    assert!(world.ids().is_empty());
    assert!(world.pd.scans().is_empty());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g1_the_head_is_known_on_receipt_although_nothing_is_applied() {
    let (sluice, hooks) = sluice(2);
    let world = World::start_with(hooks);
    let stream = world.follow(regions(1..4), 100).await;
    stream.send(frame(100, regions(1..4)));
    world
        .until("the head is known", || world.shared.gate.view().head == 103)
        .await;
    assert_eq!(world.shared.gate.applied(), 100);
    assert_eq!(world.lag(), Lag::Known(3));
    sluice.0.add_permits(1);
    world
        .until("it is applied", || world.lag() == Lag::Known(0))
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g1_positions_of_a_snapshot_are_no_head() {
    let world = World::start();
    let stream = world.stream().await;
    stream.send(frame(0, regions(1..2000)));
    stream.send(frame(1999, regions(2000..2500)));
    stream.send(frame(40, vec![]));
    world
        .until("it follows", || world.shared.gate.applied() == 40)
        .await;
    assert_eq!(world.shared.gate.view().head, 40);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g2_a_message_that_waited_is_as_old_as_its_receipt() {
    let (sluice, hooks) = sluice(2);
    let world = World::start_with(hooks);
    let stream = world.follow(regions(1..4), 100).await;
    let sent = world.shared.clock.now();
    stream.send(frame(100, regions(1..2)));
    world
        .until("the apply has started", || {
            world.shared.gate.view().apply_since.is_some()
        })
        .await;
    assert_eq!(world.shared.gate.view().apply_since, Some(sent));
    pass(Duration::from_secs(8)).await;
    sluice.0.add_permits(1);
    world
        .until("it is applied", || world.shared.gate.applied() == 101)
        .await;
    let view = world.shared.gate.view();
    assert_eq!(view.last_sync, Some(sent));
    assert_eq!(view.apply_since, None);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_index_advances_by_the_length_of_the_frame_whatever_was_stale() {
    let world = World::start();
    let stream = world
        .follow(vec![region(1, 5), region(2, 5), region(3, 5)], 100)
        .await;
    stream.send(frame(100, vec![region(1, 4), region(2, 6), region(3, 4)]));
    world
        .until("it is applied", || world.shared.gate.applied() == 103)
        .await;
    assert_eq!(world.shared.counters.stale_skips.get(), 2);
    let snapshot = world.shared.map.pin();
    let versions: Vec<u64> = snapshot
        .iter()
        .map(|entry| entry.region().epoch().version)
        .collect();
    assert_eq!(versions, [5, 6, 5]);
    drop(snapshot);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn m2_a_split_in_one_frame_is_applied_whole() {
    let world = World::start();
    let mut wide = region(1, 1);
    wide.end_key = 9u64.to_be_bytes().to_vec().into();
    let stream = world.follow(vec![wide.clone()], 100).await;
    let mut right = region(2, 2);
    right.end_key = wide.end_key;
    stream.send(frame(100, vec![region(1, 2), right]));
    world
        .until("the split is seen", || {
            let ids = world.ids();
            assert!(ids == [1] || ids == [1, 2], "{ids:?}");
            ids.len() == 2
        })
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_old_map_answers_while_the_new_one_is_built_and_its_proof_lasts() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.prove().await;
    world.pd.set_term(6);
    stream.fail(tonic::Status::unavailable("stopped"));

    let stream = world.stream().await;
    assert!(stream.asks_for_everything());
    stream.send(frame(0, regions(7..9)));
    world
        .until("the new map is being built", || {
            world.shared.stream() == StreamState::Snapshot
        })
        .await;
    assert_eq!(world.ids(), [1, 2, 3]);
    assert!(world.serves());
    pass(Duration::from_secs(11)).await;
    assert!(!world.serves(), "the proof is older than the maximum age");

    let before = world.shared.map.generation();
    stream.send(frame(60, vec![]));
    world
        .until("the new map answers", || world.ids() == [7, 8])
        .await;
    assert!(world.shared.map.generation() > before);
    assert!(!world.serves(), "the new map has a proof of its own to get");
    world.prove().await;
    assert!(world.serves());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn m3_a_full_sync_and_the_map_that_answers_mark_nothing_of_each_other() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.pd.set_term(6);
    stream.fail(tonic::Status::unavailable("stopped"));

    // What is staged is the same at first, then one region is told again and one is replaced.
    let stream = world.stream().await;
    let received = world.shared.counters.regions.get();
    stream.send(frame(0, regions(1..4)));
    stream.send(frame(3, regions(1..2)));
    stream.send(leader_move(4, 2, 1, 3));
    world
        .until("it is staged", || {
            world.shared.counters.regions.get() == received + 5
        })
        .await;
    let leader = Provenance::Leader {
        asked_at: world.shared.clock.now(),
        answered_at: world.shared.clock.now(),
    };
    assert_eq!(
        world.confirm_all(),
        [Confirmed::Done; 3],
        "while it is built"
    );

    // The leader's answer to a question replaces an entry where it answers.
    let told = {
        let snapshot = world.shared.map.pin();
        snapshot.by_id(3).unwrap().region().clone()
    };
    assert!(!world.shared.map.put(told, leader).is_refused());

    let before = world.shared.map.generation();
    stream.send(frame(60, vec![]));
    world
        .until("the new map answers", || {
            world.shared.map.generation() > before
        })
        .await;
    assert_eq!(world.ids(), [1, 2, 3]);
    assert_eq!(world.confirm_all(), [Confirmed::Done; 3], "once it answers");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_sync_that_breaks_off_leaves_the_old_map_and_its_index() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    stream.fail(tonic::Status::unavailable("lost"));
    let stream = world.stream().await;
    assert_eq!(stream.start_index(), 100);
    // The leader does not hold the index any more.
    stream.send(frame(0, regions(7..9)));
    world
        .until("a full sync has begun", || {
            world.shared.counters.full_syncs.get() == 2
        })
        .await;
    stream.fail(tonic::Status::unavailable("lost again"));
    let stream = world.stream().await;
    assert_eq!(stream.start_index(), 100);
    assert_eq!(world.ids(), [1, 2, 3]);
    stream.send(frame(100, leader_move(100, 2, 1, 3).regions));
    world
        .until("it goes on", || world.shared.gate.applied() == 101)
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn frames_in_an_impossible_order_mean_a_full_sync() {
    let world = World::start();
    let stream = world.stream().await;
    stream.send(frame(0, regions(1..4)));
    stream.send(frame(900, regions([1])));
    stream.send(frame(950, vec![]));
    let stream = world.stream().await;
    assert!(stream.asks_for_everything());
    assert_eq!(world.shared.map.generation(), 0);
    assert_eq!(world.shared.counters.malformed.get(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_sync_that_does_not_end_is_given_up_at_its_deadline() {
    let pd = Pd::new();
    let mut config = SyncConfig::new("replica", "http://replica:1", vec![pd.url()]).unwrap();
    config.full_sync_deadline = Duration::from_secs(60);
    let world = World::launch_with(pd, config, Hooks::default());
    let stream = world.stream().await;
    let since = world.shared.clock.now();
    for id in 0..6 {
        stream.send(frame(id, regions([1 + id])));
        pass(Duration::from_secs(10)).await;
    }
    let again = world.stream().await;
    assert!(stream.is_cancelled());
    assert!(again.asks_for_everything());
    let waited = world.shared.clock.now().saturating_since(since);
    assert!(waited < Duration::from_secs(62), "{waited:?}");
    assert!(world.ids().is_empty());

    // One that is complete in time is followed beyond the deadline.
    again.send(frame(0, regions(1..4)));
    again.send(frame(100, vec![]));
    for _ in 0..10 {
        pass(Duration::from_secs(10)).await;
        again.send(frame(100, vec![]));
    }
    assert!(!again.is_cancelled());
    assert_eq!(world.ids(), [1, 2, 3]);
    world.end().await;
}
