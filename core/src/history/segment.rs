//! A run of consecutive records, each place of which is written once.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;

use crate::sync::Canary;
use crate::sync::reclaim::Guard;

/// The most records that a segment can hold.
pub(super) const LONGEST: usize = if cfg!(tidegate_loom) { 2 } else { 64 };

/// The places of a run of records, filled from the front.
///
/// Which of them are filled is not known here: the ring's `next` says so to readers, and the
/// appender knows. The number never changes, so who holds a reference knows which records it holds.
pub(super) struct Segment<T> {
    number: u64,
    canary: Canary,
    canaries: [Canary; LONGEST],
    places: [UnsafeCell<MaybeUninit<T>>; LONGEST],
}

// SAFETY: a segment owns its records (hence `T: Send` to move it). Shared, it hands out references
// to filled places, which nobody writes any more (hence `T: Sync`), and the one appender moves
// values in (hence `T: Send`).
unsafe impl<T: Send + Sync> Sync for Segment<T> {}

impl<T> Segment<T> {
    /// An empty segment on the heap, to be freed by [`free`](Self::free) or
    /// [`retire`](Self::retire).
    pub(super) fn allocate(number: u64) -> *mut Self {
        let mut segment = Box::<Self>::new_uninit();
        let pointer = segment.as_mut_ptr();
        // SAFETY: `pointer` is valid for writes of a whole segment; no reference is made.
        let number_at = unsafe { &raw mut (*pointer).number };
        // SAFETY: as above.
        unsafe { number_at.write(number) };
        // SAFETY: as above.
        let canary = unsafe { &raw mut (*pointer).canary };
        // SAFETY: as above.
        unsafe { canary.write(Canary::new()) };
        // SAFETY: as above.
        let canaries = unsafe { &raw mut (*pointer).canaries };
        // SAFETY: as above.
        unsafe { canaries.write(std::array::from_fn(|_| Canary::new())) };
        // SAFETY: every field has been written but `places`, which need not be: they are
        // `MaybeUninit`. (This is why the box is not made by value: it would copy them.)
        Box::into_raw(unsafe { segment.assume_init() })
    }

    /// Which segment this is, counted from the ring's origin.
    pub(super) fn number(&self) -> u64 {
        self.canary.check();
        self.number
    }

    /// Fills place `at`.
    ///
    /// # Safety
    ///
    /// The place is empty, nobody else fills this segment, and no reader has been told of it.
    #[inline]
    pub(super) unsafe fn fill(&self, at: usize, value: T) {
        self.canaries[at].refill();
        let place = self.places[at].get().cast::<T>();
        // SAFETY: the caller is alone with the place, and there is no value that is lost.
        unsafe { place.write(value) };
    }

    /// The records in `count` places from `at` on.
    ///
    /// # Safety
    ///
    /// These places have been filled, and the filling happened before.
    pub(super) unsafe fn run(&self, at: usize, count: usize) -> &[T] {
        for canary in &self.canaries[at..at + count] {
            canary.check();
        }
        let places = self.places[at..at + count].as_ptr();
        // SAFETY: the caller says that they are filled; a filled place is never written again, and
        // `UnsafeCell<MaybeUninit<T>>` is laid out like `T`.
        unsafe { std::slice::from_raw_parts(places.cast::<T>(), count) }
    }

    /// Drops the records in the first `filled` places, and the segment.
    ///
    /// # Safety
    ///
    /// `segment` came from [`allocate`](Self::allocate), exactly these places are filled, and
    /// nobody else can reach it now or later.
    pub(super) unsafe fn free(segment: *mut Self, filled: usize) {
        // SAFETY: the caller owns the segment, which is the box that `allocate` made.
        let mut segment = unsafe { Box::from_raw(segment) };
        let records =
            ptr::slice_from_raw_parts_mut(segment.places.as_mut_ptr().cast::<T>(), filled);
        // SAFETY: these places are filled, and the box drops no place by itself.
        unsafe { records.drop_in_place() };
    }

    /// [`free`](Self::free)s the segment once no guard that exists now is left.
    ///
    /// # Safety
    ///
    /// As for `free`, except that threads which pinned before may still look into it.
    pub(super) unsafe fn retire(segment: *mut Self, filled: usize, guard: &Guard)
    where
        T: Send + Sync + 'static,
    {
        let evicted = Evicted { segment, filled };
        // SAFETY: the caller has unlinked the segment and gave it up.
        unsafe { guard.defer(move || evicted.free()) };
    }
}

/// A segment on its way out. A raw pointer, since readers may still look into it.
struct Evicted<T> {
    segment: *mut Segment<T>,
    filled: usize,
}

// SAFETY: this is the only owner of the segment, whose records any thread may drop.
unsafe impl<T: Send> Send for Evicted<T> {}

impl<T> Evicted<T> {
    fn free(self) {
        // SAFETY: `retire`'s caller gave it up, and the reclaimer waited for the last guard.
        unsafe { Segment::free(self.segment, self.filled) };
    }
}
