//! Which chunks of an arena are in use, by their numbers.
//!
//! Of a chunk that is given back the memory goes back too, but for a few that stay
//! *warm*: memory that comes anew is cleared by the system, which costs a small map that
//! is loaded again and again more than the load does.
//!
//! Who gets a chunk is decided by an exchange of its state, by which also goes on what
//! the owner before has done with its memory.

// Not the door's: hints and estimates, which order nothing.
use std::sync::atomic::AtomicUsize as Estimate;

use crate::sync::atomic::AtomicU8;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The numbers of an arena.
#[derive(Debug)]
pub(super) struct Numbers {
    /// [`NEW`], [`TAKEN`], [`COLD`] or [`WARM`], by number.
    states: Box<[AtomicU8]>,
    /// No lower number is free, or not for long.
    free: Estimate,
    warm: Estimate,
    most_warm: usize,
}

/// A number that is the taker's own.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) number: usize,
    /// Whether nobody had it before.
    pub(super) is_new: bool,
}

/// Never taken.
const NEW: u8 = 0;
/// In use.
const TAKEN: u8 = 1;
/// Given back, with its memory.
const COLD: u8 = 2;
/// Given back, and has its memory still.
const WARM: u8 = 3;

impl Numbers {
    /// So many, none of which is in use. At most `most_warm` keep their memory.
    pub(super) fn new(count: usize, most_warm: usize) -> Self {
        Self {
            states: (0..count).map(|_| AtomicU8::new(NEW)).collect(),
            free: Estimate::new(0),
            warm: Estimate::new(0),
            most_warm,
        }
    }

    /// The lowest that is free, as far as is known; `None` if all are in use.
    pub(super) fn take(&self) -> Option<Taken> {
        // Relaxed: a hint, as all of `free`.
        let from = self.free.load(Relaxed).min(self.states.len());
        for number in (from..self.states.len()).chain(0..from) {
            let place = &self.states[number];
            // Relaxed: only to see whether an exchange is worth it.
            let state = place.load(Relaxed);
            // Acquire: pairs with the Release in `free_as`: the owner before is done with
            // the memory. Fails without it: slab::a_chunk_of_an_arena_has_one_owner.
            // Relaxed on failure: another one is tried.
            if state == TAKEN
                || place
                    .compare_exchange(state, TAKEN, Acquire, Relaxed)
                    .is_err()
            {
                continue;
            }
            self.free.fetch_max(number + 1, Relaxed);
            if state == WARM {
                // Relaxed: an estimate.
                self.warm.fetch_sub(1, Relaxed);
            }
            let is_new = state == NEW;
            return Some(Taken { number, is_new });
        }
        None
    }

    /// Gives a number back, after `cool` has given its memory back if that has to go.
    pub(super) fn give(&self, number: usize, cool: impl FnOnce()) {
        // Relaxed: an estimate; there may be a few more than allowed.
        if self.warm.load(Relaxed) < self.most_warm {
            self.warm.fetch_add(1, Relaxed);
            self.free_as(number, WARM);
        } else {
            cool();
            self.free_as(number, COLD);
        }
    }

    /// Gives a number back that was new, and is still as if it had never been taken.
    pub(super) fn give_new(&self, number: usize) {
        self.free_as(number, NEW);
    }

    fn free_as(&self, number: usize, state: u8) {
        // Release: pairs with the Acquire in `take`. Fails without it:
        // slab::a_chunk_of_an_arena_has_one_owner.
        self.states[number].store(state, Release);
        // Relaxed: a hint.
        self.free.fetch_min(number, Relaxed);
    }
}

#[cfg(all(test, not(tidegate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_taken_and_none_twice() {
        let numbers = Numbers::new(3, 1);
        for number in 0..3 {
            let taken = numbers.take().expect("one is free");
            assert_eq!((taken.number, taken.is_new), (number, true));
        }
        assert!(numbers.take().is_none());

        let mut cooled = Vec::new();
        for number in [2, 0, 1] {
            numbers.give(number, || cooled.push(number));
        }
        assert_eq!(cooled, [0, 1], "one stays warm");
        for number in 0..3 {
            let taken = numbers.take().expect("one is free");
            assert_eq!((taken.number, taken.is_new), (number, false));
        }
        numbers.give(1, || panic!("none is warm"));
    }

    #[test]
    fn a_new_number_that_is_given_back_is_new() {
        let numbers = Numbers::new(1, 1);
        let taken = numbers.take().expect("one is free");
        numbers.give_new(taken.number);
        assert!(numbers.take().expect("it is free").is_new);
    }
}
