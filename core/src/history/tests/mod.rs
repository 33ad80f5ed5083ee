//! The history's answers, alone and under threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

mod adapting;
mod against_model;

#[test]
fn exactly_one_of_four_answers() {
    let (mut appender, history) = history(4, 10);
    assert_eq!(history.read(10, 100), Answer::CaughtUp);
    assert_eq!(history.read(11, 100), Answer::Ahead { next: 10 });
    assert_eq!(
        history.read(9, 100),
        Answer::Gap { first: 10 },
        "before the very first record"
    );
    assert_eq!(appender.append_all('a'..='f'), 10..16);
    assert_eq!(history.read(11, 100), Answer::Gap { first: 12 });
    assert_eq!(
        history.read(12, 2),
        Answer::Records {
            first: 12,
            records: vec!['c', 'd']
        }
    );
    assert_eq!(
        history.read(14, 100),
        Answer::Records {
            first: 14,
            records: vec!['e', 'f']
        }
    );
    assert_eq!(history.read(16, 100), Answer::CaughtUp);
    assert_eq!(history.read(17, 100), Answer::Ahead { next: 16 });
    assert_eq!(
        history.read(u64::MAX, usize::MAX),
        Answer::Ahead { next: 16 }
    );
    assert_eq!((history.first_index(), history.next_index()), (12, 16));
}

#[test]
fn a_limit_of_nothing_still_reads_one() {
    let (mut appender, history) = history(4, 0);
    appender.append_all(['a', 'b']);
    assert_eq!(
        history.read(0, 0),
        Answer::Records {
            first: 0,
            records: vec!['a']
        }
    );
}

#[test]
fn a_capacity_of_nothing_still_keeps_one() {
    let (mut appender, history) = history(0, 0);
    appender.append_all(['a', 'b']);
    assert_eq!(history.capacity(), 1);
    assert_eq!(history.read(0, 1), Answer::Gap { first: 1 });
    assert_eq!(
        history.read(1, 1),
        Answer::Records {
            first: 1,
            records: vec!['b']
        }
    );
}

/// Readers chase an appender through a ring that is far too small for them. Each checks what it
/// is told: consecutive records under their own indexes, and progress after each gap.
#[test]
fn readers_beside_the_appender_are_never_lied_to() {
    chase(Capacity::fixed(8));
}

/// The same with segments of several records.
#[test]
fn readers_of_long_segments_are_never_lied_to() {
    chase(Capacity::fixed(70));
}

/// The same while the history grows and shrinks.
#[test]
fn readers_of_a_changing_size_are_never_lied_to() {
    chase(Capacity::growing(40, 640));
}

fn chase(capacity: Capacity) {
    const RECORDS: u64 = if cfg!(miri) { 400 } else { 100_000 };
    let (mut appender, history) = adaptive_history::<Box<u64>>(capacity, 1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for limit in [1, 3] {
            // One that the history grows for.
            let (history, done) = (history.clone(), &done);
            scope.spawn(move || {
                let mut cursor = history.cursor(1);
                loop {
                    let last_round = done.load(Ordering::Acquire);
                    let at = cursor.next_index();
                    match cursor.read(limit) {
                        Step::Records { first, records } => {
                            assert_eq!(first, at);
                            assert!(
                                (at..)
                                    .zip(&records)
                                    .all(|(index, record)| **record == index)
                            );
                        }
                        Step::Lagged { from, first } => assert!(from == at && first > at),
                        Step::CaughtUp if last_round => break,
                        Step::CaughtUp => std::hint::spin_loop(),
                        other => panic!("{other:?}"),
                    }
                }
                assert_eq!(cursor.next_index(), RECORDS + 1);
            });
        }
        for limit in [1, 3, 100] {
            let (history, done) = (history.clone(), &done);
            scope.spawn(move || {
                let mut from = 1;
                loop {
                    let last_round = done.load(Ordering::Acquire);
                    match history.read(from, limit) {
                        Answer::Records { first, records } => {
                            assert_eq!(first, from);
                            assert!(!records.is_empty() && records.len() <= limit);
                            for record in records {
                                assert_eq!(*record, from);
                                from += 1;
                            }
                        }
                        Answer::Gap { first } => {
                            assert!(first > from, "a gap that leads nowhere");
                            from = first;
                        }
                        Answer::CaughtUp if last_round => break,
                        Answer::CaughtUp => std::hint::spin_loop(),
                        Answer::Ahead { next } => panic!("{from} is ahead of {next}"),
                    }
                }
                assert_eq!(from, RECORDS + 1);
            });
        }
        for index in 1..=RECORDS {
            assert_eq!(appender.append(Box::new(index)), index);
            if index % 50 == 0 {
                appender.maintain();
            }
            if index % 997 == 0 {
                appender.observe(index - index % 500);
            }
        }
        done.store(true, Ordering::Release);
    });
}

/// A record that counts how many of it exist.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(alive))
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_dropped_history_keeps_no_record() {
    let alive = Arc::new(AtomicUsize::new(0));
    let (mut appender, history) = history(4, 0);
    appender.append_all((0..3).map(|_| Counted::new(&alive)));
    drop(appender);
    assert!(matches!(history.read(0, 9), Answer::Records { records, .. } if records.len() == 3));
    assert_eq!(alive.load(Ordering::Relaxed), 3);
    drop(history);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}
