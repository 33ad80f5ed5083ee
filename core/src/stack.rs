//! A stack of free memory that is pushed to piecewise but only ever taken whole.
//!
//! Taking whole rules out that a block is popped, reused and pushed again while
//! another thread holds a stale link to it (the ABA problem of such stacks). Who
//! finds the stack empty, because another has just taken it, gets memory
//! elsewhere.

use std::ptr::{NonNull, null_mut};
// Not the door's: it numbers threads, and orders nothing.
use std::sync::atomic::AtomicUsize as Number;

use crate::sync::Canary;
use crate::sync::atomic::AtomicPtr;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The stack. Who drops it takes what is in it before.
#[derive(Debug)]
pub(crate) struct Stack {
    first: AtomicPtr<Link>,
}

/// The beginning of a free block: links to the next one.
#[derive(Debug)]
pub(crate) struct Link {
    next: *mut Self,
    canary: Canary,
}

impl Link {
    pub(crate) fn before(next: *mut Self) -> Self {
        Self {
            next,
            canary: Canary::new(),
        }
    }

    /// The next block; null if there is none.
    pub(crate) fn next(&self) -> *mut Self {
        self.canary.check();
        self.next
    }

    /// Links on to another block; returns the one before.
    pub(crate) fn relink(&mut self, next: *mut Self) -> *mut Self {
        self.canary.refill();
        std::mem::replace(&mut self.next, next)
    }
}

impl Stack {
    /// An empty stack.
    pub(crate) fn new() -> Self {
        Self {
            first: AtomicPtr::new(null_mut()),
        }
    }

    /// Whether nothing is there, as it seems: a push may be under way.
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: only to see whether a swap is worth it.
        self.first.load(Relaxed).is_null()
    }

    /// Takes all that is there, linked from the first to a null pointer: the
    /// caller's own from now on.
    pub(crate) fn take(&self) -> *mut Link {
        // Acquire: pairs with the Release in `push` and `put_back`: whoever freed
        // the blocks has written the links. Fails without it:
        // pool::a_block_has_one_owner.
        self.first.swap(null_mut(), Acquire)
    }

    /// Adds a list from its first to its last link.
    ///
    /// # Safety
    ///
    /// The list is the caller's own, who gives it up.
    pub(crate) unsafe fn push(&self, list: *mut Link, last: *mut Link) {
        // Relaxed: only linked to, not looked into.
        let mut first = self.first.load(Relaxed);
        loop {
            // SAFETY: the last link of a list that nobody else knows.
            unsafe { (*last).relink(first) };
            // Release: pairs with the Acquire in `take`. Fails without it:
            // pool::a_block_has_one_owner. Relaxed on failure: as for the load
            // above; being a read-modify-write, it passes on the earlier releases.
            match self
                .first
                .compare_exchange_weak(first, list, Release, Relaxed)
            {
                Ok(_) => return,
                Err(changed) => first = changed,
            }
        }
    }

    /// Puts back what was taken and not used. Its end is far away, so what has been
    /// pushed meanwhile is taken out and put in front of it.
    ///
    /// # Safety
    ///
    /// The list, which ends with a null pointer, is the caller's own, who gives it
    /// up.
    pub(crate) unsafe fn put_back(&self, mut list: *mut Link) {
        if list.is_null() {
            return;
        }
        // Release: as in `push`. Fails without it: pool::what_is_put_back_is_linked.
        while self
            .first
            .compare_exchange(null_mut(), list, Release, Relaxed)
            .is_err()
        {
            // Acquire: as in `take`. Fails without it:
            // pool::what_is_pushed_meanwhile_is_linked.
            let mut pushed = self.first.swap(null_mut(), Acquire);
            while let Some(mut link) = NonNull::new(pushed) {
                // SAFETY: taken from the stack, hence ours.
                pushed = unsafe { link.as_mut() }.relink(list);
                list = link.as_ptr();
            }
        }
    }
}

/// A number for this thread, by which it prefers one of a few stacks to the others:
/// threads take turns in getting the next one.
pub(crate) fn turn() -> usize {
    static NEXT: Number = Number::new(0);
    thread_local! {
        // Relaxed: no two threads get the same, and that is all.
        static TURN: usize = NEXT.fetch_add(1, Relaxed);
    }
    // A thread at its very end shares the first one's.
    TURN.try_with(|turn| *turn).unwrap_or(0)
}
