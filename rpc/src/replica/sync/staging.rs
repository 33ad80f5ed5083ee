//! A full sync in the making: a map of its own, under the next generation.
//!
//! The map that answers is not touched until the leader has said that the sync is complete. A sync that is given up
//! leaves nothing behind but its generation's number, which is not used again.
//!
//! A map without a proof answers nothing. So while the old map answers, the new one is probed before it is swapped in,
//! and takes over with the proof in hand.

use tidegate_core::{Batch, Outcome, RegionMap};

use crate::replica::state::Shared;

/// What the session feeds: the applier says so, and the watch probes accordingly.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Feed {
    /// Nothing that a probe could prove.
    Aside,
    /// A full sync that is complete and not swapped in: the map that it will replace still answers.
    Complete {
        /// The generation of the full sync.
        generation: u64,
        /// The next index to apply in it.
        index: u64,
    },
    /// The map that answers.
    Answering,
}

#[derive(Debug)]
pub(in crate::replica) struct Staged {
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

    /// An empty map for the next generation, which begins.
    pub(in crate::replica) fn begin(shared: &Shared) -> Self {
        let generation = shared.gate.next_generation();
        shared.gate.begin(generation);
        Self::new(generation)
    }

    pub(in crate::replica) fn apply(&self, batch: Batch) -> Vec<Outcome> {
        self.map.apply(batch)
    }

    pub(in crate::replica) fn generation(&self) -> u64 {
        self.generation
    }

    /// Lets the staged map answer in place of the old one. Between the two steps root and word carry different
    /// generations, and the gate refuses.
    pub(in crate::replica) fn publish(self, shared: &Shared) {
        shared.map.replace_with(self.map, self.generation);
        shared.gate.publish(self.generation);
    }
}
