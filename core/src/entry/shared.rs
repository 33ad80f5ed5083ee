//! A pointer to an entry that the map owns one count of.

use std::ptr::NonNull;
use std::sync::Arc;

use super::Entry;
use crate::prefetch::prefetch;

/// A pointer to the entry of an [`Arc`], as the nodes of the map hold it.
///
/// The map owns one strong count of each live entry, however many nodes point
/// to it: copies of a node do not touch the count. The count is given up
/// through the reclaimer once the entry has left the map.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct EntryPtr(NonNull<Entry>);

// SAFETY: an `EntryPtr` is a count of an `Arc<Entry>` or a copy of a pointer to
// one, and an `Arc<Entry>` may be sent, used and dropped anywhere.
unsafe impl Send for EntryPtr {}
// SAFETY: as for `Send`; it gives shared access only.
unsafe impl Sync for EntryPtr {}

impl EntryPtr {
    /// Bytes of the memory that an entry stands in: the entry and its counts.
    pub(crate) const BLOCK: usize = size_of::<Entry>() + 2 * size_of::<usize>();

    /// Points to the entry; whoever holds `entry` keeps it alive.
    pub(crate) fn of(entry: &Arc<Entry>) -> Self {
        let pointer = Arc::as_ptr(entry).cast_mut();
        // SAFETY: the pointer of an `Arc` is never null.
        Self(unsafe { NonNull::new_unchecked(pointer) })
    }

    /// # Safety
    ///
    /// The entry stays alive for `'s`.
    #[inline]
    pub(crate) unsafe fn as_ref<'s>(self) -> &'s Entry {
        // SAFETY: alive by the caller's word, and entries are only ever shared.
        let entry = unsafe { self.0.as_ref() };
        entry.check_alive();
        entry
    }

    /// Asks for the entry.
    pub(crate) fn prefetch(self) {
        prefetch(self.0.as_ptr(), size_of::<Entry>());
    }

    /// A count of one's own.
    ///
    /// # Safety
    ///
    /// The entry is alive.
    pub(crate) unsafe fn share(self) -> Arc<Entry> {
        let pointer = self.0.as_ptr().cast_const();
        // SAFETY: the pointer came from an `Arc` (`of` is the only constructor),
        // whose entry is alive by the caller's word.
        unsafe { Arc::increment_strong_count(pointer) };
        // SAFETY: as above; the count that this takes over was just added.
        unsafe { Arc::from_raw(pointer) }
    }

    /// Gives up the count that the map owned.
    ///
    /// # Safety
    ///
    /// The map owns a count, nobody can reach the entry through the map any
    /// more, and this is called once.
    pub(crate) unsafe fn release(self) {
        // SAFETY: the pointer came from an `Arc`, and the count is the map's.
        drop(unsafe { Arc::from_raw(self.0.as_ptr().cast_const()) });
    }
}
