use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Moment, Provenance, RegionEpoch, RegionMap};

use super::*;
use crate::lookup::Lookup;
use crate::playground::judge::Ledger;
use crate::proto::convert::region_from_pb;
use crate::proto::pdpb;

fn range(start: &str, end: &str) -> KeyRange {
    KeyRange::new(start, end).expect("a valid range")
}

fn region(id: u64, start: &str, end: &str) -> Region {
    Region::builder(id, range(start, end), RegionEpoch::new(1, 5))
        .build()
        .expect("a valid region")
}

fn holds(id: u64, start: &str, end: &str) -> Claim {
    Claim::Holds(region(id, start, end))
}

fn hole(start: &str, end: &str) -> Claim {
    Claim::Hole(range(start, end))
}

#[test]
fn an_answer_about_another_key_or_id_is_no_answer() {
    let other = Answer::One(Some(region(7, "c", "e")));
    assert_eq!(
        Question::Get("b".into()).claims(other.clone()),
        Err(Misfit::Subject)
    );
    assert_eq!(
        Question::ById(8).claims(other.clone()),
        Err(Misfit::Subject)
    );
    assert_eq!(
        Question::Previous("d".into()).claims(other.clone()),
        Err(Misfit::Subject)
    );
    assert_eq!(
        Question::Get("d".into()).claims(other.clone()),
        Ok(vec![holds(7, "c", "e")])
    );
    let scan = Question::Scan {
        range: range("a", "z"),
        limit: 3,
    };
    assert_eq!(scan.claims(other), Err(Misfit::Shape));
}

#[test]
fn a_scan_claims_its_regions_and_the_holes_between_them() {
    let scan = Question::Scan {
        range: range("b", "x"),
        limit: 10,
    };
    let found = vec![
        region(1, "a", "c"),
        region(2, "e", "g"),
        region(3, "g", "p"),
    ];
    let claims = scan.claims(Answer::Many(found));
    let expected = vec![
        holds(1, "a", "c"),
        hole("c", "e"),
        holds(2, "e", "g"),
        holds(3, "g", "p"),
        hole("p", "x"),
    ];
    assert_eq!(claims, Ok(expected));
    assert_eq!(
        scan.claims(Answer::Many(Vec::new())),
        Ok(vec![hole("b", "x")])
    );
}

#[test]
fn a_scan_that_reached_its_limit_says_nothing_about_the_rest() {
    let scan = Question::Scan {
        range: range("b", ""),
        limit: 2,
    };
    let found = vec![region(1, "a", "c"), region(2, "e", "g")];
    let claims = scan.claims(Answer::Many(found.clone()));
    assert_eq!(
        claims,
        Ok(vec![holds(1, "a", "c"), hole("c", "e"), holds(2, "e", "g")])
    );
    let tighter = Question::Scan {
        range: range("b", ""),
        limit: 1,
    };
    assert_eq!(tighter.claims(Answer::Many(found)), Err(Misfit::Order));
}

#[test]
fn a_scan_out_of_order_or_out_of_range_is_no_answer() {
    let scan = Question::Scan {
        range: range("b", "k"),
        limit: 9,
    };
    let swapped = vec![region(2, "e", "g"), region(1, "a", "c")];
    assert_eq!(scan.claims(Answer::Many(swapped)), Err(Misfit::Order));
    let overlapping = vec![region(1, "a", "f"), region(2, "e", "g")];
    assert_eq!(scan.claims(Answer::Many(overlapping)), Err(Misfit::Order));
    let outside = vec![region(1, "a", "c"), region(2, "k", "m")];
    assert_eq!(scan.claims(Answer::Many(outside)), Err(Misfit::Order));
}

#[test]
fn a_batch_does_not_repeat_the_region_that_reaches_into_the_next_range() {
    let batch = Question::BatchScan {
        ranges: vec![range("b", "c"), range("d", "h"), range("p", "q")],
        limit: 10,
    };
    let found = vec![region(1, "a", "e"), region(2, "e", "g")];
    let claims = batch.claims(Answer::Many(found));
    assert_eq!(
        claims,
        Ok(vec![
            holds(1, "a", "e"),
            holds(2, "e", "g"),
            hole("g", "h"),
            hole("p", "q")
        ])
    );
}

#[test]
fn a_batch_stops_at_its_limit_and_claims_nothing_behind_it() {
    let batch = Question::BatchScan {
        ranges: vec![range("b", "c"), range("d", "h")],
        limit: 1,
    };
    let claims = batch.claims(Answer::Many(vec![region(1, "a", "cc")]));
    assert_eq!(claims, Ok(vec![holds(1, "a", "cc")]));
}

#[test]
fn a_query_has_an_item_for_each_that_was_asked() {
    let query = Question::Query {
        keys: vec!["b".into()],
        previous: vec!["c".into()],
        ids: vec![9],
    };
    let answer = Answer::Query {
        keys: vec![None],
        previous: vec![Some(region(1, "a", "c"))],
        ids: vec![None],
    };
    let expected = vec![
        Claim::Uncovered("b".into()),
        Claim::Precedes {
            region: region(1, "a", "c"),
            key: "c".into(),
        },
        Claim::NoSuchId(9),
    ];
    assert_eq!(query.claims(answer), Ok(expected));
    let short = Answer::Query {
        keys: vec![],
        previous: vec![None],
        ids: vec![None],
    };
    assert_eq!(query.claims(short), Err(Misfit::Shape));
}

#[test]
fn the_last_range_of_a_batch_may_exceed_its_limit() {
    let batch = Question::BatchScan {
        ranges: vec![range("b", "c"), range("d", "h")],
        limit: 2,
    };
    let found = vec![
        region(1, "a", "c"),
        region(2, "c", "e"),
        region(3, "e", "g"),
    ];
    let expected = vec![holds(1, "a", "c"), holds(2, "c", "e"), holds(3, "e", "g")];
    assert_eq!(batch.claims(Answer::Many(found.clone())), Ok(expected));
    let longer = Question::BatchScan {
        ranges: vec![range("b", "f"), range("g", "h")],
        limit: 2,
    };
    assert_eq!(longer.claims(Answer::Many(found)), Err(Misfit::Order));
}

/// A key of two letters, so that ranges begin and end inside of regions too.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(b'a'..b'k', 1..3)
}

fn key_range() -> impl Strategy<Value = KeyRange> {
    (key(), key()).prop_filter_map("empty", |(start, end)| KeyRange::new(start, end).ok())
}

fn read(regions: &[pdpb::Region]) -> Answer {
    let read = |found: &pdpb::Region| {
        let described = found.region.as_ref().expect("a region");
        region_from_pb(described, found.leader.as_ref(), None, None).expect("well formed")
    };
    Answer::Many(regions.iter().map(read).collect())
}

proptest! {
    #[test]
    fn what_a_map_answers_by_pds_rules_is_a_true_answer(
        regions in prop::collection::vec(key_range(), 0..12),
        mut ranges in prop::collection::vec(key_range(), 1..5),
        limit in 1..6_usize,
    ) {
        let at = Moment::from_nanos(1);
        let map = RegionMap::new();
        let mut ledger = Ledger::new([], at, Duration::from_secs(60));
        for (id, range) in (1..).zip(regions) {
            let region = Region::builder(id, range, RegionEpoch::new(1, id)).build().expect("valid");
            let outcome = map.put(region.clone(), Provenance::Stream { received_at: at });
            prop_assert!(!outcome.is_refused());
            ledger.record(Arc::new(region), at);
        }
        ranges.sort_by(|a, b| a.start().cmp(b.start()));
        ranges.dedup_by(|next, before| next.start() <= before.end());
        let snapshot = map.pin();
        let lookup = Lookup::new(&snapshot);
        let limit_on_the_wire = i32::try_from(limit).expect("small");
        let wire = |range: &KeyRange| pdpb::KeyRange {
            start_key: range.start().to_vec().into(),
            end_key: range.end().to_vec().into(),
        };

        let request = pdpb::BatchScanRegionsRequest {
            ranges: ranges.iter().map(wire).collect(),
            limit: limit_on_the_wire,
            ..pdpb::BatchScanRegionsRequest::default()
        };
        let answer = read(&lookup.batch_scan(&request).expect("ranges in order").regions);
        let question = Question::BatchScan { ranges: ranges.clone(), limit };
        let verdict = ledger.judge(&question, answer, at);
        let current = verdict.as_ref().is_ok_and(|items| items.iter().all(Option::is_none));
        prop_assert!(current, "{:?}", verdict);

        let range = ranges.swap_remove(0);
        let pdpb::KeyRange { start_key, end_key } = wire(&range);
        let request = pdpb::ScanRegionsRequest {
            start_key,
            end_key,
            limit: limit_on_the_wire,
            ..pdpb::ScanRegionsRequest::default()
        };
        let answer = read(&lookup.scan(&request).regions);
        let verdict = ledger.judge(&Question::Scan { range, limit }, answer, at);
        let current = verdict.as_ref().is_ok_and(|items| items.iter().all(Option::is_none));
        prop_assert!(current, "{:?}", verdict);
    }
}
