//! A `HashMap` by id behind a lock: the rival where only ids are asked for.

use std::collections::HashMap;
use std::sync::RwLock;

use tidegate_core::Region;

use super::digest;

/// `RwLock<HashMap<id, region>>`.
#[derive(Debug)]
pub struct LockedHashMap {
    by_id: RwLock<HashMap<u64, Box<Region>>>,
}

impl LockedHashMap {
    /// Name in the table.
    pub const NAME: &'static str = "rwlock_hashmap_std";

    /// Loads regions with ids of their own.
    #[must_use]
    pub fn load(regions: Vec<Region>) -> Self {
        let by_id = regions
            .into_iter()
            .map(|region| (region.id(), Box::new(region)))
            .collect();
        Self {
            by_id: RwLock::new(by_id),
        }
    }

    /// Digest of the region with `id`; 0 without one.
    ///
    /// # Panics
    /// If a holder of the lock panicked.
    #[must_use]
    pub fn by_id(&self, id: u64) -> u64 {
        self.by_id
            .read()
            .expect("no holder panics")
            .get(&id)
            .map_or(0, |region| digest(region))
    }
}
