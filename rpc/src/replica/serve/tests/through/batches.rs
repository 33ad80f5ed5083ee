//! Batches and scans.

use super::*;

#[tokio::test(start_paused = true)]
async fn f7_a_batch_behind_a_shut_gate_is_resolved_whole_on_one_snapshot() {
    let bench = Through::new();
    bench.shut().await;
    bench.script.knows(Is(2, "d", "m", 5, 2));
    let request = QueryRegionRequest {
        prev_keys: vec![b"e".to_vec().into()],
        ids: vec![3, 0],
        ..keys(&["a", "e"])
    };
    let answer = bench.query(request.clone()).await;
    assert_eq!(error_of(answer.header.as_ref()), None);
    assert_eq!(
        (&answer.key_id_map[..], &answer.prev_key_id_map[..]),
        (&[1, 2][..], &[1][..])
    );
    let store = answer.regions_by_id[&2]
        .leader
        .as_ref()
        .map(|leader| leader.store_id);
    assert_eq!((store, answer.regions_by_id.len()), (Some(2), 3));
    assert_eq!(bench.script.asked().len(), 1);
    // All of it is confirmed now.
    assert_eq!(bench.query(request).await.key_id_map, [1, 2]);
    assert_eq!(bench.script.asked().len(), 1);
    let counts = bench.counts(Method::QueryRegion);
    assert_eq!((counts.asked, counts.confirmed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn f7_a_batch_with_a_miss_asks_for_what_it_lacks_and_keeps_what_is_nowhere_empty() {
    let bench = Through::new();
    remove(&bench.serving.shared.map, 2);
    let answer = bench
        .query(QueryRegionRequest {
            ids: vec![99],
            ..keys(&["a", "e"])
        })
        .await;
    assert_eq!(error_of(answer.header.as_ref()), None);
    assert_eq!(answer.key_id_map, [1, 2]);
    assert!(answer.regions_by_id[&99].region.is_none());
    let asked = Call::Query {
        keys: vec!["e".into()],
        prev: vec![],
        ids: vec![99],
    };
    assert_eq!(bench.script.asked(), [asked]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_the_map_cannot_hold_is_the_leaders_as_it_is() {
    let bench = Through::new();
    bench.shut().await;
    // The leader has lost half of a region's range: the map must not, for now, and cannot say so.
    remove(&bench.script.map, 2);
    bench.script.knows(Is(2, "d", "g", 6, 1));
    let answer = bench.query(keys(&["e", "h"])).await;
    assert_eq!(answer.key_id_map, [2, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_waits_for_the_leader_no_longer_than_its_deadline_and_other_streams_do_not_wait() {
    let bench = Through::new();
    bench.script.hold();
    remove(&bench.serving.shared.map, 2);
    let began = tokio::time::Instant::now();
    let stuck = bench.query(keys(&["e"]));
    tokio::pin!(stuck);
    assert!(futures_pending(&mut stuck).await, "it waits");
    assert_eq!(bench.query(keys(&["a"])).await.key_id_map, [1]);
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(error_of(stuck.await.header.as_ref()), refused());
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    assert_eq!(bench.counts(Method::QueryRegion).missed, 1);
}

pub(super) async fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
    let polled = std::future::poll_fn(|cx| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())
    });
    polled.await
}

#[tokio::test(start_paused = true)]
async fn a_hole_that_a_scan_passes_over_is_asked_about_and_never_served_as_free() {
    let bench = Through::new();
    remove(&bench.serving.shared.map, 2);
    let scan = |limit| ScanRegionsRequest {
        header: header(),
        start_key: b"a".to_vec().into(),
        end_key: b"z".to_vec().into(),
        limit,
    };
    let pd = PdService(Arc::clone(&bench.serving));
    let ids = |response: &Response<ScanRegionsResponse>| -> Vec<u64> {
        let found = response.get_ref().regions.iter();
        found
            .map(|found| found.region.as_ref().map_or(0, |region| region.id))
            .collect()
    };
    let first = pd
        .scan_regions(to_follower(scan(1)))
        .await
        .expect("answered");
    assert_eq!(
        (ids(&first), bench.script.asked().len()),
        (vec![1], 0),
        "up to the limit"
    );
    let all = pd
        .scan_regions(to_follower(scan(0)))
        .await
        .expect("answered");
    assert_eq!(ids(&all), [1, 2, 3]);
    assert_eq!(
        all.metadata()
            .get("tidegate-source")
            .map(|it| it.as_bytes()),
        Some(&b"leader"[..])
    );
    assert_eq!(bench.script.asked(), [Call::Scan("a".into(), "z".into())]);
    // Without a leader what the map has is an answer, as it always was.
    remove(&bench.serving.shared.map, 2);
    bench.serving.shared.publish_no_leader();
    let rest = pd
        .scan_regions(to_follower(scan(0)))
        .await
        .expect("answered");
    assert_eq!(ids(&rest), [1, 3]);
    // Behind a shut gate, a scan of confirmed regions without a hole is one.
    bench.lead(Some(1));
    bench.shut().await;
    assert_eq!(
        ids(&pd
            .scan_regions(to_follower(scan(0)))
            .await
            .expect("answered")),
        [1, 2, 3]
    );
    let again = pd
        .scan_regions(to_follower(scan(0)))
        .await
        .expect("answered");
    assert_eq!(ids(&again), [1, 2, 3]);
    let source = again
        .metadata()
        .get("tidegate-source")
        .map(|it| it.as_bytes());
    assert_eq!(source, Some(&b"confirmed"[..]));
}

#[tokio::test(start_paused = true)]
async fn on_the_router_service_a_missing_region_is_the_leaders_word() {
    let bench = Through::new();
    remove(&bench.serving.shared.map, 2);
    let router = RouterService(Arc::clone(&bench.serving));
    let answer = router
        .get_region(Request::new(key(b"e")))
        .await
        .expect("answered");
    assert_eq!(id_of(answer.get_ref()), 2);
}
