//! The region map itself, used as a replica uses it: a guard for every operation.

use tidegate_core::{Batch, BulkLoad, Region, RegionMap};

use super::{Contender, Gone, RECEIVED, digest};
use crate::row_key::RowKey;

/// [`RegionMap`].
#[derive(Debug)]
pub struct Ours {
    map: RegionMap,
}

impl Ours {
    /// The map.
    #[must_use]
    pub const fn map(&self) -> &RegionMap {
        &self.map
    }

    /// An empty map.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            map: RegionMap::new(),
        }
    }

    /// All of `regions` in one bulk load.
    ///
    /// # Panics
    /// If the map refuses a region: the comparison would be with something that does less.
    #[must_use]
    pub fn load_at_once(regions: Vec<Region>) -> Self {
        let mut load = BulkLoad::with_capacity(regions.len());
        for region in regions {
            load.put(region, RECEIVED);
        }
        let loaded = load.finish(0);
        assert!(loaded.refused.is_empty(), "a measured change was refused");
        Self { map: loaded.map }
    }

    /// Applies one frame as a batch.
    ///
    /// # Panics
    /// If the map refuses a region: the comparison would be with something that does less.
    pub fn apply(&self, frame: Vec<Region>) {
        let mut batch = Batch::with_capacity(frame.len());
        for region in frame {
            batch.put(region, RECEIVED);
        }
        let refused = self
            .map
            .apply(batch)
            .iter()
            .any(|outcome| outcome.is_refused());
        assert!(!refused, "a measured change was refused");
    }

    /// Sum of the digests of the regions that hold `keys`, under one guard.
    #[must_use]
    pub fn get_many(&self, keys: &[RowKey]) -> u64 {
        let snapshot = self.map.pin();
        snapshot
            .get_many(keys)
            .flatten()
            .fold(0, |sum, entry| sum.wrapping_add(digest(entry.region())))
    }

    /// Digest of the region with `id`; 0 without one.
    #[must_use]
    pub fn by_id(&self, id: u64) -> u64 {
        self.map
            .pin()
            .by_id(id)
            .map_or(0, |entry| digest(entry.region()))
    }
}

impl Contender for Ours {
    const NAME: &'static str = "tidegate";

    fn load(regions: Vec<Region>) -> Self {
        let ours = Self::empty();
        let mut regions = regions.into_iter();
        loop {
            let frame: Vec<Region> = regions.by_ref().take(1_000).collect();
            if frame.is_empty() {
                return ours;
            }
            ours.apply(frame);
        }
    }

    fn get(&self, key: &RowKey) -> u64 {
        self.map
            .pin()
            .get(key)
            .map_or(0, |entry| digest(entry.region()))
    }

    fn scan(&self, key: &RowKey, limit: usize) -> u64 {
        let snapshot = self.map.pin();
        snapshot
            .scan(key, &[])
            .take(limit)
            .fold(0, |sum, entry| sum.wrapping_add(digest(entry.region())))
    }

    fn update(&self, region: Region) {
        let outcome = self.map.put(region, RECEIVED);
        assert!(!outcome.is_refused(), "a measured update was refused");
    }

    fn split(&self, left: Region, right: Region) {
        let mut batch = Batch::with_capacity(2);
        batch.put(left, RECEIVED);
        batch.put(right, RECEIVED);
        let outcomes = self.map.apply(batch);
        let refused = outcomes.iter().any(|outcome| outcome.is_refused());
        assert!(!refused, "a measured split was refused");
    }

    fn merge(&self, whole: Region, _gone: Gone) {
        self.update(whole);
    }
}
