//! A full sync that is demanded because the map was found to differ from the leader's.

use super::*;

#[tokio::test(start_paused = true)]
async fn f2_a_map_that_is_distrusted_is_replaced_while_it_still_answers() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    world.prove().await;
    let generation = world.shared.gate.generation();
    world.shared.distrust(generation);
    let again = world.stream().await;
    assert!(stream.is_cancelled());
    assert!(again.asks_for_everything());
    assert!(
        world.serves(),
        "the old map answers as long as its proof lasts"
    );
    again.send(frame(0, regions(1..3)));
    again.send(frame(100, vec![]));
    world.prove().await;
    world
        .until("the new map answers", || {
            world.shared.gate.generation() > generation && world.ids() == [1, 2]
        })
        .await;
    // The demand was for the map before: this one stays.
    world.quiet().await;
    assert!(!again.is_cancelled());
    assert_eq!(world.shared.counters.full_syncs.get(), 2);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_a_full_sync_under_way_is_not_begun_again_for_the_map_before_it() {
    let world = World::start();
    let stream = world.follow(regions(1..4), 100).await;
    let generation = world.shared.gate.generation();
    stream.fail(tonic::Status::unavailable("lost"));
    world.pd.set_term(6);
    let again = world.stream().await;
    again.send(frame(0, regions(1..3)));
    world
        .until("a full sync is under way", || {
            world.shared.stream() == StreamState::Snapshot
        })
        .await;
    world.shared.distrust(generation);
    world.quiet().await;
    assert!(!again.is_cancelled());
    world.end().await;
}
