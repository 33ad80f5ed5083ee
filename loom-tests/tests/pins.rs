//! The history's cursors and retained records: how a pin meets an eviction.
#![cfg(tidegate_loom)]

use loom::thread;
use tidegate_core::history::{
    Answer, Appender, Capacity, History, NotHere, Step, adaptive_history, history,
};
use tidegate_loom_tests::model;

/// A history that holds record 0 and may grow from one record to four.
fn one_record() -> (Appender<u64>, History<u64>) {
    let (mut appender, history) = adaptive_history::<u64>(Capacity::growing(1, 4), 0);
    appender.append(0);
    (appender, history)
}

fn is_here(history: &History<u64>, index: u64) -> bool {
    matches!(
        history.read(index, 1),
        Answer::Records { records, .. } if records == [index * 10]
    )
}

/// Defends the two sequentially consistent fences, the announcement before the look, and that pins
/// are entered before what is evicted is looked at: whoever was not refused keeps its records.
#[test]
fn what_is_retained_is_kept() {
    model("pins::what_is_retained_is_kept", || {
        let (mut appender, history) = one_record();
        let reader = history.clone();
        let thread = thread::spawn(move || {
            let retained = reader.retain(0);
            match &retained {
                Ok(_) => assert!(is_here(&reader, 0), "gone while it is retained"),
                Err(NotHere::Gap { first }) => assert!(*first > 0),
                Err(other) => panic!("{other:?}"),
            }
            retained
        });
        appender.append(10);
        appender.append(20);
        let retained = thread.join().unwrap();
        if retained.is_ok() {
            assert!(is_here(&history, 0), "gone while it is retained");
        }
    });
}

/// Defends the look at what is retained after a shrink has been announced.
#[test]
fn what_is_retained_outlives_a_shrink() {
    model("pins::what_is_retained_outlives_a_shrink", || {
        let (mut appender, history) = one_record();
        let retained = history.retain(0).unwrap();
        appender.append_all([10, 20, 30]);
        drop(retained);
        for _ in 0..3 {
            assert!(!appender.maintain());
        }
        let reader = history.clone();
        let thread = thread::spawn(move || reader.retain(1));
        let shrunk = appender.maintain();
        let retained = thread.join().unwrap();
        // Both may give way to the other, but never neither.
        assert!(!(shrunk && retained.is_ok()));
        if retained.is_ok() {
            assert!(is_here(&history, 1), "gone while it is retained");
        }
    });
}

/// Defends the Release and Acquire of the list's head, and that a node is linked by one
/// read-modify-write: no pin is lost, and who finds a node finds it filled in.
#[test]
fn pins_are_entered_side_by_side() {
    model("pins::pins_are_entered_side_by_side", || {
        let (mut appender, history) = one_record();
        let other = history.clone();
        let other = thread::spawn(move || other.retain(0));
        let ours = history.retain(0).unwrap();
        let others = other.join().unwrap().unwrap();
        drop(ours);
        appender.append_all([10, 20]);
        assert!(is_here(&history, 0), "gone while it is retained");
        drop(others);
    });
}

/// Defends that a free node is taken by one read-modify-write: nobody's pin is released by another.
#[test]
fn a_place_that_is_free_is_taken_once() {
    model("pins::a_place_that_is_free_is_taken_once", || {
        let (mut appender, history) = one_record();
        // Leaves a free node behind, which both want.
        drop(history.retain(0));
        let [stays, goes] = [history.clone(), history.clone()];
        let stays = thread::spawn(move || stays.retain(0).ok());
        let goes = thread::spawn(move || drop(goes.retain(0)));
        appender.append(10);
        let stays = stays.join().unwrap();
        goes.join().unwrap();
        appender.append(20);
        if stays.is_some() {
            assert!(is_here(&history, 0), "gone while it is retained");
        }
    });
}

/// A cursor is told of every record or that it is lost, in order.
#[test]
fn a_cursor_misses_nothing_unsaid() {
    model("pins::a_cursor_misses_nothing_unsaid", || {
        let (mut appender, history) = history::<u64>(1, 0);
        let mut cursor = history.cursor(0);
        appender.append(0);
        let follow = |cursor: &mut tidegate_core::history::Cursor<u64>| {
            let at = cursor.next_index();
            match cursor.read(4) {
                Step::Records { first, records } => {
                    assert_eq!(first, at);
                    assert!(
                        records
                            .iter()
                            .copied()
                            .eq((0..records.len() as u64).map(|n| (at + n) * 10))
                    );
                    assert_eq!(cursor.next_index(), at + records.len() as u64);
                }
                Step::Lagged { from, first } => {
                    assert_eq!((from, cursor.next_index()), (at, first));
                    assert!(first > from);
                }
                Step::CaughtUp => assert_eq!(cursor.next_index(), at),
                other => panic!("{other:?}"),
            }
        };
        let thread = thread::spawn(move || {
            follow(&mut cursor);
            follow(&mut cursor);
            cursor
        });
        appender.append(10);
        appender.append(20);
        let mut cursor = thread.join().unwrap();
        follow(&mut cursor);
        follow(&mut cursor);
        assert_eq!(cursor.next_index(), 3);
        assert_eq!(cursor.read(4), Step::CaughtUp);
    });
}

/// Defends that the numbering's age is read from the table that the records are read from: no
/// record of a new numbering before the cursor is told of it.
#[test]
fn a_cursor_is_told_of_a_reset_first() {
    model("pins::a_cursor_is_told_of_a_reset_first", || {
        let (mut appender, history) = history::<u64>(2, 0);
        appender.append_all([0, 10]);
        let mut cursor = history.cursor(0);
        let thread = thread::spawn(move || {
            let mut anew = false;
            for _ in 0..2 {
                match cursor.read(4) {
                    Step::Records { records, .. } => {
                        assert_eq!(records, if anew { vec![1] } else { vec![0, 10] });
                    }
                    Step::Reset { first } => {
                        assert_eq!(first, 0);
                        anew = true;
                    }
                    Step::CaughtUp => {}
                    other => panic!("{other:?}"),
                }
            }
        });
        appender.reset_with_index(0);
        appender.append(1);
        thread.join().unwrap();
    });
}
