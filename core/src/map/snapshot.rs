//! The map at one moment.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use super::RegionMap;
use super::root::Root;
use crate::entry::{Entry, EntryPtr, SharedEntry};
use crate::sync::reclaim::{self, Guard};

/// The map at one moment: all that is read from one snapshot agrees (M4).
///
/// A snapshot holds a guard of the reclaimer. While it lives, nothing that any
/// map gives up is freed, so keep it short, take long scans page by page
/// ([`RegionMap::scan_pages`]), and never hold one across an `.await` (it is not `Send`,
/// so that the compiler helps).
///
/// Looking up a region by key, by id or before a key takes no lock, allocates
/// nothing and writes nothing (M5).
#[must_use = "memory is held back for as long as the snapshot lives"]
pub struct Snapshot<'m> {
    // Invariant: loaded under `guard`.
    root: NonNull<Root>,
    _guard: Guard,
    _map: PhantomData<&'m RegionMap>,
}

/// An entry of a snapshot; readable for as long as the snapshot lives.
#[derive(Clone, Copy)]
pub struct EntryRef<'s> {
    // Invariant: alive for `'s`.
    pointer: EntryPtr,
    _snapshot: PhantomData<&'s Entry>,
}

// === impl Snapshot ===

impl<'m> Snapshot<'m> {
    #[inline]
    pub(super) fn new(map: &'m RegionMap) -> Self {
        let guard = reclaim::pin();
        let root = map.load(&guard);
        Self {
            root,
            _guard: guard,
            _map: PhantomData,
        }
    }

    /// The generation that the content belongs to.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.root().generation
    }

    /// How many regions are live.
    #[must_use]
    pub fn len(&self) -> usize {
        self.root().tree.len()
    }

    /// Whether no region is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The region that holds `key`; `None` if `key` lies in a hole. O(log n).
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let entry = EntryRef::new(self.root().tree().floor(key)?);
        entry.region().range().ends_after(key).then_some(entry)
    }

    /// The left neighbour of the region that holds `key`. `None` if `key` lies
    /// in a hole, or a hole lies before its region. O(log n).
    ///
    /// The rule of PD's GetPrevRegion: "previous" is relative to the region, not
    /// to the key.
    #[must_use]
    pub fn prev(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let current = self.get(key)?;
        let left = EntryRef::new(self.root().tree().before(current.start())?);
        let range = left.region().range();
        range
            .is_followed_by(current.region().range())
            .then_some(left)
    }

    /// The region with this id. O(log of the greatest id).
    #[inline]
    #[must_use]
    pub fn by_id(&self, id: u64) -> Option<EntryRef<'_>> {
        self.root().by_id(id).map(EntryRef::new)
    }

    #[inline]
    pub(super) fn root(&self) -> &Root {
        // SAFETY: loaded under the guard that this snapshot holds.
        let root = unsafe { self.root.as_ref() };
        root.canary.check();
        root
    }
}

impl fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("generation", &self.generation())
            .field("regions", &self.len())
            .finish_non_exhaustive()
    }
}

// === impl EntryRef ===

impl<'s> EntryRef<'s> {
    #[inline]
    pub(super) const fn new(pointer: EntryPtr) -> Self {
        Self {
            pointer,
            _snapshot: PhantomData,
        }
    }

    /// The entry, for as long as the snapshot lives.
    #[inline]
    #[must_use]
    pub fn as_entry(self) -> &'s Entry {
        // SAFETY: alive for `'s` by the type's invariant.
        unsafe { self.pointer.as_ref() }
    }

    /// A share of the entry that outlives the snapshot. Unlike reading, this
    /// writes to the entry's count.
    #[must_use]
    pub fn to_shared(self) -> SharedEntry {
        // SAFETY: alive for `'s` by the type's invariant.
        unsafe { self.pointer.share() }
    }
}

impl Deref for EntryRef<'_> {
    type Target = Entry;

    #[inline]
    fn deref(&self) -> &Entry {
        self.as_entry()
    }
}

impl fmt::Debug for EntryRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_entry().fmt(f)
    }
}
