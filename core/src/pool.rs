//! Memory of freed nodes and pages, kept for the next edit.
//!
//! Each change of the map frees as many nodes as it makes, of few sizes, on
//! whatever thread the reclaimer runs. General allocators pay dearly for that
//! pattern (more than half of the cost of a batch at a million regions), so the
//! memory goes back to the map's own pools, one for each size.
//!
//! A pool is a few stacks that are taken whole (`stack.rs`): an edit takes all of
//! one, uses what it needs and puts the rest back.
//!
//! Each thread has a stack that it gives to, and takes from first; one that finds
//! it empty takes another's, so that what a reader has freed goes back to the
//! writer, and two writers do not leave each other to where memory comes from anew
//! (which cost each of them half of its speed).

#[cfg(tidegate_loom)]
pub mod door;

use std::ptr::{NonNull, null_mut};

use crossbeam_utils::CachePadded;

use crate::prefetch::prefetch;
use crate::slab::Source;
use crate::stack::{Link, Stack, turn};
use crate::sync::atomic::AtomicUsize;
use crate::sync::atomic::Ordering::Relaxed;

/// Free blocks of a map, shared by its edits and the reclaimer.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Of the blocks, each large enough for a link.
    source: Source,
    /// About so many blocks are kept; more are freed.
    kept: usize,
    stacks: [CachePadded<Counted>; STACKS],
}

/// How many stacks a pool has: enough for the few writers that a map has. One under
/// the model checker, whose threads then meet.
const STACKS: usize = if cfg!(tidegate_loom) { 1 } else { 4 };

#[derive(Debug)]
struct Counted {
    free: Stack,
    /// About how many there are.
    len: AtomicUsize,
}

/// Free blocks that belong to one edit, or are on their way into a pool.
#[derive(Debug)]
pub(crate) struct Spare {
    source: Source,
    first: *mut Link,
    /// The last link; null if it is not known, because the list was taken from
    /// a pool.
    last: *mut Link,
    len: usize,
}

// SAFETY: free memory with a single owner may be sent anywhere.
unsafe impl Send for Spare {}

// === impl Spare ===

impl Spare {
    /// No blocks, of the size that `source` gives.
    pub(crate) fn new(source: Source) -> Self {
        let layout = source.layout();
        assert!(layout.size() >= size_of::<Link>() && layout.align() >= align_of::<Link>());
        Self {
            source,
            first: null_mut(),
            last: null_mut(),
            len: 0,
        }
    }

    /// A block, uninitialised.
    pub(crate) fn take(&mut self) -> NonNull<u8> {
        self.pop().unwrap_or_else(|| self.source.alloc())
    }

    /// Keeps a block.
    ///
    /// # Safety
    ///
    /// `block` came from [`Spare::take`] of the same source, nothing in it
    /// needs to be dropped, and it is no longer reachable for anyone.
    pub(crate) unsafe fn keep(&mut self, block: NonNull<u8>) {
        let free = block.cast::<Link>().as_ptr();
        // SAFETY: the caller's own, and large enough for a link.
        unsafe { free.write(Link::before(self.first)) };
        if self.first.is_null() {
            self.last = free;
        }
        self.first = free;
        self.len += 1;
    }

    /// Gives all memory but that of `kept` blocks back to where it came from.
    fn release(&mut self, kept: usize) {
        while self.len > kept || kept == 0 {
            let Some(memory) = self.pop() else {
                break;
            };
            // SAFETY: from `take`, and out of the list now.
            unsafe { self.source.dealloc(memory) };
        }
    }

    fn pop(&mut self) -> Option<NonNull<u8>> {
        let free = NonNull::new(self.first)?;
        // SAFETY: what is in the list is free memory that this list owns.
        let link = unsafe { free.read() };
        self.first = link.next();
        // Written to soon, at the latest to link on from it.
        prefetch(self.first, self.source.layout().size());
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

// === impl Pool ===

impl Pool {
    /// An empty pool for blocks of the size that `source` gives.
    pub(crate) fn new(source: Source, kept: usize) -> Self {
        Self {
            source,
            kept,
            stacks: std::array::from_fn(|_| CachePadded::default()),
        }
    }

    /// An empty list of blocks like those in here.
    pub(crate) fn spare(&self) -> Spare {
        Spare::new(self.source)
    }

    /// Takes all that this thread has given, or all that another has.
    pub(crate) fn take(&self) -> Spare {
        let own = turn();
        for next in 0..STACKS {
            let stack = &self.stacks[(own + next) % STACKS];
            if stack.free.is_empty() {
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
        let stack = &self.stacks[turn() % STACKS];
        // Relaxed: an estimate.
        stack.len.fetch_add(spare.len, Relaxed);
        let first = std::mem::replace(&mut spare.first, null_mut());
        if spare.last.is_null() {
            // SAFETY: what `spare` held was its own.
            unsafe { stack.free.put_back(first) };
        } else {
            // SAFETY: as above, and it knew its end.
            unsafe { stack.free.push(first, spare.last) };
        }
    }
}

// === impl Counted ===

impl Default for Counted {
    fn default() -> Self {
        Self {
            free: Stack::new(),
            len: AtomicUsize::new(0),
        }
    }
}

impl Counted {
    /// Takes all that is there, and about how many that are.
    fn take(&self) -> (*mut Link, usize) {
        // Relaxed: an estimate.
        (self.free.take(), self.len.swap(0, Relaxed))
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
