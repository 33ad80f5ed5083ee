//! The history's answers, alone, against the sequential model, and under threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::prelude::*;

use super::model::ModelHistory;
use super::*;

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

#[derive(Clone, Debug)]
enum Op {
    Append,
    AppendAll(usize),
    Read { back: i64, limit: usize },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Append),
        1 => (0..20_usize).prop_map(Op::AppendAll),
        4 => (-3..25_i64, 0..12_usize).prop_map(|(back, limit)| Op::Read { back, limit }),
    ]
}

proptest! {
    #[test]
    fn the_ring_answers_like_the_model(
        capacity in 0..9_usize,
        origin in prop_oneof![Just(0_u64), 1..50_u64, Just(u64::MAX - 10_000)],
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let (mut appender, ring) = history(capacity, origin);
        let mut model = ModelHistory::new(capacity, origin);
        for op in ops {
            match op {
                Op::Append => {
                    let value = appender.next_index();
                    prop_assert_eq!(appender.append(value), model.append(value));
                }
                Op::AppendAll(count) => {
                    let from = appender.next_index();
                    let values = from..from + count as u64;
                    prop_assert_eq!(appender.append_all(values.clone()), values.clone());
                    values.for_each(|value| { model.append(value); });
                }
                Op::Read { back, limit } => {
                    let from = ring.next_index().saturating_add_signed(-back);
                    prop_assert_eq!(ring.read(from, limit), model.read(from, limit));
                }
            }
            prop_assert_eq!(ring.first_index(), model.first_index());
            prop_assert_eq!(ring.next_index(), model.next_index());
        }
    }
}

/// Readers chase an appender through a ring that is far too small for them. Each checks what it
/// is told: consecutive records under their own indexes, and progress after each gap.
#[test]
fn readers_beside_the_appender_are_never_lied_to() {
    const RECORDS: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let (mut appender, history) = history::<Box<u64>>(8, 1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
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
