//! The pool of boxes: writers that take one and put the rest back, and the reclaimer beside them.
#![cfg(tidegate_loom)]

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use loom::sync::Arc;
use loom::thread;
use tidegate_core::pool_door::{Boxes, Taken};
use tidegate_loom_tests::model;

/// A pool, and the boxes that somebody holds. The set is behind a mutex that loom does not see, so
/// that it orders nothing.
struct Shared {
    boxes: Boxes,
    held: Mutex<BTreeSet<usize>>,
}

impl Shared {
    /// A pool with so many boxes in it.
    fn with(boxes: usize) -> Arc<Self> {
        let shared = Self {
            boxes: Boxes::new(8),
            held: Mutex::default(),
        };
        let made: Vec<Taken> = (0..boxes).map(|_| shared.boxes.make()).collect();
        for taken in made {
            shared.boxes.give(taken);
        }
        Arc::new(shared)
    }

    /// A writer: takes a box.
    fn take(&self) -> Taken {
        let taken = self.boxes.take();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(held.insert(taken.address()), "a box with two owners");
        drop(held);
        taken
    }

    /// The reclaimer: gives it back.
    fn give(&self, taken: Taken) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(held.remove(&taken.address()));
        drop(held);
        self.boxes.give(taken);
    }

    /// How many boxes there are; none is there afterwards.
    fn drain(&self) -> usize {
        let mut boxes = BTreeSet::new();
        // Kept until all have been counted: the address of a dropped one may come again.
        let mut taken = Vec::new();
        while let Some(found) = self.boxes.find() {
            assert!(boxes.insert(found.address()), "a box with two owners");
            taken.push(found);
        }
        boxes.len()
    }
}

/// Defends that a pool is taken whole by one read-modify-write, its Acquire, and the Release of a
/// push: no box has two owners, and who takes it finds its link.
#[test]
fn a_block_has_one_owner() {
    model("pool::a_block_has_one_owner", || {
        let pool = Shared::with(1);
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || {
            let taken = other.take();
            other.give(taken);
        });
        let taken = pool.take();
        pool.give(taken);
        thread.join().unwrap();
    });
}

/// Defends the Release of a list that is put back: what was given meanwhile has been linked on to the
/// rest, and a later taker finds that link.
#[test]
fn what_is_put_back_is_linked() {
    model("pool::what_is_put_back_is_linked", || {
        let pool = Shared::with(2);
        let given = pool.take();
        let more = pool.boxes.make();
        pool.boxes.give(more);
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || {
            other.give(given);
            [other.take(), other.take()]
        });
        // Gives nothing back before the end, which would pass the links on as well.
        let first = pool.take();
        let [second, third] = thread.join().unwrap();
        for taken in [first, second, third] {
            pool.give(taken);
        }
        assert!(pool.drain() >= 3);
    });
}

/// Defends the Acquire of a list that is put back and finds what was given meanwhile: it walks over
/// the links of that. No box is lost.
#[test]
fn what_is_pushed_meanwhile_is_linked() {
    model("pool::what_is_pushed_meanwhile_is_linked", || {
        let pool = Shared::with(3);
        let given = pool.take();
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.give(given));
        let taken = pool.take();
        thread.join().unwrap();
        pool.give(taken);
        assert_eq!(pool.drain(), 3);
    });
}
