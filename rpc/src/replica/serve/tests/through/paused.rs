//! A process that is stopped while it waits for the leader: its own clock goes on, and nothing else does.

use super::*;

/// A replica with a clock of its own.
fn stoppable() -> (Through, ManualClock) {
    let clock = ManualClock::new(Moment::from_nanos(1_000_000_000_000));
    let through = Through::clocked(Bounds::default(), Arc::new(clock.clone()));
    (through, clock)
}

async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// Starts `call`, lets it ask the leader, stops the process for so long, and lets the answer come.
async fn stopped_for<T>(
    bench: &Through,
    clock: &ManualClock,
    stop: Duration,
    call: impl Future<Output = T>,
) -> T {
    bench.script.hold();
    let mut call = std::pin::pin!(call);
    while bench.script.asked().is_empty() {
        assert!(batches::futures_pending(&mut call).await, "it asks");
        settle().await;
    }
    clock.advance(stop);
    bench.script.release(8);
    call.await
}

#[tokio::test(start_paused = true)]
async fn what_the_leader_said_before_the_process_was_stopped_is_not_passed_on_after_it() {
    let (bench, clock) = stoppable();
    clock.advance(Duration::from_secs(11));
    assert_eq!(bench.serving.shut(), Some(RefuseReason::Age));
    let got = stopped_for(&bench, &clock, Duration::from_secs(9), bench.get("a")).await;
    assert_eq!(got, Got::from("leader", 1, 1, 9_000), "young enough");
    let (bench, clock) = stoppable();
    clock.advance(Duration::from_secs(11));
    let got = stopped_for(&bench, &clock, Duration::from_secs(11), bench.get("a")).await;
    assert_eq!(
        (got.source.as_str(), got.error),
        ("none", Some(REGION_NOT_FOUND))
    );

    let (bench, clock) = stoppable();
    clock.advance(Duration::from_secs(11));
    let batch = bench.query(keys(&["a", "e"]));
    let answer = stopped_for(&bench, &clock, Duration::from_secs(11), batch).await;
    // Asked once more, after the stop.
    assert_eq!(error_of(answer.header.as_ref()), None);
    assert_eq!(bench.script.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_the_map_said_before_a_long_wait_for_the_leader_is_as_much_older_after_it() {
    let scan = || {
        to_follower(ScanRegionsRequest {
            header: header(),
            limit: 10,
            ..ScanRegionsRequest::default()
        })
    };
    for (wait, answered) in [(9, true), (11, false)] {
        let (bench, clock) = stoppable();
        // A hole, about which the leader cannot be asked in the end.
        remove(&bench.serving.shared.map, 2);
        bench.script.fail(Some(Status::unavailable("down")));
        bench.script.hold();
        let pd = PdService(Arc::clone(&bench.serving));
        clock.advance(Duration::from_millis(1));
        let attempt = bench.serving.attempt(&Demand::default(), |lookup| {
            Found::Answer(lookup.scan(scan().get_ref()))
        });
        let aged = attempt.aged(Duration::from_secs(wait), Duration::from_secs(10));
        let response = bench.serving.settle(Method::ScanRegions, aged);
        assert_eq!(
            response.get_ref().regions.len(),
            if answered { 2 } else { 0 },
            "{wait}"
        );
        // As it is without a wait.
        let response = pd.scan_regions(scan()).await.expect("a header");
        assert_eq!(response.get_ref().regions.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_wants_the_leaders_answer_alone_costs_one_question() {
    let (bench, clock) = stoppable();
    let mut demand = MetadataMap::new();
    demand.insert("tidegate-max-age-ms", "0".parse().expect("ascii"));
    let demand = Demand::of(&demand).expect("readable");
    clock.advance(Duration::from_millis(1));
    let batch = bench.query_with(keys(&["a", "e", "x"]), demand);
    // The answer takes a millisecond, so that it is older than the caller allows at any time.
    let answer = stopped_for(&bench, &clock, Duration::from_millis(1), batch).await;
    assert_eq!(error_of(answer.header.as_ref()), None);
    assert_eq!(answer.key_id_map, [1, 2, 3]);
    assert_eq!(bench.script.asked().len(), 1, "{:?}", bench.script.asked());
}

/// Asks for "a" with a bound, and the leader takes `takes` to answer.
async fn bounded(bound: &str, takes: u64) -> Got {
    let (bench, clock) = stoppable();
    clock.advance(Duration::from_secs(11));
    let bound = [("tidegate-max-age-ms", bound)];
    let call = bench.get_with("a", &bound);
    let got = stopped_for(&bench, &clock, Duration::from_millis(takes), call).await;
    assert_eq!(bench.script.asked().len(), 1);
    got
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_a_slow_leader_is_as_old_as_its_question_and_refused_beyond_the_callers_bound()
 {
    let refused = ("none", Some(REGION_NOT_FOUND));
    for (bound, takes) in [("200", 200), ("2000", 1_500), ("99999", 10_000)] {
        assert_eq!(
            bounded(bound, takes).await,
            Got::from("leader", 1, 1, takes)
        );
    }
    for (bound, takes) in [("200", 201), ("2000", 2_500), ("1", 2), ("99999", 10_001)] {
        let got = bounded(bound, takes).await;
        assert_eq!((got.source.as_str(), got.error), refused, "{bound} {takes}");
    }
    // What the leader says now, however long that takes.
    assert_eq!(bounded("0", 2_500).await, Got::from("leader", 1, 1, 2_500));
}

#[tokio::test(start_paused = true)]
async fn who_joins_a_question_gets_its_age() {
    for (bound, answered) in [("1000", true), ("999", false), ("0", false)] {
        let (bench, clock) = stoppable();
        clock.advance(Duration::from_secs(11));
        bench.script.hold();
        let bounds = [("tidegate-max-age-ms", bound)];
        let first = bench.get("a");
        let mut first = std::pin::pin!(first);
        assert!(batches::futures_pending(&mut first).await, "it asks");
        settle().await;
        clock.advance(Duration::from_millis(600));
        let key = bench.get_with("a", &bounds);
        let mut key = std::pin::pin!(key);
        assert!(batches::futures_pending(&mut key).await, "it waits");
        settle().await;
        clock.advance(Duration::from_millis(400));
        bench.script.release(8);
        assert_eq!(first.await, Got::from("leader", 1, 1, 1_000));
        let got = key.await;
        match (bound, answered) {
            ("0", _) => assert_eq!(got, Got::from("leader", 1, 1, 0), "its own question"),
            (_, true) => assert_eq!(got, Got::from("leader", 1, 1, 1_000)),
            _ => assert_eq!((got.source.as_str(), got.id), ("none", 0)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_leader_is_too_slow_for_the_callers_bound_is_refused_after_one_question() {
    for (takes, answered) in [(200, true), (201, false)] {
        let (bench, clock) = stoppable();
        clock.advance(Duration::from_secs(11));
        let mut metadata = MetadataMap::new();
        metadata.insert("tidegate-max-age-ms", "200".parse().expect("ascii"));
        let demand = Demand::of(&metadata).expect("readable");
        let request = QueryRegionRequest {
            ids: vec![99],
            ..keys(&["a", "e"])
        };
        let batch = bench.query_with(request, demand);
        let answer = stopped_for(&bench, &clock, Duration::from_millis(takes), batch).await;
        if answered {
            assert_eq!(error_of(answer.header.as_ref()), None);
            assert_eq!(answer.key_id_map, [1, 2]);
        } else {
            assert_eq!(error_of(answer.header.as_ref()), refused());
            let counts = bench.counts(Method::QueryRegion);
            assert_eq!(counts.refused_by_reason, [("age", 1)].into());
        }
        assert_eq!(bench.script.asked().len(), 1);
    }
}
