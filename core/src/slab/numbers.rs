//! Which chunks of an arena are in use, by their numbers.
//!
//! A chunk that is given back stays *warm* for a while: it has its memory still, and is
//! taken again before others. Only what nobody has wanted for [`WARM_SECONDS`] is
//! *cooled*, that is, its memory goes back to the system. Memory that comes anew is
//! cleared by the system, which costs a map that is loaded again more than the load
//! does.
//!
//! Who gets a chunk is decided by an exchange of its state, by which also goes on what
//! the owner before has done with its memory.

// Not the door's: hints and estimates, which order nothing.
use std::sync::atomic::AtomicUsize as Estimate;

use crate::sync::atomic::AtomicU32;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// For so many seconds a chunk stays warm.
pub(super) const WARM_SECONDS: u32 = 10;

/// So many are cooled at a time, each at the price of a call of the system.
const COOLED: usize = 8;

/// The numbers of an arena.
#[derive(Debug)]
pub(super) struct Numbers {
    /// [`NEW`], [`TAKEN`], [`COLD`], or [`WARM`] with the second since when, by number.
    states: Box<[AtomicU32]>,
    /// No lower number is free, or not for long.
    free: Estimate,
    /// No number from here on has been taken.
    new: Estimate,
    /// How many are warm.
    warm: Estimate,
    /// The second in which old ones were looked for last.
    looked: Estimate,
}

/// A number that is the taker's own.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) number: usize,
    /// Whether nobody had it before.
    pub(super) is_new: bool,
}

/// Never taken.
const NEW: u32 = 0;
/// In use.
const TAKEN: u32 = 1;
/// Given back, with its memory.
const COLD: u32 = 2;
/// Given back, and has its memory still. Above it, the second.
const WARM: u32 = 3;
const KIND: u32 = 3;

impl Numbers {
    /// So many, none of which is in use.
    pub(super) fn new(count: usize) -> Self {
        Self {
            states: (0..count).map(|_| AtomicU32::new(NEW)).collect(),
            free: Estimate::new(0),
            new: Estimate::new(0),
            warm: Estimate::new(0),
            looked: Estimate::new(0),
        }
    }

    /// One that is free: a warm one, or else the lowest, as far as is known. `None` if
    /// all are in use.
    pub(super) fn take(&self) -> Option<Taken> {
        // Relaxed, all of it: hints.
        let used = self.new.load(Relaxed).min(self.states.len());
        let from = self.free.load(Relaxed).min(self.states.len());
        if self.warm.load(Relaxed) > 0 {
            let taken = (from.min(used)..used)
                .find_map(|number| self.take_if(number, |state| state & KIND == WARM));
            if taken.is_some() {
                return taken;
            }
        }
        (from..self.states.len())
            .chain(0..from)
            .find_map(|number| self.take_if(number, |state| state != TAKEN))
    }

    /// Gives a number back, whose memory stays for now.
    pub(super) fn give(&self, number: usize, now: u32) {
        // Relaxed: an estimate.
        self.warm.fetch_add(1, Relaxed);
        self.free_as(number, WARM | now << 2);
    }

    /// Gives a number back that was new, and is still as if it had never been taken.
    pub(super) fn give_new(&self, number: usize) {
        self.free_as(number, NEW);
    }

    /// Calls `cool` with a few of those that have been warm for long, each of which is
    /// the caller's own meanwhile. Looks for them once a second at most.
    pub(super) fn cool_old(&self, now: u32, mut cool: impl FnMut(usize)) {
        // Relaxed, all of it: hints. Two callers may both look.
        if self.warm.load(Relaxed) == 0 || self.looked.load(Relaxed) == now as usize {
            return;
        }
        self.looked.store(now as usize, Relaxed);
        let is_old =
            |state: u32| state & KIND == WARM && now.saturating_sub(state >> 2) >= WARM_SECONDS;
        let used = self.new.load(Relaxed).min(self.states.len());
        let old = (0..used).filter_map(|number| self.take_if(number, is_old));
        for Taken { number, .. } in old.take(COOLED) {
            cool(number);
            self.free_as(number, COLD);
        }
    }

    /// Takes a number if it is free in the way that is asked for.
    fn take_if(&self, number: usize, wanted: impl Fn(u32) -> bool) -> Option<Taken> {
        let place = &self.states[number];
        // Relaxed: only to see whether an exchange is worth it.
        let state = place.load(Relaxed);
        // Acquire: pairs with the Release in `free_as`: the owner before is done with the
        // memory. Fails without it: slab::a_chunk_of_an_arena_has_one_owner. Relaxed on
        // failure: it is somebody else's, whatever it is.
        if !wanted(state)
            || place
                .compare_exchange(state, TAKEN, Acquire, Relaxed)
                .is_err()
        {
            return None;
        }
        // Relaxed: hints, and an estimate.
        self.new.fetch_max(number + 1, Relaxed);
        if state & KIND == WARM {
            self.warm.fetch_sub(1, Relaxed);
        }
        let is_new = state == NEW;
        Some(Taken { number, is_new })
    }

    fn free_as(&self, number: usize, state: u32) {
        // Release: pairs with the Acquire in `take_if`. Fails without it:
        // slab::a_chunk_of_an_arena_has_one_owner.
        self.states[number].store(state, Release);
        // Relaxed: a hint.
        self.free.fetch_min(number, Relaxed);
    }
}

#[cfg(all(test, not(tidegate_loom)))]
mod tests {
    use super::*;

    fn all(numbers: &Numbers) -> Vec<(usize, bool)> {
        std::iter::from_fn(|| numbers.take())
            .map(|taken| (taken.number, taken.is_new))
            .collect()
    }

    #[test]
    fn each_number_has_one_taker() {
        let numbers = Numbers::new(3);
        assert_eq!(all(&numbers), [(0, true), (1, true), (2, true)]);
        numbers.give(2, 0);
        numbers.give(0, 0);
        let mut again = all(&numbers);
        again.sort_unstable();
        assert_eq!(again, [(0, false), (2, false)]);
    }

    #[test]
    fn a_new_number_that_is_given_back_is_new() {
        let numbers = Numbers::new(1);
        let taken = numbers.take().expect("one is free");
        numbers.give_new(taken.number);
        assert_eq!(all(&numbers), [(0, true)]);
    }

    #[test]
    fn what_nobody_wants_for_long_is_cooled_once() {
        let numbers = Numbers::new(4);
        assert_eq!(all(&numbers).len(), 4);
        numbers.give(1, 5);
        numbers.give(3, 7);
        let cooled = |now| {
            let mut cooled = Vec::new();
            numbers.cool_old(now, |number| cooled.push(number));
            cooled
        };
        assert_eq!(cooled(5 + WARM_SECONDS - 1), []);
        assert_eq!(cooled(5 + WARM_SECONDS), [1]);
        assert_eq!(cooled(5 + WARM_SECONDS), []);
        assert_eq!(cooled(7 + WARM_SECONDS), [3]);
        assert_eq!(cooled(100), []);
    }

    #[test]
    fn a_warm_number_is_taken_before_a_cold_one() {
        let numbers = Numbers::new(3);
        assert_eq!(all(&numbers).len(), 3);
        numbers.give(0, 0);
        numbers.cool_old(WARM_SECONDS, |_| ());
        numbers.give(2, WARM_SECONDS);
        assert_eq!(all(&numbers), [(2, false), (0, false)]);
    }

    #[test]
    fn a_few_are_cooled_at_a_time() {
        let numbers = Numbers::new(COOLED + 2);
        for (number, _) in all(&numbers) {
            numbers.give(number, 0);
        }
        let mut cooled = 0;
        numbers.cool_old(WARM_SECONDS, |_| cooled += 1);
        assert_eq!(cooled, COOLED);
        numbers.cool_old(WARM_SECONDS + 1, |_| cooled += 1);
        assert_eq!(cooled, COOLED + 2);
    }
}
