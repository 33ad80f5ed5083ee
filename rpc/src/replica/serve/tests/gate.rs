use super::*;

#[tokio::test]
async fn a_fresh_map_answers_every_lookup() {
    let bench = Bench::fresh();
    let pd = bench.pd();
    let got = pd
        .get_region(to_follower(key(b"c")))
        .await
        .expect("answered")
        .into_inner();
    assert_eq!((error_of(got.header.as_ref()), id_of(&got)), (None, 2));
    let prev = pd
        .get_prev_region(to_follower(key(b"c")))
        .await
        .expect("answered")
        .into_inner();
    assert_eq!((error_of(prev.header.as_ref()), id_of(&prev)), (None, 1));
    let by_id = GetRegionByIdRequest {
        header: header(),
        region_id: 3,
        need_buckets: false,
    };
    let by_id = pd
        .get_region_by_id(to_follower(by_id))
        .await
        .expect("answered")
        .into_inner();
    assert_eq!((error_of(by_id.header.as_ref()), id_of(&by_id)), (None, 3));
    let scan = ScanRegionsRequest {
        header: header(),
        limit: i32::MAX,
        ..ScanRegionsRequest::default()
    };
    let scan = pd
        .scan_regions(to_follower(scan))
        .await
        .expect("answered")
        .into_inner();
    assert_eq!(error_of(scan.header.as_ref()), None);
    assert_eq!(
        scan.region_metas.iter().map(|r| r.id).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(bench.serving.counters.total().served, 4);
}

#[tokio::test]
async fn a_miss_is_no_answer_and_counts_as_missed() {
    let bench = Bench::fresh();
    for missing in [
        bench.pd().get_region(to_follower(key(b"e"))).await,
        bench.router().get_region(Request::new(key(b"e"))).await,
    ] {
        let missing = missing.expect("a header").into_inner();
        assert_eq!(
            (error_of(missing.header.as_ref()), id_of(&missing)),
            (refused(), 0)
        );
    }
    let unknown = GetRegionByIdRequest {
        header: header(),
        region_id: 99,
        need_buckets: false,
    };
    let unknown = bench
        .pd()
        .get_region_by_id(to_follower(unknown))
        .await
        .expect("a header");
    assert_eq!(error_of(unknown.get_ref().header.as_ref()), refused());
    assert_eq!(bench.counts(Method::GetRegion).missed, 2);
    assert_eq!(bench.counts(Method::GetRegionById).missed, 1);
    assert_eq!(bench.serving.counters.total().refused, 0);
}

#[tokio::test]
async fn an_empty_range_is_an_answer() {
    let bench = Bench::fresh();
    let (start_key, end_key) = (b"d".to_vec().into(), b"e".to_vec().into());
    let scan = ScanRegionsRequest {
        header: header(),
        start_key,
        end_key,
        limit: 0,
    };
    let scan = bench
        .pd()
        .scan_regions(to_follower(scan))
        .await
        .expect("answered")
        .into_inner();
    assert_eq!(
        (error_of(scan.header.as_ref()), scan.regions.len()),
        (None, 0)
    );
    let batch = BatchScanRegionsRequest {
        header: header(),
        ..BatchScanRegionsRequest::default()
    };
    let batch = bench
        .router()
        .batch_scan_regions(Request::new(batch))
        .await
        .expect("answered");
    assert_eq!(error_of(batch.get_ref().header.as_ref()), None);
    assert_eq!(bench.serving.counters.total().served, 2);
}

#[tokio::test]
async fn bad_ranges_get_pds_errors_and_a_forbidden_hole_is_a_miss() {
    let bench = Bench::fresh();
    let batch = |ranges: &[(&[u8], &[u8])], contain_all_key_range| {
        let range = |&(start, end): &(&[u8], &[u8])| PbRange {
            start_key: start.to_vec().into(),
            end_key: end.to_vec().into(),
        };
        let request = BatchScanRegionsRequest {
            header: header(),
            ranges: ranges.iter().map(range).collect(),
            limit: i32::MAX,
            contain_all_key_range,
            ..BatchScanRegionsRequest::default()
        };
        let pd = bench.pd();
        async move {
            let answer = pd
                .batch_scan_regions(to_follower(request))
                .await
                .expect("a header");
            error_of(answer.get_ref().header.as_ref())
        }
    };
    let overlap = batch(&[(b"a", b"c"), (b"b", b"d")], false).await;
    assert_eq!(
        overlap,
        Some((1, "invalid key range, ranges overlapped".to_owned()))
    );
    let inverted = batch(&[(b"c", b"a")], false).await;
    assert_eq!(
        inverted,
        Some((1, "invalid key range, start key > end key".to_owned()))
    );
    let (kind, text) = batch(&[(b"a", b"g")], true).await.expect("a hole");
    assert_eq!(kind, 12);
    assert!(text.contains("found a hole region between"), "{text}");
    assert_eq!(batch(&[(b"a", b"g")], false).await, None);
    let counts = bench.counts(Method::BatchScanRegions);
    assert_eq!((counts.invalid, counts.missed, counts.served), (2, 1, 1));
}

#[tokio::test]
async fn g5_every_reason_of_the_gate_is_pds_refusal_and_is_counted_by_its_name() {
    let unproven = Bench::empty();
    let gap = Bench::fresh();
    gap.serving.shared.gate.gap(1, true);
    let stalled = Bench::fresh();
    stalled
        .serving
        .shared
        .gate
        .apply_started(1, stalled.clock.now());
    stalled.clock.advance(Duration::from_secs(4));
    let lagging = Bench::fresh();
    lagging.serving.shared.gate.head_received(1, 10 + 20_001);
    let old = Bench::fresh();
    old.clock.advance(Duration::from_millis(10_001));
    let silent = Bench::fresh();
    silent.clock.advance(Duration::from_secs(31));
    silent
        .serving
        .shared
        .gate
        .probe_answered(1, silent.clock.now(), 10);
    for (bench, reason) in [
        (unproven, "not_proven"),
        (gap, "gap"),
        (stalled, "apply_stall"),
        (lagging, "index_lag"),
        (old, "age"),
        (silent, "silence"),
    ] {
        let answer = bench
            .pd()
            .get_region(to_follower(key(b"a")))
            .await
            .expect("a header");
        assert_eq!(
            error_of(answer.get_ref().header.as_ref()),
            refused(),
            "{reason}"
        );
        let counts = bench.counts(Method::GetRegion);
        assert_eq!(counts.refused_by_reason, [(reason, 1)].into(), "{reason}");
        assert_eq!((counts.served, counts.missed), (0, 0));
        assert!(!bench.serving.is_serving());
    }
}

#[tokio::test]
async fn g5_the_gate_is_asked_again_after_the_lookup() {
    let bench = Bench::fresh();
    // The process is stopped in the middle of the lookup for longer than the data may be old.
    let response: GetRegionResponse = bench
        .serving
        .answer(Method::GetRegion, |lookup| {
            bench.clock.advance(Duration::from_secs(11));
            lookup.get(&key(b"a")).map_or(Found::Nothing, Found::Answer)
        })
        .await;
    assert_eq!(error_of(response.header.as_ref()), refused());
    assert_eq!(
        bench.counts(Method::GetRegion).refused_by_reason,
        [("age", 1)].into()
    );
}

#[tokio::test]
async fn g4_a_full_sync_in_the_middle_of_a_lookup_is_answered_from_the_new_map() {
    let bench = Bench::fresh();
    let lookups = AtomicUsize::new(0);
    let response: GetRegionResponse = bench
        .serving
        .answer(Method::GetRegion, |lookup| {
            let found = lookup.get(&key(b"a")).map_or(Found::Nothing, Found::Answer);
            if lookups.fetch_add(1, Relaxed) == 0 {
                bench.full_sync(2, &[(9, b"", b"")]);
            }
            found
        })
        .await;
    assert_eq!(lookups.load(Relaxed), 2);
    assert_eq!(
        (error_of(response.header.as_ref()), id_of(&response)),
        (None, 9)
    );
    assert_eq!(bench.counts(Method::GetRegion).served, 1);
}

#[tokio::test]
async fn g4_a_map_whose_generation_the_gate_has_not_published_is_not_answered_from() {
    let bench = Bench::fresh();
    bench
        .serving
        .shared
        .map
        .replace_with(map_of(&[(9, b"", b"")]), 2);
    let answer = bench
        .pd()
        .get_region(to_follower(key(b"a")))
        .await
        .expect("a header");
    assert_eq!(error_of(answer.get_ref().header.as_ref()), refused());
    assert_eq!(
        bench.counts(Method::GetRegion).refused_by_reason,
        [("not_proven", 1)].into()
    );
}

#[tokio::test]
async fn a_gate_that_is_switched_off_serves_whatever_the_map_holds() {
    let bench = Bench::with(true);
    bench
        .serving
        .shared
        .map
        .replace_with(map_of(&[(9, b"", b"m")]), 1);
    bench.clock.advance(Duration::from_secs(3600));
    let answer = bench
        .pd()
        .get_region(to_follower(key(b"a")))
        .await
        .expect("answered");
    assert_eq!(
        (
            error_of(answer.get_ref().header.as_ref()),
            id_of(answer.get_ref())
        ),
        (None, 9)
    );
    let missing = bench
        .pd()
        .get_region(to_follower(key(b"x")))
        .await
        .expect("a header");
    assert_eq!(error_of(missing.get_ref().header.as_ref()), refused());
}

#[tokio::test]
async fn before_the_cluster_is_known_the_gate_refuses_rather_than_the_cluster_check() {
    let clock = ManualClock::new(Moment::from_nanos(1));
    let shared = Shared::new(Arc::new(clock), Thresholds::default());
    let remote = Arc::new(Remote::new(ChannelSettings::default(), None));
    let serving = Serving::new(
        Arc::new(shared),
        remote,
        vec![],
        Duration::from_millis(10),
        false,
    );
    assert!(
        serving
            .check_pd(to_follower(()).metadata(), header().as_ref())
            .is_ok()
    );
    assert!(
        serving
            .check_pd(&MetadataMap::new(), header().as_ref())
            .is_err()
    );
    let serving = Arc::new(serving);
    let pd = PdService(Arc::clone(&serving));
    let response = pd.get_region(to_follower(key(b"a"))).await;
    let response = response.expect("a header").into_inner();
    let header = response.header.expect("set");
    assert_eq!(
        (header.cluster_id, header.error.expect("refused").r#type),
        (0, REGION_NOT_FOUND)
    );
}
