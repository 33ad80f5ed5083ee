use super::*;

#[tokio::test]
async fn a_forwarded_host_is_looked_at_first_and_only_on_unary_calls_of_pd() {
    let bench = Bench::fresh();
    let forwarded = |host: &str| {
        let mut request = Request::new(GetRegionRequest::default());
        request
            .metadata_mut()
            .insert("pd-forwarded-host", host.parse().expect("ascii"));
        request
    };
    // Before the other checks: closed, without the follower key and with a foreign cluster id.
    bench.serving.close();
    let unknown = bench.pd().get_region(forwarded("http://pd-0:2379")).await;
    assert_eq!(
        failure(unknown),
        (Code::Unavailable, "not leader".to_owned())
    );

    bench.leader_is("http://pd-0:2379");
    let other = bench.pd().get_region(forwarded("http://pd-1:2379")).await;
    let text = "forwarded host \"http://pd-1:2379\" is not a client URL of the PD leader: pd is not leader of cluster";
    assert_eq!(failure(other), (Code::InvalidArgument, text.to_owned()));
    let leader = bench.pd().get_region(forwarded("https://pd-0:2379")).await;
    assert_eq!(
        failure(leader),
        (Code::Unavailable, "not leader".to_owned())
    );
    assert_eq!(
        bench.counts(Method::GetRegion).rejected_by_cause["forwarded_host"],
        3
    );

    let bench = Bench::fresh();
    let mut request = to_follower(key(b"a"));
    request
        .metadata_mut()
        .insert("pd-forwarded-host", "".parse().expect("ascii"));
    let answer = bench
        .pd()
        .get_region(request)
        .await
        .expect("an empty host names nobody");
    assert_eq!(id_of(answer.get_ref()), 1);
    let mut request = Request::new(key(b"a"));
    request
        .metadata_mut()
        .insert("pd-forwarded-host", "http://x:1".parse().expect("ascii"));
    let answer = bench
        .router()
        .get_region(request)
        .await
        .expect("not looked at by a router");
    assert_eq!(id_of(answer.get_ref()), 1);
}

#[tokio::test]
async fn a_closed_server_answers_unavailable_everywhere() {
    let bench = Bench::fresh();
    bench.serving.close();
    let closed = (Code::Unavailable, "server not started".to_owned());
    // Before the follower key and the cluster id are looked at.
    assert_eq!(
        failure(
            bench
                .pd()
                .get_region(Request::new(GetRegionRequest::default()))
                .await
        ),
        closed
    );
    assert_eq!(
        failure(
            bench
                .router()
                .get_region(Request::new(GetRegionRequest::default()))
                .await
        ),
        closed
    );
    assert_eq!(
        failure(
            bench
                .pd()
                .get_members(Request::new(Default::default()))
                .await
        ),
        closed
    );
    let mut stream = QueryOf(&bench).stream(vec![QueryRegionRequest::default()]);
    let status = stream
        .next()
        .await
        .expect("an answer")
        .expect_err("turned away");
    assert_eq!(
        (status.code(), status.message()),
        (closed.0, closed.1.as_str())
    );
    assert!(stream.next().await.is_none());
    for method in [Method::GetRegion, Method::QueryRegion] {
        assert!(
            bench.counts(method).rejected_by_cause["closed"] > 0,
            "{method:?}"
        );
    }
}

#[tokio::test]
async fn unary_calls_of_pd_need_the_follower_key_and_get_it_checked_before_the_cluster() {
    let bench = Bench::fresh();
    let text = "not leader and follower handling not allowed".to_owned();
    let refusal = (Code::Unavailable, text);
    let pd = bench.pd();
    assert_eq!(
        failure(
            pd.get_region(Request::new(GetRegionRequest::default()))
                .await
        ),
        refusal
    );
    assert_eq!(
        failure(pd.get_prev_region(Request::new(key(b"c"))).await),
        refusal
    );
    let by_id = GetRegionByIdRequest {
        header: header(),
        region_id: 1,
        need_buckets: false,
    };
    assert_eq!(
        failure(pd.get_region_by_id(Request::new(by_id.clone())).await),
        refusal
    );
    let scan = ScanRegionsRequest {
        header: header(),
        ..ScanRegionsRequest::default()
    };
    assert_eq!(failure(pd.scan_regions(Request::new(scan)).await), refusal);
    let batch = BatchScanRegionsRequest {
        header: header(),
        ..BatchScanRegionsRequest::default()
    };
    assert_eq!(
        failure(pd.batch_scan_regions(Request::new(batch.clone())).await),
        refusal
    );
    assert_eq!(
        bench.serving.counters.total().rejected_by_cause["follower_handle"],
        5
    );
    // A router's callers have said it by asking a router.
    assert!(
        bench
            .router()
            .get_region_by_id(Request::new(by_id))
            .await
            .is_ok()
    );
    assert!(
        bench
            .router()
            .batch_scan_regions(Request::new(batch))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_foreign_cluster_gets_failed_precondition_on_both_services() {
    let bench = Bench::fresh();
    let foreign = GetRegionRequest {
        header: Some(RequestHeader {
            cluster_id: 8,
            ..RequestHeader::default()
        }),
        ..GetRegionRequest::default()
    };
    let text = "mismatch cluster id, need 7 but got 8".to_owned();
    let refusal = (Code::FailedPrecondition, text);
    assert_eq!(
        failure(bench.pd().get_region(to_follower(foreign.clone())).await),
        refusal
    );
    assert_eq!(
        failure(bench.router().get_prev_region(Request::new(foreign)).await),
        refusal
    );
    assert_eq!(
        bench.serving.counters.total().rejected_by_cause["cluster_id"],
        2
    );
}

#[tokio::test]
async fn what_only_a_leader_does_gets_pds_not_leader_error() {
    let bench = Bench::fresh();
    let refusal = (Code::Unavailable, "not leader".to_owned());
    assert_eq!(
        failure(
            bench
                .pd()
                .get_store(Request::new(GetStoreRequest::default()))
                .await
        ),
        refusal
    );
    assert_eq!(
        failure(bench.pd().alloc_id(Request::new(Default::default())).await),
        refusal
    );
    assert_eq!(
        failure(
            bench
                .pd()
                .is_bootstrapped(Request::new(Default::default()))
                .await
        ),
        refusal
    );
    assert_eq!(
        failure(
            bench
                .router()
                .get_store(Request::new(Default::default()))
                .await
        ),
        refusal
    );
    assert_eq!(
        failure(
            bench
                .router()
                .get_all_stores(Request::new(Default::default()))
                .await
        ),
        refusal
    );
}
