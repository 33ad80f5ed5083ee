//! Part of a leaf, region by region.

use std::slice;

use crate::entry::{EntryPtr, ShortEntry};
use crate::slab::Beginning;

/// Slots of a leaf that hold entries.
pub(super) struct Occupied<'s> {
    // Invariant: of a leaf that can be read for `'s`, and filled.
    slots: slice::Iter<'s, Option<ShortEntry>>,
    beginning: Beginning,
}

impl<'s> Occupied<'s> {
    /// No slots.
    pub(super) fn none() -> Self {
        Self {
            slots: slice::Iter::default(),
            beginning: Beginning::read(),
        }
    }

    /// # Safety
    ///
    /// The slots are of a leaf that can be read for `'s`.
    pub(super) unsafe fn of(slots: &'s [Option<ShortEntry>]) -> Self {
        Self {
            slots: slots.iter(),
            beginning: Beginning::read(),
        }
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
        Some(unsafe { entry.pointer_from(self.beginning) })
    }

    /// Asks for the entries of the first so many.
    #[inline]
    pub(super) fn prefetch(&self, places: usize) {
        for entry in self.slots.as_slice().iter().take(places).flatten() {
            // SAFETY: alive, since the leaf can be read.
            unsafe { entry.pointer_from(self.beginning) }.prefetch();
        }
    }

    /// The next pointer.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<EntryPtr> {
        let entry = (*self.slots.next()?)?;
        // SAFETY: alive, since the leaf can be read.
        Some(unsafe { entry.pointer_from(self.beginning) })
    }
}
