//! The map at one moment.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::RegionMap;
use super::root::Root;
use crate::entry::{Entry, EntryPtr};
use crate::key::Key;
use crate::range::KeyRange;
use crate::sync::reclaim::{self, Guard};
use crate::tree::Cursor;

/// The map at one moment: all that is read from one snapshot agrees (M4).
///
/// A snapshot holds a guard of the reclaimer. While it lives, nothing that any
/// map gives up is freed, so keep it short, take long scans page by page with a
/// new snapshot each, and never hold one across an `.await` (it is not `Send`,
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

/// The regions of a range in ascending order; holes are skipped.
#[must_use = "a scan does nothing until it is iterated"]
pub struct Scan<'s> {
    cursor: Cursor<'s>,
    /// Where to stop; empty is plus infinity.
    end: Key,
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

    /// The region that holds `start` (or the next one, if it lies in a hole) and
    /// those after it that start before `end`; an empty `end` is plus infinity.
    ///
    /// These are the rules of PD's ScanRegions: holes are skipped, and with
    /// `start >= end` the region that holds `start` is still yielded if it
    /// starts before `end`.
    pub fn scan(&self, start: &[u8], end: &[u8]) -> Scan<'_> {
        Scan {
            cursor: self.root().tree().seek(start),
            end: Key::from(end),
        }
    }

    /// All regions that overlap `range`.
    pub fn overlaps(&self, range: &KeyRange) -> Scan<'_> {
        self.scan(range.start(), range.end())
    }

    /// All regions.
    pub fn iter(&self) -> Scan<'_> {
        self.scan(&[], &[])
    }

    /// Live regions, nodes of the tree, pages of the index.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let root = self.root();
        (root.tree.len(), root.tree.nodes(), root.ids.pages())
    }

    #[inline]
    pub(super) fn root(&self) -> &Root {
        // SAFETY: loaded under the guard that this snapshot holds.
        let root = unsafe { self.root.as_ref() };
        root.canary.check();
        root
    }
}

impl<'s> IntoIterator for &'s Snapshot<'_> {
    type Item = EntryRef<'s>;
    type IntoIter = Scan<'s>;

    fn into_iter(self) -> Scan<'s> {
        self.iter()
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
    const fn new(pointer: EntryPtr) -> Self {
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
    pub fn to_shared(self) -> Arc<Entry> {
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

// === impl Scan ===

impl<'s> Iterator for Scan<'s> {
    type Item = EntryRef<'s>;

    fn next(&mut self) -> Option<EntryRef<'s>> {
        let entry = EntryRef::new(self.cursor.next()?);
        (self.end.is_empty() || *entry.start() < self.end).then_some(entry)
    }
}

impl fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}
