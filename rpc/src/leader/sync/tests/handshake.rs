use tonic::Code;

use super::*;

async fn refusal(cluster: &Arc<Cluster>, request: SyncRegionRequest) -> Status {
    let mut follower = Follower::silent(cluster);
    follower.send(request).await;
    follower.end().await
}

#[tokio::test(start_paused = true)]
async fn a_foreign_cluster_is_refused_with_pds_text() {
    let cluster = cluster();
    let foreign = SyncRegionRequest {
        header: Some(RequestHeader {
            cluster_id: 8,
            ..RequestHeader::default()
        }),
        ..request("a", 0)
    };
    let status = refusal(&cluster, foreign).await;
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.message(), "mismatch cluster id, need 7 but got 8");
}

#[tokio::test(start_paused = true)]
async fn a_member_without_urls_is_refused_in_words() {
    let cluster = cluster();
    let mut nowhere = request("a", 0);
    nowhere.member.as_mut().unwrap().client_urls.clear();
    let status = refusal(&cluster, nowhere).await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("client urls"), "{status}");
    let nobody = SyncRegionRequest {
        member: None,
        ..request("a", 0)
    };
    assert_eq!(
        refusal(&cluster, nobody).await.code(),
        Code::InvalidArgument
    );
    assert_eq!(cluster.streams.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_says_nothing_is_not_waited_for_forever() {
    let cluster = cluster();
    let mut follower = Follower::silent(&cluster);
    assert_eq!(follower.end().await.code(), Code::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_leaves_before_its_request_leaves_nothing() {
    let cluster = cluster();
    let Follower {
        requests,
        mut frames,
    } = Follower::silent(&cluster);
    drop(requests);
    assert!(frames.next().await.is_none(), "a clean end");
    assert_eq!(cluster.streams.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_is_cut_off_before_its_request_is_not_waited_for() {
    let cluster = cluster();
    let Follower { requests, frames } = Follower::silent(&cluster);
    drop(frames);
    // Resolves when the stream's task has let go of its end.
    timeout(SECOND, requests.closed())
        .await
        .expect("before the handshake's deadline");
}

#[tokio::test(start_paused = true)]
async fn only_the_first_request_counts() {
    let cluster = cluster();
    report(&cluster, 1..=3);
    let mut follower = Follower::open(&cluster, "a", 3).await;
    assert_eq!(follower.brief().await, (3, vec![]));
    follower.send(request("b", 0)).await;
    follower.quiet(9 * SECOND).await;
    assert_eq!(cluster.streams.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_index_that_is_next_is_answered_by_one_empty_frame() {
    let cluster = cluster();
    report(&cluster, 1..=3);
    let mut follower = Follower::open(&cluster, "a", 3).await;
    assert_eq!(follower.brief().await, (3, vec![]));
    follower.quiet(9 * SECOND).await;
    assert_eq!(Counters::read(&cluster.counters.full_syncs), 0);
}

#[tokio::test(start_paused = true)]
async fn the_history_is_sent_in_frames_that_start_with_their_index() {
    let cluster = cluster_with(config(), 100);
    report(&cluster, 1..=10);
    let mut follower = Follower::open(&cluster, "a", 101).await;
    assert_eq!(
        follower.briefs(3).await,
        [
            (101, vec![2, 3, 4, 5]),
            (105, vec![6, 7, 8, 9]),
            (109, vec![10])
        ]
    );
    follower.quiet(9 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn index_0_is_a_full_sync_even_when_the_history_reaches_back_to_it() {
    let cluster = cluster();
    report(&cluster, [1, 2, 1]);
    let mut follower = Follower::open(&cluster, "a", 0).await;
    assert_eq!(follower.briefs(2).await, [(0, vec![1, 2]), (3, vec![])]);
    assert_eq!(Counters::read(&cluster.counters.full_syncs), 1);
}

#[tokio::test(start_paused = true)]
async fn an_index_before_the_history_is_a_full_sync() {
    let cluster = cluster_with(config(), 100);
    report(&cluster, (1..=2).cycle().take(20));
    assert_eq!(cluster.regions.history().first_index(), 104);
    for start_index in [1, 99, 103] {
        let mut follower = Follower::open(&cluster, "a", start_index).await;
        assert_eq!(follower.briefs(2).await, [(0, vec![1, 2]), (120, vec![])]);
    }
    let mut follower = Follower::open(&cluster, "a", 104).await;
    assert_eq!(
        follower.brief().await.0,
        104,
        "the oldest record is still there"
    );
}

#[tokio::test(start_paused = true)]
async fn an_index_beyond_the_head_is_a_full_sync() {
    let cluster = cluster_with(config(), 100);
    report(&cluster, 1..=2);
    let mut follower = Follower::open(&cluster, "a", 103).await;
    assert_eq!(follower.briefs(2).await, [(0, vec![1, 2]), (102, vec![])]);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_only_the_exact_index_is_in_sync() {
    let old = cluster_with(config(), 100);
    report(&old, 1..=3);
    let mut state = old.state(SocketAddr::from((Ipv4Addr::LOCALHOST, 2379)));
    state.rewind_index(1);
    let new = Arc::new(Cluster::new(config(), state.addr, state));
    assert!(new.revision > old.revision);
    let mut exact = Follower::open(&new, "a", 102).await;
    assert_eq!(exact.brief().await, (102, vec![]));
    for other in [101, 103] {
        let mut follower = Follower::open(&new, "b", other).await;
        assert_eq!(
            follower.briefs(2).await,
            [(0, vec![1, 2, 3]), (102, vec![])]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_stream_under_a_name_ends_the_first() {
    let cluster = cluster();
    report(&cluster, 1..=3);
    let mut first = Follower::open(&cluster, "a", 3).await;
    let mut other = Follower::open(&cluster, "b", 3).await;
    assert_eq!(
        (first.brief().await, other.brief().await),
        ((3, vec![]), (3, vec![]))
    );
    let mut second = Follower::open(&cluster, "a", 3).await;
    assert_eq!(second.brief().await, (3, vec![]));
    let status = first.end().await;
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "region syncer stream closed");
    report(&cluster, [1]);
    assert_eq!(
        second.brief().await,
        (3, vec![1]),
        "the end of the first took nothing along"
    );
    assert_eq!(other.brief().await, (3, vec![1]));
    assert_eq!(cluster.streams.len(), 2);
}
