//! The history ring: pushing a change, alone and beside a reader of the last thousand.

use std::collections::VecDeque;
use std::hint::black_box;

use tidegate_core::history::history;

use super::Effort;
use crate::round::{Lane, Row, Subject, Timing, alternate, timed_beside, timed_by_the_wall};

const CAPACITY: usize = 10_000;
const READ: usize = 1_000;
/// A push is so short that a round has this many for each operation asked for: the reader beside
/// needs the time to be given a processor.
const PUSHES: usize = 20;

/// Name of the rival behind the standard library's mutex.
pub const MUTEX_STD: &str = "mutex_vecdeque_std";
/// Name of the rival behind `parking_lot`'s mutex.
pub const MUTEX_PARKING_LOT: &str = "mutex_vecdeque_parking_lot";

/// A record of the size of a cache line.
type Record = [u64; 8];

/// `ring_push`, and `ring_push_1r` beside a reader.
#[must_use]
pub fn push(effort: Effort) -> Vec<Row> {
    let mut rows = Vec::new();
    for (op, threads) in [("ring_push", 1), ("ring_push_1r", 2)] {
        let (count, beside) = (effort.operations * PUSHES, threads > 1);
        let lanes = vec![
            Lane::new("tidegate", move |_| ours(count, beside)),
            Lane::new(MUTEX_STD, move |_| {
                rival(count, beside, &std::sync::Mutex::new(empty()))
            }),
            Lane::new(MUTEX_PARKING_LOT, move |_| {
                rival(count, beside, &parking_lot::Mutex::new(empty()))
            }),
        ];
        rows.extend(alternate(
            Subject {
                op,
                regions: 0,
                threads,
            },
            effort.rounds,
            lanes,
        ));
    }
    rows
}

fn ours(count: usize, beside_reader: bool) -> Timing {
    let (mut appender, reader) = history::<Record>(CAPACITY, 1);
    let mut pushes = move || {
        timed_by_the_wall(count, || {
            for n in 0..count as u64 {
                appender.append([n; 8]);
            }
        })
    };
    if !beside_reader {
        return pushes();
    }
    let read = || {
        let from = reader
            .next_index()
            .saturating_sub(READ as u64)
            .max(reader.first_index());
        drop(black_box(reader.read(from, READ)));
    };
    timed_beside(read, pushes)
}

type Queue = VecDeque<Record>;

fn empty() -> Queue {
    Queue::with_capacity(CAPACITY)
}

trait Lock: Sync {
    fn locked<R>(&self, work: impl FnOnce(&mut Queue) -> R) -> R;
}

impl Lock for std::sync::Mutex<Queue> {
    fn locked<R>(&self, work: impl FnOnce(&mut Queue) -> R) -> R {
        work(&mut self.lock().expect("no holder panics"))
    }
}

impl Lock for parking_lot::Mutex<Queue> {
    fn locked<R>(&self, work: impl FnOnce(&mut Queue) -> R) -> R {
        work(&mut self.lock())
    }
}

fn rival(count: usize, beside_reader: bool, ring: &impl Lock) -> Timing {
    let pushes = || {
        timed_by_the_wall(count, || {
            for n in 0..count as u64 {
                ring.locked(|ring| {
                    if ring.len() == CAPACITY {
                        ring.pop_front();
                    }
                    ring.push_back([n; 8]);
                });
            }
        })
    };
    if !beside_reader {
        return pushes();
    }
    let read = || {
        let copy: Vec<Record> = ring.locked(|ring| {
            let from = ring.len().saturating_sub(READ);
            ring.range(from..).copied().collect()
        });
        drop(black_box(copy));
    };
    timed_beside(read, pushes)
}
