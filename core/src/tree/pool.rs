//! Memory of freed nodes, kept for the next edit.
//!
//! Each change of the map frees as many nodes as it makes, all of one size, on
//! whatever thread the reclaimer runs. General allocators pay dearly for that
//! pattern (more than half of the cost of a batch at a million regions), so the
//! memory goes back to the map's own pool.
//!
//! The pool is a stack that is pushed to piecewise but only ever taken whole:
//! an edit takes all of it, uses what it needs and puts the rest back. Taking
//! whole rules out that a node is popped, reused and pushed again while another
//! thread holds a stale link to it (the ABA problem of such stacks). An edit
//! that finds the pool taken goes to the allocator.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{NonNull, null_mut};

use super::node::{Inner, Leaf};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicPtr, AtomicUsize};

/// About so many nodes are kept (4.5 MiB); more are freed.
const KEPT: usize = if cfg!(tidegate_loom) { 0 } else { 4096 };

/// Memory that fits any node.
const NODE: Layout = {
    let (leaf, inner) = (Layout::new::<Leaf>(), Layout::new::<Inner>());
    assert!(leaf.align() == inner.align(), "one alignment for all nodes");
    if leaf.size() > inner.size() {
        leaf
    } else {
        inner
    }
};

/// Free nodes of a map, shared by its edits and the reclaimer.
#[derive(Debug)]
pub(crate) struct Pool {
    first: AtomicPtr<Free>,
    /// About how many there are.
    len: AtomicUsize,
}

/// Free nodes that belong to one edit, or are on their way into a pool.
#[derive(Debug)]
pub(crate) struct Spare {
    first: *mut Free,
    /// The last link; null if it is not known, because the list was taken from
    /// a pool.
    last: *mut Free,
    len: usize,
}

/// A free node: its first bytes link to the next one.
#[derive(Debug)]
struct Free {
    next: *mut Self,
}

// SAFETY: free memory with a single owner may be sent anywhere.
unsafe impl Send for Spare {}

// === impl Spare ===

impl Spare {
    pub(crate) const fn new() -> Self {
        Self {
            first: null_mut(),
            last: null_mut(),
            len: 0,
        }
    }

    /// Moves `node` to the heap.
    pub(super) fn place<T>(&mut self, node: T) -> NonNull<T> {
        const { assert!(size_of::<T>() <= NODE.size() && align_of::<T>() <= NODE.align()) };
        let memory = self.pop().unwrap_or_else(Self::allocate).cast::<T>();
        // SAFETY: memory for any node, owned by nobody else.
        unsafe { memory.write(node) };
        memory
    }

    /// Drops `node` and keeps its memory.
    ///
    /// # Safety
    ///
    /// `node` came from [`Spare::place`] and is no longer reachable for anyone.
    pub(super) unsafe fn reclaim<T>(&mut self, node: NonNull<T>) {
        // SAFETY: by the caller's word.
        unsafe { node.drop_in_place() };
        let free = node.cast::<Free>().as_ptr();
        // SAFETY: the node is gone, and its memory is large enough for a link.
        unsafe { free.write(Free { next: self.first }) };
        if self.first.is_null() {
            self.last = free;
        }
        self.first = free;
        self.len += 1;
    }

    /// Gives all memory back to the allocator.
    fn release(&mut self) {
        while let Some(memory) = self.pop() {
            // SAFETY: from `allocate`, and out of the list now.
            unsafe { dealloc(memory.as_ptr(), NODE) };
        }
    }

    fn pop(&mut self) -> Option<NonNull<u8>> {
        let free = NonNull::new(self.first)?;
        // SAFETY: what is in the list is free memory that this list owns.
        self.first = unsafe { free.as_ref() }.next;
        self.len = self.len.saturating_sub(1);
        if self.first.is_null() {
            self.last = null_mut();
        }
        Some(free.cast())
    }

    fn allocate() -> NonNull<u8> {
        // SAFETY: a node is not of size 0.
        let memory = unsafe { alloc(NODE) };
        NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(NODE))
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.release();
    }
}

// === impl Pool ===

impl Pool {
    /// Takes all that is there.
    pub(crate) fn take(&self) -> Spare {
        if KEPT == 0 {
            return Spare::new();
        }
        // Acquire: pairs with the Release in `give`: whoever freed the nodes has
        // written the links.
        let first = self.first.swap(null_mut(), Acquire);
        Spare {
            first,
            last: null_mut(),
            // Relaxed: an estimate.
            len: self.len.swap(0, Relaxed),
        }
    }

    /// Adds what is left of `spare`, or frees it if there is enough.
    pub(crate) fn give(&self, mut spare: Spare) {
        if KEPT == 0 {
            return;
        }
        // Relaxed: an estimate.
        if spare.len + self.len.load(Relaxed) > KEPT {
            spare.release();
        }
        if spare.first.is_null() {
            return;
        }
        // Relaxed: an estimate.
        self.len.fetch_add(spare.len, Relaxed);
        if spare.last.is_null() {
            self.put_back(spare);
        } else {
            self.push(spare);
        }
    }

    /// Adds a list whose last link is known.
    fn push(&self, mut spare: Spare) {
        // Relaxed: only linked to, not looked into.
        let mut first = self.first.load(Relaxed);
        loop {
            // SAFETY: the last link of a list that nobody else knows.
            unsafe { (*spare.last).next = first };
            // Release: pairs with the Acquire in `take`. Relaxed on failure: as
            // for the load above.
            match self
                .first
                .compare_exchange_weak(first, spare.first, Release, Relaxed)
            {
                Ok(_) => break,
                Err(changed) => first = changed,
            }
        }
        spare.first = null_mut();
    }

    /// Puts back what an edit took and did not use. Its end is far away, so what
    /// has been pushed meanwhile is taken out and put in front of it.
    fn put_back(&self, mut spare: Spare) {
        // Release: as in `push`.
        while self
            .first
            .compare_exchange(null_mut(), spare.first, Release, Relaxed)
            .is_err()
        {
            // Acquire: as in `take`.
            let mut pushed = self.first.swap(null_mut(), Acquire);
            while let Some(mut link) = NonNull::new(pushed) {
                // SAFETY: taken from the pool, hence ours.
                let link = unsafe { link.as_mut() };
                pushed = std::mem::replace(&mut link.next, spare.first);
                spare.first = link;
            }
        }
        spare.first = null_mut();
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            first: AtomicPtr::new(null_mut()),
            len: AtomicUsize::new(0),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.take());
    }
}
