//! The writing side of the protocol: filling, evicting, and changing the table.

use std::ptr;

use super::capacity::{Capacity, Shrinking, segments};
use super::ring::{Ring, Table};
use super::segment::Segment;
use crate::sync::Arc;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::reclaim::{self, Guard};

/// Evicted segments that may wait in this thread's bag before it is handed over.
const BAG: u32 = 16;

/// The one that fills the ring.
#[derive(Debug)]
pub(super) struct Writer<T> {
    ring: Arc<Ring<T>>,
    capacity: Capacity,
    segment_len: usize,
    shrinking: Shrinking,
    /// The table in force. Nobody but us replaces it, so it is never freed under us.
    table: *const Table<T>,
    /// The newest segment, in the table; dangling while `filled` says that it is full.
    segment: *const Segment<T>,
    /// How many of its places are filled.
    filled: usize,
    /// The index of the place after them.
    next: u64,
    /// Segments retired since the bag was handed over.
    bagged: u32,
}

// SAFETY: it is one owner of the ring among others (hence `T: Send + Sync`); the pointers lead into
// the ring, and only this writer invalidates them.
unsafe impl<T: Send + Sync> Send for Writer<T> {}
// SAFETY: nothing can be done with a shared writer but to read plain fields.
unsafe impl<T: Send + Sync> Sync for Writer<T> {}

impl<T: Clone + Send + Sync + 'static> Writer<T> {
    /// The writer of a ring that nobody else writes or has written.
    pub(super) fn new(ring: Arc<Ring<T>>, capacity: Capacity) -> Self {
        let segment_len = capacity.segment_len();
        // Relaxed: no other thread knows the ring.
        let table = ring.table.load(Ordering::Relaxed).cast_const();
        let mut writer = Self {
            ring,
            capacity,
            segment_len,
            shrinking: Shrinking::default(),
            table,
            segment: ptr::null(),
            filled: segment_len,
            next: 0,
            bagged: 0,
        };
        writer.next = writer.table().origin;
        writer
    }

    #[inline]
    fn table(&self) -> &Table<T> {
        // SAFETY: the table in force is freed only after `replace`, which puts the new one here, or
        // with the ring, which `self.ring` keeps.
        unsafe { &*self.table }
    }

    pub(super) fn next_index(&self) -> u64 {
        self.next
    }

    pub(super) fn size(&self) -> usize {
        self.table().size
    }

    /// Appends a record, which readers will see after [`publish`](Self::publish). That must be
    /// called before the writer goes.
    #[inline]
    pub(super) fn fill(&mut self, value: T) {
        if self.filled == self.segment_len {
            self.open();
        }
        // SAFETY: the segment is not full, so it is in the table in force, which owns it.
        let segment = unsafe { &*self.segment };
        // SAFETY: `&mut self` is the only filler; places from `filled` on are empty, and `next` is
        // not above the index of this one.
        unsafe { segment.fill(self.filled, value) };
        self.filled += 1;
        self.next += 1;
    }

    /// Lets readers know of the records that were filled in.
    #[inline]
    pub(super) fn publish(&mut self) {
        // Release: pairs with the Acquire in `Table::next_index`; who sees the index sees the places
        // below it and their segments. Model: ring::a_reader_beside_the_writer_sees_whole_records.
        self.table().next.store(self.next, Ordering::Release);
    }

    /// Makes room for the next records: grows the table if a reader needs it, else evicts the
    /// oldest segment if the table is full.
    #[cold]
    #[inline(never)]
    fn open(&mut self) {
        assert!(
            self.next < u64::MAX - 2 * self.segment_len as u64,
            "the indexes of this history are used up"
        );
        self.publish();
        let table = self.table();
        let number = table.number(self.next);
        let first = table.first_before(self.next);
        let evicted = table.first_beside(number);
        // Through the last record of the new segment, which will be filled without another look.
        let end = self.next + self.segment_len as u64;
        if let Some(window) = self.needed(first, evicted, end) {
            self.grow(window);
        }
        // Relaxed: only lowered here, to what is true; a pin that saw the higher one was refused.
        let kept = self.table().first_beside(number);
        self.ring.evicting.store(kept, Ordering::Relaxed);

        let guard = reclaim::pin();
        let segment = Segment::allocate(number);
        let slot = self.table().slot(number);
        // Relaxed: only this writer changes slots.
        let old = slot.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `Table::segment`, for readers that `next` has not told
        // of it yet. Model: ring::a_reader_that_is_overtaken_gets_a_gap.
        slot.store(segment, Ordering::Release);
        if !old.is_null() {
            self.retire(old, self.segment_len, &guard);
        }
        self.segment = segment;
        self.filled = 0;
    }

    /// Announces that indexes below `evicting` are to go and returns how many records before `end`
    /// the slowest reader needs, of those from `first` on.
    fn needed(&mut self, first: u64, evicting: u64, end: u64) -> Option<u64> {
        let slowest = self.announce(first, evicting)?;
        self.shrinking.needed(end - slowest);
        Some(end - slowest)
    }

    /// Announces that indexes below `evicting` are to go and returns the lowest that a reader needs,
    /// of those from `first` on.
    fn announce(&self, first: u64, evicting: u64) -> Option<u64> {
        // Relaxed: ordered by the fence.
        self.ring.evicting.store(evicting, Ordering::Relaxed);
        // Between the announcement and the look at the pins; pairs with the fence in `Ring::retain`.
        // Model: pins::what_is_retained_is_kept.
        fence(Ordering::SeqCst);
        (self.ring.retained.indexes())
            .chain(self.ring.cursors.indexes())
            // Nothing helps one that has lost records, and one from another numbering needs none.
            .filter(|index| (first..=self.next).contains(index))
            .min()
    }

    fn grow(&mut self, window: u64) {
        let size = self.capacity.for_window(self.size(), window);
        if size > self.size() {
            let first = self.table().first_before(self.next);
            self.resize(size, first);
        }
    }

    /// A reader wanted the records from `from` on, whether they are here or not: grows if they fill
    /// more than half of the table.
    pub(super) fn observe(&mut self, from: u64) {
        let window = self.next.saturating_sub(from);
        self.shrinking.needed(window);
        self.grow(window);
    }

    /// A check whether to shrink; `true` if the table was halved.
    pub(super) fn maintain(&mut self) -> bool {
        let retained = self.ring.retained.indexes().next().is_some();
        let first = self.table().first_before(self.next);
        let evicting = self.ring.evicting.load(Ordering::Relaxed);
        self.needed(first, evicting, self.next);
        if !self.shrinking.check(self.capacity, self.size(), retained) {
            return false;
        }
        let size = self.size() / 2;
        let kept = segments(size, self.segment_len) as u64;
        let table = self.table();
        let opened = (self.next - table.origin).div_ceil(self.segment_len as u64);
        let start = table.begin(opened.saturating_sub(kept)).max(first);
        // Announced first, as in `open`: a reader that enters now is refused or seen. What is needed
        // at this moment has been counted above, and says nothing of the time until the next check.
        self.announce(first, start);
        if self.ring.retained.indexes().any(|index| index < start) {
            self.ring.evicting.store(evicting, Ordering::Relaxed);
            return false;
        }
        self.resize(size, start);
        true
    }

    /// Begins anew, with `index` as the first one and at the base size.
    pub(super) fn reset(&mut self, index: u64) {
        let table = self.table();
        let old = (table.first_before(self.next), self.next);
        let fresh = Table::new(
            (table.lineage + 1, index),
            (index, index),
            (self.capacity.base(), self.segment_len),
        );
        self.ring.evicting.store(index, Ordering::Relaxed);
        self.shrinking = Shrinking::default();
        let guard = reclaim::pin();
        let gone = self.replace(fresh, &guard);
        self.retire_range(gone, old, &guard);
        self.next = index;
        self.filled = self.segment_len;
        guard.flush();
    }

    /// Replaces the table by one of another size that holds what this one holds from `start` on.
    fn resize(&mut self, size: usize, start: u64) {
        let table = self.table();
        let fresh = Table::new(
            (table.lineage, table.origin),
            (start, self.next),
            (size, self.segment_len),
        );
        let first = table.first_before(self.next);
        if start < self.next {
            for number in table.number(start)..=table.number(self.next - 1) {
                // Relaxed: our own stores; the table is published below.
                let segment = table.slot(number).load(Ordering::Relaxed);
                fresh.slot(number).store(segment, Ordering::Relaxed);
            }
        }
        let guard = reclaim::pin();
        let gone = self.replace(fresh, &guard);
        self.retire_range(gone, (first, start), &guard);
        guard.flush();
    }

    /// Puts `fresh` into force and retires the old table, but none of its segments; the result is
    /// good for as long as the guard.
    fn replace<'g>(&mut self, fresh: Box<Table<T>>, guard: &'g Guard) -> &'g Table<T> {
        let old = self.table.cast_mut();
        let fresh = Box::into_raw(fresh);
        self.table = fresh;
        // Release: pairs with the Acquire in `Ring::table`; readers find the table filled in.
        // Model: ring::a_reader_beside_growth_misses_nothing.
        self.ring.table.store(fresh, Ordering::Release);
        // SAFETY: the table is a box, was unlinked by the store, and only this writer retires.
        unsafe { guard.retire_box(old) };
        // SAFETY: retired under this guard, so not freed before the guard ends.
        unsafe { &*old }
    }

    /// Retires the segments of `table`, which is no longer in force, that begin in this range.
    fn retire_range(&mut self, table: &Table<T>, (from, to): (u64, u64), guard: &Guard) {
        if from == to {
            return;
        }
        for number in table.number(from)..=table.number(to - 1) {
            let filled = (to - table.begin(number)).min(self.segment_len as u64);
            let segment = table.slot(number).load(Ordering::Relaxed);
            self.retire(segment, filled as usize, guard);
        }
    }

    /// Retires a segment with `filled` records, which is no longer in the table in force.
    fn retire(&mut self, segment: *mut Segment<T>, filled: usize, guard: &Guard) {
        // SAFETY: the caller unlinked it; only this writer retires, each segment when it leaves the
        // table in force, and it knows what it filled.
        unsafe { Segment::retire(segment, filled, guard) };
        self.bagged += 1;
        if self.bagged >= BAG {
            self.bagged = 0;
            guard.flush();
        }
    }
}
