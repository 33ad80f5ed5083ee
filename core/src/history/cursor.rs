//! Readers with a place of their own, and what must stay until somebody has read it.

use super::pins::Pin;
use super::ring::Ring;
use super::{Answer, History};
use crate::sync::Arc;

/// A reader that knows where it stands. The history grows, within its limits, to keep what the
/// slowest cursor has not read.
///
/// It is counted until it is dropped, so a cursor that nobody reads with costs memory, up to the
/// limit.
#[derive(Debug)]
pub struct Cursor<T> {
    ring: Arc<Ring<T>>,
    pin: Pin,
    lineage: u64,
    next: u64,
}

/// What a [`Cursor`] is told.
#[derive(Clone, Eq, PartialEq, Debug)]
#[must_use = "records may have been lost, and only this says so"]
pub enum Step<T> {
    /// The cursor stands behind the newest record: it belongs to another history.
    Ahead {
        /// The index that the next record will get.
        next: u64,
    },
    /// Nothing new.
    CaughtUp,
    /// The appender was faster: what comes next for the cursor is gone. The cursor now stands at
    /// `first`.
    Lagged {
        /// The first of the records that are lost.
        from: u64,
        /// The oldest index that was still here; all before it are lost.
        first: u64,
    },
    /// The next records, without a hole. Never empty. The cursor now stands behind them.
    Records {
        /// The index of the first one.
        first: u64,
        /// The records.
        records: Vec<T>,
    },
    /// The numbering has begun anew, so all that was read before may be void. The cursor now stands
    /// at the first index of the new one.
    Reset {
        /// That index.
        first: u64,
    },
}

impl<T: Clone + Send + Sync + 'static> Cursor<T> {
    pub(super) fn new(history: &History<T>, from: u64) -> Self {
        let ring = Arc::clone(&history.ring);
        let pin = ring.cursors.enter(from);
        let lineage = ring.look(|table, _| table.lineage);
        Self {
            ring,
            pin,
            lineage,
            next: from,
        }
    }

    /// Reads at most `limit` records (at least one) and moves on.
    ///
    /// Lock-free; the records are cloned while the reclaimer's guard is held, so `limit` bounds how
    /// long that is.
    pub fn read(&mut self, limit: usize) -> Step<T> {
        let (lineage, origin, answer) = self.ring.look(|table, guard| {
            let answer = if table.lineage == self.lineage {
                table.read(self.next, limit, guard)
            } else {
                Answer::CaughtUp
            };
            (table.lineage, table.origin, answer)
        });
        if lineage != self.lineage {
            self.lineage = lineage;
            self.seek(origin);
            return Step::Reset { first: origin };
        }
        match answer {
            Answer::Ahead { next } => Step::Ahead { next },
            Answer::CaughtUp => Step::CaughtUp,
            Answer::Gap { first } => {
                let from = self.next;
                self.seek(first);
                Step::Lagged { from, first }
            }
            Answer::Records { first, records } => {
                self.seek(first + records.len() as u64);
                Step::Records { first, records }
            }
        }
    }

    /// The index that is read next.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.next
    }

    /// Moves to `index`, in either direction.
    pub fn seek(&mut self, index: u64) {
        self.next = index;
        self.ring.cursors.advance(&self.pin, index);
    }
}

impl<T> Drop for Cursor<T> {
    fn drop(&mut self) {
        self.ring.cursors.leave(&self.pin);
    }
}

/// Keeps the records from an index on, as far as the history's limit allows: it grows rather than
/// evict one of them, and does not shrink. Past the limit records are evicted all the same, and
/// readers are told of the gap. Dropping it releases the records.
#[derive(Debug)]
#[must_use = "dropped at once, it keeps nothing"]
pub struct Retained<T> {
    ring: Arc<Ring<T>>,
    pin: Pin,
    from: u64,
}

impl<T> Retained<T> {
    pub(super) fn new(ring: Arc<Ring<T>>, pin: Pin, from: u64) -> Self {
        Self { ring, pin, from }
    }

    /// The first index that is kept.
    #[must_use]
    pub fn from(&self) -> u64 {
        self.from
    }
}

impl<T> Drop for Retained<T> {
    fn drop(&mut self) {
        self.ring.retained.leave(&self.pin);
    }
}

/// Why records cannot be retained.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum NotHere {
    /// The index was never given out.
    Ahead {
        /// The index that the next record will get.
        next: u64,
    },
    /// The first of them is gone, or just about to go.
    Gap {
        /// The oldest index that could be retained.
        first: u64,
    },
}

impl std::fmt::Display for NotHere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ahead { next } => write!(f, "the index is ahead of the history, {next} is next"),
            Self::Gap { first } => {
                write!(
                    f,
                    "the record is no longer kept, the history starts at {first}"
                )
            }
        }
    }
}

impl std::error::Error for NotHere {}
