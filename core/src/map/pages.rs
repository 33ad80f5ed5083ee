//! Long scans, page by page, without a guard in between.
//!
//! A snapshot holds back the freeing of memory in the whole process, so a walk
//! over many regions, or one that waits for something on its way, takes a new
//! snapshot for each page. What it pays is that the pages may show different
//! moments. Each root has a version of its own, so that a walk can tell.

use std::fmt;
use std::num::NonZeroUsize;

use super::RegionMap;
use super::snapshot::EntryRef;
use crate::key::Key;
use crate::range::KeyRange;

/// The regions that overlap a range, a page at a time ([`RegionMap::scan_pages`]).
///
/// Each page is one snapshot, which ends with the page. The next page begins
/// where the last region of this one ended, as the scan of a new snapshot from
/// there does: with the region that holds that key. So pages cover the range
/// without a break whatever happens to the map; but if it has moved, a region
/// that has grown since may be shown again, and the ranges of different pages
/// may overlap.
#[must_use = "nothing is read until a page is asked for"]
pub struct Pages<'m> {
    map: &'m RegionMap,
    size: NonZeroUsize,
    /// Where the next page begins; a buffer, so that long keys cost no memory of
    /// their own each.
    from: Vec<u8>,
    /// Empty is plus infinity.
    end: Key,
    /// The version of the first snapshot.
    version: Option<u64>,
    moved: bool,
    done: bool,
}

/// What was found on one page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Page {
    /// Regions that were visited.
    pub regions: NonZeroUsize,
    /// The generation of the page's snapshot.
    pub generation: u64,
    /// Whether this page and all before it show one and the same moment of the
    /// map: no change was published between the first one and this one.
    pub is_one_moment: bool,
}

impl RegionMap {
    /// Walks over the regions that overlap `range`, `size` of them from each
    /// snapshot. No guard is held between the pages, and the walk may wait there
    /// (across an `.await`, too).
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use tidegate_core::{KeyRange, RegionMap};
    ///
    /// let map = RegionMap::new();
    /// let mut pages = map.scan_pages(&KeyRange::all(), NonZeroUsize::MIN);
    /// let mut ids = Vec::new();
    /// while let Some(page) = pages.next_page(|entry| ids.push(entry.id())) {
    ///     if !page.is_one_moment {
    ///         // Good enough for a report, not for a backup: begin again.
    ///     }
    /// }
    /// ```
    pub fn scan_pages(&self, range: &KeyRange, size: NonZeroUsize) -> Pages<'_> {
        Pages {
            map: self,
            size,
            from: range.start().to_vec(),
            end: range.end().clone(),
            version: None,
            moved: false,
            done: false,
        }
    }
}

impl Pages<'_> {
    /// Visits the regions of the next page in ascending order; `None` if no
    /// region is left.
    ///
    /// O(log n + size of a page), whatever the range. `visit` runs under the
    /// page's guard, so it should copy what it needs and return.
    pub fn next_page(&mut self, mut visit: impl FnMut(EntryRef<'_>)) -> Option<Page> {
        if self.done {
            return None;
        }
        let snapshot = self.map.pin();
        let version = snapshot.root().version;
        self.moved |= *self.version.get_or_insert(version) != version;

        let mut regions = 0;
        let mut last = None;
        for entry in snapshot.scan(&self.from, &self.end).take(self.size.get()) {
            regions += 1;
            last = Some(entry);
            visit(entry);
        }
        let end: &[u8] = last.map_or(&[], |last| last.as_entry().end());
        self.from.clear();
        self.from.extend_from_slice(end);
        // A full page with something behind it: whatever is there begins at its
        // end key, or later.
        self.done = regions < self.size.get()
            || end.is_empty()
            || (!self.end.is_empty() && end >= self.end.as_bytes());
        Some(Page {
            regions: NonZeroUsize::new(regions)?,
            generation: snapshot.generation(),
            is_one_moment: !self.moved,
        })
    }

    /// Whether all that has been read so far shows one and the same moment of the
    /// map, the look that found no more regions included.
    #[must_use]
    pub const fn is_one_moment(&self) -> bool {
        !self.moved
    }
}

impl fmt::Debug for Pages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("size", &self.size)
            .field("from", &Key::from(&self.from[..]))
            .field("end", &self.end)
            .field("is_one_moment", &self.is_one_moment())
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}
