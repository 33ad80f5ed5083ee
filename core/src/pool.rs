//! Memory of freed nodes and pages, kept for the next edit.
//!
//! Each change of the map frees as many nodes as it makes, of few sizes, on
//! whatever thread the reclaimer runs. General allocators pay dearly for that
//! pattern (more than half of the cost of a batch at a million regions), so the
//! memory goes back to the map's own pools, one for each size.
//!
//! A pool is a few stacks that are pushed to piecewise but only ever taken whole:
//! an edit takes all of one, uses what it needs and puts the rest back. Taking
//! whole rules out that a block is popped, reused and pushed again while another
//! thread holds a stale link to it (the ABA problem of such stacks).
//!
//! Each thread has a stack that it gives to, and takes from first; one that finds
//! it empty takes another's, so that what a reader has freed goes back to the
//! writer, and two writers do not leave each other to the allocator (which cost
//! each of them half of its speed).

#[cfg(tidegate_loom)]
pub mod door;

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{NonNull, null_mut};
// Not the door's: it numbers threads, and orders nothing.
use std::sync::atomic::AtomicUsize as Counter;

use crossbeam_utils::CachePadded;

use crate::prefetch::prefetch;
use crate::sync::Canary;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicPtr, AtomicUsize};

/// Free blocks of a map, shared by its edits and the reclaimer.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Of each block; large enough for a link.
    layout: Layout,
    /// About so many blocks are kept; more are freed.
    kept: usize,
    stacks: [CachePadded<Stack>; STACKS],
}

/// How many stacks a pool has: enough for the few writers that a map has. One under
/// the model checker, whose threads then meet.
const STACKS: usize = if cfg!(tidegate_loom) { 1 } else { 4 };

#[derive(Debug)]
struct Stack {
    first: AtomicPtr<Free>,
    /// About how many there are.
    len: AtomicUsize,
}

/// Free blocks that belong to one edit, or are on their way into a pool.
#[derive(Debug)]
pub(crate) struct Spare {
    layout: Layout,
    first: *mut Free,
    /// The last link; null if it is not known, because the list was taken from
    /// a pool.
    last: *mut Free,
    len: usize,
}

/// A free block: its first bytes link to the next one.
#[derive(Debug)]
struct Free {
    next: *mut Self,
    canary: Canary,
}

// SAFETY: free memory with a single owner may be sent anywhere.
unsafe impl Send for Spare {}

// === impl Spare ===

impl Spare {
    /// No blocks, of the given size.
    pub(crate) const fn new(layout: Layout) -> Self {
        assert!(layout.size() >= size_of::<Free>() && layout.align() >= align_of::<Free>());
        Self {
            layout,
            first: null_mut(),
            last: null_mut(),
            len: 0,
        }
    }

    /// A block, uninitialised.
    pub(crate) fn take(&mut self) -> NonNull<u8> {
        self.pop().unwrap_or_else(|| {
            // SAFETY: `new` has seen to it that the size is not 0.
            let memory = unsafe { alloc(self.layout) };
            NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(self.layout))
        })
    }

    /// Keeps a block.
    ///
    /// # Safety
    ///
    /// `block` came from [`Spare::take`] for the same layout, nothing in it
    /// needs to be dropped, and it is no longer reachable for anyone.
    pub(crate) unsafe fn keep(&mut self, block: NonNull<u8>) {
        let free = block.cast::<Free>().as_ptr();
        // SAFETY: the caller's own, and large enough for a link.
        unsafe { free.write(Free::before(self.first)) };
        if self.first.is_null() {
            self.last = free;
        }
        self.first = free;
        self.len += 1;
    }

    /// Gives all memory but that of `kept` blocks back to the allocator.
    fn release(&mut self, kept: usize) {
        while self.len > kept || kept == 0 {
            let Some(memory) = self.pop() else {
                break;
            };
            // SAFETY: from `take`, and out of the list now.
            unsafe { dealloc(memory.as_ptr(), self.layout) };
        }
    }

    fn pop(&mut self) -> Option<NonNull<u8>> {
        let free = NonNull::new(self.first)?;
        // SAFETY: what is in the list is free memory that this list owns.
        let link = unsafe { free.read() };
        link.canary.check();
        self.first = link.next;
        // Written to soon, at the latest to link on from it.
        prefetch(self.first, self.layout.size());
        self.len = self.len.saturating_sub(1);
        if self.first.is_null() {
            self.last = null_mut();
        }
        Some(free.cast())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.release(0);
    }
}

// === impl Free ===

impl Free {
    fn before(next: *mut Self) -> Self {
        Self {
            next,
            canary: Canary::new(),
        }
    }

    /// Links on to another block; returns the one before.
    fn relink(&mut self, next: *mut Self) -> *mut Self {
        self.canary.refill();
        std::mem::replace(&mut self.next, next)
    }
}

// === impl Pool ===

impl Pool {
    /// An empty pool for blocks of the given size.
    pub(crate) fn new(layout: Layout, kept: usize) -> Self {
        Self {
            layout,
            kept,
            stacks: std::array::from_fn(|_| CachePadded::default()),
        }
    }

    /// An empty list of blocks like those in here.
    pub(crate) const fn spare(&self) -> Spare {
        Spare::new(self.layout)
    }

    /// Takes all that this thread has given, or all that another has.
    pub(crate) fn take(&self) -> Spare {
        let own = own_stack();
        for next in 0..STACKS {
            let stack = &self.stacks[(own + next) % STACKS];
            // Relaxed: only to see whether it is worth a write.
            if stack.first.load(Relaxed).is_null() {
                continue;
            }
            let (first, len) = stack.take();
            if !first.is_null() {
                return Spare {
                    first,
                    len,
                    ..self.spare()
                };
            }
        }
        self.spare()
    }

    /// Adds what is left of `spare`, or frees it if there is enough.
    pub(crate) fn give(&self, mut spare: Spare) {
        if self.kept == 0 || spare.first.is_null() {
            return;
        }
        // Relaxed: an estimate.
        let lens = self.stacks.iter().map(|stack| stack.len.load(Relaxed));
        let room = self.kept.saturating_sub(lens.sum());
        if spare.len > room {
            spare.release(room);
        }
        if spare.first.is_null() {
            return;
        }
        let stack = &self.stacks[own_stack()];
        // Relaxed: an estimate.
        stack.len.fetch_add(spare.len, Relaxed);
        if spare.last.is_null() {
            stack.put_back(spare);
        } else {
            stack.push(spare);
        }
    }
}

/// The stack of this thread.
fn own_stack() -> usize {
    static THREADS: Counter = Counter::new(0);
    thread_local! {
        static OWN: usize = THREADS.fetch_add(1, Relaxed) % STACKS;
    }
    // A thread that ends may still free.
    OWN.try_with(|own| *own).unwrap_or(0)
}

// === impl Stack ===

impl Default for Stack {
    fn default() -> Self {
        Self {
            first: AtomicPtr::new(null_mut()),
            len: AtomicUsize::new(0),
        }
    }
}

impl Stack {
    /// Takes all that is there, and about how many that are.
    fn take(&self) -> (*mut Free, usize) {
        // Acquire: pairs with the Release in `push` and `put_back`: whoever freed
        // the nodes has written the links. Fails without it:
        // pool::a_block_has_one_owner.
        let first = self.first.swap(null_mut(), Acquire);
        // Relaxed: an estimate.
        (first, self.len.swap(0, Relaxed))
    }

    /// Adds a list whose last link is known.
    fn push(&self, mut spare: Spare) {
        // Relaxed: only linked to, not looked into.
        let mut first = self.first.load(Relaxed);
        loop {
            // SAFETY: the last link of a list that nobody else knows.
            unsafe { (*spare.last).relink(first) };
            // Release: pairs with the Acquire in `take`. Fails without it:
            // pool::a_block_has_one_owner. Relaxed on failure: as for the load
            // above; being a read-modify-write, it passes on the earlier releases.
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
        // Release: as in `push`. Fails without it: pool::what_is_put_back_is_linked.
        while self
            .first
            .compare_exchange(null_mut(), spare.first, Release, Relaxed)
            .is_err()
        {
            // Acquire: as in `take`. Fails without it:
            // pool::what_is_pushed_meanwhile_is_linked.
            let mut pushed = self.first.swap(null_mut(), Acquire);
            while let Some(mut link) = NonNull::new(pushed) {
                // SAFETY: taken from the pool, hence ours.
                let link = unsafe { link.as_mut() };
                pushed = link.relink(spare.first);
                spare.first = link;
            }
        }
        spare.first = null_mut();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for stack in &self.stacks {
            let (first, len) = stack.take();
            drop(Spare {
                first,
                len,
                ..self.spare()
            });
        }
    }
}

/// How many blocks a map keeps. The model checker is spared its pools: they would
/// multiply the schedules, and hide the end of a node's life.
pub(crate) const fn kept(blocks: usize) -> usize {
    if cfg!(tidegate_loom) { 0 } else { blocks }
}
