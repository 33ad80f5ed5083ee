//! Release 8.5's answers, its one broadcaster, and what gets lost.

use tonic::Code;

use super::*;

/// A leader with a history of 16 records and frames of 4.
fn config85() -> LeaderConfig {
    LeaderConfig {
        dialect: Dialect::Release85,
        ..config()
    }
}

async fn cluster85(next_index: u64, records: u64) -> Arc<Cluster> {
    let cluster = cluster_with(config85(), next_index);
    report(&cluster, records, 1..=records).await;
    cluster
}

/// Reports and waits until the broadcaster has recorded `count` more.
async fn report(cluster: &Cluster, count: u64, ids: impl IntoIterator<Item = u64>) {
    let until = cluster.regions.next_index() + count;
    for id in ids {
        VERSION.with(|version| version.set(version.get() + 1));
        let version = VERSION.with(std::cell::Cell::get);
        let reported = cluster.regions.report(region(id, version), 0).unwrap();
        assert!(reported.index.is_some());
    }
    recorded(cluster, until).await;
}

thread_local!(static VERSION: std::cell::Cell<u64> = const { std::cell::Cell::new(1) });

async fn recorded(cluster: &Cluster, until: u64) {
    for _ in 0..100 {
        if cluster.regions.next_index() >= until {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(cluster.regions.next_index(), until);
}

/// A stream that has had its answer and is bound.
async fn bound(cluster: &Arc<Cluster>, name: &str) -> Follower {
    let next = cluster.regions.next_index();
    let mut follower = Follower::open(cluster, name, next).await;
    assert_eq!(follower.brief().await, (next, vec![]));
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    follower
}

#[tokio::test(start_paused = true)]
async fn index_0_of_an_empty_history_gets_an_empty_frame_whatever_the_map_holds() {
    let cluster = cluster_with(config85(), 0);
    cluster.regions.load(region(1, 1)).unwrap();
    let mut follower = Follower::open(&cluster, "a", 0).await;
    assert_eq!(follower.brief().await, (0, vec![]));
    follower.quiet(9 * SECOND).await;
    assert_eq!(follower.brief().await, (0, vec![]), "a keepalive");
}

#[tokio::test(start_paused = true)]
async fn index_0_gets_the_history_instead_of_the_snapshot_while_it_reaches_back() {
    let cluster = cluster85(0, 16).await;
    cluster.regions.load(region(99, 1)).unwrap();
    let mut follower = Follower::open(&cluster, "a", 0).await;
    let (start, ids) = follower.brief().await;
    assert_eq!((start, ids), (0, (1..=16).collect()), "without region 99");
}

#[tokio::test(start_paused = true)]
async fn a_full_sync_has_positions_and_no_end_and_loses_what_changes_meanwhile() {
    let cluster = cluster85(100, 9).await;
    let mut follower = Follower::open(&cluster, "a", 0).await;
    let first = follower.brief().await;
    assert_eq!((first.0, first.1.len()), (0, 4));
    // The second waits at the door, the third is not sent: the stream is not bound.
    report(&cluster, 1, [1]).await;
    let rest = follower.briefs(2).await;
    let shape = |brief: &Brief| (brief.0, brief.1.len());
    assert_eq!(rest.iter().map(shape).collect::<Vec<_>>(), [(4, 4), (8, 1)]);
    follower.quiet(SECOND).await;
    report(&cluster, 1, [2]).await;
    assert_eq!(follower.brief().await, (110, vec![2]), "109 is lost");
    assert_eq!(Counters::read(&cluster.counters.full_syncs), 1);
}

#[tokio::test(start_paused = true)]
async fn the_history_from_an_index_is_one_frame() {
    let cluster = cluster85(100, 12).await;
    let mut follower = Follower::open(&cluster, "a", 102).await;
    assert_eq!(follower.brief().await, (102, (3..=12).collect()));
    follower.quiet(9 * SECOND).await;
    assert_eq!(follower.brief().await, (112, vec![]));
}

#[tokio::test(start_paused = true)]
async fn too_old_an_index_and_one_beyond_the_head_get_nothing_and_then_the_broadcast() {
    let cluster = cluster85(100, 20).await;
    assert_eq!(cluster.regions.history().first_index(), 104);
    for (name, index) in [("old", 103), ("ahead", 999), ("far", u64::MAX)] {
        let mut follower = Follower::open(&cluster, name, index).await;
        follower.quiet(SECOND).await;
        let next = cluster.regions.next_index();
        report(&cluster, 1, [1]).await;
        assert_eq!(follower.brief().await, (next, vec![1]), "{index}");
    }
    assert_eq!(Counters::read(&cluster.counters.full_syncs), 0);
}

#[tokio::test(start_paused = true)]
async fn the_history_does_not_grow_for_anyone() {
    let cluster = cluster85(100, 40).await;
    let _late = Follower::open(&cluster, "a", 101).await;
    report(&cluster, 10, 1..=10).await;
    assert_eq!(cluster.regions.history().first_index(), 150 - 16);
}

#[tokio::test(start_paused = true)]
async fn a_live_frame_holds_one_more_than_a_batch_and_all_streams_get_the_same() {
    let cluster = cluster85(0, 1).await;
    let (mut one, mut other) = (bound(&cluster, "a").await, bound(&cluster, "b").await);
    report(&cluster, 7, 1..=7).await;
    for follower in [&mut one, &mut other] {
        assert_eq!(
            follower.briefs(2).await,
            [(1, vec![1, 2, 3, 4, 5]), (6, vec![6, 7])]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_does_not_read_holds_up_all_others_and_the_history() {
    let cluster = cluster85(0, 1).await;
    let mut stuck = bound(&cluster, "a-stuck").await;
    let mut other = bound(&cluster, "b").await;
    report(&cluster, 1, [1]).await;
    assert_eq!(other.brief().await, (1, vec![1]));
    // The first frame waits at the stuck one's door; the second holds the broadcaster there.
    report(&cluster, 1, [2]).await;
    for id in 3..=9 {
        cluster.regions.report(region(id, 1_000), 0).unwrap();
    }
    other.quiet(9 * SECOND).await;
    assert_eq!(cluster.regions.next_index(), 3, "the rest waits");
    let mut probe = Follower::open(&cluster, "probe", 3).await;
    assert_eq!(probe.brief().await, (3, vec![]), "as if it were in sync");
    // The send gives up. A keepalive is due by then, too, and comes whenever the broadcaster picks it.
    let mut got = Vec::new();
    while got.len() < 3 {
        let (start, ids) = other.brief().await;
        if !ids.is_empty() {
            got.push((start, ids));
        }
    }
    assert_eq!(
        got,
        [(2, vec![2]), (3, vec![3, 4, 5, 6, 7]), (8, vec![8, 9])]
    );
    let status = stuck.end().await;
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "region syncer stream closed");
}

#[tokio::test(start_paused = true)]
async fn the_older_patch_releases_wait_for_ever() {
    let config = LeaderConfig {
        send_timeout: Duration::MAX,
        ..config85()
    };
    let cluster = cluster_with(config, 5);
    let mut stuck = bound(&cluster, "a-stuck").await;
    let mut other = bound(&cluster, "b").await;
    report(&cluster, 1, [1]).await;
    report(&cluster, 1, [2]).await;
    assert_eq!(other.brief().await, (5, vec![1]));
    other.quiet(3_600 * SECOND).await;
    assert_eq!(stuck.brief().await, (5, vec![1]));
    assert_eq!(other.brief().await, (6, vec![2]));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_takes_a_name_ends_the_one_that_had_it() {
    let cluster = cluster85(0, 1).await;
    let mut former = bound(&cluster, "a").await;
    let mut latter = bound(&cluster, "a").await;
    assert_eq!(former.end().await.message(), "region syncer stream closed");
    report(&cluster, 1, [1]).await;
    assert_eq!(latter.brief().await, (1, vec![1]));
    assert_eq!(cluster.streams.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_ends_its_streams_in_this_dialect_too() {
    let cluster = cluster85(0, 1).await;
    let mut follower = bound(&cluster, "a").await;
    cluster.stopping.cancel();
    let frame = follower.frame().await;
    assert!(frame.header.unwrap().error.is_some());
    assert_eq!(follower.end().await.message(), "region syncer stopped");
}

#[tokio::test(start_paused = true)]
async fn its_members_say_that_it_is_a_release_of_8_5() {
    assert!(
        cluster85(0, 1)
            .await
            .member
            .binary_version
            .starts_with("v8.5.")
    );
}
