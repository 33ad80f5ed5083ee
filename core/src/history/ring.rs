//! What readers share, and the reading side of the protocol.

use std::fmt;

use crossbeam_utils::CachePadded;

use super::Answer;
use super::capacity::{Capacity, segments};
use super::pins::{Pin, Pins};
use super::segment::Segment;
use crate::sync::Canary;
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use crate::sync::reclaim::{self, Guard};

/// The records of one size and numbering: a table of segments and the next index.
///
/// A change of the size or of the numbering makes a new one. One that has been replaced stays as it
/// was, and the segments it shares with its successor outlive it.
pub(super) struct Table<T> {
    /// How often the numbering has begun anew.
    pub(super) lineage: u64,
    /// The index that segment 0 begins with.
    pub(super) origin: u64,
    /// The oldest index that was here when the table was made. A segment begins with it.
    pub(super) start: u64,
    /// How many records must be kept.
    pub(super) size: usize,
    /// A segment holds two to the power of this many records.
    pub(super) shift: u32,
    /// Invariant: every index from `start` below this one has been put into its place.
    pub(super) next: CachePadded<AtomicU64>,
    /// Invariant: segment `n` is in the slot that is `n` modulo their number, or has not been
    /// opened, or a later segment has come in its place. Segments are freed only by the reclaimer,
    /// or with the ring.
    pub(super) slots: Box<[AtomicPtr<Segment<T>>]>,
    canary: Canary,
}

/// The table in force, and who needs what.
pub(super) struct Ring<T> {
    /// Never null; changed by the appender alone.
    pub(super) table: AtomicPtr<Table<T>>,
    /// Indexes below this one have been, or may just be, evicted.
    pub(super) evicting: AtomicU64,
    /// Readers that must get every record from an index on.
    pub(super) retained: Pins,
    /// Where the cursors stand.
    pub(super) cursors: Pins,
}

// SAFETY: the ring owns its segments like boxes (hence `T: Send` to move it), hands out clones made
// from shared references on any thread (hence `T: Sync` to share it), and lets records be dropped
// by the thread that frees a segment (hence `T: Send`).
unsafe impl<T: Send + Sync> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Ring<T> {}

impl<T> Table<T> {
    pub(super) fn new(
        (lineage, origin): (u64, u64),
        (start, next): (u64, u64),
        (size, segment_len): (usize, usize),
    ) -> Box<Self> {
        Box::new(Self {
            lineage,
            origin,
            start,
            size,
            shift: segment_len.ilog2(),
            next: CachePadded::new(AtomicU64::new(next)),
            slots: (0..segments(size, segment_len))
                .map(|_| AtomicPtr::default())
                .collect(),
            canary: Canary::new(),
        })
    }

    pub(super) fn slot(&self, number: u64) -> &AtomicPtr<Segment<T>> {
        &self.slots[(number % self.slots.len() as u64) as usize]
    }

    /// The segment of an index that is not below the origin.
    pub(super) fn number(&self, index: u64) -> u64 {
        (index - self.origin) >> self.shift
    }

    /// The first index of a segment.
    pub(super) fn begin(&self, number: u64) -> u64 {
        self.origin + (number << self.shift)
    }

    /// The oldest index that is kept while `newest` is the newest segment.
    pub(super) fn first_beside(&self, newest: u64) -> u64 {
        let oldest = (newest + 1).saturating_sub(self.slots.len() as u64);
        self.begin(oldest).max(self.start)
    }

    /// The oldest index that is kept when the next one is `next`.
    pub(super) fn first_before(&self, next: u64) -> u64 {
        if next == self.start {
            return next;
        }
        self.first_beside(self.number(next - 1))
    }

    pub(super) fn next_index(&self) -> u64 {
        // Acquire: pairs with the Release in `Writer::publish`; every place below is filled, and its
        // segment is in its slot. Model: ring::a_reader_beside_the_writer_sees_whole_records.
        self.next.load(Ordering::Acquire)
    }

    /// The segment, which begins below `next` as the caller has seen it, or the number of the one
    /// that has come in its place.
    fn segment<'g>(&self, number: u64, _guard: &'g Guard) -> Result<&'g Segment<T>, u64> {
        // Acquire: pairs with the Release in `Writer::open`: a segment that came round after `next`
        // was read is numbered. Model: ring::a_reader_that_is_overtaken_gets_a_gap.
        let pointer = self.slot(number).load(Ordering::Acquire);
        // SAFETY: null, or a segment that was linked when the guard was pinned or later, so it is
        // not freed before the guard ends.
        let segment = unsafe { pointer.as_ref() }.ok_or(number)?;
        match segment.number() {
            found if found == number => Ok(segment),
            other => Err(other),
        }
    }

    pub(super) fn read(&self, from: u64, limit: usize, guard: &Guard) -> Answer<T>
    where
        T: Clone,
    {
        let next = self.next_index();
        if from == next {
            return Answer::CaughtUp;
        }
        if from > next {
            return Answer::Ahead { next };
        }
        let first = self.first_before(next);
        if from < first {
            return Answer::Gap { first };
        }
        let end = next.min(from.saturating_add(limit.max(1) as u64));
        let mut records = Vec::with_capacity((end - from) as usize);
        let mut at = from;
        while at < end {
            let number = self.number(at);
            let segment = match self.segment(number, guard) {
                Ok(segment) => segment,
                Err(newest) if records.is_empty() => {
                    let first = self.first_beside(newest);
                    return Answer::Gap { first };
                }
                Err(_) => break,
            };
            let place = at - self.begin(number);
            let count = (end - at).min((1 << self.shift) - place);
            // SAFETY: these indexes are below `next`, whose Acquire load has ordered us after the
            // filling of their places; the segment's number says that the places are theirs.
            let run = unsafe { segment.run(place as usize, count as usize) };
            records.extend_from_slice(run);
            at += count;
        }
        Answer::Records {
            first: from,
            records,
        }
    }
}

impl<T> Ring<T> {
    pub(super) fn new(capacity: Capacity, next_index: u64) -> Self {
        let table = Table::new(
            (0, next_index),
            (next_index, next_index),
            (capacity.base(), capacity.segment_len()),
        );
        Self {
            table: AtomicPtr::new(Box::into_raw(table)),
            evicting: AtomicU64::new(next_index),
            retained: Pins::new(),
            cursors: Pins::new(),
        }
    }

    /// The table in force. Everything one answer says comes from one table: one that is replaced
    /// meanwhile answers as of the moment when it was.
    pub(super) fn table<'g>(&self, _guard: &'g Guard) -> &'g Table<T> {
        // Acquire: pairs with the Release in `Writer::replace`; the table is filled in.
        // Model: ring::a_reader_beside_growth_misses_nothing.
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: never null, and a table that is replaced after the guard was pinned is not freed
        // before the guard ends.
        let table = unsafe { &*table };
        table.canary.check();
        table
    }

    /// What `look` finds in the table in force.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Table<T>, &Guard) -> R) -> R {
        let guard = reclaim::pin();
        look(self.table(&guard), &guard)
    }

    /// The oldest and the next index.
    pub(super) fn bounds(&self) -> (u64, u64) {
        self.look(|table, _| {
            let next = table.next_index();
            (table.first_before(next), next)
        })
    }

    /// Enters a pin; `Err` says from which index on one can be, when that one is too low.
    pub(super) fn retain(&self, from: u64) -> Result<Pin, u64> {
        let pin = self.retained.enter(from);
        // Between entering the pin and the look at what is evicted; pairs with the fence in
        // `Writer::open`. Model: pins::what_is_retained_is_kept.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        let evicting = self.evicting.load(Ordering::Relaxed);
        if from < evicting {
            self.retained.leave(&pin);
            return Err(evicting);
        }
        Ok(pin)
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // Relaxed, here and below: nobody else is left, and the last owner's `Arc` has ordered us
        // after them.
        let table = self.table.load(Ordering::Relaxed);
        // SAFETY: the ring owns the table in force, a box, and no reader is left: a reader holds
        // the ring for as long as it looks into it.
        let table = unsafe { Box::from_raw(table) };
        let next = table.next.load(Ordering::Relaxed);
        for slot in &table.slots {
            let segment = slot.load(Ordering::Relaxed);
            // SAFETY: null, or a segment that the table owns.
            let Some(number) = unsafe { segment.as_ref() }.map(Segment::number) else {
                continue;
            };
            let filled = (next - table.begin(number)).min(1 << table.shift);
            // SAFETY: it is in the table in force, so it has not been retired; what lies below
            // `next` is filled, and nothing else: the appender publishes whatever it fills.
            unsafe { Segment::free(segment, filled as usize) };
        }
    }
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, next) = self.bounds();
        f.debug_struct("Ring")
            .field("first", &first)
            .field("next", &next)
            .field("retained", &self.retained)
            .field("cursors", &self.cursors)
            .finish_non_exhaustive()
    }
}
