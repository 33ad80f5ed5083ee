use super::*;

#[tokio::test]
async fn health_is_serving_while_a_lookup_would_be_answered() {
    let bench = Bench::fresh();
    let health = HealthService(Arc::clone(&bench.serving));
    let check = |service: &str| {
        let health = health.clone();
        let request = Request::new(HealthCheckRequest {
            service: service.to_owned(),
        });
        async move {
            health
                .check(request)
                .await
                .map(|answer| answer.get_ref().status)
        }
    };
    for service in ["", "pdpb.PD", "routerpb.Router"] {
        assert_eq!(check(service).await.expect("known"), 1, "{service}");
    }
    assert_eq!(
        check("x").await.expect_err("unknown").code(),
        Code::NotFound
    );
    bench.clock.advance(Duration::from_secs(11));
    assert_eq!(check("").await.expect("known"), 2);
    bench.full_sync(2, &[(1, b"", b"")]);
    assert_eq!(check("").await.expect("known"), 1);
    bench.serving.drain();
    assert_eq!(check("").await.expect("known"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_watched_health_tells_each_change_and_ends_with_not_serving() {
    let bench = Bench::fresh();
    let request = Request::new(HealthCheckRequest {
        service: String::new(),
    });
    let watch = HealthService(Arc::clone(&bench.serving))
        .watch(request)
        .await
        .expect("a stream");
    let mut watch = watch.into_inner();
    let mut next = async || {
        watch
            .next()
            .await
            .map(|answer| answer.expect("a status").status)
    };
    assert_eq!(next().await, Some(1));
    bench.clock.advance(Duration::from_secs(11));
    assert_eq!(next().await, Some(2));
    bench.full_sync(2, &[(1, b"", b"")]);
    assert_eq!(next().await, Some(1));
    bench.serving.drain();
    assert_eq!(next().await, Some(2));
    assert_eq!(next().await, None);
}
