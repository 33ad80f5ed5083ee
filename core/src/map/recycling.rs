//! What becomes of that which is taken out of a map: counted, and its memory used
//! again.

// These counters order nothing and are read for display only, or to decide what to
// keep, so the model checker is spared them.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::bag::Bag;
use crate::pool::{Pool, Pooled, kept};

/// Objects (root records, nodes, pages, entries) by what has become of them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    retired: AtomicU64,
    freed: AtomicU64,
    /// The most that were retired and not freed.
    most_waiting: AtomicU64,
    unflushed: AtomicUsize,
}

/// What a map shares with its garbage, which may outlive it.
#[derive(Debug)]
pub(super) struct Recycling {
    pub(super) counters: Counters,
    bags: Pool<Bag>,
    /// Bytes of free memory in bags that have much of it.
    kept: AtomicUsize,
}

/// Bags that a map keeps. Between a publication and the end of what it replaced there
/// are some tens of others.
const KEPT_BAGS: usize = 128;

/// A bag with more free memory than that has *much* of it: what a batch has replaced.
/// All others have 4 MiB together.
const MUCH: usize = 32 << 10;

/// How much free memory is kept in bags with much of it.
const KEPT_BYTES: usize = 8 << 20;

/// About so much memory a change of a batch takes, at most: a leaf and a page, if no
/// two are near to each other.
const BYTES_A_CHANGE: usize = 768;

/// Bags whose memory a batch takes over, at most.
const ABSORBED: usize = 8;

/// Fewer changes are no batch: a bag gets back what it gave for one of these. Taking
/// over others' memory for them would gather it in a few bags that have too much.
const BATCH: usize = 8;

impl Default for Recycling {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            bags: Pool::new(kept(KEPT_BAGS)),
            kept: AtomicUsize::new(0),
        }
    }
}

impl Recycling {
    /// A bag for so many changes.
    pub(super) fn take(&self, changes: usize) -> Pooled<Bag> {
        let mut bag = self.bags.take(Bag::new);
        self.count_out(&mut bag);
        if changes >= BATCH {
            let needed = changes * BYTES_A_CHANGE;
            for _ in 0..ABSORBED {
                if bag.spare_bytes() >= needed {
                    break;
                }
                let Some(mut other) = self.bags.find() else {
                    break;
                };
                self.count_out(&mut other);
                bag.absorb(&mut other);
                self.bags.discard(other);
            }
        }
        bag
    }

    /// Takes a bag back; its memory too, unless there is enough.
    pub(super) fn give(&self, mut bag: Pooled<Bag>) {
        let bytes = bag.spare_bytes();
        if bytes > MUCH {
            // Relaxed: an estimate.
            if self.kept.fetch_add(bytes, Relaxed) + bytes > kept(KEPT_BYTES) {
                self.kept.fetch_sub(bytes, Relaxed);
                bag.release();
            } else {
                bag.counted = bytes;
            }
        }
        self.bags.give(bag);
    }

    fn count_out(&self, bag: &mut Bag) {
        if bag.counted > 0 {
            // Relaxed: an estimate.
            self.kept.fetch_sub(bag.counted, Relaxed);
            bag.counted = 0;
        }
    }
}

/// So many retired objects may wait in the bags of threads before one of these
/// is handed to the reclaimer.
const FLUSH_AFTER: usize = 64;

impl Counters {
    pub(super) fn retire(&self, objects: usize) {
        let objects = objects as u64;
        // Relaxed, all of it: a statistic.
        let retired = self.retired.fetch_add(objects, Relaxed) + objects;
        let waiting = retired.saturating_sub(self.freed.load(Relaxed));
        if waiting > self.most_waiting.load(Relaxed) {
            self.most_waiting.fetch_max(waiting, Relaxed);
        }
    }

    /// The most that has waited at any time.
    pub(super) fn most_waiting(&self) -> u64 {
        // Relaxed: a statistic.
        self.most_waiting.load(Relaxed)
    }

    pub(super) fn free(&self, objects: usize) {
        // Relaxed: a statistic.
        self.freed.fetch_add(objects as u64, Relaxed);
    }

    /// Objects retired and freed so far. The second never exceeds the first by
    /// what is shown.
    pub(super) fn read(&self) -> (u64, u64) {
        // Relaxed: a statistic; `freed` first, so that the difference does not
        // go below zero because of what happens between the two loads.
        let freed = self.freed.load(Relaxed);
        (self.retired.load(Relaxed).max(freed), freed)
    }

    /// Whether the writer that has just retired `objects` should flush.
    pub(super) fn flush_due(&self, objects: usize) -> bool {
        // Relaxed: a hint; two writers may both flush, or one a little late.
        let waiting = self.unflushed.fetch_add(objects, Relaxed) + objects;
        if waiting < FLUSH_AFTER {
            return false;
        }
        // Relaxed: as above.
        self.unflushed.store(0, Relaxed);
        true
    }
}
