//! Whole ranges of a snapshot.

use std::fmt;
use std::iter::FusedIterator;

use super::snapshot::{EntryRef, Snapshot};
use crate::range::KeyRange;
use crate::tree::Range;

/// The regions of a range in ascending order; holes are skipped. Reversed
/// ([`Iterator::rev`]) in descending order, and from both ends at once.
///
/// A limit is [`Iterator::take`]: of a scan the first regions, of a reversed one
/// the last.
#[must_use = "a scan does nothing until it is iterated"]
pub struct Scan<'s, 'k> {
    range: Range<'s, 'k>,
}

impl Snapshot<'_> {
    /// The region that holds `start` (or the next one, if it lies in a hole) and
    /// those after it that start before `end`; an empty `end` is plus infinity.
    ///
    /// These are the rules of PD's ScanRegions: holes are skipped, and with
    /// `start >= end` the region that holds `start` is still yielded if it
    /// starts before `end`.
    ///
    /// O(log n), then O(1) a region; the first one that is taken from the back
    /// costs O(log n) again. Nothing is allocated.
    #[inline]
    pub fn scan<'k>(&self, start: &[u8], end: &'k [u8]) -> Scan<'_, 'k> {
        Scan {
            range: self.root().tree().range(start, end),
        }
    }

    /// All regions that overlap `range`.
    pub fn overlaps<'k>(&self, range: &'k KeyRange) -> Scan<'_, 'k> {
        self.scan(range.start(), range.end())
    }

    /// All regions.
    pub fn iter(&self) -> Scan<'_, 'static> {
        self.scan(&[], &[])
    }
}

impl<'s> IntoIterator for &'s Snapshot<'_> {
    type Item = EntryRef<'s>;
    type IntoIter = Scan<'s, 'static>;

    fn into_iter(self) -> Scan<'s, 'static> {
        self.iter()
    }
}

// === impl Scan ===

impl<'s> Iterator for Scan<'s, '_> {
    type Item = EntryRef<'s>;

    #[inline(always)]
    fn next(&mut self) -> Option<EntryRef<'s>> {
        self.range.next().map(EntryRef::new)
    }
}

impl DoubleEndedIterator for Scan<'_, '_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.range.next_back().map(EntryRef::new)
    }
}

impl FusedIterator for Scan<'_, '_> {}

impl fmt::Debug for Scan<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").finish_non_exhaustive()
    }
}
