//! A whole map that was replaced, on its way to the allocator.
//!
//! It is freed in portions, so that the thread on which the reclaimer happens to run
//! is not held up by a million entries.

use std::sync::Arc;

use super::recycling::Recycling;
use super::root::{Replaced, Root};
use crate::id_index::Subindex;
use crate::sync::reclaim::{self, Guard};
use crate::tree::Subtree;

/// Objects of a replaced map that are freed at a time.
const PORTION: usize = 1024;

/// All that a root held, with the root.
pub(super) struct Content {
    tree: Subtree,
    ids: Subindex,
}

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
