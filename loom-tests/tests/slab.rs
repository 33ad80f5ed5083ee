//! The slabs that entries and nodes stand in: who owns a slot, and when a chunk goes.
#![cfg(tidegate_loom)]

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use tidegate_core::slab_door::{Chunks, Slots};
use tidegate_loom_tests::model;

/// A slab, and the slots that somebody holds. The set is behind a mutex that loom does not see, so
/// that it orders nothing.
#[derive(Default)]
struct Shared {
    slots: Slots,
    held: Mutex<BTreeSet<usize>>,
}

impl Shared {
    fn take(&self) -> usize {
        let slot = self.slots.take();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(held.insert(slot), "a slot with two owners");
        slot
    }

    fn free(&self, slot: usize) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(held.remove(&slot));
        drop(held);
        self.slots.free(slot);
    }

    /// A slab with a chunk that is full and one that is owned, and the slots that are held: all of
    /// the first chunk, and one of the other.
    fn full() -> (Arc<Self>, Vec<usize>) {
        let shared = Self::default();
        let slots = (0..=shared.slots.of_a_chunk()).map(|_| shared.take());
        let slots = slots.collect();
        assert_eq!(shared.slots.chunks(), 2);
        (Arc::new(shared), slots)
    }
}

/// Defends the step in which a chunk whose slots are all free drops its lists of them: slots are
/// given out from its beginning again, and none twice.
#[test]
fn an_empty_chunk_begins_anew() {
    model("slab::an_empty_chunk_begins_anew", || {
        let slab = Arc::new(Shared::default());
        let first = slab.take();
        let other = Arc::clone(&slab);
        let thread = thread::spawn(move || other.free(first));
        let mine = [slab.take(), slab.take()];
        thread.join().unwrap();
        for slot in mine {
            slab.free(slot);
        }
        assert_eq!(slab.take(), first, "begins with the first slot");
        let second = slab.take();
        assert_eq!(second - first, mine[0].abs_diff(mine[1]), "and goes on");
    });
}

/// Defends the Acquire by which a chunk is taken from its place and the Release by which it is put
/// there: no slot has two owners, and an owner sees what the one before has left.
#[test]
fn a_slot_has_one_owner() {
    model("slab::a_slot_has_one_owner", || {
        let slab = Arc::new(Shared::default());
        let first = slab.take();
        let other = Arc::clone(&slab);
        let thread = thread::spawn(move || {
            let slot = other.take();
            other.free(first);
            slot
        });
        let mine = slab.take();
        let theirs = thread.join().unwrap();
        slab.free(mine);
        slab.free(theirs);
        assert!(slab.slots.chunks() <= 2);
    });
}

/// Defends the Release of counting a slot out and the Acquire of finding a chunk empty: everybody has
/// let go of a chunk that goes. And it does go.
#[test]
fn an_empty_chunk_is_given_back() {
    model("slab::an_empty_chunk_is_given_back", || {
        let (slab, mut slots) = Shared::full();
        let kept = slots.pop().unwrap();
        let first = slots.pop().unwrap();
        let other = Arc::clone(&slab);
        let thread = thread::spawn(move || other.free(first));
        for slot in slots {
            slab.free(slot);
        }
        thread.join().unwrap();
        assert_eq!(slab.slots.chunks(), 1, "an empty chunk is kept");
        slab.free(kept);
    });
}

/// Defends the Release of giving a chunk up, and the Acquire and Release of counting a slot out: who
/// makes a chunk available passes on what its last owner has written.
#[test]
fn a_chunk_is_handed_on_by_who_makes_it_available() {
    model(
        "slab::a_chunk_is_handed_on_by_who_makes_it_available",
        || {
            let slab = Arc::new(Shared::default());
            let of_a_chunk = slab.slots.of_a_chunk();
            let slots: Vec<usize> = (0..of_a_chunk).map(|_| slab.take()).collect();
            let (first, owner, other) = (slots[0], Arc::clone(&slab), Arc::clone(&slab));
            let owner = thread::spawn(move || owner.slots.give_up());
            // Makes the chunk available, if it was given up before.
            let other = thread::spawn(move || other.free(first));
            let slot = slab.take();
            owner.join().unwrap();
            other.join().unwrap();
            for slot in slots.into_iter().skip(1).chain([slot]) {
                slab.free(slot);
            }
            assert!(slab.slots.chunks() <= 1);
        },
    );
}

/// Defends the number of emptied chunks, which is compared before and after the available chunks
/// were in somebody's hands: a chunk that is emptied meanwhile is given back all the same.
#[test]
fn a_chunk_emptied_beside_a_sweep_is_given_back() {
    model("slab::a_chunk_emptied_beside_a_sweep_is_given_back", || {
        let slab = Arc::new(Shared::default());
        let of_a_chunk = slab.slots.of_a_chunk();
        let mut slots: Vec<usize> = (0..=2 * of_a_chunk).map(|_| slab.take()).collect();
        let kept = slots.pop().unwrap();
        // Of two full chunks, one is available and holds one slot, as the other does soon.
        let (one, two) = slots.split_at(of_a_chunk);
        for &slot in one.iter().skip(1).chain(two.iter().skip(2)) {
            slab.free(slot);
        }
        let (last, other) = (one[0], Arc::clone(&slab));
        let thread = thread::spawn(move || other.free(last));
        slab.free(two[0]);
        slab.free(two[1]);
        thread.join().unwrap();
        assert_eq!(slab.slots.chunks(), 1, "an empty chunk is kept");
        slab.free(kept);
    });
}

/// Chunks of an arena, with the memory of each.
#[derive(Default)]
struct Arena {
    chunks: Chunks,
    memory: [UnsafeCell<()>; 2],
}

impl Arena {
    fn use_one(&self) {
        let number = self.chunks.take().expect("there is one for each thread");
        self.memory[number].with_mut(|_| ());
        self.chunks.give(number);
    }
}

/// Defends the exchange by which a chunk of an arena is taken, and the Release with which it is given
/// back: each owner has its memory alone, after the one before.
#[test]
fn a_chunk_of_an_arena_has_one_owner() {
    model("slab::a_chunk_of_an_arena_has_one_owner", || {
        let arena = Arc::new(Arena::default());
        let other = Arc::clone(&arena);
        let thread = thread::spawn(move || other.use_one());
        arena.use_one();
        thread.join().unwrap();
        arena.use_one();
    });
}

/// Defends the same where the memory of an old chunk is given back to the system, beside one who wants
/// a chunk.
#[test]
fn a_chunk_that_is_cooled_has_one_owner() {
    model("slab::a_chunk_that_is_cooled_has_one_owner", || {
        let arena = Arc::new(Arena::default());
        arena.use_one();
        let other = Arc::clone(&arena);
        let thread = thread::spawn(move || {
            other.chunks.cool_old(|number| {
                other.memory[number].with_mut(|_| ());
                true
            });
        });
        arena.use_one();
        thread.join().unwrap();
        arena.use_one();
    });
}
