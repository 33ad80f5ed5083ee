//! Filling a new map all at once.
//!
//! Into an empty map regions can be put without looking for their places: sorted
//! by their keys they are the leaves, sorted by their ids the pages of the index,
//! and each node is written once. That takes that none of them meets another:
//! what is apart, in the sense of `order.rs`, goes in this way, and what is not
//! follows as a batch, in the order given. The map is the same as if all had been
//! put one by one, for the reason given there.

use std::sync::Arc;

use super::RegionMap;
use super::batch::{Change, Expect};
use super::order::{for_each_meeting, sorted_by_start};
use super::outcome::{Outcome, Refusal};
use super::root::Root;
use crate::entry::{Entry, EntryPtr, Maker, SharedEntry};
use crate::id_index::{self, IdIndex};
use crate::provenance::Provenance;
use crate::region::Region;
use crate::sync::atomic::AtomicPtr;
use crate::tree::{self, Tree};

/// Entries are asked for so many places before they are read.
const AHEAD: usize = 12;

/// Regions on their way into a new map.
///
/// They may come in any order; in that of their keys they need not be sorted.
/// What comes of them is what would come of putting them into an empty map one by
/// one (M3): of two with the same id, or with ranges that overlap, the newer one
/// stays, and the later one if neither is newer by the rules; what is refused is
/// reported.
///
/// ```
/// use tidegate_core::{BulkLoad, KeyRange, Moment, Provenance, Region, RegionEpoch};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let received = Provenance::Stream { received_at: Moment::from_nanos(1) };
/// let mut load = BulkLoad::new();
/// for (id, start, end) in [(2, "m", ""), (1, "", "m")] {
///     let range = KeyRange::new(start, end)?;
///     load.put(Region::builder(id, range, RegionEpoch::new(1, 1)).build()?, received);
/// }
/// let loaded = load.finish(1);
/// assert!(loaded.refused.is_empty());
/// assert_eq!(loaded.map.pin().len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
#[must_use = "nothing is loaded until `finish`"]
pub struct BulkLoad {
    /// With their ids, so that these can be gone through without the entries.
    entries: Vec<(u64, SharedEntry)>,
    /// Whether an entry does not start after the one before it, or starts before
    /// that one ends.
    unsorted: bool,
    /// Of all entries.
    bytes: usize,
    maker: Maker,
}

/// A map that has been filled.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub struct Loaded {
    /// The map.
    pub map: RegionMap,
    /// The regions that were refused, by their places in the order given, and
    /// what they lost to.
    pub refused: Vec<(usize, Refusal)>,
}

impl BulkLoad {
    /// No regions.
    pub fn new() -> Self {
        Self::default()
    }

    /// No regions, and room for so many.
    pub fn with_capacity(regions: usize) -> Self {
        Self {
            entries: Vec::with_capacity(regions),
            ..Self::default()
        }
    }

    /// Adds a region.
    pub fn put(&mut self, region: Region, provenance: Provenance) {
        self.put_entry(Entry::new(region, provenance));
    }

    /// Adds an entry whose state is not that of a new one (it has a deadline, or is
    /// pinned in advance).
    pub fn put_entry(&mut self, entry: Entry) {
        if let Some((_, last)) = self.entries.last()
            && !self.unsorted
        {
            let (last, next) = (last.region().range(), entry.start());
            self.unsorted = last.start() >= next || last.ends_after(next);
        }
        self.bytes += entry.bytes();
        let id = entry.id();
        let entry = SharedEntry::new_in(&mut self.maker, entry);
        self.entries.push((id, entry));
    }

    /// How many regions have been added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none has been added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The map of all that has been added, under the given generation.
    ///
    /// O(n) for regions in the order of their keys, O(n log n) for others. Takes
    /// up to a hundred bytes a region besides the map, until it is done.
    pub fn finish(self, generation: u64) -> Loaded {
        let mut apart = vec![true; self.entries.len()];
        let by_start = self.in_order_of_starts(&mut apart);
        let by_id = self.in_order_of_ids(&mut apart);
        let by_start: Vec<EntryPtr> = match by_start {
            None => self.those_apart(&apart).map(|(_, entry)| entry).collect(),
            Some(order) => order
                .into_iter()
                .filter(|&index| apart[index as usize])
                .map(|index| EntryPtr::of(&self.entries[index as usize].1))
                .collect(),
        };
        let met = self
            .entries
            .iter()
            .zip(&apart)
            .filter(|(_, apart)| !**apart);
        let bytes = self.bytes - met.map(|((_, entry), _)| entry.bytes()).sum::<usize>();
        let map = RegionMap::of_sorted(&by_start, by_id.into_iter(), bytes, generation);

        let mut rest = Vec::new();
        let mut places = Vec::new();
        for (place, (_, entry)) in self.entries.into_iter().enumerate() {
            if apart[place] {
                // The count is the map's now.
                let _ = entry.into_ptr();
            } else {
                let expect = Expect::Any;
                rest.push(Change::Put { entry, expect });
                places.push(place);
            }
        }
        let outcomes = map.publish_changes(rest);
        let refused = |(place, outcome): (usize, Outcome)| Some((place, *outcome.refusal()?));
        let refused = places.into_iter().zip(outcomes).filter_map(refused);
        Loaded {
            refused: refused.collect(),
            map,
        }
    }

    /// The places of the entries in the order of their starts; `None` if that is
    /// the order given. Those whose ranges meet are not apart.
    fn in_order_of_starts(&self, apart: &mut [bool]) -> Option<Vec<u32>> {
        if !self.unsorted {
            return None;
        }
        if u32::try_from(self.entries.len()).is_err() {
            // Places have 32 bits; all goes as a batch, which can do without them.
            apart.fill(false);
            return None;
        }
        let start_of = |place: usize| self.entries[place].1.start().as_bytes();
        let order = sorted_by_start(self.entries.len(), start_of);
        let ranges = order.iter().enumerate().map(|(at, &place)| {
            if let Some(&ahead) = order.get(at + AHEAD) {
                EntryPtr::of(&self.entries[ahead as usize].1).prefetch_whole();
            }
            (place, self.entries[place as usize].1.region().range())
        });
        for_each_meeting(ranges, |place| apart[place as usize] = false);
        Some(order)
    }

    /// The entries that are apart, in the order of their ids. Those of one id are
    /// not apart.
    fn in_order_of_ids(&self, apart: &mut [bool]) -> Vec<(u64, EntryPtr)> {
        if let Some(sorted) = self.counted_by_ids(apart) {
            return sorted;
        }
        let mut places: Vec<(u64, usize)> = (0..)
            .zip(&self.entries)
            .map(|(place, (id, _))| (*id, place))
            .collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            if pair[0].0 == pair[1].0 {
                apart[pair[0].1] = false;
                apart[pair[1].1] = false;
            }
        }
        places.retain(|&(_, place)| apart[place]);
        let pointer = |(id, place): (u64, usize)| (id, EntryPtr::of(&self.entries[place].1));
        places.into_iter().map(pointer).collect()
    }

    /// The same by counting, which takes a bit for each id that could be there:
    /// `None` if these are too many, or an id comes twice.
    fn counted_by_ids(&self, apart: &[bool]) -> Option<Vec<(u64, EntryPtr)>> {
        let greatest = self.entries.iter().map(|(id, _)| *id).max()?;
        let words = usize::try_from(greatest / 64).ok()? + 1;
        if words > self.entries.len() {
            return None;
        }
        let word_of = |id: u64| ((id / 64) as usize, 1u64 << (id % 64));
        let mut bits = vec![0u64; words];
        for &(id, _) in &self.entries {
            let (word, bit) = word_of(id);
            if bits[word] & bit != 0 {
                return None;
            }
            bits[word] |= bit;
        }
        for ((id, _), _) in self.entries.iter().zip(apart).filter(|(_, apart)| !**apart) {
            let (word, bit) = word_of(*id);
            bits[word] &= !bit;
        }
        let mut before = 0;
        let ranks: Vec<usize> = bits
            .iter()
            .map(|word| {
                before += word.count_ones() as usize;
                before - word.count_ones() as usize
            })
            .collect();
        let nowhere = EntryPtr::of(&self.entries.first()?.1);
        let mut sorted = vec![(0, nowhere); before];
        for (id, entry) in self.those_apart(apart) {
            let (word, bit) = word_of(id);
            let below = (bits[word] & (bit - 1)).count_ones() as usize;
            sorted[ranks[word] + below] = (id, entry);
        }
        Some(sorted)
    }

    /// The entries that are apart, in the order given, with their ids.
    fn those_apart(&self, apart: &[bool]) -> impl Iterator<Item = (u64, EntryPtr)> {
        let entries = self.entries.iter().zip(apart);
        entries
            .filter(|(_, apart)| **apart)
            .map(|((id, entry), _)| (*id, EntryPtr::of(entry)))
    }
}

impl Extend<(Region, Provenance)> for BulkLoad {
    fn extend<I: IntoIterator<Item = (Region, Provenance)>>(&mut self, regions: I) {
        let regions = regions.into_iter();
        self.entries.reserve(regions.size_hint().0);
        regions.for_each(|(region, provenance)| self.put(region, provenance));
    }
}

impl FromIterator<(Region, Provenance)> for BulkLoad {
    fn from_iter<I: IntoIterator<Item = (Region, Provenance)>>(regions: I) -> Self {
        let mut load = Self::new();
        load.extend(regions);
        load
    }
}

impl RegionMap {
    /// A map of the given entries: once in the order of their starts, none of
    /// which overlaps another, once in that of their ids, no two of which are the
    /// same, and the bytes that they take. The caller's count of each becomes the map's.
    fn of_sorted(
        by_start: &[EntryPtr],
        by_id: impl Iterator<Item = (u64, EntryPtr)>,
        entry_bytes: usize,
        generation: u64,
    ) -> Self {
        let empty = Root::empty(generation);
        let tag = empty.next_tag();
        let root = Root {
            version: tag.0,
            tree: Tree::build(by_start, tag, &mut tree::Means::new()),
            ids: IdIndex::build(by_id, tag, &mut id_index::Means::new()),
            entry_bytes,
            ..empty
        };
        Self {
            root: AtomicPtr::new(Box::into_raw(Box::new(root))),
            recycling: Arc::default(),
        }
    }
}
