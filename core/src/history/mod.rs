//! The last N changes, by index: what a follower that missed a few can still be told.
//!
//! [`history`] makes one [`Appender`], which writes, and a [`History`], which any number of
//! threads may clone and read without a lock. An index is given to each record in turn and never
//! again. Asked for the records from an index on, a reader gets exactly one of four answers, see
//! [`Answer`]. A gap is never reported as "nothing new", and a newer record never under an older
//! index.
//!
//! A [`Cursor`] is a reader that knows where it stands, and [`Retained`] keeps records until
//! somebody has read them. Both only influence how large the history grows ([`Capacity`]): nobody
//! makes the appender wait, and past the limit it evicts what they need. They are told then.
//!
//! # Protocol
//!
//! ```text
//!    table in force             segments (written once, numbered)
//!   +---------------+          +----+----+----+----+
//!   | next: 11      |  slot 0  | 8  | 9  | 10 |    |  number 2, newest
//!   | size, origin  |--------->+----+----+----+----+
//!   | slots         |--------->| 4  | 5  | 6  | 7  |  number 1
//!   +---------------+  slot 1  +----+----+----+----+
//! ```
//!
//! Records lie in segments of up to 64. Each place of a segment is written once, then never again
//! until the segment is freed as a whole; so whoever reads a place below `next` under a guard reads
//! a record that cannot change. Segment `n` holds the indexes from `origin + n * length` on and
//! lies in slot `n` modulo the number of slots of a table.
//!
//! The appender, for the next index:
//!
//! 1. if the newest segment is full, opens the next one (below);
//! 2. writes the record into its place;
//! 3. stores `next`, one higher. Several records may share this step.
//!
//! To open segment `n`, it announces which indexes must go for it, looks whether a pin needs them,
//! and, if so, puts a larger table into force as long as the limit allows. Then it swaps the segment
//! into its slot, and retires the one that was there. So whole segments are evicted, and a history
//! of N records holds at least N and less than N + 64 (one of few records has short segments: below
//! N = 32 of a single record, so that it holds exactly N).
//!
//! A reader pins, loads the table, then `next`, and then the slots of the segments it wants. Since
//! a segment is in its slot before `next` covers it, each of these slots holds the wanted segment
//! or, if the appender has come round meanwhile, a later one. Which of the two, the segment's number
//! says: at one that is not the wanted one the answer ends or, if it was the first, is a gap. No
//! double check of `next` is needed, and the oldest index is not stored: it follows from `next`.
//! While a segment is being opened it may be one segment too low, which the number makes up for.
//!
//! Growing, shrinking and beginning anew replace the table: the new one shares the segments that
//! stay, carries a `next` of its own, and is published with one store. A reader that has loaded the
//! old one finds it as it was at that store; its answer is the right one for that moment, which lies
//! within its call. The old table is retired before any segment that only it refers to.
//!
//! How a pin meets an eviction is told in `pins.rs`.
//!
//! # Cost
//!
//! An append writes the record and one word; every 64th allocates a segment, retires one, fences
//! and looks through the pins. A reader copies whole runs. Evicted segments wait in the appender's
//! bag until the reclaimer frees them, up to 16 in the bag and those of two epochs, and more only
//! while a guard is held.

use std::ops::Range;

use crate::sync::Arc;

mod appender;
mod capacity;
mod cursor;
#[cfg(any(test, feature = "oracle"))]
pub mod model;
mod pins;
mod ring;
mod segment;
mod writer;

#[cfg(all(test, not(tidegate_loom)))]
mod tests;

pub use appender::Appender;
pub use capacity::Capacity;
pub use cursor::{Cursor, NotHere, Retained, Step};

use ring::Ring;
use writer::Writer;

/// A history of the last `capacity` records (at least one), the first of which will have the
/// index `next_index`.
#[must_use]
pub fn history<T: Clone + Send + Sync + 'static>(
    capacity: usize,
    next_index: u64,
) -> (Appender<T>, History<T>) {
    adaptive_history(Capacity::fixed(capacity), next_index)
}

/// A history that grows to its slowest reader and shrinks again, within `capacity`. The first
/// record will have the index `next_index`.
#[must_use]
pub fn adaptive_history<T: Clone + Send + Sync + 'static>(
    capacity: Capacity,
    next_index: u64,
) -> (Appender<T>, History<T>) {
    let ring = Arc::new(Ring::new(capacity, next_index));
    let writer = Writer::new(Arc::clone(&ring), capacity);
    (Appender::new(writer), History { ring })
}

/// What a history says to a reader that wants the records from an index on.
#[derive(Clone, Eq, PartialEq, Debug)]
#[must_use]
pub enum Answer<T> {
    /// The index was never given out: the reader's position belongs to another history, or is
    /// ahead of this one.
    Ahead {
        /// The index that the next record will get.
        next: u64,
    },
    /// Nothing new: the index is the one that the next record will get.
    CaughtUp,
    /// The record is no longer here.
    Gap {
        /// The oldest index that was still here. It may be gone, too, by the time it is read.
        first: u64,
    },
    /// The records, without a hole, from the wanted one on. Never empty.
    Records {
        /// The index of the first one: the wanted index.
        first: u64,
        /// The records.
        records: Vec<T>,
    },
}

/// The reading end; clones read the same history.
#[derive(Debug)]
pub struct History<T> {
    ring: Arc<Ring<T>>,
}

impl<T> Clone for History<T> {
    fn clone(&self) -> Self {
        Self {
            ring: Arc::clone(&self.ring),
        }
    }
}

impl<T: Clone + Send + Sync + 'static> History<T> {
    /// Reads at most `limit` records (at least one) from the index `from` on.
    ///
    /// Lock-free; the records are cloned while the reclaimer's guard is held, so `limit` bounds
    /// how long that is. Fewer records than there are may come back when the appender overtakes
    /// the reader; the next read then finds the gap.
    pub fn read(&self, from: u64, limit: usize) -> Answer<T> {
        self.ring
            .look(|table, guard| table.read(from, limit, guard))
    }

    /// A reader that stands at the index `from` and moves on as it reads. Whether the record is
    /// here, its first read tells.
    #[must_use]
    pub fn cursor(&self, from: u64) -> Cursor<T> {
        Cursor::new(self, from)
    }

    /// Keeps the records from `from` on until the result is dropped, or until the history has
    /// grown to its limit.
    ///
    /// # Errors
    ///
    /// If the first of them is not here, or is about to be evicted.
    pub fn retain(&self, from: u64) -> Result<Retained<T>, NotHere> {
        let Range {
            start: first,
            end: next,
        } = self.indexes();
        if from > next {
            return Err(NotHere::Ahead { next });
        }
        if from < first {
            return Err(NotHere::Gap { first });
        }
        match self.ring.retain(from) {
            Ok(pin) => Ok(Retained::new(Arc::clone(&self.ring), pin, from)),
            Err(first) => Err(NotHere::Gap { first }),
        }
    }

    /// The indexes of the records that are here, as of one moment. It is a hint: the oldest may be
    /// evicted next.
    #[must_use]
    pub fn indexes(&self) -> Range<u64> {
        let (first, next) = self.ring.bounds();
        first..next
    }

    /// The oldest index that [`read`](Self::read) can answer with a record; equal to
    /// [`next_index`](Self::next_index) while there is none. A hint: it may be evicted next.
    #[must_use]
    pub fn first_index(&self) -> u64 {
        self.indexes().start
    }

    /// The index that the next record will get.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.ring.look(|table, _| table.next_index())
    }

    /// How many records are kept at least, once there have been so many.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.look(|table, _| table.size)
    }
}
