//! The history ring: a reader that is overtaken by the writer.
#![cfg(tidegate_loom)]

use loom::thread;
use tidegate_core::history::{Answer, history};
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

/// Defends the Release and Acquire of `next`, and that it is stored after the slot: a reader that
/// is told of an index finds its slot filled.
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
            appender.append(80);
            let answer = thread.join().unwrap();
            assert!(!matches!(answer, Answer::Gap { .. } | Answer::Ahead { .. }));
            assert_eq!(
                history.read(7, 4),
                Answer::Records {
                    first: 7,
                    records: vec![70, 80]
                }
            );
        },
    );
}

/// Defends the index in the record (a slot that has come round answers with a gap, never with the
/// newer record), the Release and Acquire of the slot (the newer record, which `next` does not
/// cover yet, is filled in) and the guard of the reader (the older one is not freed under it).
#[test]
fn a_reader_that_is_overtaken_gets_a_gap() {
    model("ring::a_reader_that_is_overtaken_gets_a_gap", || {
        let (mut appender, history) = history::<u64>(2, 7);
        appender.append_all([70, 80]);
        let reader = history.clone();
        let thread = thread::spawn(move || {
            let answer = reader.read(7, 4);
            check(7, &answer);
            assert!(!matches!(answer, Answer::CaughtUp | Answer::Ahead { .. }));
        });
        appender.append(90);
        appender.append(100);
        assert_eq!(history.read(7, 4), Answer::Gap { first: 9 });
        assert_eq!(
            history.read(9, 4),
            Answer::Records {
                first: 9,
                records: vec![90, 100]
            }
        );
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
