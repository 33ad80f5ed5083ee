//! The history as one thread would keep it: a queue, an index and no cleverness.
//!
//! Property tests and fuzz targets compare the ring with it.

use std::collections::VecDeque;

use super::Answer;

/// A sequential history with the same questions and answers as [`History`](super::History).
#[derive(Clone, Debug)]
pub struct ModelHistory<T> {
    capacity: usize,
    next: u64,
    records: VecDeque<T>,
}

impl<T: Clone> ModelHistory<T> {
    /// A history of the last `capacity` records (at least one), the first of which will have the
    /// index `next_index`.
    #[must_use]
    pub fn new(capacity: usize, next_index: u64) -> Self {
        Self {
            capacity: capacity.max(1),
            next: next_index,
            records: VecDeque::new(),
        }
    }

    /// Appends a record and returns its index.
    pub fn append(&mut self, record: T) -> u64 {
        if self.records.len() == self.capacity {
            self.records.pop_front();
        }
        self.records.push_back(record);
        self.next += 1;
        self.next - 1
    }

    /// Reads at most `limit` records (at least one) from the index `from` on.
    pub fn read(&self, from: u64, limit: usize) -> Answer<T> {
        let first = self.first_index();
        if from > self.next {
            Answer::Ahead { next: self.next }
        } else if from == self.next {
            Answer::CaughtUp
        } else if from < first {
            Answer::Gap { first }
        } else {
            let skip = (from - first) as usize;
            let records = self
                .records
                .iter()
                .skip(skip)
                .take(limit.max(1))
                .cloned()
                .collect();
            Answer::Records {
                first: from,
                records,
            }
        }
    }

    /// The oldest index that is still here.
    #[must_use]
    pub fn first_index(&self) -> u64 {
        self.next - self.records.len() as u64
    }

    /// The index that the next record will get.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.next
    }
}
