//! What a publication has taken out of the map, on its way to the allocator.
//!
//! All of it travels in one bag: one call to the reclaimer a publication,
//! however much it replaced. A whole map that was replaced is freed in portions,
//! so that the thread on which the reclaimer happens to run is not held up by a
//! million entries.

use std::sync::Arc;

use super::recycling::{Recycling, SpareMemory};
use super::root::{Replaced, Root};
use crate::entry::EntryPtr;
use crate::id_index::{PagePtr, Subindex};
use crate::sync::reclaim::{self, Guard};
use crate::tree::{Retired, Subtree};

/// Objects of a replaced map that are freed at a time.
const PORTION: usize = 1024;

/// What one publication took out of the map.
pub(super) struct Garbage {
    pub(super) root: Replaced,
    pub(super) nodes: Vec<Retired>,
    pub(super) pages: Vec<PagePtr>,
    pub(super) entries: Vec<EntryPtr>,
}

/// All that a root held, with the root.
pub(super) struct Content {
    tree: Subtree,
    ids: Subindex,
}

// === impl Garbage ===

impl Garbage {
    /// Hands all to the reclaimer. Returns how many objects that is.
    ///
    /// # Safety
    ///
    /// The root from which all this was reachable is no longer published, and
    /// nothing of it is reachable from the one that is. The map's count of each
    /// entry goes with it.
    pub(super) unsafe fn retire(self, guard: &Guard, recycling: &Arc<Recycling>) -> usize {
        let objects = self.nodes.len() + self.pages.len() + self.entries.len() + 1;
        recycling.counters.retire(objects);
        let recycling = Arc::clone(recycling);
        let bag = Box::new(self);
        let free = move || {
            // SAFETY: the reclaimer runs this when all guards that could have
            // seen the old root are gone; the rest is `retire`'s caller's word.
            unsafe { bag.free(&recycling) };
            recycling.counters.free(objects);
        };
        // SAFETY: by the caller's word all of it is unlinked, and nobody else
        // frees it; nodes, pages and entries may be freed by any thread.
        unsafe { guard.defer(free) };
        objects
    }

    /// # Safety
    ///
    /// Nothing of it is reachable for anyone.
    unsafe fn free(self, recycling: &Recycling) {
        let Self {
            root,
            nodes,
            pages,
            entries,
        } = self;
        // SAFETY: by the caller's word.
        unsafe { root.free() };
        let mut spare = SpareMemory::new();
        for node in nodes {
            // SAFETY: by the caller's word; each node was retired once.
            unsafe { node.free(&mut spare.nodes) };
        }
        for page in pages {
            // SAFETY: by the caller's word; each page was retired once.
            unsafe { page.free(&mut spare.pages) };
        }
        for entry in entries {
            // SAFETY: by the caller's word; each entry was displaced once.
            unsafe { entry.release() };
        }
        recycling.give(spare);
    }
}

// === impl Content ===

impl Content {
    pub(super) fn of(root: &Root) -> Self {
        Self {
            tree: Subtree::new(root.tree),
            ids: Subindex::new(root.ids),
        }
    }

    /// Hands the content of a replaced root to the reclaimer.
    ///
    /// # Safety
    ///
    /// `root` is no longer published, and nothing that it holds is reachable
    /// from the root that is.
    pub(super) unsafe fn retire(root: Replaced, guard: &Guard, recycling: &Arc<Recycling>) {
        // SAFETY: alive: `guard` is older than the replacement.
        let replaced = unsafe { root.0.as_ref() };
        let content = Self::of(replaced);
        recycling.counters.retire(replaced.objects());
        let recycling = Arc::clone(recycling);
        let free = move || {
            // SAFETY: the reclaimer runs this when all guards that could have
            // seen the root are gone.
            unsafe { root.free() };
            recycling.counters.free(1);
            // SAFETY: as above.
            unsafe { content.free_and_go_on(&recycling) };
        };
        // SAFETY: by the caller's word all of it is unlinked, and nobody else
        // frees it; nodes, pages and entries may be freed by any thread.
        unsafe { guard.defer(free) };
    }

    /// # Safety
    ///
    /// Nothing of it is reachable for anyone.
    unsafe fn free_and_go_on(mut self, recycling: &Arc<Recycling>) {
        // SAFETY: by the caller's word.
        let freed = unsafe { self.free_some(PORTION) };
        if freed == 0 {
            return;
        }
        recycling.counters.free(freed);
        let recycling = Arc::clone(recycling);
        // SAFETY: unreachable already; the reclaimer is only asked to run the
        // rest at another time.
        let free = move || unsafe { self.free_and_go_on(&recycling) };
        let guard = reclaim::pin();
        // SAFETY: as above.
        unsafe { guard.defer(free) };
        // This may be a thread that only ever reads, whose bag would never fill.
        guard.flush();
    }

    /// Frees all of it, now.
    ///
    /// # Safety
    ///
    /// Nothing of it is reachable for anyone.
    pub(super) unsafe fn free(mut self) {
        // SAFETY: by the caller's word.
        while unsafe { self.free_some(PORTION) } > 0 {}
    }

    /// # Safety
    ///
    /// Nothing of it is reachable for anyone.
    unsafe fn free_some(&mut self, portion: usize) -> usize {
        // SAFETY: by the caller's word.
        let nodes = unsafe { self.tree.free_some(portion) };
        if nodes > 0 {
            return nodes;
        }
        // SAFETY: by the caller's word.
        unsafe { self.ids.free_some(portion) }
    }
}
