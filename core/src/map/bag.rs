//! What a publication works with, and what it leaves behind.
//!
//! A bag goes round. A writer takes one from the map's pool, makes new nodes from the
//! free memory in it, and notes in it what they replace. Once the new root has been
//! published the bag goes to the reclaimer as a whole: one call a publication, however
//! much it replaced. On whatever thread that runs, what was noted is freed, which makes
//! it the bag's free memory, and the bag goes back to the pool. So a writer that goes on
//! allocates nothing but entries, and takes nothing from the pool but a bag.

use std::mem::{MaybeUninit, take};
use std::ptr::NonNull;
use std::sync::Arc;

use super::recycling::Recycling;
use super::root::{Replaced, Root};
use super::transaction::Displaced;
use crate::entry::EntryPtr;
use crate::pool::Pooled;
use crate::sync::reclaim::Guard;
use crate::{id_index, tree};

/// Lists and free memory of one publication after the other.
#[derive(Debug)]
pub(super) struct Bag {
    pub(super) tree: Option<tree::Means>,
    pub(super) ids: Option<id_index::Means>,
    pub(super) displaced: Vec<Displaced>,
    /// A buffer for the regions that a newcomer overlaps.
    pub(super) overlapped: Vec<EntryPtr>,
    /// The root that was replaced.
    root: Option<Replaced>,
    /// Memory for a root record.
    root_memory: Option<Box<MaybeUninit<Root>>>,
    /// Bytes of free memory that the map has counted among what it keeps.
    pub(super) counted: usize,
}

/// Longer lists do not outlast what they were needed for.
const KEPT_LIST: usize = 64;

impl Bag {
    pub(super) fn new() -> Self {
        Self {
            tree: None,
            ids: None,
            displaced: Vec::new(),
            overlapped: Vec::new(),
            root: None,
            root_memory: None,
            counted: 0,
        }
    }

    /// Moves `root` to memory of its own.
    pub(super) fn place(&mut self, root: Root) -> NonNull<Root> {
        let memory = self.root_memory.take().unwrap_or_else(Box::new_uninit);
        NonNull::from(Box::leak(Box::write(memory, root)))
    }

    /// Takes back the memory of a root.
    ///
    /// # Safety
    ///
    /// `root` came from `place` of some bag, and nobody else can reach it.
    pub(super) unsafe fn displace(&mut self, root: NonNull<Root>) {
        // SAFETY: by the caller's word.
        unsafe { root.drop_in_place() };
        // SAFETY: from a `Box`, and what was in it has been dropped.
        self.root_memory = Some(unsafe { Box::from_raw(root.cast().as_ptr()) });
    }

    /// Bytes of free memory.
    pub(super) fn spare_bytes(&self) -> usize {
        let nodes = self.tree.as_ref().map_or(0, tree::Means::spare_bytes);
        nodes + self.ids.as_ref().map_or(0, id_index::Means::spare_bytes)
    }

    /// Takes over the free memory of `other`.
    pub(super) fn absorb(&mut self, other: &mut Self) {
        if let Some(means) = other.tree.take() {
            self.tree.get_or_insert_with(tree::Means::new).absorb(means);
        }
        if let Some(means) = other.ids.take() {
            self.ids
                .get_or_insert_with(id_index::Means::new)
                .absorb(means);
        }
    }

    /// Gives up the free memory, and long lists.
    pub(super) fn release(&mut self) {
        if let Some(means) = &mut self.tree {
            means.release(KEPT_LIST);
        }
        if let Some(means) = &mut self.ids {
            means.release(KEPT_LIST);
        }
    }

    /// Hands all that was noted to the reclaimer, with the replaced root. Returns how
    /// many objects that is.
    ///
    /// # Safety
    ///
    /// The root from which all this was reachable is no longer published, and
    /// nothing of it is reachable from the one that is. The map's count of each
    /// entry goes with it.
    pub(super) unsafe fn retire(
        mut this: Pooled<Self>,
        root: Replaced,
        guard: &Guard,
        recycling: &Arc<Recycling>,
    ) -> usize {
        this.root = Some(root);
        let nodes = this.tree.as_ref().map_or(0, tree::Means::retired);
        let pages = this.ids.as_ref().map_or(0, id_index::Means::retired);
        let objects = nodes + pages + this.displaced.len() + 1;
        recycling.counters.retire(objects);
        let recycling = Arc::clone(recycling);
        let free = move || {
            let mut bag = this;
            // SAFETY: the reclaimer runs this when all guards that could have
            // seen the old root are gone; the rest is `retire`'s caller's word.
            unsafe { bag.free() };
            recycling.give(bag);
            recycling.counters.free(objects);
        };
        // SAFETY: by the caller's word all of it is unlinked, and nobody else
        // frees it; nodes, pages and entries may be freed by any thread.
        unsafe { guard.defer(free) };
        objects
    }

    /// # Safety
    ///
    /// Nothing of what was noted is reachable for anyone.
    unsafe fn free(&mut self) {
        if let Some(Replaced(root)) = self.root.take() {
            // SAFETY: by the caller's word.
            unsafe { self.displace(root) };
        }
        if let Some(means) = &mut self.tree {
            // SAFETY: by the caller's word.
            unsafe { means.free_retired() };
        }
        if let Some(means) = &mut self.ids {
            // SAFETY: by the caller's word.
            unsafe { means.free_retired() };
        }
        for displaced in self.displaced.drain(..) {
            // SAFETY: by the caller's word; each entry was displaced once.
            unsafe { displaced.entry.release() };
        }
        if self.displaced.capacity() > KEPT_LIST {
            drop(take(&mut self.displaced));
        }
    }
}
