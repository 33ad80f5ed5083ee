//! The last N changes, by index: what a follower that missed a few can still be told.
//!
//! [`history`] makes one [`Appender`], which writes, and a [`History`], which any number of
//! threads may clone and read without a lock. An index is given to each record in turn and never
//! again; record `i` lives in slot `i % N`. Asked for the records from an index on, a reader gets
//! exactly one of four answers, see [`Answer`]. A gap is never reported as "nothing new", and a
//! newer record never under an older index.
//!
//! # Protocol
//!
//! A slot points to an immutable record that carries its own index. The appender, for index `i`:
//!
//! 1. fills in a record and swaps it into the slot of `i` (record `i - N` is gone from here on);
//! 2. stores `next = i + 1`;
//! 3. retires the record that was there.
//!
//! A reader pins, loads `next`, and then the slots of the wanted indexes below it. Since `next`
//! is stored after the slot, each of these slots holds the wanted record or, if the appender has
//! come round meanwhile, a later one. Which of the two, the record itself says: one whose index is
//! not the wanted one has been overtaken, and the answer ends before it (or, if it was the first,
//! is a gap). No double check of `next` is needed, and `first` is never stored: it follows from
//! `next`, and from step 1 to step 2 it may be one too low, which the record's own index makes
//! up for.
//!
//! An overwritten record waits in the appender's bag until the reclaimer frees it, so a history
//! keeps `N` records plus some bags of retired ones, and more only while a guard is held.

use crate::sync::Arc;

#[cfg(any(test, feature = "oracle"))]
pub mod model;
mod ring;

#[cfg(all(test, not(tidegate_loom)))]
mod tests;

use ring::Ring;

/// A history of the last `capacity` records (at least one), the first of which will have the
/// index `next_index`.
#[must_use]
pub fn history<T: Clone + Send + Sync + 'static>(
    capacity: usize,
    next_index: u64,
) -> (Appender<T>, History<T>) {
    let ring = Arc::new(Ring::new(capacity, next_index));
    (
        Appender {
            ring: Arc::clone(&ring),
            next: next_index,
        },
        History { ring },
    )
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

/// The writing end; there is one.
#[derive(Debug)]
pub struct Appender<T> {
    ring: Arc<Ring<T>>,
    next: u64,
}

impl<T: Clone + Send + Sync + 'static> Appender<T> {
    /// Appends a record and returns its index. One allocation; never waits for readers.
    pub fn append(&mut self, record: T) -> u64 {
        let index = self.next;
        // SAFETY: there is one `Appender` to a ring, and `&mut self` keeps its calls apart.
        unsafe { self.ring.append(index, record) };
        self.next = index + 1;
        index
    }

    /// Appends the records in turn and returns the range of their indexes. Readers may see some
    /// before all are there.
    pub fn append_all(&mut self, records: impl IntoIterator<Item = T>) -> std::ops::Range<u64> {
        let first = self.next;
        for record in records {
            self.append(record);
        }
        first..self.next
    }

    /// The index that the next record will get.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.next
    }
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
        self.ring.read(from, limit)
    }

    /// The oldest index that [`read`](Self::read) can answer with a record; equal to
    /// [`next_index`](Self::next_index) while there is none. A hint: it may be overwritten next.
    #[must_use]
    pub fn first_index(&self) -> u64 {
        self.ring.first_index()
    }

    /// The index that the next record will get.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.ring.next_index()
    }

    /// How many records are kept.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }
}
