//! Threads beside one another: a reader beside a writer, two that read and write, two writers.
//!
//! Measured by the clock on the wall, since some of the rivals put threads to sleep.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::Region;

use super::{Effort, LONGEST};
use crate::contender::Runs;
use crate::fixture::Fixture;
use crate::round::{
    Lane, Row, Subject, alternate, timed_beside, timed_by_the_wall_as_done, together, within,
};

/// Of so many operations of `mixed_2t` one is an update.
const MIXED: usize = 20;
/// Updates between two looks whether the reader is done.
const CHUNK: usize = 64;
/// Chunks that are made before the clock starts. A writer that has done with them, beside a reader
/// that is very slow, goes on with those that it makes itself.
const CHUNKS: u64 = 8_192;
/// Of the lookups asked for, `get_beside_writer` does one in so many: beside some rivals each takes
/// many microseconds, all of which the writer has to be given work for.
const SHARE: usize = 4;

// Each operation sets out from changes of its own, so that no epoch goes back.
const BESIDE: u64 = 1 << 20;
const TWO_WRITERS: u64 = 2 << 20;
const MIX: u64 = 3 << 20;

/// `get_beside_writer`: a lookup, while another thread updates regions at random as fast as it can.
#[must_use]
pub fn get_beside_writer(
    fixture: &Fixture,
    contenders: &[Box<dyn Runs>],
    effort: Effort,
) -> Vec<Row> {
    let lanes = contenders.iter().map(|contender| {
        Lane::new(contender.name(), move |round| {
            let keys = fixture.queries((effort.operations / SHARE).max(1), round);
            let make = |seed| changes(fixture, CHUNK, round << 32 | seed, BESIDE + round);
            let ready: Mutex<Vec<_>> = Mutex::new((0..CHUNKS).map(make).collect());
            let seed = AtomicU64::new(CHUNKS);
            let write = || {
                let chunk = ready.lock().expect("one writer").pop();
                // Relaxed: only draws different regions each time.
                contender
                    .updates(chunk.unwrap_or_else(|| make(seed.fetch_add(1, Ordering::Relaxed))));
            };
            timed_beside(write, || {
                timed_by_the_wall_as_done(|| {
                    within(LONGEST, keys.chunks(CHUNK), |keys| {
                        black_box(contender.gets(keys));
                        keys.len()
                    })
                })
            })
        })
    });
    let subject = subject("get_beside_writer", fixture, 1);
    alternate(subject, effort.rounds, lanes.collect())
}

/// `update_2w`: an update, on two threads at once.
#[must_use]
pub fn update_2w(fixture: &Fixture, contenders: &[Box<dyn Runs>], effort: Effort) -> Vec<Row> {
    let lanes = contenders.iter().map(|contender| {
        Lane::new(contender.name(), move |round| {
            let changes = each(|thread| {
                let seed = 2 * round + thread;
                changes(fixture, effort.operations, seed, TWO_WRITERS + round)
            });
            together(2, |thread| {
                let changes = taken(&changes[thread]);
                timed_by_the_wall_as_done(|| {
                    within(LONGEST, changes, |changes| {
                        let count = changes.len();
                        contender.updates(changes);
                        count
                    })
                })
            })
        })
    });
    let subject = subject("update_2w", fixture, 2);
    alternate(subject, effort.rounds, lanes.collect())
}

/// `mixed_2t`: an operation of two threads, of which 95 % are lookups and 5 % updates.
#[must_use]
pub fn mixed_2t(fixture: &Fixture, contenders: &[Box<dyn Runs>], effort: Effort) -> Vec<Row> {
    let updates = (effort.operations / MIXED).max(1);
    let lookups = updates * (MIXED - 1);
    let lanes = contenders.iter().map(|contender| {
        Lane::new(contender.name(), move |round| {
            let keys = [0, 1].map(|thread| fixture.queries(lookups, 2 * round + thread));
            let changes = each(|thread| changes(fixture, updates, 2 * round + thread, MIX + round));
            together(2, |thread| {
                let keys = keys[thread].chunks(CHUNK * (MIXED - 1));
                let pieces = keys.zip(taken(&changes[thread]));
                timed_by_the_wall_as_done(|| {
                    within(LONGEST, pieces, |(keys, changes)| {
                        let count = keys.len() + changes.len();
                        black_box(contender.mixed(keys, changes));
                        count
                    })
                })
            })
        })
    });
    let subject = subject("mixed_2t", fixture, 2);
    alternate(subject, effort.rounds, lanes.collect())
}

/// Changes in pieces of `CHUNK`.
type Pieces = Vec<Vec<Region>>;

/// What each of two threads takes when it begins.
fn each(regions: impl Fn(u64) -> Vec<Region>) -> [Mutex<Pieces>; 2] {
    [0, 1].map(|thread| Mutex::new(in_pieces(regions(thread))))
}

fn in_pieces(regions: Vec<Region>) -> Pieces {
    let mut regions = regions.into_iter().peekable();
    let mut pieces = Pieces::with_capacity(regions.len().div_ceil(CHUNK));
    while regions.peek().is_some() {
        pieces.push(regions.by_ref().take(CHUNK).collect());
    }
    pieces
}

fn taken(changes: &Mutex<Pieces>) -> Pieces {
    std::mem::take(&mut *changes.lock().expect("taken once"))
}

fn changes(fixture: &Fixture, count: usize, seed: u64, change: u64) -> Vec<Region> {
    let picks = fixture.picks(count, seed).into_iter();
    picks.map(|index| fixture.region(index, change)).collect()
}

fn subject(op: &'static str, fixture: &Fixture, threads: usize) -> Subject {
    Subject {
        op,
        regions: fixture.len(),
        threads,
    }
}
