//! Which regions are asked for, by a sample of the answers.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One answer in so many is noted.
const EVERY: u32 = 64;
/// Regions that can be remembered; a power of two.
const SLOTS: usize = 256;

thread_local! {
    static TURN: Cell<u32> = const { Cell::new(0) };
}

/// Regions that were answered lately. Noting one takes no lock and no memory; most answers write nothing at all.
#[derive(Debug)]
pub struct InUse([AtomicU64; SLOTS]);

impl Default for InUse {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; SLOTS])
    }
}

impl InUse {
    /// Notes that region `id` was answered, if it is the answer's turn.
    #[inline]
    pub fn note(&self, id: u64) {
        let turn = TURN.get().wrapping_add(1);
        TURN.set(turn);
        if turn.is_multiple_of(EVERY) && id != 0 {
            self.remember(id);
        }
    }

    fn remember(&self, id: u64) {
        // Fibonacci's hash: neighbours in id, which are often asked for together, get slots of their own.
        let slot =
            (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOTS.trailing_zeros())) as usize;
        // Relaxed: an id for a later question; nothing is read on the strength of it.
        self.0[slot].store(id, Relaxed);
    }

    /// The regions noted since the last time.
    pub(super) fn take(&self) -> Vec<u64> {
        // Relaxed: see `remember`. One that is noted meanwhile is there the next time.
        self.0
            .iter()
            .map(|slot| slot.swap(0, Relaxed))
            .filter(|id| *id != 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_answer_in_64_is_noted_and_told_once() {
        let in_use = InUse::default();
        (0..EVERY * 3).for_each(|_| in_use.note(7));
        assert_eq!(in_use.take(), [7]);
        assert_eq!(in_use.take(), [0; 0]);
        (0..EVERY - 1).for_each(|_| in_use.note(7));
        assert_eq!(in_use.take(), [0; 0]);
        in_use.note(8);
        assert_eq!(in_use.take(), [8]);
    }

    #[test]
    fn no_more_than_the_slots_are_remembered() {
        let in_use = InUse::default();
        (1..100_000).for_each(|id| in_use.remember(id));
        let taken = in_use.take();
        assert_eq!(taken.len(), SLOTS);
    }
}
