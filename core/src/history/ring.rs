//! The slots behind a history, and the orderings that the protocol rests on.

use std::fmt;
use std::ptr;

use super::Answer;
use crate::sync::Canary;
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::sync::reclaim::{self, Guard};

/// A record with its index. Immutable once it is in a slot.
struct Record<T> {
    index: u64,
    value: T,
    canary: Canary,
}

/// The slots. One thread at a time appends; any thread reads.
pub(super) struct Ring<T> {
    /// The index of the very first record.
    origin: u64,
    /// Invariant: every index from `origin` below this one has been put into its slot.
    next: AtomicU64,
    /// Invariant: null, or a record whose index is the slot's number modulo the capacity; the
    /// index in a slot only grows. The record is freed only through the reclaimer.
    slots: Box<[AtomicPtr<Record<T>>]>,
}

// SAFETY: the ring owns its records like a `Box` each (hence `T: Send` to move it), and hands out
// clones made from shared references on any thread (hence `T: Sync` to share it, and `T: Send`
// because a record may be dropped by the thread that retires it).
unsafe impl<T: Send + Sync> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Ring<T> {}

impl<T> Ring<T> {
    pub(super) fn new(capacity: usize, next_index: u64) -> Self {
        Self {
            origin: next_index,
            next: AtomicU64::new(next_index),
            slots: (0..capacity.max(1))
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn next_index(&self) -> u64 {
        // Acquire: pairs with the Release in `append`; every slot below is filled.
        // Model: loom-tests/tests/ring.rs.
        self.next.load(Ordering::Acquire)
    }

    pub(super) fn first_index(&self) -> u64 {
        self.first_before(self.next_index())
    }

    /// The oldest index kept when the next one is `next`.
    fn first_before(&self, next: u64) -> u64 {
        next.saturating_sub(self.slots.len() as u64)
            .max(self.origin)
    }

    fn slot(&self, index: u64) -> &AtomicPtr<Record<T>> {
        &self.slots[(index % self.slots.len() as u64) as usize]
    }
}

impl<T: Clone + Send + Sync + 'static> Ring<T> {
    /// Puts `value` into the slot of `index` and lets readers know.
    ///
    /// # Safety
    ///
    /// No other call of this runs at the same time, and every earlier one happened before it: the
    /// caller is the one appender. Indexes are consecutive from the ring's origin on, or readers
    /// are told of gaps that are none.
    pub(super) unsafe fn append(&self, index: u64, value: T) {
        let record = Box::into_raw(Box::new(Record {
            index,
            value,
            canary: Canary::new(),
        }));
        let slot = self.slot(index);
        // Relaxed: only the appender writes slots, so it sees its own last store.
        let old = slot.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `get`; who follows the pointer sees the record filled
        // in. Model: loom-tests/tests/ring.rs.
        slot.store(record, Ordering::Release);
        // Release: pairs with the Acquire in `next_index`; who sees the index sees the slot.
        // Model: loom-tests/tests/ring.rs.
        self.next.store(index + 1, Ordering::Release);
        if !old.is_null() {
            let guard = reclaim::pin();
            // SAFETY: the pointer came from `Box::into_raw` in an earlier call, was unlinked by the
            // store above, and only the appender retires what it unlinks.
            unsafe { guard.retire_box(old) };
        }
    }

    pub(super) fn read(&self, from: u64, limit: usize) -> Answer<T> {
        let guard = reclaim::pin();
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
        for index in from..end {
            match self.get(index, &guard) {
                Ok(record) => records.push(record),
                Err(Overtaken { by }) if records.is_empty() => {
                    return Answer::Gap {
                        first: self.first_before(by.saturating_add(1)),
                    };
                }
                Err(_) => break,
            }
        }
        Answer::Records {
            first: from,
            records,
        }
    }

    /// The record of `index`, which is below `next` as the caller has seen it.
    fn get(&self, index: u64, _guard: &Guard) -> Result<T, Overtaken> {
        // Acquire: pairs with the Release in `append`. Model: loom-tests/tests/ring.rs.
        let pointer = self.slot(index).load(Ordering::Acquire);
        // SAFETY: the record is immutable, and the guard was pinned before the load, so it is not freed
        // while we look.
        let record = unsafe { pointer.as_ref() };
        // A slot below `next` has been filled, unless the indexes have wrapped around 2^64.
        let record = record.ok_or(Overtaken { by: index })?;
        record.canary.check();
        if record.index == index {
            Ok(record.value.clone())
        } else {
            Err(Overtaken { by: record.index })
        }
    }
}

/// The wanted record has made way for this one.
struct Overtaken {
    by: u64,
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        for slot in &self.slots {
            // Relaxed: nobody else is left, and the last owner's `Arc` has ordered us after them.
            let pointer = slot.load(Ordering::Relaxed);
            if !pointer.is_null() {
                // SAFETY: the slots own their records, and no reader is left: a reader holds the
                // ring for as long as it looks into it.
                drop(unsafe { Box::from_raw(pointer) });
            }
        }
    }
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("first", &self.first_index())
            .field("next", &self.next_index())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
