//! `imbl::OrdMap` in an `ArcSwap`: a persistent map, published by its root.

use std::ops::Bound;
use std::sync::Arc;

use arc_swap::ArcSwap;
use imbl::OrdMap;
use tidegate_core::{Key, Region};

use super::ids::Ids;
use super::{Contender, Gone, digest, reaches};
use crate::row_key::RowKey;

/// `ArcSwap<OrdMap>` by start key.
#[derive(Debug)]
pub struct Persistent {
    by_start: ArcSwap<OrdMap<Key, Arc<Region>>>,
    ids: Ids,
}

impl Contender for Persistent {
    const NAME: &'static str = "imbl";

    fn load(regions: Vec<Region>) -> Self {
        let ids = Ids::of(&regions);
        let mut by_start = OrdMap::new();
        for region in regions {
            by_start.insert(region.start().clone(), Arc::new(region));
        }
        Self {
            by_start: ArcSwap::from_pointee(by_start),
            ids,
        }
    }

    fn get(&self, key: &RowKey) -> u64 {
        match self.by_start.load().get_prev::<[u8]>(key) {
            Some((_, region)) if reaches(region, key) => digest(region),
            _ => 0,
        }
    }

    fn scan(&self, key: &RowKey, limit: usize) -> u64 {
        let by_start = self.by_start.load();
        let first = by_start
            .get_prev::<[u8]>(key)
            .map_or(&key[..], |(start, _)| &start[..]);
        by_start
            .range::<_, [u8]>((Bound::Included(first), Bound::Unbounded))
            .take(limit)
            .fold(0, |sum, (_, region)| sum.wrapping_add(digest(region)))
    }

    fn update(&self, region: Region) {
        let (start, region) = (region.start().clone(), Arc::new(region));
        self.by_start.rcu(|old| {
            let mut new = OrdMap::clone(old);
            new.insert(start.clone(), Arc::clone(&region));
            new
        });
    }

    // At once by key, but not together with the index by id.
    fn split(&self, left: Region, right: Region) {
        self.ids.insert(&right);
        let (left, right) = (Arc::new(left), Arc::new(right));
        self.by_start.rcu(|old| {
            let mut new = OrdMap::clone(old);
            new.insert(left.start().clone(), Arc::clone(&left));
            new.insert(right.start().clone(), Arc::clone(&right));
            new
        });
    }

    fn merge(&self, whole: Region, gone: Gone) {
        let whole = Arc::new(whole);
        self.by_start.rcu(|old| {
            let mut new = OrdMap::clone(old);
            new.insert(whole.start().clone(), Arc::clone(&whole));
            new.remove(&gone.start);
            new
        });
        self.ids.remove(gone.id);
    }
}
