//! A leader that answers something else than was asked.

use std::sync::atomic::Ordering::SeqCst;

use super::script::Twist;
use super::*;
use crate::proto::pdpb::{
    BatchScanRegionsRequest, GetRegionResponse, KeyRange as PbRange, QueryRegionRequest,
    QueryRegionResponse, Region as Scanned,
};

const STRAIGHT: Twist = Twist {
    query: |_| {},
    one: |_| {},
    scan: |_| {},
};

fn prev(key: &str) -> Question {
    point(Point::Prev(key.as_bytes().to_vec().into()))
}

fn batch(keys: &[&str]) -> Question {
    Question::Batch(QueryRegionRequest {
        keys: keys
            .iter()
            .map(|key| key.as_bytes().to_vec().into())
            .collect(),
        ..QueryRegionRequest::default()
    })
}

/// What became of a question: an id, or why there is none.
fn came(outcome: Outcome) -> Result<u64, AskError> {
    outcome.map(|told| id_of(&Ok(told)))
}

/// A bench whose leader knows something newer of each region, so that a map that took it in would tell.
fn newer(twist: Twist) -> Bench {
    let bench = Bench::new();
    for Is(id, start, end, version, _) in REGIONS {
        bench.script.knows(Is(id, start, end, version, 2));
    }
    bench.script.twist(Some(twist));
    bench
}

impl Bench {
    /// Nothing of an answer got into the map.
    fn is_unhealed(&self) -> bool {
        ["a", "e", "x"]
            .iter()
            .zip(1..)
            .all(|(key, id)| self.holds(key) == Some((id, 1, false)))
    }

    async fn all(&self, questions: Vec<Question>) -> Vec<Result<u64, AskError>> {
        let deadline = Instant::now() + Duration::from_secs(5);
        let since = Moment::from_nanos(1);
        let outcomes = self.asker.ask_all(questions, since, deadline).await;
        outcomes.into_iter().map(came).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_query_only_what_fits_is_told_and_heals() {
    // The answers to the keys are in another order than the keys.
    let bench = newer(Twist {
        query: |answer: &mut QueryRegionResponse| answer.key_id_map.swap(0, 1),
        ..STRAIGHT
    });
    let asked = vec![key("a"), key("e"), key("x"), point(Point::Id(3))];
    let came = bench.all(asked).await;
    let unfit = Err(AskError::Unfit);
    assert_eq!(came, [unfit, unfit, Ok(3), Ok(3)]);
    assert_eq!(bench.holds("a"), Some((1, 1, false)));
    assert_eq!(bench.holds("e"), Some((2, 1, false)));
    assert_eq!(bench.holds("x"), Some((3, 2, true)));
    assert_eq!(bench.asker.counters().read().unfit, 2);
    assert_eq!(bench.asker.flights.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_answers_do_not_fit_is_left_for_another() {
    let bench = newer(Twist {
        query: |answer: &mut QueryRegionResponse| answer.key_id_map.clear(),
        ..STRAIGHT
    });
    let unfit = Err(AskError::Unfit);
    assert_eq!(bench.all(vec![key("a"), prev("x")]).await, [unfit, unfit]);
    assert!(bench.is_unhealed());
    bench.script.twist(None);
    assert_eq!(bench.all(vec![key("a"), prev("x")]).await, [Ok(1), Ok(2)]);
    assert_eq!(bench.all(vec![key("e")]).await, [Ok(2)]);
    assert_eq!(bench.script.streams.load(SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_item_has_to_fit() {
    type By = fn(&mut QueryRegionResponse);
    let twists: [(Question, By); 5] = [
        (key("e"), |it| it.key_id_map[0] = 99),
        (prev("e"), |it| {
            // The region of the key itself in place of the one before.
            let own = it
                .regions_by_id
                .get_mut(&1)
                .and_then(|it| it.region.as_mut());
            own.expect("asked for").end_key = bytes::Bytes::from_static(b"m");
        }),
        (prev("e"), |it| it.prev_key_id_map.push(1)),
        (point(Point::Id(2)), |it| {
            let other = it
                .regions_by_id
                .get_mut(&2)
                .and_then(|it| it.region.as_mut());
            other.expect("asked for").id = 3;
        }),
        (key("e"), |it| {
            let turned = it
                .regions_by_id
                .get_mut(&2)
                .and_then(|it| it.region.as_mut());
            turned.expect("asked for").start_key = bytes::Bytes::from_static(b"z");
        }),
    ];
    for (question, query) in twists {
        let bench = newer(Twist { query, ..STRAIGHT });
        let came = bench.all(vec![question.clone()]).await;
        assert_eq!(came, [Err(AskError::Unfit)], "{question:?}");
        assert!(bench.is_unhealed(), "{question:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_that_is_answered_whole_every_item_has_to_fit() {
    let bench = newer(Twist {
        query: |answer: &mut QueryRegionResponse| answer.key_id_map.swap(0, 1),
        ..STRAIGHT
    });
    let outcome = done(bench.ask(batch(&["a", "e", "x"]))).await;
    assert_eq!(outcome.expect_err("unfit"), AskError::Unfit);
    assert_eq!(bench.holds("a"), Some((1, 1, false)));
    bench.script.twist(None);
    let told = done(bench.ask(batch(&["a", "e", "x"]))).await;
    let told = told.expect("an answer");
    assert!(matches!(&told.answer, Answer::Batch(it) if it.key_id_map == [1, 2, 3]));
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_lookup_by_itself_has_to_fit() {
    fn other(answer: &mut GetRegionResponse) {
        let region = answer.region.as_mut().expect("found");
        region.id += 1;
        region.start_key = bytes::Bytes::from_static(b"y");
        region.end_key = bytes::Bytes::new();
    }
    for question in [key("a"), prev("e"), point(Point::Id(1))] {
        let bench = newer(Twist {
            one: other,
            ..STRAIGHT
        });
        bench.script.is_old.store(true, SeqCst);
        let came = bench.all(vec![question.clone()]).await;
        assert_eq!(came, [Err(AskError::Unfit)], "{question:?}");
        assert!(bench.is_unhealed(), "{question:?}");
        assert_eq!(bench.asker.counters().read().unfit, 1);
        bench.script.twist(None);
        assert_eq!(bench.all(vec![question]).await, [Ok(1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_scan_has_to_fit() {
    let ranges = Question::BatchScan(Encoded::of(&BatchScanRegionsRequest {
        ranges: [(&b"a"[..], &b"b"[..]), (b"d", b"e")]
            .map(|(start, end)| PbRange {
                start_key: start.to_vec().into(),
                end_key: end.to_vec().into(),
            })
            .to_vec(),
        ..BatchScanRegionsRequest::default()
    }));
    let twists: [fn(&mut Vec<Scanned>); 3] = [
        |regions| regions.reverse(),
        |regions| regions[0].region = None,
        // Elsewhere.
        |regions| {
            let last = regions.last_mut().and_then(|it| it.region.as_mut());
            let last = last.expect("found");
            last.start_key = bytes::Bytes::from_static(b"m");
            last.end_key = bytes::Bytes::new();
        },
    ];
    for twist in twists {
        for question in [scan("a", "e"), ranges.clone()] {
            let bench = newer(Twist {
                scan: twist,
                ..STRAIGHT
            });
            let outcome = done(bench.ask(question.clone())).await;
            assert_eq!(outcome.expect_err("unfit"), AskError::Unfit);
            assert!(bench.is_unhealed());
            assert_eq!(bench.asker.counters().read().unfit, 1);
            bench.script.twist(None);
            assert!(done(bench.ask(question)).await.is_ok());
            assert_eq!(bench.holds("e"), Some((2, 2, true)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_begins_in_a_hole_of_the_leader_is_answered_as_pd_answers_it() {
    // Half of a split that only one of the two new regions has reported yet.
    let bench = Bench::new();
    bench.script.knows(Is(9, "d", "g", 6, 1));
    let told = done(bench.ask(scan("h", "z"))).await.expect("an answer");
    let Answer::Scan(answer) = &told.answer else {
        panic!("{told:?}")
    };
    let first = answer.regions[0].region.as_ref().map(|region| region.id);
    assert_eq!(
        first,
        Some(3),
        "it does not hold the key at which the scan begins"
    );
}
