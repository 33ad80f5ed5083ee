//! A map at one moment.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use super::Root;
use crate::entry::Entry;
use crate::range::KeyRange;

/// The map at one moment: all that is read from one snapshot agrees (M4).
///
/// It holds a guard of the reclaimer: keep it short, and never across an
/// `.await` (it is not `Send`, so that the compiler helps).
pub struct Snapshot<'m> {
    root: Root,
    _map: PhantomData<(&'m (), *const ())>,
}

/// An entry of a snapshot.
#[derive(Clone, Copy)]
pub struct EntryRef<'s> {
    entry: &'s Arc<Entry>,
}

/// The regions of a range in ascending order; holes are skipped.
pub struct Scan<'s> {
    entries: std::vec::IntoIter<&'s Arc<Entry>>,
}

// === impl Snapshot ===

impl Snapshot<'_> {
    pub(super) fn new(root: Root) -> Self {
        Self {
            root,
            _map: PhantomData,
        }
    }

    /// The generation that the content belongs to.
    pub fn generation(&self) -> u64 {
        self.root.generation
    }

    /// How many regions are live.
    pub fn len(&self) -> usize {
        self.root.regions.len()
    }

    /// Whether no region is live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The region that holds `key`; `None` if `key` lies in a hole.
    pub fn get(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        self.root.regions.get(key).map(EntryRef::new)
    }

    /// The left neighbour of the region that holds `key`. `None` if `key` lies
    /// in a hole, or a hole lies before its region.
    pub fn prev(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        self.root.regions.prev(key).map(EntryRef::new)
    }

    /// The region with this id.
    pub fn by_id(&self, id: u64) -> Option<EntryRef<'_>> {
        self.root.regions.by_id(id).map(EntryRef::new)
    }

    /// The region that holds `start` (or the next one, if it lies in a hole) and
    /// those after it that start before `end`; an empty `end` is plus infinity.
    ///
    /// These are the rules of PD's ScanRegions: holes are skipped, and with
    /// `start >= end` the region that holds `start` is still yielded if it
    /// starts before `end`.
    pub fn scan(&self, start: &[u8], end: &[u8]) -> Scan<'_> {
        Scan {
            entries: self.root.regions.scan(start, end).into_iter(),
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
            .finish()
    }
}

// === impl EntryRef ===

impl<'s> EntryRef<'s> {
    fn new(entry: &'s Arc<Entry>) -> Self {
        Self { entry }
    }

    /// The entry, for as long as the snapshot lives.
    pub fn as_entry(self) -> &'s Entry {
        self.entry
    }

    /// A share of the entry that outlives the snapshot.
    pub fn to_shared(self) -> Arc<Entry> {
        Arc::clone(self.entry)
    }
}

impl Deref for EntryRef<'_> {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        self.entry
    }
}

impl fmt::Debug for EntryRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Entry::fmt(self, f)
    }
}

// === impl Scan ===

impl<'s> Iterator for Scan<'s> {
    type Item = EntryRef<'s>;

    fn next(&mut self) -> Option<EntryRef<'s>> {
        self.entries.next().map(EntryRef::new)
    }
}

impl fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").finish_non_exhaustive()
    }
}
