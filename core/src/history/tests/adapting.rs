//! Growing to the slowest reader, shrinking, retaining, persisting, beginning anew.

use super::super::*;
use super::Counted;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const RECORDS: u64 = Capacity::PD_BASE as u64;

fn fill(appender: &mut Appender<u64>, until: u64) {
    appender.append_all(appender.next_index()..until);
}

#[test]
fn what_is_retained_makes_the_history_grow_and_stays() {
    let (mut appender, history) = adaptive_history(Capacity::default(), 0);
    fill(&mut appender, RECORDS);
    let retained = history.retain(RECORDS).unwrap();
    fill(&mut appender, 4 * RECORDS);
    assert_eq!(history.capacity(), 80_000);
    assert!(matches!(history.read(RECORDS, 1), Answer::Records { .. }));
    drop(retained);
    assert!(
        !appender.maintain(),
        "much was needed since the check before"
    );
    assert!(!appender.maintain() && !appender.maintain());
    assert!(appender.maintain(), "the third low check");
    assert_eq!(history.capacity(), 40_000);
}

#[test]
fn past_the_limit_retained_records_go_and_readers_are_told() {
    let (mut appender, history) = adaptive_history(Capacity::growing(10, 40), 0);
    let retained = history.retain(0).unwrap();
    fill(&mut appender, 41);
    assert_eq!(history.capacity(), 40);
    assert_eq!(history.read(retained.from(), 1), Answer::Gap { first: 1 });
    assert_eq!(history.retain(0).unwrap_err(), NotHere::Gap { first: 1 });
    assert_eq!(history.retain(42).unwrap_err(), NotHere::Ahead { next: 41 });
}

#[test]
fn a_slow_cursor_makes_the_history_grow_and_a_fast_one_does_not() {
    let (mut appender, history) = adaptive_history(Capacity::growing(10, 80), 0);
    let mut cursor = history.cursor(0);
    for index in 0..100 {
        appender.append(index);
        let Step::Records { .. } = cursor.read(9) else {
            panic!("a record is there");
        };
    }
    assert_eq!(history.capacity(), 10);
    fill(&mut appender, 106);
    assert_eq!(history.capacity(), 20, "six are more than half of ten");
    fill(&mut appender, 1_000);
    assert_eq!(history.capacity(), 80);
    assert_eq!(
        cursor.read(9),
        Step::Lagged {
            from: 100,
            first: 920
        }
    );
    assert!(matches!(cursor.read(9), Step::Records { first: 920, .. }));
    assert_eq!(cursor.next_index(), 929);
}

#[test]
fn a_reader_that_came_too_late_makes_room_for_the_next() {
    let (mut appender, history) = adaptive_history(Capacity::growing(10, 80), 0);
    fill(&mut appender, 100);
    appender.observe(95);
    assert_eq!(history.capacity(), 10, "half of the records");
    appender.observe(85);
    assert_eq!(history.capacity(), 40);
    assert_eq!(history.first_index(), 90, "what is gone stays gone");
    appender.observe(1_000);
    assert_eq!(history.capacity(), 40);
}

/// Found by fuzzing: what was needed at the moment of a halving counted for the time after it, too.
#[test]
fn what_a_reader_needed_at_a_halving_does_not_put_off_the_next() {
    let (mut appender, history) = adaptive_history(Capacity::growing(10, 80), 0);
    fill(&mut appender, 100);
    appender.observe(60);
    assert!(
        !appender.maintain(),
        "much was needed since the check before"
    );
    fill(&mut appender, 115);
    let mut cursor = history.cursor(100);
    assert!(!appender.maintain() && !appender.maintain());
    assert!(appender.maintain(), "fifteen are less than a quarter of 80");
    // More than a quarter of 40, but before the first check of that.
    let Step::Records { .. } = cursor.read(15) else {
        panic!("a record is there");
    };
    assert!(!appender.maintain() && !appender.maintain());
    assert!(appender.maintain(), "the third low check in a row");
    assert_eq!(history.capacity(), 20);
}

#[test]
fn only_three_low_checks_in_a_row_shrink() {
    let (mut appender, history) = adaptive_history(Capacity::growing(10, 80), 0);
    fill(&mut appender, 100);
    appender.observe(60);
    assert_eq!(history.capacity(), 80);
    let checks = |appender: &mut Appender<u64>, count: usize| -> Vec<bool> {
        (0..count).map(|_| appender.maintain()).collect()
    };
    assert_eq!(
        checks(&mut appender, 3),
        [false; 3],
        "the first one was not low"
    );
    let retained = history.retain(100).unwrap();
    assert!(!appender.maintain(), "something is retained");
    drop(retained);
    assert_eq!(checks(&mut appender, 3), [false, false, true]);
    assert_eq!(history.capacity(), 40);
    let cursor = history.cursor(100);
    fill(&mut appender, 111);
    assert_eq!(
        checks(&mut appender, 3),
        [false; 3],
        "a cursor is eleven behind"
    );
    drop(cursor);
    assert_eq!(checks(&mut appender, 3), [false, false, true]);
    assert_eq!(checks(&mut appender, 4), [false, false, true, false]);
    assert_eq!((history.capacity(), history.first_index()), (10, 101));
    assert_eq!(checks(&mut appender, 9), [false; 9], "never below the base");
}

#[test]
fn the_next_index_is_due_every_hundred_records() {
    let (mut appender, _history) = history(10, 7);
    let due: Vec<u64> = (0..350)
        .filter_map(|record| {
            appender.append(record);
            appender.persist_due()
        })
        .collect();
    assert_eq!(due, [107, 207, 307]);
    appender.append_all(0..1_000);
    assert_eq!(appender.persist_due(), Some(1_357));
    appender.append_all(0..99);
    appender.reset_with_index(0);
    appender.append_all(0..99);
    assert_eq!(appender.persist_due(), None, "a reset is no record");
    appender.append(0);
    assert_eq!(appender.persist_due(), Some(100));
}

#[test]
fn a_cursor_is_told_that_the_numbering_began_anew() {
    let (mut appender, history) = adaptive_history(Capacity::growing(10, 80), 50);
    let mut cursor = history.cursor(50);
    appender.append_all(['a', 'b', 'c']);
    assert!(matches!(cursor.read(2), Step::Records { first: 50, .. }));
    appender.reset_with_index(52);
    appender.append_all(['x', 'y']);
    assert_eq!(cursor.read(9), Step::Reset { first: 52 });
    assert_eq!(
        cursor.read(9),
        Step::Records {
            first: 52,
            records: vec!['x', 'y']
        }
    );
    assert_eq!(cursor.read(9), Step::CaughtUp);
    cursor.seek(60);
    assert_eq!(cursor.read(9), Step::Ahead { next: 54 });
}

#[test]
fn a_panicking_iterator_loses_no_record() {
    let alive = Arc::new(AtomicUsize::new(0));
    let (mut appender, history) = history(4, 0);
    let source = (0..9).map(|n| {
        assert!(n < 3, "the source fails");
        Counted::new(&alive)
    });
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        appender.append_all(source);
    }));
    assert!(failed.is_err());
    assert_eq!((appender.next_index(), history.next_index()), (3, 3));
    drop((appender, history));
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

/// Records that come and go by every way there is are dropped once each.
#[test]
fn records_are_dropped_once_by_every_way_out() {
    let alive = Arc::new(AtomicUsize::new(0));
    let (mut appender, history) = adaptive_history(Capacity::growing(40, 160), 3);
    let add = |appender: &mut Appender<Counted>, count: usize| {
        appender.append_all((0..count).map(|_| Counted::new(&alive)));
    };
    add(&mut appender, 101);
    let retained = history.retain(100).unwrap();
    add(&mut appender, 131);
    drop(retained);
    assert_eq!(history.capacity(), 160);
    while history.capacity() > 40 {
        appender.maintain();
    }
    add(&mut appender, 1);
    appender.reset_with_index(1);
    add(&mut appender, 45);
    drop((appender, history));
    // Other tests of this process pin for moments only, so the epoch moves on.
    for _ in 0..1_000_000 {
        if alive.load(Ordering::Relaxed) == 0 {
            return;
        }
        crate::sync::reclaim::pin().flush();
        std::thread::yield_now();
    }
    panic!("{} records are left", alive.load(Ordering::Relaxed));
}
