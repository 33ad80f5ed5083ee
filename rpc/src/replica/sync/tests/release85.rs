//! Leaders of release 8.5: silent answers, copies without an end, and proofs that a stuck broadcaster does not give.

use tonic::Status;

use super::*;
use crate::proto::pdpb::Error;

/// Regions 1 to 3 that leave no key out.
fn whole(version: u64) -> Vec<PbRegion> {
    let mut regions: Vec<_> = (1..4).map(|id| region(id, version)).collect();
    regions[0].start_key = Default::default();
    regions[2].end_key = Default::default();
    regions
}

/// The sync stream, heard at `head`, and the stream that the copy is asked for on.
async fn joined(world: &World, head: u64) -> (Stream, Stream) {
    let stream = world.stream().await;
    assert_eq!(stream.start_index(), u64::MAX);
    stream.send(frame(head, vec![]));
    let copy = world.stream().await;
    assert_eq!(copy.start_index(), 0);
    assert_ne!(copy.member().name, stream.member().name);
    (stream, copy)
}

/// A stream after a full sync of three regions at `head`, not proven yet.
pub(super) async fn follow85(world: &World, head: u64) -> Stream {
    let (stream, copy) = joined(world, head).await;
    copy.send(frame(0, whole(1)));
    world
        .until("the full sync is published", || {
            world.shared.counters.full_syncs_published.get() > 0
                && world.shared.gate.applied() == head
        })
        .await;
    stream
}

/// Answers the next probe with nothing new, and proves it by the record that comes next.
pub(super) async fn prove_by(world: &World, stream: &Stream, next: u64) {
    world.prove().await;
    stream.send(leader_move(next, 2, 9, 2));
    world
        .until("the record is applied", || {
            world.shared.gate.applied() == next + 1
        })
        .await;
    world.quiet().await;
}

async fn published(world: &World) {
    world
        .until("the full sync is published", || {
            world.shared.counters.full_syncs_published.get() == 1
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_full_sync_is_a_copy_asked_for_once_the_stream_is_heard() {
    let world = World::start();
    let stream = world.stream().await;
    world.quiet().await;
    pass(Duration::from_secs(9)).await;
    assert!(
        world.pd.try_accept(Lane::Stream).is_none(),
        "what is copied before could lack what is recorded until then"
    );
    stream.send(frame(500, vec![region(2, 3)]));
    let copy = world.stream().await;
    copy.send(frame(0, whole(1)));
    published(&world).await;
    assert!(copy.is_cancelled(), "it would be broadcast to");
    assert!(!stream.is_cancelled());
    assert_eq!(world.ids(), [1, 2, 3]);
    assert_eq!(world.shared.gate.applied(), 501);
    let version = world.shared.map.pin().by_id(2).unwrap().epoch().version;
    assert_eq!(version, 3, "the copy does not undo a record");
    assert!(!world.serves(), "not without a proof");
    prove_by(&world, &stream, 501).await;
    assert!(world.serves());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_recorded_while_the_copy_is_under_way_is_neither_lost_nor_undone() {
    let world = World::start();
    let (stream, copy) = joined(&world, 500).await;
    // The same epoch: the copy is of an unknown moment, the stream's order counts.
    stream.send(leader_move(500, 1, 1, 3));
    world
        .until("the record is applied", || {
            world.shared.counters.regions.get() == 1
        })
        .await;
    copy.send(frame(0, whole(1)));
    published(&world).await;
    stream.send(leader_move(501, 2, 1, 2));
    world
        .until("it follows", || world.shared.gate.applied() == 502)
        .await;
    assert_eq!(
        [1, 2, 3].map(|id| world.leader_of(id)),
        [Some(3), Some(2), Some(1)]
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_ready_or_proven_while_the_copy_is_incomplete() {
    let world = World::start();
    let (stream, copy) = joined(&world, 500).await;
    let thousand = |from: u64| regions(from..from + 1_000);
    copy.send(frame(0, thousand(1)));
    copy.send(frame(1_000, thousand(1_001)));
    for _ in 0..4 {
        pass(Duration::from_secs(9)).await;
        stream.send(frame(500, vec![]));
        world.quiet().await;
        let sent = world.shared.counters.regions.get();
        copy.send(frame(sent, thousand(1 + sent)));
        world.quiet().await;
        assert_eq!(world.shared.counters.full_syncs_published.get(), 0);
        assert_eq!(world.shared.counters.probes_sent.get(), 0);
    }
    // The broadcast: the copy has ended, with a full frame. It leaves out keys, which the leader is asked for.
    copy.send(frame(500, vec![]));
    published(&world).await;
    assert_eq!(world.pd.scans().len(), 1);
    assert_eq!(world.ids().len(), 6_000);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_breaks_off_is_begun_again_and_nothing_is_published() {
    let world = World::start();
    let (stream, copy) = joined(&world, 500).await;
    copy.send(frame(0, regions(1..1_001)));
    copy.fail(Status::unavailable("lost"));
    let again = world.stream().await;
    assert!(stream.is_cancelled());
    assert_eq!(again.start_index(), u64::MAX);
    assert_eq!(world.shared.counters.full_syncs_published.get(), 0);
    assert!(world.ids().is_empty() && !world.serves());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_frame_in_the_place_of_the_copy_ends_the_session() {
    let world = World::start();
    let (stream, copy) = joined(&world, 500).await;
    let mut refused = frame(0, vec![]);
    refused.header.as_mut().unwrap().error = Some(Error::default());
    copy.send(refused);
    world.stream().await;
    assert!(stream.is_cancelled());
    assert!(world.ids().is_empty());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_history_in_the_place_of_the_copy_is_completed_by_scans() {
    let world = World::start();
    let mut listed = whole(1);
    listed[0].region_epoch.as_mut().unwrap().version = 7;
    world.pd.set_listed(Some(listed));
    let (stream, copy) = joined(&world, 2).await;
    // Two records ever; region 3 was loaded from storage and is not among them.
    copy.send(frame(0, whole(1)[..2].to_vec()));
    published(&world).await;
    assert_eq!(world.ids(), [1, 2, 3]);
    let version = |id| world.shared.map.pin().by_id(id).unwrap().epoch().version;
    assert_eq!([1, 2, 3].map(version), [7, 1, 1]);
    assert_eq!(world.pd.scans().len(), 1);
    assert!(!stream.is_cancelled());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn release_85s_lone_empty_frame_at_index_0_does_not_empty_the_map() {
    let world = World::start();
    world.pd.set_listed(Some(whole(1)));
    let (stream, copy) = joined(&world, 0).await;
    copy.send(frame(0, vec![]));
    published(&world).await;
    assert_eq!(world.ids(), [1, 2, 3]);
    // From an index of 0 nothing can be probed; with the first record it can.
    stream.send(leader_move(0, 2, 1, 2));
    prove_by(&world, &stream, 1).await;
    assert!(world.serves());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_first_record_at_index_0_is_not_taken_for_a_snapshot() {
    let world = World::start();
    world.pd.set_listed(Some(whole(1)));
    let stream = world.stream().await;
    // Two records and the keepalive behind them: the same bytes as master's full sync of two regions at index 2.
    stream.send(frame(0, whole(1)[..2].to_vec()));
    stream.send(frame(2, vec![]));
    published(&world).await;
    assert_eq!(world.ids(), [1, 2, 3], "the third has been asked for");
    assert_eq!(world.shared.gate.applied(), 2);
    stream.send(leader_move(2, 3, 1, 3));
    world
        .until("it follows", || world.leader_of(3) == Some(3))
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn scans_that_fail_publish_nothing() {
    let world = World::start();
    world.pd.set_listed(None);
    let (_stream, copy) = joined(&world, 2).await;
    copy.send(frame(0, whole(1)[..2].to_vec()));
    world.stream().await;
    assert_eq!(world.shared.counters.full_syncs_published.get(), 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn scans_that_answer_something_else_publish_nothing() {
    let world = World::start();
    let mut listed = whole(1);
    listed.swap(0, 1);
    world.pd.set_listed(Some(listed));
    let (_stream, copy) = joined(&world, 2).await;
    copy.send(frame(0, whole(1)[..2].to_vec()));
    world.stream().await;
    assert_eq!(world.pd.scans().len(), 1);
    assert_eq!(world.shared.counters.full_syncs_published.get(), 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_resumed_stream_gets_its_history_in_one_frame() {
    let world = World::start();
    let stream = follow85(&world, 500).await;
    stream.fail(Status::unavailable("lost"));
    let again = world.stream().await;
    assert_eq!(again.start_index(), 500);
    again.send(frame(500, regions(vec![2; 9_000])));
    world
        .until("it follows", || world.shared.gate.applied() == 9_500)
        .await;
    assert_eq!(world.shared.counters.full_syncs.get(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_index_that_left_the_ring_gets_no_answer_and_a_full_sync_beside_the_same_stream() {
    let world = World::start();
    let stream = follow85(&world, 500).await;
    world.prove().await;
    stream.fail(Status::unavailable("lost"));
    let again = world.stream().await;
    assert_eq!(again.start_index(), 500);
    pass(Duration::from_secs(3)).await;
    assert!(!world.shared.gate.view().gap, "nothing has been heard");
    again.send(frame(90_000, vec![]));
    let copy = world.stream().await;
    assert!(world.shared.gate.view().gap, "records were missed");
    assert!(!world.serves());
    assert_eq!(world.shared.counters.unanswered.get(), 1);
    copy.send(frame(0, whole(2)));
    world
        .until("the new map answers", || {
            world.shared.gate.applied() == 90_000
        })
        .await;
    prove_by(&world, &again, 90_000).await;
    assert!(world.serves());
    assert!(!again.is_cancelled());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_index_ahead_of_the_leader_gets_no_answer_and_is_trusted_no_more() {
    let world = World::start();
    let stream = follow85(&world, 500).await;
    stream.fail(Status::unavailable("lost"));
    let again = world.stream().await;
    assert_eq!(again.start_index(), 500);
    again.send(frame(400, regions([2])));
    let (_stream, copy) = joined(&world, 401).await;
    copy.send(frame(0, whole(2)));
    world
        .until("the new map answers", || world.shared.gate.applied() == 401)
        .await;
    assert_eq!(world.shared.counters.regressions.get(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn no_answer_and_no_broadcast_either_is_silence() {
    let world = World::start();
    let stream = follow85(&world, 500).await;
    stream.fail(Status::unavailable("lost"));
    let again = world.stream().await;
    let since = world.shared.clock.now();
    let third = world.stream().await;
    let waited = world.shared.clock.now().saturating_since(since);
    assert!(waited >= Duration::from_secs(30), "{waited:?}");
    assert!(again.is_cancelled());
    assert_eq!(third.start_index(), 500);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn records_lost_between_history_and_binding_are_a_gap_and_asked_for_again() {
    let world = World::start();
    let stream = follow85(&world, 500).await;
    stream.fail(Status::unavailable("lost"));
    let stream = world.stream().await;
    stream.send(frame(500, regions([1, 2])));
    stream.send(frame(503, regions([3])));
    let again = world.stream().await;
    assert_eq!(again.start_index(), 502);
    assert!(world.shared.gate.view().gap);
    again.send(frame(502, regions([2, 3])));
    world
        .until("the gap is closed", || !world.shared.gate.view().gap)
        .await;
    assert_eq!(world.shared.counters.full_syncs.get(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_term_has_to_show_its_dialect_again() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    stream.send(frame(40, vec![]));
    let stream = world.stream().await;
    assert_eq!(stream.start_index(), 0, "master in this term");
    world.pd.set_term(6);
    stream.fail(Status::unavailable("stopped"));
    assert_eq!(world.stream().await.start_index(), u64::MAX);
    world.end().await;
}
