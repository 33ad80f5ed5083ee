//! Changes that become visible together.

use crate::entry::{Entry, Maker, SharedEntry};
use crate::provenance::Provenance;
use crate::region::Region;

/// Changes that are applied in order and become visible all at once (M2).
///
/// Each change sees what the ones before it have done. A refused change changes
/// nothing and does not stop the others.
#[derive(Debug, Default)]
pub struct Batch {
    changes: Vec<Change>,
    maker: Maker,
}

/// What a change requires of the map besides the order of epochs.
#[derive(Clone, Debug)]
pub enum Expect {
    /// Nothing.
    Any,
    /// That this very entry is still the live one of its region. For an answer:
    /// the entry that was there when the question was sent, so that the answer
    /// undoes nothing that was learnt meanwhile. The answer may well be about
    /// another region (the key has moved).
    Entry(SharedEntry),
    /// That the changed region has no live entry.
    Absent,
}

#[derive(Debug)]
pub(crate) enum Change {
    Put { entry: SharedEntry, expect: Expect },
    Remove { id: u64, expect: Expect },
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for `changes` changes.
    #[must_use]
    pub fn with_capacity(changes: usize) -> Self {
        Self {
            changes: Vec::with_capacity(changes),
            ..Self::default()
        }
    }

    /// Adds: put `region` in the place of everything that it overlaps, unless
    /// that is newer (M3).
    pub fn put(&mut self, region: Region, provenance: Provenance) {
        self.put_if(region, provenance, Expect::Any);
    }

    /// Adds: the same, if the map holds what is expected.
    pub fn put_if(&mut self, region: Region, provenance: Provenance, expect: Expect) {
        self.put_entry(Entry::new(region, provenance), expect);
    }

    /// Adds: put an entry whose state is not that of a new one (it has a deadline,
    /// or is pinned in advance) in the place of everything that it overlaps,
    /// unless that is newer (M3), if the map holds what is expected.
    pub fn put_entry(&mut self, entry: Entry, expect: Expect) {
        let entry = SharedEntry::new_in(&mut self.maker, entry);
        self.changes.push(Change::Put { entry, expect });
    }

    /// Adds: take the region `id` out, if the map holds what is expected.
    pub fn remove(&mut self, id: u64, expect: Expect) {
        self.changes.push(Change::Remove { id, expect });
    }

    /// The entries that are to be put, in order.
    pub fn entries(&self) -> impl Iterator<Item = &SharedEntry> {
        self.changes.iter().filter_map(|change| match change {
            Change::Put { entry, .. } => Some(entry),
            Change::Remove { .. } => None,
        })
    }

    /// How many changes have been added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether nothing has been added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    #[cfg(any(test, feature = "oracle"))]
    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub(crate) fn into_changes(self) -> Vec<Change> {
        self.changes
    }
}

impl Extend<(Region, Provenance)> for Batch {
    fn extend<I: IntoIterator<Item = (Region, Provenance)>>(&mut self, regions: I) {
        let regions = regions.into_iter();
        self.changes.reserve(regions.size_hint().0);
        regions.for_each(|(region, provenance)| self.put(region, provenance));
    }
}

impl FromIterator<(Region, Provenance)> for Batch {
    fn from_iter<I: IntoIterator<Item = (Region, Provenance)>>(regions: I) -> Self {
        let mut batch = Self::new();
        batch.extend(regions);
        batch
    }
}

impl Change {
    /// The region that is changed.
    pub(crate) fn id(&self) -> u64 {
        match self {
            Self::Put { entry, .. } => entry.id(),
            Self::Remove { id, .. } => *id,
        }
    }
}
