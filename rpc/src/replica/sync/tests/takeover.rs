//! A full sync takes over from a map that answers.

use tonic::Status;

use super::*;

/// A replica that serves, with a full sync from another leader that is complete at 200; and its probe.
async fn completed() -> (World, Stream, Stream) {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.prove().await;
    world.pd.set_term(6);
    stream.fail(Status::unavailable("stopped"));
    let stream = world.stream().await;
    assert!(stream.asks_for_everything());
    stream.send(frame(0, regions(7..9)));
    stream.send(frame(200, vec![]));
    let probe = world.probe().await;
    assert_eq!(probe.start_index(), 200);
    assert_eq!(world.ids(), [1, 2, 3]);
    assert!(world.serves());
    (world, stream, probe)
}

#[tokio::test(start_paused = true)]
async fn g3_a_full_sync_takes_over_with_its_proof_in_hand() {
    let (world, _stream, probe) = completed().await;
    let sent = world.shared.clock.now();
    probe.send(frame(200, vec![]));
    world
        .until("the new map answers", || {
            assert!(world.serves(), "there is no moment without an answer");
            world.ids() == [7, 8]
        })
        .await;
    assert_eq!(world.shared.gate.view().proven_at, Some(sent));
    // The next probe is due after the interval.
    world.prove().await;
    let next = world.shared.gate.view().proven_at.unwrap();
    assert_eq!(next.saturating_since(sent), Duration::from_secs(3));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g3_a_full_sync_behind_the_head_that_its_probe_shows_serves_once_it_is_there() {
    let (world, stream, probe) = completed().await;
    stream.send(frame(200, regions(9..10)));
    world.quiet().await;
    assert_eq!(world.ids(), [1, 2, 3]);
    probe.send(frame(200, regions(9..11)));
    world
        .until("one record is applied", || world.ids() == [7, 8, 9])
        .await;
    world.quiet().await;
    assert!(!world.serves(), "another is known and not there");
    stream.send(frame(201, regions(10..11)));
    world.until("it serves", || world.serves()).await;
    assert_eq!(world.ids(), [7, 8, 9, 10]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn g3_a_full_sync_whose_probe_is_not_answered_takes_over_at_the_deadline() {
    let (world, _stream, probe) = completed().await;
    pass(Duration::from_millis(3_001)).await;
    world
        .until("the new map is there", || world.ids() == [7, 8])
        .await;
    assert!(probe.is_cancelled());
    assert!(!world.serves(), "nobody knows how old it is");
    let since = world.shared.clock.now();
    world.prove().await;
    assert_eq!(world.shared.clock.now(), since, "it is probed at once");
    assert!(world.serves());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_sync_whose_stream_is_lost_before_its_probe_is_answered_takes_over() {
    let (world, stream, _probe) = completed().await;
    stream.fail(Status::unavailable("lost"));
    let stream = world.stream().await;
    assert_eq!(stream.start_index(), 200);
    assert_eq!(world.ids(), [7, 8]);
    world.end().await;
}
