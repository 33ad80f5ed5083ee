use tonic::Code;

use super::*;

async fn in_sync(cluster: &Arc<Cluster>, name: &str) -> Follower {
    let next = cluster.regions.next_index();
    assert_ne!(next, 0, "index 0 asks for everything");
    let mut follower = Follower::open(cluster, name, next).await;
    assert_eq!(follower.brief().await, (next, vec![]));
    follower
}

#[tokio::test(start_paused = true)]
async fn records_follow_each_other_without_gap_or_repetition() {
    let cluster = cluster();
    report(&cluster, [1]);
    let mut follower = in_sync(&cluster, "a").await;
    let reporter = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move {
            for id in 1..=200 {
                report(&cluster, [id]);
                tokio::task::yield_now().await;
            }
        }
    });
    let mut next = 1;
    while next < 201 {
        let (start, ids) = follower.brief().await;
        assert_eq!(start, next);
        assert!((1..=4).contains(&ids.len()), "{ids:?}");
        let expected: Vec<_> = (next..next + ids.len() as u64).collect();
        assert_eq!(ids, expected, "record n is that of region n");
        next += ids.len() as u64;
    }
    reporter.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_record_appended_while_a_stream_binds_is_neither_lost_nor_doubled() {
    // Every point of the handshake at which the reporter can get in between.
    for pause in 0..12 {
        let cluster = cluster_with(config(), 100);
        report(&cluster, 1..=2);
        let mut follower = Follower::open(&cluster, "a", 101).await;
        for _ in 0..pause {
            tokio::task::yield_now().await;
        }
        report(&cluster, 3..=6);
        let mut got = Vec::new();
        while got.len() < 5 {
            let (start, ids) = follower.brief().await;
            assert_eq!(start, 101 + got.len() as u64);
            got.extend(ids);
        }
        assert_eq!(got, [2, 3, 4, 5, 6], "after {pause} steps");
        follower.quiet(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_gets_its_position_every_keepalive() {
    let cluster = cluster();
    report(&cluster, 1..=3);
    let mut follower = in_sync(&cluster, "a").await;
    follower.quiet(10 * SECOND - Duration::from_millis(1)).await;
    assert_eq!(follower.brief().await, (3, vec![]));
    follower.quiet(10 * SECOND - Duration::from_millis(2)).await;
    assert_eq!(follower.brief().await, (3, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_keepalive_never_precedes_a_record_that_waits() {
    let cluster = cluster();
    report(&cluster, [1]);
    let mut follower = in_sync(&cluster, "a").await;
    for round in 1..=3 {
        // The records come just before the keepalive is due, and the stream gets to run only after it.
        tokio::time::sleep(9999 * SECOND / 1000).await;
        report(&cluster, [1, 2]);
        tokio::time::advance(Duration::from_millis(1)).await;
        let next = 2 * round + 1;
        assert_eq!(follower.brief().await, (next - 2, vec![1, 2]));
        assert_eq!(follower.brief().await, (next, vec![]), "behind the records");
    }
}

#[tokio::test(start_paused = true)]
async fn a_keepalive_that_is_due_behind_a_full_door_waits_for_the_records() {
    let cluster = cluster();
    report(&cluster, [1]);
    let mut follower = in_sync(&cluster, "a").await;
    tokio::time::sleep(5 * SECOND).await;
    report(&cluster, 1..=8);
    tokio::time::sleep(6 * SECOND).await;
    report(&cluster, [9]);
    assert_eq!(
        follower.briefs(4).await,
        [
            (1, vec![1, 2, 3, 4]),
            (5, vec![5, 6, 7, 8]),
            (9, vec![9]),
            (10, vec![])
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn each_stream_has_a_position_of_its_own() {
    let cluster = cluster();
    report(&cluster, [1]);
    let mut fast = in_sync(&cluster, "fast").await;
    let mut slow = in_sync(&cluster, "slow").await;
    report(&cluster, 1..=8);
    assert_eq!(
        fast.briefs(2).await,
        [(1, vec![1, 2, 3, 4]), (5, vec![5, 6, 7, 8])]
    );
    report(&cluster, 9..=10);
    assert_eq!(fast.brief().await, (9, vec![9, 10]));
    let mut next = 1;
    while next < 11 {
        let (start, ids) = slow.brief().await;
        assert_eq!(start, next);
        next += ids.len() as u64;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_read_is_dropped_and_delays_nobody() {
    let cluster = cluster();
    report(&cluster, [1]);
    let mut stuck = in_sync(&cluster, "stuck").await;
    let mut other = in_sync(&cluster, "other").await;
    // One frame waits at the stuck reader's door, the next one cannot be handed over.
    report(&cluster, 1..=8);
    assert_eq!(
        other.briefs(2).await,
        [(1, vec![1, 2, 3, 4]), (5, vec![5, 6, 7, 8])]
    );
    tokio::time::sleep(10 * SECOND - Duration::from_millis(1)).await;
    assert_eq!(cluster.streams.len(), 2);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(cluster.streams.len(), 1);
    let status = stuck.end().await;
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "region syncer stream closed");
    report(&cluster, [9]);
    while other.brief().await != (9, vec![9]) {}
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_falls_out_of_the_history_is_dropped() {
    let config = LeaderConfig {
        ring_limit: 16,
        ..config()
    };
    let cluster = cluster_with(config, 0);
    report(&cluster, [1]);
    let mut slow = in_sync(&cluster, "a").await;
    report(&cluster, 1..=8);
    // One frame is at the door, the second waits for it. Meanwhile the history moves past the ninth record.
    tokio::time::sleep(SECOND).await;
    report(&cluster, 1..=17);
    assert_eq!(
        slow.briefs(2).await,
        [(1, vec![1, 2, 3, 4]), (5, vec![5, 6, 7, 8])]
    );
    let status = slow.end().await;
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(
        status.message(),
        "region syncer stream closed: record 9 is next, the history starts at 10"
    );
    assert_eq!(cluster.streams.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_stream_that_stays_in_the_history_catches_up() {
    let cluster = cluster();
    report(&cluster, [1]);
    let mut slow = in_sync(&cluster, "a").await;
    report(&cluster, 1..=8);
    tokio::time::sleep(9 * SECOND).await;
    report(&cluster, 9..=16);
    let mut next = 1;
    while next < 17 {
        let (start, ids) = slow.brief().await;
        assert_eq!(start, next);
        next += ids.len() as u64;
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_leaves_is_forgotten() {
    let cluster = cluster();
    report(&cluster, [1]);
    let follower = in_sync(&cluster, "a").await;
    let other = in_sync(&cluster, "b").await;
    drop(follower);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(cluster.streams.len(), 1);
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_says_so_and_ends_the_stream() {
    let cluster = cluster();
    report(&cluster, [1]);
    let mut follower = in_sync(&cluster, "a").await;
    cluster.stopping.cancel();
    let frame = follower.frame().await;
    let error = frame.header.unwrap().error.unwrap();
    assert_eq!(
        error.message,
        "server stopped, close the region syncer client"
    );
    let status = follower.end().await;
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "region syncer stopped")
    );
    assert_eq!(cluster.streams.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_does_not_wait_for_a_reader_that_does_not_read() {
    let cluster = cluster();
    report(&cluster, [1]);
    let mut stuck = in_sync(&cluster, "a").await;
    report(&cluster, 1..=8);
    tokio::time::sleep(SECOND).await;
    cluster.stopping.cancel();
    tokio::time::sleep(cluster.config.stop_grace + Duration::from_millis(1)).await;
    assert_eq!(
        stuck.brief().await,
        (1, vec![1, 2, 3, 4]),
        "what was at the door is delivered"
    );
    assert_eq!(stuck.end().await.message(), "region syncer stopped");
}

#[tokio::test(start_paused = true)]
async fn the_history_grows_for_a_slow_stream_and_shrinks_when_it_has_left() {
    let cluster = cluster();
    report(&cluster, [1]);
    let mut slow = in_sync(&cluster, "a").await;
    report(&cluster, 1..=8);
    tokio::time::sleep(SECOND).await;
    report(&cluster, (1..=8).cycle().take(40));
    assert_eq!(cluster.regions.history().capacity(), 64);
    let mut next = 1;
    while next < 49 {
        let (start, ids) = slow.brief().await;
        assert_eq!(start, next);
        next += ids.len() as u64;
    }
    for _ in 0..3 {
        cluster.regions.maintain();
    }
    assert_eq!(
        cluster.regions.history().capacity(),
        64,
        "much was needed of late"
    );
    cluster.regions.maintain();
    assert_eq!(cluster.regions.history().capacity(), 32);
}

#[tokio::test(start_paused = true)]
async fn the_history_grows_for_a_follower_that_came_too_late() {
    let cluster = cluster();
    report(&cluster, (1..=8).cycle().take(30));
    let mut late = Follower::open(&cluster, "a", 10).await;
    assert_eq!(late.brief().await.0, 0, "a full sync");
    assert_eq!(cluster.regions.history().capacity(), 64);
}
