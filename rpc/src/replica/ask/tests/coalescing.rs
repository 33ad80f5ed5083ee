use super::*;

#[tokio::test(start_paused = true)]
async fn f7_a_burst_of_equal_lookups_is_one_question() {
    let bench = Bench::new();
    let burst: Vec<_> = (0..100).map(|_| bench.ask(key("a"))).collect();
    for task in burst {
        assert_eq!(id_of(&done(task).await), 1);
    }
    assert_eq!(bench.script.asked(), [query(&["a"])]);
    let counts = bench.asker.counters().read();
    assert_eq!(
        (counts.asked, counts.coalesced, counts.batched),
        (100, 99, 1)
    );
    assert_eq!(bench.asker.flights.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn f7_equal_scans_are_one_question() {
    let bench = Bench::new();
    let burst: Vec<_> = (0..10).map(|_| bench.ask(scan("a", "z"))).collect();
    let other = bench.ask(scan("a", "y"));
    for task in burst {
        assert!(done(task).await.is_ok());
    }
    assert!(done(other).await.is_ok());
    assert_eq!(bench.script.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn f7_a_waiter_joins_only_a_flight_sent_after_its_own_reason_to_ask() {
    let bench = Bench::new();
    bench.script.hold();
    let early = bench.ask(key("a"));
    settle().await;
    advance(Duration::from_millis(10)).await;
    // Meanwhile somebody finds out that store 1 does not lead any more.
    let reason = bench.now();
    let marked = bench.ask_since(key("a"), reason);
    let easy = bench.ask(key("a"));
    settle().await;
    bench.script.release(1);
    assert_eq!(id_of(&done(early).await), 1);
    bench.script.knows(Is(1, "", "d", 5, 2));
    bench.script.release(1);
    let told = done(marked).await.expect("an answer");
    assert!(told.asked_at >= reason);
    let Answer::Region(found) = &told.answer else {
        panic!("{told:?}")
    };
    assert_eq!(found.leader.as_ref().map(|leader| leader.store_id), Some(2));
    assert!(done(easy).await.is_ok());
    assert_eq!(bench.script.asked(), [query(&["a"]), query(&["a"])]);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_reason_is_the_moment_of_the_question_joins_it() {
    let bench = Bench::new();
    bench.script.hold();
    let first = bench.ask(key("a"));
    settle().await;
    let second = bench.ask_since(key("a"), bench.now());
    settle().await;
    bench.script.release(1);
    assert!(done(first).await.is_ok() && done(second).await.is_ok());
    assert_eq!(bench.script.asked(), [query(&["a"])]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_waits_for_any_more_is_not_sent() {
    let bench = Bench::new();
    bench.script.hold();
    let first = bench.ask(key("a"));
    settle().await;
    let (gone, gone_scan, stays) = (
        bench.ask(key("b")),
        bench.ask(scan("a", "b")),
        bench.ask(key("e")),
    );
    settle().await;
    gone.abort();
    gone_scan.abort();
    assert!(gone.await.is_err());
    bench.script.release(3);
    assert_eq!(id_of(&done(first).await), 1);
    assert_eq!(id_of(&done(stays).await), 2);
    let asked = bench.script.asked();
    assert!(!asked.contains(&query(&["b", "e"])), "{asked:?}");
    settle().await;
    assert_eq!(bench.asker.flights.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_joined_a_flight_after_it_was_sent_does_not_fail_with_it() {
    let bench = Bench::new();
    bench.script.hold();
    // A leader that hangs: both attempts at it fail, after two calls' time.
    let first = bench.ask(key("a"));
    settle().await;
    advance(Bounds::default().call_timeout * 3 / 2).await;
    settle().await;
    let late: Vec<_> = (0..3).map(|_| bench.ask(key("a"))).collect();
    settle().await;
    advance(Bounds::default().call_timeout / 2).await;
    settle().await;
    assert_eq!(done(first).await.expect_err("hung"), AskError::Failed);
    // By now it answers again. Those who came late ask once more, together.
    bench.script.release(1);
    for task in late {
        assert_eq!(id_of(&done(task).await), 1);
    }
    assert_eq!(bench.script.asked(), vec![query(&["a"]); 3]);
    assert_eq!(bench.asker.flights.open(), 0);
}
