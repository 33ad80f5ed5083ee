//! The leader's map as it was: the present, with the latest changes taken back one by one.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use tidegate_core::{Key, KeyRange, Region};

use super::ledger::{Change, Ledger};

/// A view of the leader's map before some of its latest changes. With none undone it is the present.
///
/// A walk undoes only the changes that touch what it asks about, so elsewhere the view mixes times:
/// [`Self::containing`] and [`Self::is_hole`] are right for keys whose every change was undone, and
/// look past anything else. [`Self::previous`] needs all changes undone.
#[derive(Debug)]
pub(super) struct Past<'l> {
    ledger: &'l Ledger,
    // `None` hides what the present holds at this start or under this id.
    by_start: BTreeMap<Key, Option<Arc<Region>>>,
    by_id: HashMap<u64, Option<Arc<Region>>>,
}

impl<'l> Past<'l> {
    pub(super) fn present(ledger: &'l Ledger) -> Self {
        Self {
            ledger,
            by_start: BTreeMap::new(),
            by_id: HashMap::new(),
        }
    }

    /// Takes `change` back. Changes are undone from the latest to the earliest.
    pub(super) fn undo(&mut self, change: &Change) {
        self.by_start.insert(change.added.start().clone(), None);
        self.by_id.insert(change.added.id(), None);
        for old in &change.removed {
            self.by_start
                .insert(old.start().clone(), Some(Arc::clone(old)));
            self.by_id.insert(old.id(), Some(Arc::clone(old)));
        }
    }

    pub(super) fn containing(&self, key: &[u8]) -> Option<&Region> {
        let present = self
            .ledger
            .containing(key)
            .filter(|region| !self.by_start.contains_key(region.start()));
        present
            .or_else(|| self.overlaid().find(|region| region.range().contains(key)))
            .map(Arc::as_ref)
    }

    /// PD's previous region: the one that ends where the key's own region starts.
    pub(super) fn previous(&self, key: &[u8]) -> Option<&Region> {
        let own = self.containing(key)?;
        let present = self
            .ledger
            .by_start
            .range::<[u8], _>((Unbounded, Excluded(own.start().as_bytes())))
            .rev();
        let present = present
            .map(|(_, region)| region)
            .find(|region| !self.by_start.contains_key(region.start()));
        present
            .into_iter()
            .chain(self.overlaid())
            .map(Arc::as_ref)
            .find(|region| region.range().is_followed_by(own.range()))
    }

    pub(super) fn by_id(&self, id: u64) -> Option<&Region> {
        match self.by_id.get(&id) {
            Some(overlaid) => overlaid.as_deref(),
            None => self.ledger.by_id(id).map(Arc::as_ref),
        }
    }

    /// Whether no region covers any key of `range`.
    pub(super) fn is_hole(&self, range: &KeyRange) -> bool {
        self.ledger
            .overlapping(range)
            .all(|region| self.by_start.contains_key(region.start()))
            && !self.overlaid().any(|region| region.range().overlaps(range))
    }

    fn overlaid(&self) -> impl Iterator<Item = &Arc<Region>> {
        self.by_start.values().filter_map(Option::as_ref)
    }
}
