//! Part of a leaf, region by region.

use std::slice;

use crate::entry::{EntryPtr, EntryRef};

/// Slots of a leaf that hold entries.
pub(super) struct Occupied<'s> {
    // Invariant: of a leaf that can be read for `'s`, and filled.
    slots: slice::Iter<'s, Option<EntryRef>>,
}

impl<'s> Occupied<'s> {
    /// No slots.
    pub(super) fn none() -> Self {
        let slots = slice::Iter::default();
        Self { slots }
    }

    /// # Safety
    ///
    /// The slots are of a leaf that can be read for `'s`.
    pub(super) unsafe fn of(slots: &'s [Option<EntryRef>]) -> Self {
        let slots = slots.iter();
        Self { slots }
    }

    /// How many are left.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The pointer so many places further on.
    #[inline(always)]
    pub(super) fn ahead(&self, places: usize) -> Option<EntryPtr> {
        let entry = (*self.slots.as_slice().get(places)?)?;
        // SAFETY: alive, since the leaf can be read.
        Some(unsafe { entry.pointer() })
    }

    /// The next pointer.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<EntryPtr> {
        let entry = (*self.slots.next()?)?;
        // SAFETY: alive, since the leaf can be read.
        Some(unsafe { entry.pointer() })
    }
}
