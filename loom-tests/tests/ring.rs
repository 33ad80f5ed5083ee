//! The history ring: a reader that is overtaken by the writer, and one that finds its table replaced.
//!
//! Under loom a segment holds two records, or one where the base capacity is one.
#![cfg(tidegate_loom)]

use loom::thread;
use tidegate_core::history::{Answer, Capacity, History, adaptive_history, history};
use tidegate_loom_tests::model;

/// What `read(from, limit)` may say while records with value `index * 10` are appended: the
/// records from `from` on, without a hole and under their own indexes, or another answer.
fn check(from: u64, answer: &Answer<u64>) {
    match answer {
        Answer::Records { first, records } => {
            assert_eq!(*first, from);
            assert!(!records.is_empty(), "an empty answer instead of a gap");
            for (index, record) in (from..).zip(records) {
                assert_eq!(*record, index * 10, "a newer record under an older index");
            }
        }
        Answer::Gap { first } => assert!(*first > from),
        Answer::CaughtUp | Answer::Ahead { .. } => {}
    }
}

fn all(history: &History<u64>, from: u64) -> Vec<u64> {
    match history.read(from, 100) {
        Answer::Records { records, .. } => records,
        other => panic!("no records from {from} on: {other:?}"),
    }
}

/// Defends the Release and Acquire of `next`, and that it is stored after the place is filled and
/// the segment is in its slot: a reader that is told of an index finds its record.
#[test]
fn a_reader_beside_the_writer_sees_whole_records() {
    model(
        "ring::a_reader_beside_the_writer_sees_whole_records",
        || {
            let (mut appender, history) = history::<u64>(2, 7);
            let reader = history.clone();
            let thread = thread::spawn(move || {
                let answer = reader.read(7, 4);
                check(7, &answer);
                answer
            });
            appender.append(70);
            appender.append_all([80, 90]);
            let answer = thread.join().unwrap();
            assert!(!matches!(answer, Answer::Gap { .. } | Answer::Ahead { .. }));
            assert_eq!(all(&history, 7), [70, 80, 90]);
        },
    );
}

/// Defends the number in the segment (a slot that has come round answers with a gap, never with the
/// newer record), the Release and Acquire of the slot (the newer segment, which `next` does not
/// cover yet, is numbered) and the guard of the reader (the older one is not freed under it).
#[test]
fn a_reader_that_is_overtaken_gets_a_gap() {
    model("ring::a_reader_that_is_overtaken_gets_a_gap", || {
        let (mut appender, history) = history::<u64>(2, 7);
        appender.append_all([70, 80, 90, 100]);
        let reader = history.clone();
        let thread = thread::spawn(move || {
            let answer = reader.read(7, 4);
            check(7, &answer);
            assert!(!matches!(answer, Answer::CaughtUp | Answer::Ahead { .. }));
        });
        appender.append(110);
        appender.append(120);
        assert_eq!(history.read(7, 4), Answer::Gap { first: 9 });
        assert_eq!(all(&history, 9), [90, 100, 110, 120]);
        thread.join().unwrap();
    });
}

/// With a single slot each append overwrites what the reader may be about to read.
#[test]
fn a_ring_of_one_slot_never_lies() {
    model("ring::a_ring_of_one_slot_never_lies", || {
        let (mut appender, history) = history::<u64>(1, 0);
        appender.append(0);
        let thread = thread::spawn(move || {
            check(0, &history.read(0, 4));
            let from = history.first_index();
            check(from, &history.read(from, 4));
        });
        appender.append(10);
        appender.append(20);
        thread.join().unwrap();
    });
}

/// Defends the Release and Acquire of the table, that it is filled before it is published, and that
/// the old one stays while a guard does: records that are retained are there in either table.
#[test]
fn a_reader_beside_growth_misses_nothing() {
    model("ring::a_reader_beside_growth_misses_nothing", || {
        let (mut appender, history) = adaptive_history::<u64>(Capacity::growing(1, 4), 0);
        appender.append(0);
        let retained = history.retain(0).unwrap();
        let reader = history.clone();
        let thread = thread::spawn(move || {
            for _ in 0..2 {
                check(0, &reader.read(0, 4));
                assert!(!all(&reader, 0).is_empty());
            }
        });
        appender.append(10);
        appender.append(20);
        assert_eq!(appender.capacity(), 4);
        thread.join().unwrap();
        assert_eq!(all(&history, 0), [0, 10, 20]);
        drop(retained);
    });
}

/// Defends the guard, for the old table and the segments that only it refers to.
#[test]
fn a_reader_beside_a_shrink_is_never_lied_to() {
    model("ring::a_reader_beside_a_shrink_is_never_lied_to", || {
        let (mut appender, history) = grown();
        let reader = history.clone();
        let thread = thread::spawn(move || check(0, &reader.read(0, 4)));
        assert!(appender.maintain(), "the third low check");
        thread.join().unwrap();
        assert_eq!(history.read(0, 4), Answer::Gap { first: 2 });
        assert_eq!(all(&history, 2), [20, 30]);
    });
}

/// A history of a single record that has grown to four, has them, and would shrink at the next
/// check.
fn grown() -> (tidegate_core::history::Appender<u64>, History<u64>) {
    let (mut appender, history) = adaptive_history::<u64>(Capacity::growing(1, 4), 0);
    appender.append(0);
    let retained = history.retain(0).unwrap();
    appender.append_all([10, 20, 30]);
    drop(retained);
    for _ in 0..3 {
        assert!(!appender.maintain());
    }
    (appender, history)
}

/// A reset replaces records and numbering together: who reads with an index of its own sees the one
/// or the other numbering, whole.
#[test]
fn a_reset_is_seen_whole() {
    model("ring::a_reset_is_seen_whole", || {
        let (mut appender, history) = history::<u64>(2, 5);
        appender.append_all([50, 60, 70]);
        let reader = history.clone();
        let thread = thread::spawn(move || match reader.read(6, 4) {
            Answer::Records { first, records } => {
                assert_eq!(first, 6);
                assert!(records == [60, 70] || records == [1, 2], "{records:?}");
            }
            Answer::CaughtUp => {}
            other => panic!("{other:?}"),
        });
        appender.reset_with_index(6);
        appender.append_all([1, 2]);
        thread.join().unwrap();
        assert_eq!(all(&history, 6), [1, 2]);
        assert_eq!(history.read(5, 1), Answer::Gap { first: 6 });
    });
}
