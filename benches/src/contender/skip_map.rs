//! `crossbeam-skiplist`: lock-free, a node for each region.

use std::ops::Bound;
use std::sync::Arc;

use crossbeam_skiplist::SkipMap;
use tidegate_core::{Key, Region};

use super::ids::Ids;
use super::{Contender, Gone, digest, reaches};
use crate::row_key::RowKey;

/// `SkipMap` by start key.
#[derive(Debug)]
pub struct Skip {
    by_start: SkipMap<Key, Arc<Region>>,
    ids: Ids,
}

impl Contender for Skip {
    const NAME: &'static str = "skipmap";

    fn load(regions: Vec<Region>) -> Self {
        let ids = Ids::of(&regions);
        let by_start = SkipMap::new();
        for region in regions {
            by_start.insert(region.start().clone(), Arc::new(region));
        }
        Self { by_start, ids }
    }

    fn get(&self, key: &RowKey) -> u64 {
        match self.by_start.upper_bound::<[u8]>(Bound::Included(key)) {
            Some(entry) if reaches(entry.value(), key) => digest(entry.value()),
            _ => 0,
        }
    }

    fn scan(&self, key: &RowKey, limit: usize) -> u64 {
        let mut sum = 0u64;
        let mut next = self.by_start.upper_bound::<[u8]>(Bound::Included(key));
        for _ in 0..limit {
            let Some(entry) = next else { break };
            sum = sum.wrapping_add(digest(entry.value()));
            next = entry.next();
        }
        sum
    }

    fn update(&self, region: Region) {
        self.by_start
            .insert(region.start().clone(), Arc::new(region));
    }

    // The right half first, so that there is no hole, but an overlap for a while.
    fn split(&self, left: Region, right: Region) {
        self.ids.insert(&right);
        self.update(right);
        self.update(left);
    }

    fn merge(&self, whole: Region, gone: Gone) {
        self.update(whole);
        self.by_start.remove(&gone.start);
        self.ids.remove(gone.id);
    }
}
