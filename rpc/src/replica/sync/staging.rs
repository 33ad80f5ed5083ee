//! A full sync in the making: a map of its own, under the next generation.
//!
//! The map that answers is not touched until the leader has said that the sync is complete. A sync that is given up
//! leaves nothing behind but its generation's number, which is not used again.

use tidegate_core::{Batch, Outcome, RegionMap};

use crate::replica::state::Shared;

#[derive(Debug)]
pub(super) struct Staged {
    map: RegionMap,
    generation: u64,
}

impl Staged {
    /// An empty map for a generation that the gate has begun.
    pub(super) fn new(generation: u64) -> Self {
        Self {
            map: RegionMap::with_generation(generation),
            generation,
        }
    }

    pub(super) fn apply(&self, batch: Batch) -> Vec<Outcome> {
        self.map.apply(batch)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Lets the staged map answer in place of the old one. Between the two steps root and word carry different
    /// generations, and the gate refuses.
    pub(super) fn publish(self, shared: &Shared) {
        shared.map.replace_with(self.map, self.generation);
        shared.gate.publish(self.generation);
    }
}
