use std::sync::atomic::Ordering::SeqCst;

use tonic::Status;

use super::script::Twist;
use super::*;

#[tokio::test(start_paused = true)]
async fn f7_what_exceeds_the_bound_is_turned_away_at_once_and_counted() {
    let bounds = Bounds {
        waiting: 2,
        ..Bounds::default()
    };
    let bench = Bench::bounded(bounds);
    bench.script.hold();
    let (one, two) = (bench.ask(key("a")), bench.ask(key("e")));
    settle().await;
    let third = done(bench.ask(key("x"))).await;
    assert_eq!(third.expect_err("too many"), AskError::Overflow);
    // Equal ones take no room.
    let equal = bench.ask(key("e"));
    settle().await;
    bench.script.release(2);
    for task in [one, two, equal] {
        assert!(done(task).await.is_ok());
    }
    assert_eq!(bench.asker.counters().read().overflow, 1);
    assert_eq!(id_of(&done(bench.ask_after_release(key("x"))).await), 3);
}

impl Bench {
    fn ask_after_release(&self, question: Question) -> JoinHandle<Outcome> {
        self.script.release(100);
        self.ask(question)
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_an_end_to_its_size() {
    let bounds = Bounds {
        batch: 2,
        ..Bounds::default()
    };
    let bench = Bench::bounded(bounds);
    let tasks: Vec<_> = ["a", "b", "e", "f", "x"]
        .map(|k| bench.ask(key(k)))
        .into_iter()
        .collect();
    for task in tasks {
        assert!(done(task).await.is_ok());
    }
    assert!(bench.script.asked().iter().all(|call| match call {
        Call::Query { keys, .. } => keys.len() <= 2,
        _ => false,
    }));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_goes_at_its_deadline_and_a_leader_that_hangs_is_given_up() {
    let bench = Bench::new();
    bench.script.hold();
    let began = Instant::now();
    let asker = Arc::clone(&bench.asker);
    let hasty = asker.ask(
        key("a"),
        Moment::from_nanos(1),
        began + Duration::from_millis(50),
    );
    let patient = bench.ask(key("a"));
    assert_eq!(hasty.await.expect_err("late"), AskError::Deadline);
    assert_eq!(began.elapsed(), Duration::from_millis(50));
    assert_eq!(done(patient).await.expect_err("never"), AskError::Failed);
    let call = Bounds::default().call_timeout;
    // Two attempts; and two more, as it came when the question was under way.
    assert!(
        began.elapsed() <= call * 4 + Duration::from_millis(10),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(bench.asker.flights.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_the_answer_is_no_at_once() {
    let bench = Bench::new();
    bench.shared.publish_no_leader();
    let began = Instant::now();
    for question in [key("a"), scan("a", "b")] {
        let outcome = done(bench.ask(question)).await;
        assert_eq!(outcome.expect_err("no leader"), AskError::NoLeader);
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(bench.asker.counters().read().no_leader, 2);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_be_reached_is_tried_twice() {
    let bench = Bench::new();
    bench
        .script
        .fail(Some(Status::unavailable("connection refused")));
    let outcome = done(bench.ask(key("a"))).await;
    assert_eq!(outcome.expect_err("down"), AskError::Failed);
    assert_eq!(bench.script.asked().len(), 2);
    bench.script.fail(None);
    assert_eq!(id_of(&done(bench.ask(key("a"))).await), 1);
}

/// Fails whoever carries an answer.
fn panics<A>(_: &mut A) {
    panic!("as told");
}

const PANICS: Twist = Twist {
    query: panics,
    one: panics,
    scan: panics,
};

/// What breaks somewhere on its way gives its place back, and who waits for it is told at once.
async fn broken(bench: &Bench, question: Question, mend: impl Fn(&Script)) {
    let begun = Instant::now();
    let outcome = done(bench.ask(question.clone())).await;
    assert_eq!(outcome.expect_err("broken"), AskError::Failed);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(bench.asker.flights.open(), 0);
    mend(&bench.script);
    assert!(done(bench.ask(question)).await.is_ok());
    assert_eq!(bench.asker.flights.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_on_the_way_of_a_question_frees_its_place() {
    let bounds = Bounds {
        waiting: 1,
        calls: 1,
        scans: 1,
        ..Bounds::default()
    };
    for (question, is_old) in [(key("a"), false), (key("a"), true), (scan("a", "b"), false)] {
        let bench = Bench::bounded(bounds);
        bench.script.is_old.store(is_old, SeqCst);
        bench.script.twist(Some(PANICS));
        broken(&bench, question, |script| script.twist(None)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_an_answer_is_landed_frees_the_places_of_all_its_questions() {
    let bench = Bench::new();
    bench.script.panics_at_looks.store(true, SeqCst);
    let questions = vec![key("a"), key("e"), point(Point::Id(3))];
    let deadline = Instant::now() + Duration::from_secs(5);
    let since = Moment::from_nanos(1);
    let outcomes = bench.asker.ask_all(questions, since, deadline).await;
    assert!(
        outcomes
            .iter()
            .all(|it| matches!(it, Err(AskError::Failed)))
    );
    assert_eq!(bench.asker.flights.open(), 0);
    broken(&bench, key("a"), |script| {
        script.panics_at_looks.store(false, SeqCst);
    })
    .await;
}
