use std::sync::atomic::Ordering::SeqCst;

use super::*;
use crate::proto::pdpb::{BatchScanRegionsRequest, ErrorType, KeyRange as PbRange};

#[tokio::test(start_paused = true)]
async fn f7_an_older_leader_is_asked_one_by_one_and_is_remembered_for_its_term() {
    let bench = Bench::new();
    bench.script.is_old.store(true, SeqCst);
    assert_eq!(id_of(&done(bench.ask(key("a"))).await), 1);
    assert_eq!(
        id_of(&done(bench.ask(point(Point::Prev(b"e".to_vec().into())))).await),
        1
    );
    assert_eq!(id_of(&done(bench.ask(point(Point::Id(3)))).await), 3);
    assert_eq!(id_of(&done(bench.ask(point(Point::Id(99)))).await), 0);
    let asked = [
        query(&["a"]),
        Call::Get("a".into()),
        Call::Prev("e".into()),
        Call::Id(3),
        Call::Id(99),
    ];
    assert_eq!(bench.script.asked(), asked);
    assert_eq!(bench.holds("a"), Some((1, 1, true)));
    // Its successor may know better.
    bench.script.is_old.store(false, SeqCst);
    bench.shared.publish_pd(view("http://pd-1", Some(2)));
    assert_eq!(id_of(&done(bench.ask(key("e"))).await), 2);
    assert_eq!(bench.script.asked().last(), Some(&query(&["e"])));
}

#[tokio::test(start_paused = true)]
async fn an_older_leader_that_does_not_know_a_scan_says_so_itself() {
    let bench = Bench::new();
    bench.script.is_old.store(true, SeqCst);
    let request = BatchScanRegionsRequest {
        ranges: vec![PbRange {
            start_key: b"a".to_vec().into(),
            end_key: b"b".to_vec().into(),
        }],
        ..BatchScanRegionsRequest::default()
    };
    let told = done(bench.ask(Question::BatchScan(Encoded::of(&request)))).await;
    let told = told.expect("an answer");
    let Answer::Status(status) = &told.answer else {
        panic!("{told:?}")
    };
    assert_eq!(status.code(), tonic::Code::Unimplemented);
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_a_leader_that_was_deposed_meanwhile_is_nobodys() {
    let bench = Bench::new();
    bench.script.knows(Is(1, "", "d", 5, 2));
    bench.script.leads.store(false, SeqCst);
    let outcome = done(bench.ask(key("a"))).await;
    assert_eq!(outcome.expect_err("disowned"), AskError::Failed);
    assert_eq!(bench.holds("a"), Some((1, 1, false)));
    assert_eq!(bench.asker.counters().read().disowned, 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_known_term_lookups_go_one_by_one_as_nobody_could_vouch_for_a_stream() {
    let bench = Bench::new();
    bench.shared.publish_pd(view("http://pd-1", None));
    assert_eq!(id_of(&done(bench.ask(key("a"))).await), 1);
    assert_eq!(bench.script.asked(), [Call::Get("a".into())]);
}

#[tokio::test(start_paused = true)]
async fn a_followers_refusal_is_no_answer_and_a_leaders_error_is_one() {
    let bench = Bench::new();
    *bench.script.error.lock().expect("unpoisoned") = Some(ErrorType::RegionNotFound);
    for question in [key("a"), scan("a", "b")] {
        let outcome = done(bench.ask(question)).await;
        assert_eq!(outcome.expect_err("a follower's"), AskError::Failed);
    }
    *bench.script.error.lock().expect("unpoisoned") = Some(ErrorType::NotBootstrapped);
    let told = done(bench.ask(key("a"))).await.expect("an answer");
    let Answer::Error(header) = &told.answer else {
        panic!("{told:?}")
    };
    let error = header.error.as_ref().expect("set");
    assert_eq!(error.r#type, i32::from(ErrorType::NotBootstrapped));
    assert_eq!(
        bench.holds("a"),
        Some((1, 1, false)),
        "an error says nothing of the region"
    );
}

#[tokio::test(start_paused = true)]
async fn a_region_that_the_leader_lacks_is_said_to_be_missing() {
    let bench = Bench::new();
    let mut gone = tidegate_core::Batch::new();
    gone.remove(2, tidegate_core::Expect::Any);
    let _ = bench.script.map.apply(gone);
    assert_eq!(id_of(&done(bench.ask(key("e"))).await), 0);
    settle().await;
    // What the map has there is asked about as a range, and goes.
    assert_eq!(
        bench.script.asked().last(),
        Some(&Call::Scan("d".into(), "m".into()))
    );
    assert_eq!(bench.holds("e"), None);
}

/// An older leader that hangs, with more asked of it than goes out at once.
async fn hanging() -> (Bench, Vec<JoinHandle<Outcome>>) {
    let bounds = Bounds {
        calls: 2,
        ..Bounds::default()
    };
    let bench = Bench::bounded(bounds);
    bench.script.is_old.store(true, SeqCst);
    assert_eq!(id_of(&done(bench.ask(key("a"))).await), 1);
    bench.script.hold();
    bench.script.calls.lock().expect("unpoisoned").clear();
    let tasks = ["b", "c", "e", "f", "x", "y"].map(|k| bench.ask(key(k)));
    settle().await;
    let asked = bench.script.asked();
    assert_eq!(asked, [Call::Get("b".into()), Call::Get("c".into())]);
    (bench, tasks.into_iter().collect())
}

#[tokio::test(start_paused = true)]
async fn an_older_leader_that_hangs_is_not_called_for_those_who_have_gone() {
    let (bench, tasks) = hanging().await;
    tasks.iter().for_each(JoinHandle::abort);
    let next = bench.ask(key("z"));
    // The two calls under way time out; the four behind them are made for nobody.
    advance(Bounds::default().call_timeout).await;
    settle().await;
    let asked = bench.script.asked();
    assert_eq!(asked[2..], [Call::Get("z".into())]);
    bench.script.release(1);
    assert_eq!(id_of(&done(next).await), 3);
    assert_eq!(bench.asker.flights.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_waits_behind_an_older_leader_that_hangs_goes_to_the_next_one() {
    let (bench, tasks) = hanging().await;
    bench.script.is_old.store(false, SeqCst);
    bench.shared.publish_pd(view("http://pd-1", Some(2)));
    advance(Bounds::default().call_timeout).await;
    settle().await;
    // Asked together: the new one knows how.
    assert_eq!(bench.script.asked()[2..], [query(&["e", "f", "x", "y"])]);
    bench.script.release(100);
    let mut ids = Vec::new();
    for task in tasks {
        ids.push(
            done(task)
                .await
                .as_ref()
                .map(|_| ())
                .map_err(|error| *error),
        );
    }
    assert_eq!(ids[..2], [Err(AskError::Failed); 2]);
    assert!(ids[2..].iter().all(Result::is_ok), "{ids:?}");
}
