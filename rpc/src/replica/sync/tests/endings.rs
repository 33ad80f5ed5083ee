//! How sessions end, and how the next one begins.

use tonic::Status;

use super::peer::Key;
use super::*;
use crate::proto::pdpb::Error;

#[tokio::test(start_paused = true)]
async fn a_lost_stream_in_the_same_term_is_resumed_at_the_own_index() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.prove().await;
    stream.send(frame(100, regions(1..3)));
    stream.fail(Status::unavailable("lost"));
    let stream = world.stream().await;
    assert_eq!(stream.start_index(), 102, "what was received is applied");
    assert!(world.serves(), "a lost stream does not shut the gate");
    stream.send(frame(102, vec![]));
    world
        .until("it follows", || world.shared.stream() == StreamState::Live)
        .await;
    assert_eq!(world.shared.counters.full_syncs.get(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_received_before_the_stream_ended_is_still_applied() {
    let (sluice, hooks) = sluice(2);
    let world = World::start_with(hooks);
    let stream = world.follow(regions(1..4), 100).await;
    stream.send(frame(100, regions(1..3)));
    stream.fail(Status::unavailable("lost"));
    world
        .until("the stream has ended", || stream.is_cancelled())
        .await;
    assert_eq!(world.shared.gate.applied(), 100);
    pass(Duration::from_secs(2)).await;
    sluice.0.add_permits(1);
    assert_eq!(world.stream().await.start_index(), 102);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_stands_still_does_not_keep_a_lost_stream_from_being_opened_again() {
    let (_sluice, hooks) = sluice(2);
    let world = World::start_with(hooks);
    let stream = world.follow(regions(1..4), 100).await;
    stream.send(frame(100, regions(1..3)));
    world
        .until("the apply stands still", || {
            world.shared.gate.view().apply_since.is_some()
        })
        .await;
    let since = world.shared.clock.now();
    stream.fail(Status::unavailable("lost"));
    assert_eq!(world.stream().await.start_index(), 100);
    let waited = world.shared.clock.now().saturating_since(since);
    assert!(waited < Duration::from_secs(4), "{waited:?}");
    assert_eq!(world.shared.gate.view().apply_since, None);
    assert_eq!(world.shared.gate.applied(), 100);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_frame_ends_the_stream_and_is_not_applied() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    let mut error = frame(100, regions(5..8));
    error.header = Some(ResponseHeader {
        cluster_id: CLUSTER,
        error: Some(Error {
            r#type: 1,
            message: "server stopped, close the region syncer client".to_owned(),
        }),
    });
    stream.send(error);
    let again = world.stream().await;
    assert!(stream.is_cancelled());
    assert_eq!(again.start_index(), 100);
    assert_eq!(world.ids(), [1, 2, 3]);
    assert_eq!(world.shared.counters.error_frames.get(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_left_at_the_time_threshold() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    let since = world.shared.clock.now();
    let again = world.stream().await;
    assert!(stream.is_cancelled());
    let waited = world.shared.clock.now().saturating_since(since);
    let threshold = world.shared.thresholds.get().time_threshold;
    assert!(waited >= threshold && waited < threshold + Duration::from_secs(1));
    assert_eq!(again.start_index(), 100);
    assert_eq!(world.shared.counters.silences.get(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_term_means_a_full_sync() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.pd.set_term(6);
    stream.fail(Status::unavailable("stopped"));
    world.follow(regions(1..4), 100).await;
    let counts = world.shared.counters.read();
    assert_eq!((counts.term_changes, counts.reconnects), (1, 1));
    assert_eq!((counts.attempts, counts.connect_failures), (2, 0));
    let broken = world.shared.last_broken().expect("the stream failed");
    assert_eq!(broken.reason, "call failed");
    assert!(broken.detail.contains("stopped"), "{broken:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_term_that_ends_under_an_open_stream_is_noticed() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.prove().await;
    world.pd.set_term(6);
    let again = world.stream().await;
    assert!(stream.is_cancelled());
    assert!(again.asks_for_everything());
    assert_eq!(world.shared.counters.term_changes.get(), 0, "not yet");
    again.send(frame(0, regions(1..4)));
    world
        .until("the new term is followed", || {
            world.shared.counters.term_changes.get() == 1
        })
        .await;
    assert_eq!(world.shared.counters.reconnects.get(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_stream_counts_when_the_term_changed_during_the_handshake() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    // Reads of the key from here: before the request, then after the first frame.
    world.pd.set_key_after(
        1,
        Key::Held {
            revision: 6,
            by: world.pd.url(),
        },
    );
    stream.fail(Status::unavailable("lost"));
    let stream = world.stream().await;
    assert_eq!(stream.start_index(), 100);
    stream.send(frame(100, regions(7..9)));
    let again = world.stream().await;
    assert!(again.asks_for_everything());
    assert_eq!(world.ids(), [1, 2, 3]);
    assert_eq!(world.shared.gate.view().head, 100);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_deposed_leader_is_not_taken_for_its_successor() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.pd.set_key(Key::Held {
        revision: 6,
        by: "http://pd-2:2379".to_owned(),
    });
    stream.fail(Status::unavailable("stopped"));
    let reads = world.pd.key_reads();
    pass(Duration::from_secs(5)).await;
    assert!(world.pd.try_accept(Lane::Stream).is_none());
    assert!(world.pd.key_reads() > reads, "it keeps looking");
    world.pd.set_leader(Some("http://pd-2:2379"));
    let again = world.stream().await;
    assert_eq!(again.url, "http://pd-2:2379");
    assert!(again.asks_for_everything());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_a_leader_is_asked_again() {
    let pd = Pd::new();
    pd.set_leader(None);
    let world = World::launch(pd, Hooks::default());
    pass(Duration::from_secs(20)).await;
    assert!(world.pd.try_accept(Lane::Stream).is_none());
    let tries = world.shared.counters.connect_failures.get();
    assert_eq!(world.shared.counters.reconnects.get(), 0);
    assert!((5..60).contains(&tries), "{tries} tries in 20 s");
    world.pd.set_leader(Some("http://pd-1:2379"));
    world.stream().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_named_and_holds_no_key_is_not_followed() {
    let pd = Pd::new();
    pd.set_key(Key::Absent);
    let world = World::launch(pd, Hooks::default());
    pass(Duration::from_secs(5)).await;
    assert!(world.pd.try_accept(Lane::Stream).is_none());
    world.pd.set_term(5);
    world.stream().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn endpoints_of_different_clusters_end_the_task_before_anything_is_followed() {
    let pd = Pd::new();
    pd.set_other_cluster("pd-9", 99);
    let endpoints = vec![pd.url(), "http://pd-9:2379".to_owned()];
    let config = SyncConfig::new("replica", "http://replica:1", endpoints).unwrap();
    let world = World::launch_with(pd, config, Hooks::default());
    let WrongCluster::Endpoints(error) = world.task.await.unwrap().unwrap_err() else {
        panic!("nothing is on disk");
    };
    assert_eq!((error.first_id, error.second_id), (CLUSTER, 99));
    assert!(error.to_string().contains("http://pd-9:2379"), "{error}");
    assert_eq!(world.shared.cluster_id(), None);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_turns_up_in_another_cluster_later_is_an_ending_like_others() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.pd.set_other_cluster("pd-1", 99);
    stream.fail(Status::unavailable("lost"));
    pass(Duration::from_secs(5)).await;
    assert!(world.pd.try_accept(Lane::Stream).is_none());
    assert_eq!(world.shared.cluster_id(), Some(CLUSTER));
    world.pd.set_other_cluster("pd-1", CLUSTER);
    assert_eq!(world.stream().await.start_index(), 100);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn skipped_indexes_shut_the_gate_until_they_have_been_applied() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.prove().await;
    stream.send(leader_move(102, 3, 1, 3));
    let again = world.stream().await;
    assert_eq!(again.start_index(), 100);
    assert!(world.shared.gate.view().gap);
    assert!(!world.serves());
    assert_eq!(world.lag(), Lag::Known(3));

    again.send(leader_move(100, 3, 1, 2));
    again.send(frame(101, regions([2])));
    world
        .until("two of three are there", || {
            world.shared.gate.applied() == 102
        })
        .await;
    assert_eq!(world.leader_of(3), Some(2));
    assert!(
        world.shared.gate.view().gap,
        "region 3 is at an older state"
    );
    again.send(leader_move(102, 3, 1, 3));
    world
        .until("the gap is closed", || !world.shared.gate.view().gap)
        .await;
    assert_eq!(world.leader_of(3), Some(3));
    assert!(world.serves());
    assert_eq!(world.shared.counters.gaps.get(), 1);
    assert_eq!(world.shared.counters.full_syncs.get(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn indexes_skipped_again_mean_a_full_sync() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    stream.send(frame(102, regions([3])));
    let again = world.stream().await;
    assert_eq!(again.start_index(), 100);
    again.send(frame(102, regions([3])));
    let full = world.follow(regions(1..3), 103).await;
    assert!(!full.is_cancelled());
    assert!(!world.shared.gate.view().gap, "the new map has no gap");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_spoils_every_session_at_once_is_not_hurried() {
    let world = World::start();
    let since = world.shared.clock.now();
    for _ in 0..10 {
        let stream = world.follow(regions(1..4), 100).await;
        stream.send(frame(40, vec![]));
    }
    let waited = world.shared.clock.now().saturating_since(since);
    assert!(waited > Duration::from_secs(6), "{waited:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_keepalive_beyond_the_own_index_is_a_gap_too() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    stream.send(frame(104, vec![]));
    assert_eq!(world.stream().await.start_index(), 100);
    assert!(world.shared.gate.view().gap);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_index_that_went_back_means_a_full_sync() {
    for back in [
        frame(99, vec![]),
        frame(40, regions([1])),
        frame(0, regions([1])),
    ] {
        let world = World::start();
        let stream = world.follow(regions(1..4), 100).await;
        stream.send(back);
        assert!(world.stream().await.asks_for_everything());
        assert_eq!(world.ids(), [1, 2, 3]);
        assert_eq!(world.shared.counters.regressions.get(), 1);
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn in_sync_below_a_head_shown_in_this_term_is_another_index_space() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    stream.send(frame(104, vec![]));
    let again = world.stream().await;
    assert_eq!(again.start_index(), 100);
    again.send(frame(100, vec![]));
    assert!(world.stream().await.asks_for_everything());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_malformed_region_ends_the_stream_and_the_rest_of_its_frame_is_used() {
    type Spoil = fn(&mut PbRegion);
    let spoils: [Spoil; 4] = [
        |region| region.id = 0,
        |region| region.region_epoch = None,
        |region| std::mem::swap(&mut region.start_key, &mut region.end_key),
        |region| region.end_key = region.start_key.clone(),
    ];
    for spoil in spoils {
        let world = World::start();
        let stream = world.follow(regions(1..4), 100).await;
        world.prove().await;
        let mut spoiled = frame(100, vec![region(1, 2), region(5, 1)]);
        spoil(&mut spoiled.regions[0]);
        stream.send(spoiled.clone());
        let again = world.stream().await;
        assert!(stream.is_cancelled());
        assert_eq!(again.start_index(), 100, "the index does not move");
        assert_eq!(world.ids(), [1, 2, 3, 5]);
        assert_eq!(world.shared.counters.malformed.get(), 1);

        // The same record again and again: tried with growing waits, and no proof.
        let proven = world.shared.gate.view().proven_at;
        let since = world.shared.clock.now();
        again.send(spoiled.clone());
        for _ in 0..9 {
            world.stream().await.send(spoiled.clone());
        }
        let waited = world.shared.clock.now().saturating_since(since);
        assert!(waited > Duration::from_secs(8), "{waited:?}");
        assert_eq!(world.shared.gate.view().proven_at, proven);
        assert!(!world.serves());
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_region_in_a_full_sync_publishes_nothing() {
    let world = World::start();
    let stream = world.stream().await;
    let mut spoiled = frame(0, regions(1..4));
    spoiled.regions[1].region_epoch = None;
    stream.send(spoiled);
    stream.send(frame(100, vec![]));
    assert!(world.stream().await.asks_for_everything());
    assert_eq!(world.shared.counters.full_syncs_published.get(), 0);
    assert!(world.ids().is_empty());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn parallel_lists_of_another_length_do_not_end_the_stream() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    let mut odd = frame(100, regions(1..4));
    odd.region_leaders.truncate(1);
    odd.region_stats = vec![Default::default(); 2];
    odd.buckets = vec![Default::default(); 7];
    stream.send(odd);
    world
        .until("it is applied", || world.shared.gate.applied() == 103)
        .await;
    assert!(!stream.is_cancelled());
    assert_eq!((world.leader_of(1), world.leader_of(2)), (Some(1), None));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn stopping_ends_every_task_without_waiting_for_the_network() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    let probe = world.probe().await;
    let since = world.shared.clock.now();
    world.stop.cancel();
    world.task.await.unwrap().unwrap();
    assert_eq!(world.shared.clock.now(), since, "no time has passed");
    assert!(stream.is_cancelled() && probe.is_cancelled());
    assert_eq!(world.shared.stream(), StreamState::Connecting);
}

#[tokio::test(start_paused = true)]
async fn a_gap_found_in_a_session_that_ends_for_another_reason_is_closed_again() {
    let (sluice, hooks) = sluice(2);
    let world = World::start_with(hooks);
    let stream = world.follow(regions(1..4), 100).await;
    world.prove().await;
    let mut spoiled = frame(100, regions(1..2));
    spoiled.regions[0].id = 0;
    // The applier is held at the first, and finds the fault that ends the session after the receiver has found the gap.
    stream.send(spoiled);
    world
        .until("it is being applied", || {
            world.shared.gate.view().apply_since.is_some()
        })
        .await;
    stream.send(frame(101, regions(1..2)));
    stream.send(frame(150, regions(2..3)));
    world
        .until("the gap is found", || world.shared.gate.view().gap)
        .await;
    sluice.0.add_permits(1_000);
    let stream = world.stream().await;
    assert_eq!(stream.start_index(), 100);
    assert_eq!(world.shared.counters.gaps.get(), 0, "not by its gap");
    stream.send(frame(100, regions(vec![1; 50])));
    world
        .until("all but one is applied", || {
            world.shared.gate.applied() == 150
        })
        .await;
    assert!(world.shared.gate.view().gap);
    stream.send(frame(150, regions(2..3)));
    world
        .until("the gap is closed", || !world.shared.gate.view().gap)
        .await;
    world.prove().await;
    assert!(world.serves());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_gap_found_while_an_earlier_one_is_being_closed_stays_open() {
    let (sluice, hooks) = sluice(3);
    let world = World::start_with(hooks);
    let stream = world.follow(regions(1..4), 100).await;
    stream.send(frame(101, regions(2..3)));
    let stream = world.stream().await;
    assert_eq!(stream.start_index(), 100);
    stream.send(frame(100, regions([1, 2])));
    stream.send(frame(110, regions([3])));
    world
        .until("the second gap is found", || {
            world.shared.gate.view().head == 111
        })
        .await;
    sluice.0.add_permits(1_000);
    let stream = world.stream().await;
    assert_eq!(stream.start_index(), 102);
    assert!(world.shared.gate.view().gap, "nine records are missing");
    stream.send(frame(102, regions(vec![3; 9])));
    world
        .until("the gap is closed", || !world.shared.gate.view().gap)
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_does_not_wait_for_the_apply_and_goes_on_where_it_has_come() {
    let (sluice, hooks) = sluice(2);
    let pd = Pd::new();
    let mut config = SyncConfig::new("replica", "http://replica:1", vec![pd.url()]).unwrap();
    config.queue_frames = 3;
    let world = World::launch_with(pd, config, hooks);
    let stream = world.follow(regions(1..4), 100).await;
    let since = world.shared.clock.now();
    for index in 100..110 {
        stream.send(frame(index, regions([1])));
    }
    world
        .until("the stream is left", || stream.is_cancelled())
        .await;
    assert_eq!(world.shared.clock.now(), since, "at once");
    sluice.0.add_permits(1_000);
    let again = world.stream().await;
    let next = again.start_index();
    assert!(
        (103..=104).contains(&next),
        "what was queued is applied: {next}"
    );
    assert_eq!(
        world.shared.last_broken().unwrap().reason,
        "applying too slowly"
    );
    world.end().await;
}
