//! Timestamps: a physical part in milliseconds and a logical counter within it, strictly growing over restarts.
//!
//! Clients assert the order and panic when it breaks. A clock that steps back does not break it: the physical part
//! stays where it was, and moves on by itself when the logical part runs out.

use std::sync::{Arc, Mutex, PoisonError};

use super::wall::WallClock;
use crate::proto::pdpb::Timestamp;

/// The logical parts of one millisecond: the wire packs them into 18 bits.
pub(super) const LOGICAL_LIMIT: i64 = 1 << 18;

/// Hands out timestamps.
#[derive(Debug)]
pub(super) struct Tso {
    wall: Arc<dyn WallClock>,
    last: Mutex<Last>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    physical: i64,
    logical: i64,
}

/// Why no timestamp was given.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum TsoError {
    #[error("generate timestamp failed, tso count should be positive")]
    ZeroCount,
    #[error("generate timestamp failed, {0} timestamps do not fit into one millisecond")]
    TooMany(u32),
}

impl Tso {
    /// Every timestamp will be above those of an earlier leader whose last physical part was `saved`.
    pub(super) fn new(wall: Arc<dyn WallClock>, saved: i64) -> Self {
        let last = Last {
            physical: saved,
            logical: LOGICAL_LIMIT - 1,
        };
        Self {
            wall,
            last: Mutex::new(last),
        }
    }

    /// Takes `count` timestamps and returns the last of them; the others precede it in the logical part.
    pub(super) fn take(&self, count: u32) -> Result<Timestamp, TsoError> {
        let wanted = i64::from(count);
        if wanted == 0 {
            return Err(TsoError::ZeroCount);
        }
        if wanted >= LOGICAL_LIMIT {
            return Err(TsoError::TooMany(count));
        }
        let now = self.wall.unix_nanos() / 1_000_000;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if now > last.physical {
            *last = Last {
                physical: now,
                logical: 0,
            };
        } else if last.logical + wanted >= LOGICAL_LIMIT {
            *last = Last {
                physical: last.physical + 1,
                logical: 0,
            };
        }
        last.logical += wanted;
        Ok(Timestamp {
            physical: last.physical,
            logical: last.logical,
            suffix_bits: 0,
        })
    }

    /// The physical part of the last timestamp, for the state that outlives the leader.
    pub(super) fn saved(&self) -> i64 {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .physical
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct HandWall(AtomicI64);

    impl HandWall {
        fn set_millis(&self, millis: i64) {
            // Relaxed: one thread; nothing else is read by this value.
            self.0.store(millis * 1_000_000, Ordering::Relaxed);
        }
    }

    impl WallClock for HandWall {
        fn unix_nanos(&self) -> i64 {
            // Relaxed: one thread; nothing else is read by this value.
            self.0.load(Ordering::Relaxed)
        }
    }

    fn tso(millis: i64, saved: i64) -> (Tso, Arc<HandWall>) {
        let wall = Arc::new(HandWall::default());
        wall.set_millis(millis);
        (Tso::new(Arc::<HandWall>::clone(&wall), saved), wall)
    }

    fn pair(timestamp: Timestamp) -> (i64, i64) {
        (timestamp.physical, timestamp.logical)
    }

    #[test]
    fn the_answer_is_the_last_of_the_block() {
        let (tso, _) = tso(1000, 0);
        assert_eq!(pair(tso.take(5).unwrap()), (1000, 5));
        assert_eq!(pair(tso.take(3).unwrap()), (1000, 8));
    }

    #[test]
    fn a_clock_that_steps_back_does_not_turn_timestamps_back() {
        let (tso, wall) = tso(1000, 0);
        let before = pair(tso.take(1).unwrap());
        wall.set_millis(400);
        let after = pair(tso.take(1).unwrap());
        assert!(after > before, "{after:?} follows {before:?}");
    }

    #[test]
    fn a_full_millisecond_moves_on_by_itself() {
        let (tso, _) = tso(1000, 0);
        let most = u32::try_from(LOGICAL_LIMIT - 1).unwrap();
        assert_eq!(pair(tso.take(most).unwrap()), (1000, LOGICAL_LIMIT - 1));
        assert_eq!(pair(tso.take(1).unwrap()), (1001, 1));
    }

    #[test]
    fn timestamps_grow_over_a_restart_on_a_slower_clock() {
        let (old, _) = tso(1000, 0);
        let before = pair(old.take(9).unwrap());
        let (new, _) = tso(900, old.saved());
        let after = pair(new.take(1).unwrap());
        assert!(after > before, "{after:?} follows {before:?}");
        assert_eq!(after, (1001, 1));
    }

    #[test]
    fn no_timestamps_and_too_many_are_errors() {
        let (tso, _) = tso(1000, 0);
        assert_eq!(tso.take(0), Err(TsoError::ZeroCount));
        assert_eq!(tso.take(u32::MAX), Err(TsoError::TooMany(u32::MAX)));
    }
}
