//! Which indexes are still needed: a list that readers enter and leave without a lock, and that the
//! appender looks through before it evicts.
//!
//! The list only grows, and its nodes live as long as the ring. Leaving marks a node as free, and
//! the next one to enter takes a free node if there is one; so there are as many nodes as there
//! were pins at the same time.
//!
//! # Protocol
//!
//! A pin that was entered in time is never missed:
//!
//! - a reader enters its index, fences, and looks at what the appender has announced to evict;
//! - the appender announces what it is going to evict, fences, and looks through the pins.
//!
//! Of the two fences one is first, so that either the appender sees the pin, or the reader sees
//! that it came too late.

use std::fmt;
use std::ptr;

use crate::sync::Canary;
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// No index: the node is free. The ring stops before it gives this index out.
const FREE: u64 = u64::MAX;

struct Node {
    /// The index that is needed, or [`FREE`].
    at: AtomicU64,
    /// Set before the node is linked, never changed.
    next: *const Self,
    canary: Canary,
}

/// The indexes that are needed.
pub(super) struct Pins {
    head: AtomicPtr<Node>,
}

// SAFETY: the nodes are owned by the list, only their atomics change once they are linked, and they
// are freed only with the list.
unsafe impl Send for Pins {}
// SAFETY: as above.
unsafe impl Sync for Pins {}

/// An entry of a [`Pins`]. Whoever holds it keeps the list alive, and leaves it once.
#[derive(Debug)]
pub(super) struct Pin {
    node: *const Node,
}

// SAFETY: it refers to an atomic in a node that outlives it.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}

impl Pins {
    pub(super) fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Enters `index`. A fence must follow before the caller looks at what has been evicted.
    pub(super) fn enter(&self, index: u64) -> Pin {
        let index = index.min(FREE - 1);
        for node in self.nodes() {
            // Relaxed: the index orders nothing; the fence that follows does.
            let taken = node
                .at
                .compare_exchange(FREE, index, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                return Pin { node };
            }
        }
        let node = Box::into_raw(Box::new(Node {
            at: AtomicU64::new(index),
            next: ptr::null(),
            canary: Canary::new(),
        }));
        // Relaxed: the exchange below publishes, and is tried again with what is there.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is not linked yet, so nobody else knows it.
            let next = unsafe { &raw mut (*node).next };
            // SAFETY: as above.
            unsafe { next.write(head) };
            // Release: pairs with the Acquire in `nodes`, which finds the node filled in; being a
            // read-modify-write, it passes on the earlier nodes' releases.
            // Model: pins::pins_are_entered_side_by_side.
            match self
                .head
                .compare_exchange(head, node, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return Pin { node },
                Err(other) => head = other,
            }
        }
    }

    /// Moves the entry on to `index`.
    pub(super) fn advance(&self, pin: &Pin, index: u64) {
        // Relaxed: seen late, it keeps more than is needed.
        Self::node(pin)
            .at
            .store(index.min(FREE - 1), Ordering::Relaxed);
    }

    /// Takes the entry out.
    pub(super) fn leave(&self, pin: &Pin) {
        // Relaxed: as in `advance`; and whoever takes the node next owes nothing to this owner.
        Self::node(pin).at.store(FREE, Ordering::Relaxed);
    }

    /// All indexes that are needed, in no order.
    pub(super) fn indexes(&self) -> impl Iterator<Item = u64> {
        self.nodes()
            // Relaxed: the fence before the look orders it, see the module's protocol.
            .map(|node| node.at.load(Ordering::Relaxed))
            .filter(|at| *at != FREE)
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        // Acquire: pairs with the Release in `enter`. Model: pins::pins_are_entered_side_by_side.
        let mut at = self.head.load(Ordering::Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: null, or a node that was linked before it was loaded, and lives as long as
            // the list, which is borrowed.
            let node = unsafe { at.as_ref() }?;
            node.canary.check();
            at = node.next;
            Some(node)
        })
    }

    fn node(pin: &Pin) -> &Node {
        // SAFETY: who holds the pin keeps the list alive, and the list its nodes.
        unsafe { &*pin.node }
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        // Relaxed: nobody else is left.
        let mut at = self.head.load(Ordering::Relaxed);
        while !at.is_null() {
            // SAFETY: linked nodes are boxes that the list owns, and nobody else is left.
            let node = unsafe { Box::from_raw(at) };
            at = node.next.cast_mut();
        }
    }
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.indexes()).finish()
    }
}
