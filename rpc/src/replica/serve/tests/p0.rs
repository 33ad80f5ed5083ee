//! The plan of the first proposal, line by line, under `when-stale = refuse`: a stale replica refuses, and does so in
//! PD's own words, so that stock clients retry at the leader.

use super::*;

impl Bench {
    async fn got(&self) -> Option<(i32, String)> {
        let answer = self
            .pd()
            .get_region(to_follower(key(b"a")))
            .await
            .expect("a header");
        error_of(answer.get_ref().header.as_ref())
    }

    async fn is_healthy(&self) -> bool {
        let health = HealthService(Arc::clone(&self.serving));
        let request = Request::new(HealthCheckRequest::default());
        health.check(request).await.expect("known").get_ref().status == 1
    }

    /// A frame of the stream, as the receiver reports it: its start and its length.
    fn frame(&self, start_index: u64, regions: u64) {
        self.serving
            .shared
            .gate
            .head_received(1, start_index + regions);
    }
}

#[tokio::test]
async fn p0_lag_is_the_same_for_both_shapes_of_the_start_index() {
    let threshold = Thresholds::default().index_threshold;
    // An update starts where its records begin; a keepalive at the tip.
    for (start_index, regions) in [(10 + threshold - 100, 100), (10 + threshold, 0)] {
        let bench = Bench::fresh();
        bench.frame(start_index, regions);
        assert_eq!(
            bench.serving.shared.gate.view().lag,
            tidegate_core::gate::Lag::Known(threshold)
        );
        assert_eq!(bench.got().await, None, "at the threshold");
        bench.frame(start_index + 1, regions);
        assert_eq!(bench.got().await, refused(), "above it");
        assert_eq!(
            bench.counts(Method::GetRegion).refused_by_reason,
            [("index_lag", 1)].into()
        );
    }
}

#[tokio::test]
async fn p0_the_time_since_the_last_sync_counts_from_receipt_and_only_once_the_apply_is_done() {
    let bench = Bench::fresh();
    let gate = &bench.serving.shared.gate;
    bench.clock.advance(Duration::from_secs(8));
    let received_at = bench.clock.now();
    // Received, and queued for 8 s behind others.
    bench.clock.advance(Duration::from_secs(8));
    gate.apply_started(1, bench.clock.now());
    assert_eq!(
        gate.view().last_sync,
        Some(Moment::from_nanos(1_000_000_000)),
        "not yet"
    );
    gate.apply_finished(1, 10, received_at);
    let last_sync = gate.view().last_sync.expect("synced");
    assert_eq!(
        bench.clock.now().saturating_since(last_sync),
        Duration::from_secs(8)
    );
}

#[tokio::test]
async fn p0_a_value_at_its_threshold_serves_and_one_above_refuses() {
    let limits = Thresholds::default();
    let moment = Duration::from_nanos(1);
    let silent = Bench::fresh();
    silent.clock.advance(limits.time_threshold);
    let prove = |bench: &Bench| {
        let gate = &bench.serving.shared.gate;
        gate.probe_answered(1, bench.clock.now(), 10);
    };
    prove(&silent);
    assert_eq!(silent.got().await, None);
    silent.clock.advance(moment);
    assert_eq!(silent.got().await, refused());

    let stalled = Bench::fresh();
    stalled
        .serving
        .shared
        .gate
        .apply_started(1, stalled.clock.now());
    stalled.clock.advance(limits.stall_threshold);
    assert_eq!(stalled.got().await, None);
    stalled.clock.advance(moment);
    assert_eq!(stalled.got().await, refused());

    let old = Bench::fresh();
    old.clock.advance(limits.max_age);
    assert_eq!(old.got().await, None);
    old.clock.advance(moment);
    assert_eq!(old.got().await, refused());
}

#[tokio::test]
async fn p0_a_restarted_follower_with_an_index_and_no_records_is_not_healthy() {
    let bench = Bench::empty();
    let (shared, now) = (&bench.serving.shared, bench.clock.now());
    // What a restart has from its disk: an index, and regions, but no word from the leader since.
    shared.gate.begin(1);
    shared.gate.apply_started(1, now);
    shared.gate.apply_finished(1, 4_711, now);
    shared.map.replace_with(map_of(&[(1, b"", b"")]), 1);
    shared.gate.publish(1);
    assert_eq!(shared.gate.applied(), 4_711);
    assert_eq!(bench.got().await, refused());
    assert!(!bench.is_healthy().await);
    shared.gate.probe_answered(1, now, 4_711);
    assert_eq!(bench.got().await, None);
    assert!(bench.is_healthy().await);
}

#[tokio::test]
async fn p0_a_wedged_apply_is_seen_although_the_lag_stays_small() {
    let bench = Bench::fresh();
    bench
        .serving
        .shared
        .gate
        .apply_started(1, bench.clock.now());
    bench.clock.advance(Duration::from_millis(3_001));
    // The stream keeps delivering, and a hundred records are all that is known to be missing.
    bench.frame(10, 100);
    assert_eq!(bench.got().await, refused());
    assert_eq!(
        bench.counts(Method::GetRegion).refused_by_reason,
        [("apply_stall", 1)].into()
    );
}

#[tokio::test]
async fn p0_a_follower_past_a_threshold_refuses_every_lookup_so_that_no_stale_answer_gets_a_fresh_life()
 {
    let bench = Bench::fresh();
    bench.clock.advance(Duration::from_secs(11));
    let pd = bench.pd();
    let by_id = GetRegionByIdRequest {
        header: header(),
        region_id: 1,
        need_buckets: false,
    };
    let scan = ScanRegionsRequest {
        header: header(),
        ..ScanRegionsRequest::default()
    };
    let batch = BatchScanRegionsRequest {
        header: header(),
        ranges: vec![PbRange::default()],
        ..BatchScanRegionsRequest::default()
    };
    let prev = pd
        .get_prev_region(to_follower(key(b"c")))
        .await
        .expect("a header");
    let by_id = pd
        .get_region_by_id(to_follower(by_id))
        .await
        .expect("a header");
    let scan = pd.scan_regions(to_follower(scan)).await.expect("a header");
    let batch = pd
        .batch_scan_regions(to_follower(batch))
        .await
        .expect("a header");
    let headers = [
        prev.get_ref().header.clone(),
        by_id.get_ref().header.clone(),
        scan.get_ref().header.clone(),
        batch.get_ref().header.clone(),
    ];
    for header in headers {
        assert_eq!(error_of(header.as_ref()), refused());
    }
    assert_eq!((id_of(prev.get_ref()), id_of(by_id.get_ref())), (0, 0));
    assert!(scan.get_ref().regions.is_empty() && batch.get_ref().regions.is_empty());
    assert_eq!(bench.got().await, refused());
    assert_eq!(
        bench.serving.counters.total().refused_by_reason,
        [("age", 5)].into()
    );
}
