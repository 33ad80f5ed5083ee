//! The index by id that a rival keeps beside its map, which has none.

use std::collections::HashMap;
use std::sync::Mutex;

use tidegate_core::{Key, Region};

/// Start keys by id. Not touched by an update of the same range, and of one moment with the map
/// beside it only for those that read nothing but one of the two.
#[derive(Debug, Default)]
pub(super) struct Ids(Mutex<HashMap<u64, Key>>);

impl Ids {
    /// The index of `regions`.
    #[must_use]
    pub(super) fn of(regions: &[Region]) -> Self {
        let ids = regions.iter();
        let ids = ids.map(|region| (region.id(), region.start().clone()));
        Self(Mutex::new(ids.collect()))
    }

    /// Adds a region.
    ///
    /// # Panics
    /// If a holder of the lock panicked.
    pub(super) fn insert(&self, region: &Region) {
        let mut ids = self.0.lock().expect("no holder panics");
        ids.insert(region.id(), region.start().clone());
    }

    /// Removes a region.
    ///
    /// # Panics
    /// If a holder of the lock panicked.
    pub(super) fn remove(&self, id: u64) {
        self.0.lock().expect("no holder panics").remove(&id);
    }
}
