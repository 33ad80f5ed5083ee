//! What becomes of that which is taken out of a map: counted, and the nodes'
//! memory used again.

// These counters order nothing and are read for display only, so the model
// checker is spared them.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::id_index::{PagePools, SparePages};
use crate::pool::{Pool, Spare, kept};
use crate::tree::node_memory;

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
    nodes: Pool,
    pages: PagePools,
}

/// Free memory of one transaction, or on its way into the pools.
#[derive(Debug)]
pub(super) struct SpareMemory {
    pub(super) nodes: Spare,
    pub(super) pages: SparePages,
}

/// About so many nodes are kept: 6.5 MiB.
const KEPT_NODES: usize = 4096;

impl Default for Recycling {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            nodes: Pool::new(node_memory(), kept(KEPT_NODES)),
            pages: PagePools::default(),
        }
    }
}

impl Recycling {
    /// Takes all free memory.
    pub(super) fn take(&self) -> SpareMemory {
        SpareMemory {
            nodes: self.nodes.take(),
            pages: self.pages.take(),
        }
    }

    /// Adds free memory, or frees it if there is enough.
    pub(super) fn give(&self, spare: SpareMemory) {
        self.nodes.give(spare.nodes);
        self.pages.give(spare.pages);
    }
}

impl SpareMemory {
    /// None.
    pub(super) fn new() -> Self {
        Self {
            nodes: Spare::new(node_memory()),
            pages: SparePages::new(),
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
