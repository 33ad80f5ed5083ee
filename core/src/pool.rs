//! Values in boxes that are used again and again.
//!
//! A pool is a few stacks that are taken whole (`stack.rs`): who needs a box takes
//! all of one, keeps the first and puts the rest back.
//!
//! Each thread has a stack that it gives to, and takes from first; one that finds
//! it empty takes another's, so that what a reader has freed goes back to the
//! writer, and two writers do not leave each other to where memory comes from anew
//! (which cost each of them half of its speed).

#[cfg(tidegate_loom)]
pub mod door;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
// Not the door's: an estimate, which orders nothing.
use std::sync::atomic::AtomicUsize as Estimate;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::stack::{Link, Stack, turn};

/// Boxes that nobody uses.
pub(crate) struct Pool<T> {
    /// How many may be made before those that come back are dropped.
    kept: usize,
    /// How many have been made and not dropped, wherever they are. Does not change
    /// while the pool has what is asked for, so that it costs no write.
    made: CachePadded<Estimate>,
    stacks: [CachePadded<Stack>; STACKS],
    owns: PhantomData<T>,
}

/// How many stacks a pool has: enough for the few writers that a map has. One under
/// the model checker, whose threads then meet.
const STACKS: usize = if cfg!(tidegate_loom) { 1 } else { 4 };

/// A box that can wait in a pool.
pub(crate) struct Pooled<T>(Box<Linked<T>>);

/// The link comes first: a link to it is one to the whole.
#[repr(C)]
struct Linked<T> {
    link: Link,
    value: T,
}

// SAFETY: whoever has the box has its link; nobody else follows that.
unsafe impl<T: Send> Send for Pooled<T> {}
// SAFETY: a pool owns what is in it, and hands each box to one taker.
unsafe impl<T: Send> Send for Pool<T> {}
// SAFETY: as for `Send`; nobody sees a value through a shared pool.
unsafe impl<T: Send> Sync for Pool<T> {}

// === impl Pooled ===

impl<T> Pooled<T> {
    pub(crate) fn new(value: T) -> Self {
        let link = Link::before(null_mut());
        Self(Box::new(Linked { link, value }))
    }

    fn into_link(self) -> *mut Link {
        Box::into_raw(self.0).cast()
    }

    /// # Safety
    ///
    /// `link` came from `into_link` of this type, and the box is the caller's own.
    unsafe fn from_link(link: *mut Link) -> Self {
        // SAFETY: by the caller's word; the link is the first field.
        Self(unsafe { Box::from_raw(link.cast()) })
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> DerefMut for Pooled<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.value
    }
}

// === impl Pool ===

impl<T> Pool<T> {
    /// An empty pool, which will keep about so many.
    pub(crate) fn new(kept: usize) -> Self {
        Self {
            kept,
            made: CachePadded::default(),
            stacks: std::array::from_fn(|_| CachePadded::new(Stack::new())),
            owns: PhantomData,
        }
    }

    /// Takes one, or makes one.
    pub(crate) fn take(&self, make: impl FnOnce() -> T) -> Pooled<T> {
        self.find().unwrap_or_else(|| {
            // Relaxed: an estimate.
            self.made.fetch_add(1, Relaxed);
            Pooled::new(make())
        })
    }

    /// Takes one if there is one, of those that this thread has given if possible.
    pub(crate) fn find(&self) -> Option<Pooled<T>> {
        let own = turn();
        for next in 0..STACKS {
            let stack = &self.stacks[(own + next) % STACKS];
            if stack.is_empty() {
                continue;
            }
            let first = stack.take();
            if first.is_null() {
                continue;
            }
            // SAFETY: from `give`, and taken from the stack, hence ours.
            let mut pooled = unsafe { Pooled::<T>::from_link(first) };
            let rest = pooled.0.link.relink(null_mut());
            // SAFETY: taken from the stack, and given up here.
            unsafe { stack.put_back(rest) };
            return Some(pooled);
        }
        None
    }

    /// Takes one back, or drops it if there are more than are kept.
    pub(crate) fn give(&self, pooled: Pooled<T>) {
        // Relaxed: an estimate.
        if self.made.load(Relaxed) > self.kept {
            self.discard(pooled);
            return;
        }
        let link = pooled.into_link();
        // SAFETY: the box is our own, and given up here.
        unsafe { self.stacks[turn() % STACKS].push(link, link) };
    }

    /// Drops one.
    pub(crate) fn discard(&self, pooled: Pooled<T>) {
        drop(pooled);
        // Relaxed: an estimate.
        self.made.fetch_sub(1, Relaxed);
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        for stack in &self.stacks {
            let mut first = stack.take();
            while !first.is_null() {
                // SAFETY: from `give`, and taken from the stack, hence ours.
                let mut pooled = unsafe { Pooled::<T>::from_link(first) };
                first = pooled.0.link.relink(null_mut());
            }
        }
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made = self.made.load(Relaxed);
        f.debug_struct("Pool").field("made", &made).finish()
    }
}

/// How many a map keeps. The model checker is spared its pools: they would multiply
/// the schedules, and hide the end of what is in them.
pub(crate) const fn kept(boxes: usize) -> usize {
    if cfg!(tidegate_loom) { 0 } else { boxes }
}
