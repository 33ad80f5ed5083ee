//! The region map.

pub(crate) mod admission;
pub(crate) mod batch;
pub(crate) mod outcome;
mod snapshot;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::oracle::SequentialMap;
use crate::provenance::Provenance;
use crate::region::Region;

pub use batch::{Batch, Expect};
pub use outcome::{Outcome, Refusal, RefusalReason, Winner};
pub use snapshot::{EntryRef, Scan, Snapshot};

/// A concurrent ordered map from disjoint key ranges to regions, with an index
/// by region id.
pub struct RegionMap {
    root: Mutex<Root>,
}

#[derive(Clone)]
struct Root {
    generation: u64,
    regions: Arc<SequentialMap>,
}

/// How much a map holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct MapStats {
    /// Live regions.
    pub regions: usize,
    /// Entries and nodes that have been taken out of the map so far.
    pub retired: u64,
    /// Of these, how many have been freed. The difference is garbage that waits
    /// for a guard.
    pub freed: u64,
}

impl RegionMap {
    /// An empty map of generation 0.
    pub fn new() -> Self {
        Self::with_generation(0)
    }

    /// An empty map.
    pub fn with_generation(generation: u64) -> Self {
        Self {
            root: Mutex::new(Root {
                generation,
                regions: Arc::default(),
            }),
        }
    }

    /// The map as it is now, unchanging for as long as the snapshot lives.
    pub fn pin(&self) -> Snapshot<'_> {
        Snapshot::new(self.with_root(|root| root.clone()))
    }

    /// Applies one change.
    pub fn put(&self, region: Region, provenance: Provenance) -> Outcome {
        let mut batch = Batch::with_capacity(1);
        batch.put(region, provenance);
        self.apply(batch).remove(0)
    }

    /// Applies all changes of a batch in order; they become visible together.
    pub fn apply(&self, batch: Batch) -> Vec<Outcome> {
        self.with_root(|root| Arc::make_mut(&mut root.regions).apply(&batch))
    }

    /// Replaces the whole content by that of `staged`, under a new generation.
    pub fn replace_with(&self, staged: Self, generation: u64) {
        let staged = staged
            .root
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        self.with_root(|root| {
            *root = Root {
                generation,
                regions: staged.regions,
            };
        });
    }

    /// The generation of the content.
    pub fn generation(&self) -> u64 {
        self.with_root(|root| root.generation)
    }

    /// How much the map holds.
    pub fn stats(&self) -> MapStats {
        MapStats {
            regions: self.pin().len(),
            ..MapStats::default()
        }
    }

    fn with_root<R>(&self, f: impl FnOnce(&mut Root) -> R) -> R {
        f(&mut self.root.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Default for RegionMap {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RegionMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = self.pin();
        f.debug_struct("RegionMap")
            .field("generation", &snapshot.generation())
            .field("regions", &snapshot.len())
            .finish()
    }
}
