use prost::Message;
use tonic::Code;

use super::*;

/// A budget that lets one frame through at once and makes each later one wait.
fn metered() -> LeaderConfig {
    let four: Vec<tidegate_core::SharedEntry> = (1..=4)
        .map(|id| tidegate_core::Entry::new(region(id, 2), provenance()).into())
        .collect();
    let frame = frame::regions(CLUSTER, 4000, four.iter());
    LeaderConfig {
        full_sync_rate: frame.encoded_len() as u64 + 8,
        ..config()
    }
}

fn provenance() -> tidegate_core::Provenance {
    tidegate_core::Provenance::Stream {
        received_at: tidegate_core::Moment::from_nanos(1),
    }
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_counts_positions_and_ends_with_an_empty_frame() {
    let cluster = cluster_with(config(), 100);
    report(&cluster, 1..=10);
    let mut follower = Follower::open(&cluster, "a", 0).await;
    assert_eq!(
        follower.briefs(4).await,
        [
            (0, vec![1, 2, 3, 4]),
            (4, vec![5, 6, 7, 8]),
            (8, vec![9, 10]),
            (110, vec![])
        ]
    );
    report(&cluster, [3]);
    assert_eq!(
        follower.brief().await,
        (110, vec![3]),
        "then the stream is live"
    );
}

#[tokio::test(start_paused = true)]
async fn every_list_of_a_frame_has_an_element_for_every_region() {
    let cluster = cluster();
    let leaderless = region(1, 2).to_builder().leader(None).build().unwrap();
    cluster.regions.report(leaderless, 0).unwrap();
    report(&cluster, [2]);
    let mut follower = Follower::open(&cluster, "a", 0).await;
    let frame = follower.frame().await;
    assert_eq!(
        frame
            .region_leaders
            .iter()
            .map(|peer| peer.id)
            .collect::<Vec<_>>(),
        [0, 20]
    );
    assert_eq!(frame.buckets[0], crate::proto::metapb::Buckets::default());
}

#[tokio::test(start_paused = true)]
async fn what_changes_during_a_full_sync_follows_the_snapshot_under_its_true_index() {
    let cluster = cluster_with(metered(), 100);
    report(&cluster, 1..=8);
    let mut follower = Follower::open(&cluster, "a", 0).await;
    assert_eq!(follower.brief().await, (0, vec![1, 2, 3, 4]));
    // The second frame waits for its budget.
    tokio::time::sleep(Duration::from_millis(100)).await;
    report(&cluster, [1, 2, 3, 4, 5, 6]);
    assert_eq!(
        follower.briefs(4).await,
        [
            (4, vec![5, 6, 7, 8]),
            (108, vec![1, 2, 3, 4]),
            (112, vec![5, 6]),
            (114, vec![])
        ]
    );
    report(&cluster, [7]);
    assert_eq!(follower.brief().await, (114, vec![7]));
}

#[tokio::test(start_paused = true)]
async fn the_history_grows_to_keep_what_changes_during_a_full_sync() {
    let cluster = cluster_with(metered(), 100);
    report(&cluster, 1..=8);
    let mut follower = Follower::open(&cluster, "a", 0).await;
    assert_eq!(follower.brief().await.0, 0);
    for id in (1..=8).cycle().take(40) {
        report(&cluster, [id]);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(cluster.regions.history().capacity() >= 40, "it had 16");
    assert_eq!(follower.brief().await.0, 4);
    let mut next = 108;
    loop {
        let (start, ids) = follower.brief().await;
        assert_eq!(start, next);
        next += ids.len() as u64;
        if ids.is_empty() {
            break;
        }
    }
    assert_eq!(next, 148);
}

#[tokio::test(start_paused = true)]
async fn a_full_sync_that_too_much_changes_under_is_given_up() {
    let config = LeaderConfig {
        ring_limit: 16,
        ..metered()
    };
    let cluster = cluster_with(config, 100);
    report(&cluster, 1..=8);
    let mut follower = Follower::open(&cluster, "a", 0).await;
    assert_eq!(follower.brief().await.0, 0);
    for id in (1..=8).cycle().take(21) {
        report(&cluster, [id]);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let status = follower.end().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(
        status.message(),
        "history records from full sync start index 108 are no longer available"
    );
    assert_eq!(cluster.streams.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_empty_snapshot_is_only_its_end() {
    let cluster = cluster_with(config(), 100);
    let mut follower = Follower::open(&cluster, "a", 0).await;
    assert_eq!(follower.brief().await, (100, vec![]));
    report(&cluster, [1]);
    assert_eq!(follower.brief().await, (100, vec![1]));
}

#[tokio::test(start_paused = true)]
async fn after_an_empty_snapshot_the_changes_start_at_position_0() {
    // The first region comes between the last look at the map and the last look at the history.
    let cluster = cluster_with(config(), 100);
    let (frames, mut flow) = outlet(8);
    let seat = cluster.streams.sit("a");
    let mut stream = SyncStream::new(&cluster, &frames, &seat);
    let changed = vec![
        region(1, 2),
        region(2, 2),
        region(3, 2),
        region(4, 2),
        region(5, 2),
    ];
    cluster.regions.report_all(changed.clone());
    stream.complete(0).await.unwrap();
    let mut briefs = Vec::new();
    for _ in 0..3 {
        let frame = flow.next().await.unwrap().unwrap();
        briefs.push((frame.start_index, frame.regions.len()));
    }
    assert_eq!(briefs, [(0, 4), (4, 1), (105, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_split_or_merge_between_two_pages_leaves_no_hole() {
    let cluster = cluster_with(metered(), 100);
    report(&cluster, 1..=8);
    let mut follower = Follower::open(&cluster, "a", 0).await;
    let mut staged = std::collections::BTreeMap::new();
    let mut take = |frame: SyncRegionResponse| {
        let empty = frame.regions.is_empty();
        for region in frame.regions {
            let version = region.region_epoch.unwrap().version;
            staged.retain(|start, (end, old)| {
                let apart = *end <= region.start_key || *start >= region.end_key;
                apart || *old > version
            });
            staged.insert(region.start_key, (region.end_key, version));
        }
        (empty, staged.clone())
    };
    take(follower.frame().await);
    tokio::time::sleep(Duration::from_millis(10)).await;
    // Region 5, the first of the next page, swallows 4, the last of the one that was sent.
    let merged = KeyRange::new("0004", "0006").unwrap();
    let epoch = RegionEpoch {
        conf_ver: 1,
        version: 500,
    };
    let merged = region(5, 2)
        .to_builder()
        .range(merged)
        .epoch(epoch)
        .build()
        .unwrap();
    cluster.regions.report(merged, 0).unwrap();
    let staged = loop {
        let (done, staged) = take(follower.frame().await);
        if done {
            break staged;
        }
    };
    let mut at = bytes::Bytes::from_static(b"0001");
    for (start, (end, _)) in staged {
        assert_eq!(start, at, "no hole and no overlap");
        at = end;
    }
    assert_eq!(at, "0009");
}

#[tokio::test(start_paused = true)]
async fn full_syncs_share_one_budget() {
    let cluster = cluster_with(metered(), 100);
    report(&cluster, 1..=8);
    let started = tokio::time::Instant::now();
    let mut first = Follower::open(&cluster, "a", 0).await;
    let mut second = Follower::open(&cluster, "b", 0).await;
    let (one, two) = tokio::join!(first.briefs(3), second.briefs(3));
    assert_eq!(one, two);
    let took = started.elapsed();
    // Four frames of about a second each, the first of them free.
    assert!(
        took > Duration::from_millis(2500) && took < 4 * SECOND,
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_frame_beyond_the_whole_budget_ends_the_stream() {
    let cluster = cluster_with(
        LeaderConfig {
            full_sync_rate: 10,
            ..config()
        },
        100,
    );
    report(&cluster, 1..=4);
    let mut follower = Follower::open(&cluster, "a", 0).await;
    assert_eq!(follower.end().await.code(), Code::ResourceExhausted);
}

#[tokio::test(start_paused = true)]
async fn a_full_sync_that_waits_for_its_budget_ends_with_the_leader() {
    let cluster = cluster_with(metered(), 100);
    report(&cluster, 1..=8);
    let mut follower = Follower::open(&cluster, "a", 0).await;
    assert_eq!(follower.brief().await.0, 0);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let before = tokio::time::Instant::now();
    cluster.stopping.cancel();
    assert!(follower.frame().await.header.unwrap().error.is_some());
    assert_eq!(follower.end().await.message(), "region syncer stopped");
    assert_eq!(before.elapsed(), Duration::ZERO);
}
