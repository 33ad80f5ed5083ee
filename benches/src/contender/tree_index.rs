//! `scc::TreeIndex`: a B+tree with lock-free reads.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use scc::{Comparable, Equivalent, Guard, TreeIndex};
use tidegate_core::{Key, Region};

use super::ids::Ids;
use super::{Contender, Gone, digest, reaches};
use crate::row_key::RowKey;

/// A key to search for: the index takes no unsized ones.
struct Asked<'a>(&'a [u8]);

impl Equivalent<Key> for Asked<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self.0 == key[..]
    }
}

impl Comparable<Key> for Asked<'_> {
    fn compare(&self, key: &Key) -> Ordering {
        self.0.cmp(&key[..])
    }
}

/// `TreeIndex` by start key.
pub struct Tree {
    by_start: TreeIndex<Key, Arc<Region>>,
    ids: Ids,
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").finish_non_exhaustive()
    }
}

impl Contender for Tree {
    const NAME: &'static str = "tree_index";

    fn load(regions: Vec<Region>) -> Self {
        let ids = Ids::of(&regions);
        let by_start = TreeIndex::new();
        for region in regions {
            // Start keys are unique, so that nothing is turned away.
            let _ = by_start.insert_sync(region.start().clone(), Arc::new(region));
        }
        Self { by_start, ids }
    }

    fn get(&self, key: &RowKey) -> u64 {
        let guard = Guard::new();
        let below = self.by_start.range(..=Asked(key), &guard).next_back();
        below
            .filter(|(_, region)| reaches(region, key))
            .map_or(0, |(_, region)| digest(region))
    }

    fn scan(&self, key: &RowKey, limit: usize) -> u64 {
        let guard = Guard::new();
        let below = self.by_start.range(..=Asked(key), &guard).next_back();
        let first = below.map_or(&key[..], |(start, _)| &start[..]);
        self.by_start
            .range(Asked(first).., &guard)
            .take(limit)
            .fold(0, |sum, (_, region)| sum.wrapping_add(digest(region)))
    }

    fn update(&self, region: Region) {
        self.by_start
            .upsert_sync(region.start().clone(), Arc::new(region));
    }

    // The right half first, so that there is no hole, but an overlap for a while.
    fn split(&self, left: Region, right: Region) {
        self.ids.insert(&right);
        self.update(right);
        self.update(left);
    }

    fn merge(&self, whole: Region, gone: Gone) {
        self.update(whole);
        self.by_start.remove_sync(&gone.start);
        self.ids.remove(gone.id);
    }
}
