//! The map's sequential model: what [`RegionMap`](crate::RegionMap) must answer,
//! in the simplest code that is right.
//!
//! Property tests, loom models and fuzz targets apply the same changes here and
//! to the map and compare. The rules of admission are shared, since a rule has
//! one home; how the entries are stored, found and displaced is not.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::entry::{Entry, SharedEntry};
use crate::key::Key;
use crate::map::admission::{admit_expected, admit_over_other_id, admit_over_same_id};
use crate::map::batch::{Batch, Change, Expect};
use crate::map::outcome::{Outcome, Refusal, RefusalReason};
use crate::provenance::Provenance;
use crate::range::KeyRange;
use crate::region::Region;

/// A map of regions for one thread, on `BTreeMap`s.
#[derive(Clone, Debug, Default)]
pub struct SequentialMap {
    by_start: BTreeMap<Key, SharedEntry>,
    by_id: BTreeMap<u64, SharedEntry>,
}

impl SequentialMap {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies one change.
    pub fn put(&mut self, region: Region, provenance: Provenance) -> Outcome {
        self.put_entry(
            &SharedEntry::new(Entry::new(region, provenance)),
            &Expect::Any,
        )
    }

    /// Applies all changes of a batch in order. The entries are shared with
    /// whatever else the batch is applied to.
    pub fn apply(&mut self, batch: &Batch) -> Vec<Outcome> {
        let apply = |change: &Change| match change {
            Change::Put { entry, expect } => self.put_entry(entry, expect),
            Change::Remove { id, expect } => self.remove(*id, expect),
        };
        batch.changes().iter().map(apply).collect()
    }

    /// How many regions are live.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Whether no region is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// The region that holds `key`.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&SharedEntry> {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let (_, entry) = self.by_start.range::<[u8], _>(up_to).next_back()?;
        entry.region().range().contains(key).then_some(entry)
    }

    /// The left neighbour of the region that holds `key`, if no hole lies
    /// between the two.
    #[must_use]
    pub fn prev(&self, key: &[u8]) -> Option<&SharedEntry> {
        let current = self.get(key)?;
        let before = (
            Bound::Unbounded,
            Bound::Excluded(current.start().as_bytes()),
        );
        let (_, left) = self.by_start.range::<[u8], _>(before).next_back()?;
        left.region()
            .range()
            .is_followed_by(current.region().range())
            .then_some(left)
    }

    /// The region with this id.
    #[must_use]
    pub fn by_id(&self, id: u64) -> Option<&SharedEntry> {
        self.by_id.get(&id)
    }

    /// The region that holds `start`, and all that start after it and before
    /// `end` (empty: plus infinity), in order.
    #[must_use]
    pub fn scan(&self, start: &[u8], end: &[u8]) -> Vec<&SharedEntry> {
        self.by_start
            .values()
            .filter(|entry| entry.region().range().ends_after(start))
            .filter(|entry| end.is_empty() || entry.start().as_bytes() < end)
            .collect()
    }

    /// All regions that overlap `range`, in order.
    #[must_use]
    pub fn overlaps(&self, range: &KeyRange) -> Vec<&SharedEntry> {
        let overlaps = |entry: &&SharedEntry| entry.region().range().overlaps(range);
        self.by_start.values().filter(overlaps).collect()
    }

    /// All regions in order.
    pub fn iter(&self) -> impl Iterator<Item = &SharedEntry> {
        self.by_start.values()
    }

    fn put_entry(&mut self, newcomer: &SharedEntry, expect: &Expect) -> Outcome {
        let range = newcomer.region().range();
        let others: Vec<SharedEntry> = self
            .overlaps(range)
            .into_iter()
            .filter(|entry| entry.id() != newcomer.id())
            .cloned()
            .collect();
        if let Err(refusal) = self.admit(newcomer, &others, expect) {
            return Outcome::Refused(refusal);
        }

        let known = self.take(newcomer.id());
        for other in &others {
            self.take(other.id());
            other.word().supersede();
        }
        self.by_start
            .insert(newcomer.start().clone(), SharedEntry::clone(newcomer));
        self.by_id
            .insert(newcomer.id(), SharedEntry::clone(newcomer));

        let Some(known) = known else {
            return Outcome::Inserted {
                displaced: others.len(),
            };
        };
        if known.word().supersede() && known.hands_pin_to(newcomer) {
            let _ = newcomer.word().inherit_pin();
        }
        if known.region().range() == range {
            Outcome::Replaced
        } else {
            Outcome::Inserted {
                displaced: others.len() + 1,
            }
        }
    }

    fn admit(
        &self,
        newcomer: &Entry,
        others: &[SharedEntry],
        expect: &Expect,
    ) -> Result<(), Refusal> {
        let live = |id| self.by_id(id).map(AsRef::as_ref);
        admit_expected(expect, newcomer.id(), live)?;
        if let Some(known) = live(newcomer.id()) {
            admit_over_same_id(newcomer, known)?;
        }
        others
            .iter()
            .try_for_each(|other| admit_over_other_id(newcomer, other))
    }

    fn remove(&mut self, id: u64, expect: &Expect) -> Outcome {
        let live = |id| self.by_id(id).map(AsRef::as_ref);
        if let Err(refusal) = admit_expected(expect, id, live) {
            return Outcome::Refused(refusal);
        }
        match self.take(id) {
            Some(entry) => {
                entry.word().supersede();
                Outcome::Removed
            }
            None => Outcome::Refused(Refusal {
                reason: RefusalReason::UnknownId,
                lost_to: None,
            }),
        }
    }

    fn take(&mut self, id: u64) -> Option<SharedEntry> {
        let entry = self.by_id.remove(&id)?;
        self.by_start.remove(entry.start());
        Some(entry)
    }
}
