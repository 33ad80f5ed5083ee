//! The region map: the tree of keys and the index of ids under one root.
//!
//! What the map promises, and where the promise is kept:
//!
//! - M1 live ranges are disjoint: `transaction.rs` displaces all that a newcomer
//!   overlaps, to its left as well;
//! - M2 a batch is seen whole or not at all: `publish.rs`, one swap of the root
//!   (its changes may be applied in another order than given: `order.rs`);
//! - M3 nothing newer is displaced: `admission.rs`, pure functions;
//! - M4 lookups by key, by id, before a key and by range agree: they start from
//!   one root, `snapshot.rs`;
//! - M5 lookups take no lock, allocate nothing and share no writes: they do
//!   nothing but follow pointers under a guard;
//! - M6 a stopped writer stops nobody: until the swap it has changed nothing
//!   (`lock_freedom.rs` stops one before each access of an atomic);
//! - M7 memory is bounded by what is live and what is retired: `recycling.rs`
//!   counts the latter (`bag.rs` and `garbage.rs` free it), and `tree/rebalance.rs` keeps nodes filled. Without a
//!   stalled guard the garbage is what the last few publications replaced, plus
//!   up to 64 objects for each thread that has written and then fallen silent.
//!   What is freed goes back to slabs, which give whole chunks of 2 MiB back to
//!   the system: `slab.rs` says what they keep.

pub(crate) mod admission;
mod bag;
pub(crate) mod batch;
mod bulk;
#[cfg(any(test, feature = "oracle"))]
mod check;
mod garbage;
mod many;
mod order;
pub(crate) mod outcome;
mod pages;
mod publish;
mod recycling;
mod root;
mod scan;
mod snapshot;
mod transaction;

use std::fmt;
use std::sync::Arc;

use crate::entry::{Entry, SharedEntry};
use crate::provenance::Provenance;
use crate::region::Region;
use crate::sync::atomic::AtomicPtr;

use batch::Change;
use recycling::Recycling;
use root::Root;

pub use batch::{Batch, Expect};
pub use bulk::{BulkLoad, Loaded};
pub use outcome::{Outcome, Refusal, RefusalReason, Winner};
pub use pages::{Page, Pages};
pub use scan::Scan;
pub use snapshot::{EntryRef, Snapshot};

/// A concurrent ordered map from disjoint key ranges to regions, with an index
/// by region id.
///
/// Any number of threads may read and write it at the same time. Readers see
/// one moment of the map ([`RegionMap::pin`]) and wait for nobody; writers wait
/// for nobody either, but repeat their work if another was faster.
pub struct RegionMap {
    // Invariant: points to a `Root` from `Box`, which the map owns, along with
    // one count of each entry in it; null only while the map is taken apart.
    root: AtomicPtr<Root>,
    recycling: Arc<Recycling>,
}

/// How much a map holds. The counts of what is live are kept with each change, and
/// equal what a walk through the snapshot would count.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct MapStats {
    /// Live regions.
    pub regions: usize,
    /// Nodes of the tree of keys.
    pub nodes: usize,
    /// Pages of the index of ids.
    pub pages: usize,
    /// Memory of all that is live, in bytes that it stands in:
    /// the root record, the nodes and pages, whole even where they are not full,
    /// and the entries with their counts, details, such keys as are too long to stand
    /// in them ([`Key::INLINE`]), and peers where they are more than four. Not what the
    /// allocator adds, nor garbage, nor free slots and what is kept for reuse.
    ///
    /// [`Key::INLINE`]: crate::Key::INLINE
    pub bytes: usize,
    /// Objects (root records, nodes, pages and entries) that have been taken out
    /// of the map since it was made.
    pub retired: u64,
    /// Of these, how many have been freed, or given back to whoever shares the
    /// entry. The difference is garbage: it waits for a guard to end, or for a
    /// writer's next change. It keeps growing only while a guard is held.
    pub freed: u64,
    /// The most garbage that there has been at once. Without a guard that stalls it
    /// stays below a thousand objects, however much is written one change at a
    /// time; a large batch, or a replaced map, is garbage all at once. Beside a
    /// stalled guard each change of one region adds some five objects (root, entry,
    /// the leaf and what leads to it, a page or more), about 4 KiB at a million
    /// regions: this tells afterwards that there was one.
    pub most_garbage: u64,
}

impl MapStats {
    /// Objects that wait to be freed.
    #[must_use]
    pub const fn garbage(&self) -> u64 {
        self.retired.saturating_sub(self.freed)
    }
}

impl RegionMap {
    /// An empty map of generation 0.
    #[must_use]
    pub fn new() -> Self {
        Self::with_generation(0)
    }

    /// An empty map.
    #[must_use]
    pub fn with_generation(generation: u64) -> Self {
        let root = Box::new(Root::empty(generation));
        Self {
            root: AtomicPtr::new(Box::into_raw(root)),
            recycling: Arc::default(),
        }
    }

    /// The map as it is now, unchanging for as long as the snapshot lives.
    ///
    /// Costs a guard of the reclaimer: a few nanoseconds, no shared write.
    #[inline]
    pub fn pin(&self) -> Snapshot<'_> {
        Snapshot::new(self)
    }

    /// Puts `region` in the place of everything that it overlaps and of its own
    /// former range, unless something there is newer (M3).
    ///
    /// O(log n) for each region displaced.
    pub fn put(&self, region: Region, provenance: Provenance) -> Outcome {
        let entry = SharedEntry::new(Entry::new(region, provenance));
        let expect = Expect::Any;
        self.publish_change(Change::Put { entry, expect })
    }

    /// Applies all changes of a batch in order; they become visible together
    /// (M2). The outcomes are in the order of the changes.
    ///
    /// Lock-free: a batch is rebuilt and published again if another writer
    /// published meanwhile, so a long batch may repeat its work while others
    /// keep writing; some writer always gets on.
    pub fn apply(&self, batch: Batch) -> Vec<Outcome> {
        let mut changes = batch.into_changes();
        match changes.pop() {
            Some(change) if changes.is_empty() => vec![self.publish_change(change)],
            Some(change) => {
                changes.push(change);
                self.publish_changes(changes)
            }
            None => Vec::new(),
        }
    }

    /// Replaces the whole content by that of `staged`, under a new generation.
    ///
    /// One step for readers, and O(1) for the caller; the old content is freed
    /// in portions later. Entries of the old content are not marked as
    /// superseded.
    pub fn replace_with(&self, staged: Self, generation: u64) {
        self.publish_content(staged, generation);
    }

    /// The generation of the content.
    pub fn generation(&self) -> u64 {
        self.pin().generation()
    }

    /// How much the map holds, and how much garbage waits.
    pub fn stats(&self) -> MapStats {
        let (retired, freed) = self.recycling.counters.read();
        let snapshot = self.pin();
        let root = snapshot.root();
        MapStats {
            regions: root.tree.len(),
            nodes: root.tree.size().nodes(),
            pages: root.ids.pages(),
            bytes: root.bytes(),
            retired,
            freed,
            most_garbage: self.recycling.counters.most_waiting(),
        }
    }
}

impl Default for RegionMap {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RegionMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionMap")
            .field("generation", &self.generation())
            .field("stats", &self.stats())
            .finish()
    }
}

#[cfg(all(test, not(tidegate_loom)))]
mod tests;
