//! The history as one thread would keep it: a queue, an index and no cleverness.
//!
//! Property tests and fuzz targets compare the ring with it.

use std::collections::VecDeque;

use super::capacity::Capacity;
use super::{Answer, NotHere, Step};

/// A sequential history with the same questions and answers as [`History`](super::History) and
/// [`Appender`](super::Appender).
#[derive(Clone, Debug)]
pub struct ModelHistory<T> {
    limits: Capacity,
    capacity: usize,
    origin: u64,
    next: u64,
    records: VecDeque<T>,
    /// Where the readers' pins are: cursors and what is retained, by their handles.
    cursors: Vec<Option<ModelCursor>>,
    retained: Vec<Option<u64>>,
    lineage: u64,
    peak: u64,
    low_checks: u32,
    persisted: u64,
}

#[derive(Copy, Clone, Debug)]
struct ModelCursor {
    next: u64,
    lineage: u64,
}

impl<T: Clone> ModelHistory<T> {
    /// A history of the last `capacity` records (at least one), the first of which will have the
    /// index `next_index`.
    #[must_use]
    pub fn new(capacity: usize, next_index: u64) -> Self {
        Self::adaptive(Capacity::fixed(capacity), next_index)
    }

    /// A history that adapts its size to its slowest reader.
    #[must_use]
    pub fn adaptive(limits: Capacity, next_index: u64) -> Self {
        Self {
            limits,
            capacity: limits.base(),
            origin: next_index,
            next: next_index,
            records: VecDeque::new(),
            cursors: Vec::new(),
            retained: Vec::new(),
            lineage: 0,
            peak: 0,
            low_checks: 0,
            persisted: next_index,
        }
    }

    /// Appends a record and returns its index.
    pub fn append(&mut self, record: T) -> u64 {
        let run = self.limits.segment_len();
        if (self.next - self.origin).is_multiple_of(run as u64) {
            if let Some(slowest) = self.slowest() {
                self.observe(slowest, self.next + run as u64);
            }
            // A run of records goes when the rest, with the one that comes, are still enough.
            while self.records.len() + 1 >= self.capacity + run {
                self.records.drain(..run);
            }
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

    /// A new cursor at `from`; the handle names it.
    pub fn cursor(&mut self, from: u64) -> usize {
        let lineage = self.lineage;
        self.cursors.push(Some(ModelCursor {
            next: from,
            lineage,
        }));
        self.cursors.len() - 1
    }

    /// Reads with a cursor; with one that was dropped, nothing.
    pub fn step(&mut self, cursor: usize, limit: usize) -> Option<Step<T>> {
        let mut at = (*self.cursors.get(cursor)?)?;
        let step = if at.lineage != self.lineage {
            at.next = self.origin;
            at.lineage = self.lineage;
            Step::Reset { first: at.next }
        } else {
            match self.read(at.next, limit) {
                Answer::Ahead { next } => Step::Ahead { next },
                Answer::CaughtUp => Step::CaughtUp,
                Answer::Gap { first } => {
                    let from = std::mem::replace(&mut at.next, first);
                    Step::Lagged { from, first }
                }
                Answer::Records { first, records } => {
                    at.next += records.len() as u64;
                    Step::Records { first, records }
                }
            }
        };
        self.cursors[cursor] = Some(at);
        Some(step)
    }

    /// Drops a cursor.
    pub fn drop_cursor(&mut self, cursor: usize) {
        if let Some(cursor) = self.cursors.get_mut(cursor) {
            *cursor = None;
        }
    }

    /// Retains the records from `from` on; the handle names the retention.
    ///
    /// # Errors
    ///
    /// If the first of them is not here.
    pub fn retain(&mut self, from: u64) -> Result<usize, NotHere> {
        match self.read(from, 1) {
            Answer::Ahead { next } => Err(NotHere::Ahead { next }),
            Answer::Gap { first } => Err(NotHere::Gap { first }),
            Answer::CaughtUp | Answer::Records { .. } => {
                self.retained.push(Some(from));
                Ok(self.retained.len() - 1)
            }
        }
    }

    /// Gives up what was retained.
    pub fn release(&mut self, retained: usize) {
        if let Some(retained) = self.retained.get_mut(retained) {
            *retained = None;
        }
    }

    /// A reader wanted the records from `from` on.
    pub fn wanted(&mut self, from: u64) {
        if from < self.next {
            self.observe(from, self.next);
        }
    }

    /// A check whether to shrink, and whether it did.
    pub fn maintain(&mut self) -> bool {
        let window = self.slowest().map_or(0, |slowest| self.next - slowest);
        let needed = std::mem::take(&mut self.peak).max(window);
        let retained = self.retained.iter().any(Option::is_some);
        if retained || self.capacity == self.limits.base() || needed > self.capacity as u64 / 4 {
            self.low_checks = 0;
            return false;
        }
        self.low_checks += 1;
        if self.low_checks < 3 {
            return false;
        }
        self.low_checks = 0;
        self.capacity /= 2;
        let run = self.limits.segment_len();
        // The newest run may have begun: it counts as if it held a single record.
        let partial = self.records.len() % run;
        let begun = if partial == 0 { run } else { partial };
        while self.records.len() >= self.capacity + run + begun - 1 {
            self.records.drain(..run);
        }
        true
    }

    /// Begins anew with `index`.
    pub fn reset_with_index(&mut self, index: u64) {
        self.lineage += 1;
        self.capacity = self.limits.base();
        (self.origin, self.next, self.persisted) = (index, index, index);
        (self.peak, self.low_checks) = (0, 0);
        self.records.clear();
    }

    /// The next index, if it is time to store it.
    #[must_use = "it is handed out once"]
    pub fn persist_due(&mut self) -> Option<u64> {
        let due = self.next - self.persisted >= 100;
        due.then(|| {
            self.persisted = self.next;
            self.next
        })
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

    /// How many records are kept at least.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The lowest index that a reader needs and that is here.
    fn slowest(&self) -> Option<u64> {
        let cursors = self.cursors.iter().flatten().map(|cursor| cursor.next);
        let retained = self.retained.iter().flatten().copied();
        cursors
            .chain(retained)
            .filter(|index| (self.first_index()..=self.next).contains(index))
            .min()
    }

    /// Records from `from` to `end` are needed: PD doubles what fills more than half.
    fn observe(&mut self, from: u64, end: u64) {
        let window = end - from;
        self.peak = self.peak.max(window);
        if window <= self.capacity as u64 / 2 {
            return;
        }
        let mut capacity = self.limits.base();
        while (capacity as u64) < window.saturating_mul(2) && capacity < self.limits.max() {
            capacity *= 2;
        }
        self.capacity = self.capacity.max(capacity);
    }
}
