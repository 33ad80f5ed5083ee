//! The history ring: pushing a change, alone and beside a reader of the last thousand.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Mutex;

use tidegate_core::history::history;

use super::Effort;
use crate::round::{Lane, Row, Subject, Timing, alternate, timed_beside, timed_by_the_wall};

const CAPACITY: usize = 10_000;
const READ: usize = 1_000;
const RIVAL: &str = "mutex_vecdeque";

/// A record of the size of a cache line.
type Record = [u64; 8];

/// `ring_push`, and `ring_push_1r` beside a reader.
#[must_use]
pub fn push(effort: Effort) -> Vec<Row> {
    let mut rows = Vec::new();
    for (op, threads) in [("ring_push", 1), ("ring_push_1r", 2)] {
        let lanes = vec![
            Lane::new("tidegate", move |_| ours(effort.operations, threads > 1)),
            Lane::new(RIVAL, move |_| rival(effort.operations, threads > 1)),
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

fn rival(count: usize, beside_reader: bool) -> Timing {
    let ring = Mutex::new(VecDeque::<Record>::with_capacity(CAPACITY));
    let pushes = || {
        timed_by_the_wall(count, || {
            for n in 0..count as u64 {
                let mut ring = ring.lock().expect("no holder panics");
                if ring.len() == CAPACITY {
                    ring.pop_front();
                }
                ring.push_back([n; 8]);
            }
        })
    };
    if !beside_reader {
        return pushes();
    }
    let read = || {
        let ring = ring.lock().expect("no holder panics");
        let from = ring.len().saturating_sub(READ);
        drop(black_box(ring.range(from..).copied().collect::<Vec<_>>()));
    };
    timed_beside(read, pushes)
}
