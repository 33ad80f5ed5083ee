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

/// So many are cooled at a time, or of many warm ones this part, each at the price of a
/// call of the system.
pub(super) const COOLED: usize = if cfg!(tidegate_loom) { 1 } else { 8 };
const PART: usize = 8;

/// The numbers of an arena.
#[derive(Debug)]
pub(super) struct Numbers {
    /// [`COLD`], [`TAKEN`], or [`WARM`] with the second since when, by number.
    states: Box<[AtomicU32]>,
    /// Where the next cold one is looked for first.
    next: Estimate,
    /// No number from here on has been taken.
    unused: Estimate,
    /// How many are warm.
    warm: Estimate,
    /// The second in which old ones were looked for last.
    looked: Estimate,
}

/// A number that is the taker's own.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) number: usize,
    /// Whether it has its memory.
    pub(super) is_warm: bool,
}

/// Free, without memory.
const COLD: u32 = 0;
/// In use.
const TAKEN: u32 = 1;
/// Free, with its memory. Above it, the second in which it was given back.
const WARM: u32 = 2;
const KIND: u32 = 3;

impl Numbers {
    /// So many, none of which is in use.
    pub(super) fn new(count: usize) -> Self {
        Self {
            states: (0..count).map(|_| AtomicU32::new(COLD)).collect(),
            next: Estimate::new(0),
            unused: Estimate::new(0),
            warm: Estimate::new(0),
            looked: Estimate::new(0),
        }
    }

    /// One that is free: a warm one, or else a cold one. `None` if all are in use.
    pub(super) fn take(&self) -> Option<Taken> {
        // Relaxed, all of it: hints.
        if self.warm.load(Relaxed) > 0 {
            let taken = self.used().find_map(|number| self.take_if(number, is_warm));
            if taken.is_some() {
                return taken;
            }
        }
        let count = self.states.len();
        let from = self.next.load(Relaxed).min(count);
        let taken = (from..count)
            .chain(0..from)
            .find_map(|number| self.take_if(number, |state| state != TAKEN))?;
        self.next.store(taken.number + 1, Relaxed);
        Some(taken)
    }

    /// Gives a number back, whose memory stays for now.
    pub(super) fn give(&self, number: usize, now: u32) {
        // Relaxed: an estimate.
        self.warm.fetch_add(1, Relaxed);
        self.free_as(number, WARM | now << 2);
    }

    /// Gives a number back that has no memory.
    pub(super) fn give_cold(&self, number: usize) {
        self.free_as(number, COLD);
    }

    /// Whether it is time for [`cool_old`](Self::cool_old).
    #[inline]
    pub(super) fn has_warm(&self) -> bool {
        // Relaxed: a hint.
        self.warm.load(Relaxed) > 0
    }

    /// Calls `cool` with some of those that have been warm for long, each of which is the
    /// caller's own meanwhile; says whether its memory is gone. Looks for them once a
    /// second at most, and not where all numbers have been in use: who takes one must
    /// not miss those that are being cooled.
    pub(super) fn cool_old(&self, now: u32, mut cool: impl FnMut(usize) -> bool) {
        // Relaxed, all of it: hints, and estimates. Two callers may both look.
        let warm = self.warm.load(Relaxed);
        let most = COOLED.max(warm / PART);
        if warm == 0
            || self.looked.load(Relaxed) == now as usize
            || self.used().end + most > self.states.len()
        {
            return;
        }
        self.looked.store(now as usize, Relaxed);
        let is_old = |state: u32| is_warm(state) && now.saturating_sub(state >> 2) >= WARM_SECONDS;
        let old = self
            .used()
            .filter_map(|number| self.take_if(number, is_old));
        for Taken { number, .. } in old.take(most) {
            if cool(number) {
                self.free_as(number, COLD);
            } else {
                self.give(number, now);
            }
        }
    }

    /// The numbers that have been taken at some time.
    fn used(&self) -> std::ops::Range<usize> {
        // Relaxed: a hint.
        0..self.unused.load(Relaxed).min(self.states.len())
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
        // Relaxed: a hint, and an estimate.
        self.unused.fetch_max(number + 1, Relaxed);
        let is_warm = is_warm(state);
        if is_warm {
            self.warm.fetch_sub(1, Relaxed);
        }
        Some(Taken { number, is_warm })
    }

    fn free_as(&self, number: usize, state: u32) {
        // Release: pairs with the Acquire in `take_if`. Fails without it:
        // slab::a_chunk_of_an_arena_has_one_owner.
        self.states[number].store(state, Release);
        // Relaxed: a hint.
        self.next.fetch_min(number, Relaxed);
    }
}

fn is_warm(state: u32) -> bool {
    state & KIND == WARM
}

#[cfg(all(test, not(tidegate_loom)))]
mod tests {
    use super::*;

    /// Some of many.
    fn taken(count: usize) -> Numbers {
        let numbers = Numbers::new(1000);
        for number in 0..count {
            assert_eq!(take(&numbers), Some((number, false)));
        }
        numbers
    }

    fn take(numbers: &Numbers) -> Option<(usize, bool)> {
        numbers.take().map(|taken| (taken.number, taken.is_warm))
    }

    fn cooled(numbers: &Numbers, now: u32) -> Vec<usize> {
        let mut cooled = Vec::new();
        numbers.cool_old(now, |number| {
            cooled.push(number);
            true
        });
        cooled
    }

    #[test]
    fn each_number_has_one_taker() {
        let numbers = Numbers::new(3);
        for number in 0..3 {
            assert_eq!(take(&numbers), Some((number, false)));
        }
        assert_eq!(take(&numbers), None);
        numbers.give(2, 0);
        numbers.give(0, 0);
        assert_eq!(take(&numbers), Some((0, true)));
        assert_eq!(take(&numbers), Some((2, true)));
        assert_eq!(take(&numbers), None);
    }

    #[test]
    fn a_number_without_memory_is_cold() {
        let numbers = taken(2);
        numbers.give_cold(1);
        assert!(!numbers.has_warm());
        assert_eq!(take(&numbers), Some((1, false)));
        assert_eq!(take(&numbers), Some((2, false)));
    }

    #[test]
    fn what_nobody_wants_for_long_is_cooled_once() {
        let numbers = taken(4);
        numbers.give(1, 5);
        numbers.give(3, 7);
        assert_eq!(cooled(&numbers, 5 + WARM_SECONDS - 1), []);
        assert_eq!(cooled(&numbers, 5 + WARM_SECONDS), [1]);
        assert_eq!(cooled(&numbers, 5 + WARM_SECONDS), []);
        assert_eq!(cooled(&numbers, 7 + WARM_SECONDS), [3]);
        assert_eq!(cooled(&numbers, 100), []);
    }

    #[test]
    fn what_cannot_be_cooled_is_warm_as_if_it_were_new() {
        let numbers = taken(1);
        numbers.give(0, 0);
        numbers.cool_old(WARM_SECONDS, |_| false);
        assert_eq!(cooled(&numbers, 2 * WARM_SECONDS - 1), []);
        assert_eq!(cooled(&numbers, 2 * WARM_SECONDS), [0]);
    }

    #[test]
    fn a_warm_number_is_taken_before_a_cold_one() {
        let numbers = taken(3);
        numbers.give(0, 0);
        assert_eq!(cooled(&numbers, WARM_SECONDS), [0]);
        numbers.give(2, WARM_SECONDS);
        assert_eq!(take(&numbers), Some((2, true)));
        assert_eq!(take(&numbers), Some((0, false)));
    }

    #[test]
    fn some_are_cooled_at_a_time() {
        for (count, first) in [(COOLED + 2, COOLED), (40 * PART, 40)] {
            let numbers = taken(count);
            (0..count).for_each(|number| numbers.give(number, 0));
            assert_eq!(cooled(&numbers, WARM_SECONDS).len(), first);
            assert!(!cooled(&numbers, WARM_SECONDS + 1).is_empty());
        }
    }

    #[test]
    fn nothing_is_cooled_where_every_number_was_needed() {
        let numbers = Numbers::new(COOLED);
        assert_eq!(take(&numbers), Some((0, false)));
        numbers.give(0, 0);
        assert_eq!(cooled(&numbers, WARM_SECONDS), []);
        assert_eq!(take(&numbers), Some((0, true)));
    }
}
