//! F8: proofs by head probes.

use super::peer::Key;
use super::*;

#[tokio::test(start_paused = true)]
async fn f8_a_probe_has_a_name_of_its_own_and_asks_at_the_applied_index() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    let probe = world.probe().await;
    assert_eq!(probe.start_index(), 100);
    assert_ne!(probe.member().name, stream.member().name);
    assert_eq!(probe.member().client_urls, ["http://replica:1"]);
    probe.send(frame(100, vec![]));
    world
        .until("it is cancelled after its first frame", || {
            probe.is_cancelled()
        })
        .await;
    assert!(!stream.is_cancelled());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_the_proof_is_of_the_time_the_probe_was_sent() {
    let world = World::start();
    let _stream = world.follow(regions(1..4), 100).await;
    let probe = world.probe().await;
    let sent = world.shared.clock.now();
    pass(Duration::from_secs(2)).await;
    probe.send(frame(100, vec![]));
    world
        .until("it is proven", || {
            world.shared.gate.view().proven_at.is_some()
        })
        .await;
    assert_eq!(world.shared.gate.view().proven_at, Some(sent));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g3_a_head_beyond_the_applied_index_proves_once_it_is_reached() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    let probe = world.probe().await;
    let sent = world.shared.clock.now();
    probe.send(frame(100, regions(1..3)));
    world
        .until("the probe counts", || {
            world.shared.counters.probes_proved.get() == 1
        })
        .await;
    assert_eq!(world.shared.gate.view().head, 102);
    assert_eq!(world.shared.gate.view().proven_at, None);
    stream.send(frame(100, regions(1..2)));
    world
        .until("half of it is applied", || {
            world.shared.gate.applied() == 101
        })
        .await;
    assert_eq!(world.shared.gate.view().proven_at, None);
    stream.send(frame(101, regions(2..3)));
    world
        .until("all of it is applied", || {
            world.shared.gate.applied() == 102
        })
        .await;
    world
        .until("it is proven", || {
            world.shared.gate.view().proven_at == Some(sent)
        })
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_probes_follow_at_their_interval() {
    let world = World::start();
    let _stream = world.follow(regions(1..4), 100).await;
    world.prove().await;
    let first = world.shared.gate.view().proven_at.unwrap();
    world.prove().await;
    let second = world.shared.gate.view().proven_at.unwrap();
    assert_eq!(second.saturating_since(first), Duration::from_secs(3));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_a_full_first_frame_raises_the_head_and_proves_nothing() {
    let world = World::start();
    let _stream = world.follow(regions(1..4), 100).await;
    let probe = world.probe().await;
    probe.send(frame(100, regions(1..1001)));
    world
        .until("the head is raised", || {
            world.shared.gate.view().head == 1100
        })
        .await;
    assert_eq!(world.shared.counters.probes_proved.get(), 0);
    assert_eq!(world.shared.counters.probes_failed.get(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_a_full_sync_in_answer_proves_nothing_and_makes_probes_pause() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    let probe = world.probe().await;
    let first = world.shared.clock.now();
    probe.send(frame(0, regions(1..4)));
    world
        .until("the probe has failed", || {
            world.shared.counters.probes_failed.get() == 1
        })
        .await;
    assert_eq!(world.shared.gate.view().proven_at, None);
    stream.send(frame(100, vec![]));
    let _second = world.probe().await;
    let waited = world.shared.clock.now().saturating_since(first);
    assert_eq!(waited, Duration::from_secs(6), "one turn was left out");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_an_answer_given_in_another_term_proves_nothing() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    let probe = world.probe().await;
    world.pd.set_term(6);
    probe.send(frame(100, vec![]));
    let next = world.stream().await;
    assert!(next.asks_for_everything(), "another term means a full sync");
    assert!(stream.is_cancelled());
    assert_eq!(world.shared.gate.view().proven_at, None);
    assert_eq!(world.shared.counters.probes_proved.get(), 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_an_answer_beside_an_unreadable_term_proves_nothing() {
    let world = World::start();
    let _stream = world.follow(regions(1..4), 100).await;
    let probe = world.probe().await;
    world.pd.set_key(Key::Unreadable);
    probe.send(frame(100, vec![]));
    world
        .until("the probe has failed", || {
            world.shared.counters.probes_failed.get() == 1
        })
        .await;
    assert_eq!(world.shared.gate.view().proven_at, None);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_a_probe_that_is_not_answered_ends_at_its_deadline() {
    let world = World::start();
    let _stream = world.follow(regions(1..4), 100).await;
    let probe = world.probe().await;
    pass(Duration::from_millis(3_001)).await;
    assert!(probe.is_cancelled());
    assert_eq!(world.shared.counters.probes_failed.get(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_no_probe_from_half_a_ring_behind() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.prove().await;
    world
        .shared
        .gate
        .head_received(world.shared.gate.generation(), 5_100);
    pass(Duration::from_millis(3_500)).await;
    assert!(world.pd.try_accept(Lane::Calls).is_none());
    assert_eq!(world.shared.counters.probes_held.get(), 1);
    // One record less to go, and the next turn probes.
    stream.send(frame(100, regions([1])));
    assert_eq!(world.probe().await.start_index(), 101);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_no_probe_beside_a_stream_that_is_silent() {
    let world = World::start();
    let _stream = world.follow(regions(1..4), 100).await;
    for _ in 0..6 {
        world.prove().await;
    }
    // 15 s after the last frame: nothing more until the stream is heard of again.
    pass(Duration::from_secs(9)).await;
    assert!(world.pd.try_accept(Lane::Calls).is_none());
    assert!(world.shared.counters.probes_held.get() >= 2);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_a_stream_that_was_silent_is_probed_as_soon_as_it_is_heard_of() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    for _ in 0..6 {
        world.prove().await;
    }
    pass(Duration::from_secs(4)).await;
    world
        .until("a probe is held", || {
            world.shared.counters.probes_held.get() == 1
        })
        .await;
    pass(Duration::from_millis(100)).await;
    stream.send(frame(100, vec![]));
    let heard = world.shared.clock.now();
    world.prove().await;
    assert_eq!(world.shared.gate.view().proven_at, Some(heard));
    // From there on at the interval again.
    world.prove().await;
    let next = world.shared.gate.view().proven_at.unwrap();
    assert_eq!(next.saturating_since(heard), Duration::from_secs(3));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_no_probe_before_the_first_full_sync_is_complete() {
    let world = World::start();
    let stream = world.stream().await;
    stream.send(frame(0, regions(1..4)));
    pass(Duration::from_secs(10)).await;
    assert!(world.pd.try_accept(Lane::Calls).is_none());
    assert_eq!(world.shared.counters.probes_sent.get(), 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f8_no_probe_in_a_session_whose_term_could_not_be_read() {
    let pd = Pd::new();
    pd.set_key(Key::Unreadable);
    let world = World::launch(pd, Hooks::default());
    let _stream = world.follow(regions(1..4), 100).await;
    pass(Duration::from_secs(4)).await;
    assert!(world.pd.try_accept(Lane::Calls).is_none());
    assert!(!world.serves());
    // As soon as it can be read the session begins anew, in a term that it knows.
    world.pd.set_term(5);
    let again = world.stream().await;
    assert!(again.asks_for_everything());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_follower_with_an_index_is_not_proven() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    stream.send(frame(100, vec![]));
    world.quiet().await;
    let view = world.shared.gate.view();
    assert_eq!((view.applied, view.lag), (100, Lag::Known(0)));
    assert_eq!(view.proven_at, None);
    assert!(!world.serves());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stands_still_is_left_once_another_member_tells_of_another_leader() {
    let pd = Pd::new();
    pd.add_member("http://pd-2:2379");
    let world = World::launch(pd, Hooks::default());
    let stream = world.follow(regions(1..4), 100).await;
    world.prove().await;
    // Its probe is not answered, nor is its leader key read there; another member was elected meanwhile.
    world.pd.freeze(&world.pd.url());
    let probe = world.probe().await;
    world.pd.set_key(Key::Held {
        revision: 6,
        by: "http://pd-2:2379".to_owned(),
    });
    let begun = world.shared.clock.now();
    while world.shared.last_broken().is_none() {
        pass(Duration::from_millis(100)).await;
    }
    assert_eq!(
        world.shared.last_broken().map(|broken| broken.reason),
        Some("term changed")
    );
    // As long as the probe has, and no longer.
    let took = world.shared.clock.now().saturating_since(begun);
    assert!(took <= Duration::from_millis(3_100), "{took:?}");
    assert!(stream.is_cancelled() && probe.is_cancelled());
    world.end().await;
}
