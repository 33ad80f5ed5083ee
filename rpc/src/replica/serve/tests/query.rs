use super::*;

fn batch(keys: &[&[u8]], ids: &[u64]) -> QueryRegionRequest {
    QueryRegionRequest {
        header: header(),
        keys: keys.iter().map(|key| key.to_vec().into()).collect(),
        ids: ids.to_vec(),
        ..QueryRegionRequest::default()
    }
}

#[tokio::test]
async fn a_batch_with_a_miss_has_no_answer_and_the_stream_goes_on() {
    let bench = Bench::fresh();
    let batches = vec![
        batch(&[b"a", b"c"], &[3]),
        batch(&[b"a", b"e"], &[]),
        batch(&[], &[0, 99]),
        batch(&[b"g"], &[0]),
    ];
    let answers: Vec<_> = QueryOf(&bench).stream(batches).collect().await;
    let answers: Vec<_> = answers.into_iter().map(|a| a.expect("a frame")).collect();
    assert_eq!(error_of(answers[0].header.as_ref()), None);
    assert_eq!(answers[0].key_id_map, [1, 2]);
    assert_eq!(answers[0].regions_by_id.len(), 3);
    for missed in &answers[1..3] {
        assert_eq!(error_of(missed.header.as_ref()), refused());
        assert!(missed.regions_by_id.is_empty() && missed.key_id_map.is_empty());
    }
    assert_eq!(answers[3].key_id_map, [3], "id 0 is ignored");
    let counts = bench.counts(Method::QueryRegion);
    assert_eq!((counts.served, counts.missed), (2, 2));
}

#[tokio::test]
async fn a_batch_for_another_cluster_ends_the_stream_and_a_shut_gate_does_not() {
    let bench = Bench::fresh();
    bench.clock.advance(Duration::from_secs(11));
    let foreign = QueryRegionRequest::default();
    let mut stream =
        QueryOf(&bench).stream(vec![batch(&[b"a"], &[]), foreign, batch(&[b"a"], &[])]);
    let first = stream.next().await.expect("a frame").expect("a header");
    assert_eq!(error_of(first.header.as_ref()), refused());
    let second = stream.next().await.expect("an end").expect_err("a status");
    assert_eq!(second.code(), Code::FailedPrecondition);
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_batch_of_too_many_items_ends_the_stream_and_a_large_one_is_heavy() {
    let bench = Bench::fresh();
    let mut stream = QueryOf(&bench).stream(vec![
        batch(&[b"a"], &[3; 99_999]),
        batch(&[b"a"], &[3; 100_000]),
        batch(&[b"a"], &[]),
    ]);
    let first = stream.next().await.expect("a frame").expect("a header");
    assert_eq!(error_of(first.header.as_ref()), None);
    let second = stream.next().await.expect("an end").expect_err("a status");
    assert_eq!(second.code(), Code::InvalidArgument);
    assert!(second.message().contains("100001 keys and ids"), "{second}");
    assert!(stream.next().await.is_none());
    let counts = bench.counts(Method::QueryRegion);
    assert_eq!(counts.served, 1);
    assert_eq!(counts.rejected_by_cause, [("too_large", 1)].into());
    assert_eq!(Weight::of_batch(1_000), Weight::Light);
    assert_eq!(Weight::of_batch(1_001), Weight::Heavy);
}

#[tokio::test]
async fn a_stream_that_drains_answers_what_has_arrived_and_ends() {
    let bench = Bench::fresh();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let requests = tokio_stream::wrappers::UnboundedReceiverStream::new(receiver);
    let mut stream = super::super::query::QueryStream::new(
        Arc::clone(&bench.serving),
        Demand::default(),
        requests,
    );
    for _ in 0..3 {
        sender.send(Ok(batch(&[b"a"], &[]))).expect("open");
    }
    assert!(stream.next().await.expect("a frame").is_ok());
    bench.serving.drain();
    assert!(stream.next().await.expect("a frame").is_ok());
    assert!(stream.next().await.expect("a frame").is_ok());
    let end = stream.next().await.expect("an end").expect_err("a status");
    assert_eq!(
        (end.code(), end.message()),
        (Code::Unavailable, "server not started")
    );
    assert!(stream.next().await.is_none());
    assert_eq!(bench.counts(Method::QueryRegion).served, 3);
}

#[tokio::test]
async fn g4_a_batch_waits_for_a_change_of_generation_to_be_published() {
    let bench = Bench::fresh();
    bench
        .serving
        .shared
        .map
        .replace_with(map_of(&[(9, b"", b"")]), 2);
    let mut stream = QueryOf(&bench).stream(vec![batch(&[b"a"], &[])]);
    let first = futures_poll(&mut stream);
    assert!(first.is_none(), "neither refused nor answered yet");
    bench.full_sync(2, &[(9, b"", b"")]);
    let answer = stream.next().await.expect("a frame").expect("a header");
    assert_eq!(
        (error_of(answer.header.as_ref()), &answer.key_id_map[..]),
        (None, &[9][..])
    );
}

/// One poll; `None` while nothing is ready.
fn futures_poll<S: tokio_stream::Stream + Unpin>(stream: &mut S) -> Option<Option<S::Item>> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(stream).poll_next(&mut context) {
        std::task::Poll::Ready(item) => Some(item),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn a_batch_is_timed_from_when_it_was_read_to_its_answer() {
    let bench = Bench::fresh();
    let batch = |items| QueryRegionRequest {
        header: header(),
        ids: vec![1; items],
        ..QueryRegionRequest::default()
    };
    let mut stream = QueryOf(&bench).stream(vec![batch(1), batch(2), batch(100_001)]);
    while stream.next().await.is_some() {}
    let text = bench.serving.counters.latencies.render();
    let all = "_count{request=\"QueryRegion\"} 3\n";
    assert!(text.contains(all), "those turned away count too: {text}");
}
