//! A gap: indexes that the leader skipped, and what it takes to be without one again.
//!
//! The receiver finds a gap on receipt and the applier closes it, and between the two lies the queue. So both go through
//! one lock: a gap that is found while an earlier one is being closed stays open, and one that is found in a session
//! that ends for another reason is known to the next.

use std::sync::{Mutex, PoisonError};

use tidegate_core::gate::Gate;

/// The gap of the generation that a stream feeds.
#[derive(Debug)]
pub(super) struct Gap {
    generation: u64,
    /// While the gap is open: the index that closes it.
    until: Mutex<Option<u64>>,
}

impl Gap {
    /// The gap as the last session of this generation left it.
    pub(super) fn new(generation: u64, until: Option<u64>) -> Self {
        Self {
            generation,
            until: Mutex::new(until),
        }
    }

    /// The generation whose gap this is.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The index that closes the gap; `None` when there is no gap.
    pub(super) fn until(&self) -> Option<u64> {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records were skipped, and all before `until` have been shown to exist.
    pub(super) fn open(&self, gate: &Gate, until: u64) {
        let mut open = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *open = (*open).max(Some(until));
        gate.gap(self.generation, true);
    }

    /// All records before `next` have been applied: what was skipped, and so again what had been applied beyond it.
    pub(super) fn applied(&self, gate: &Gate, next: u64) {
        let mut open = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_some_and(|until| next >= until) {
            *open = None;
            gate.gap(self.generation, false);
        }
    }
}
