//! A `BTreeMap` behind a reader-writer lock: what one writes first.
//!
//! It is given every advantage that a lock allows: keys inline, updates in place without an
//! allocation, the index by id untouched by an update.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use tidegate_core::{Key, Region};

use super::{Contender, Gone, digest, reaches};
use crate::row_key::RowKey;

/// A `BTreeMap` by start key and a `HashMap` from id to start key.
#[derive(Debug, Default)]
pub struct Plain {
    by_start: BTreeMap<Key, Box<Region>>,
    by_id: HashMap<u64, Key>,
}

impl Plain {
    /// Inserts a region that overlaps none.
    pub fn insert(&mut self, region: Region) {
        self.by_id.insert(region.id(), region.start().clone());
        self.by_start
            .insert(region.start().clone(), Box::new(region));
    }

    /// Number of regions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    fn get(&self, key: &[u8]) -> Option<&Region> {
        let below = (Bound::Unbounded, Bound::Included(key));
        let (_, region) = self.by_start.range::<[u8], _>(below).next_back()?;
        reaches(region, key).then_some(&**region)
    }

    fn scan(&self, key: &[u8], limit: usize) -> u64 {
        let first = self.get(key).map_or(key, |region| &region.start()[..]);
        let from = (Bound::Included(first), Bound::Unbounded);
        self.by_start
            .range::<[u8], _>(from)
            .take(limit)
            .fold(0, |sum, (_, region)| sum.wrapping_add(digest(region)))
    }

    fn update(&mut self, region: Region) {
        let old = self.by_start.get_mut::<[u8]>(region.start());
        if let Some(old) = old.filter(|old| old.id() == region.id() && old.end() == region.end()) {
            **old = region;
        }
    }

    fn split(&mut self, left: Region, right: Region) {
        let whole = self.by_start.get_mut::<[u8]>(left.start());
        if let Some(whole) = whole.filter(|whole| whole.id() == left.id()) {
            **whole = left;
            self.insert(right);
        }
    }

    fn merge(&mut self, whole: Region, gone: &Gone) {
        self.by_start.remove(&gone.start);
        self.by_id.remove(&gone.id);
        let left = self.by_start.get_mut::<[u8]>(whole.start());
        if let Some(left) = left.filter(|left| left.id() == whole.id()) {
            **left = whole;
        }
    }
}

/// A reader-writer lock around [`Plain`].
pub trait Lock: Send + Sync {
    /// Name in the table.
    const NAME: &'static str;
    /// The lock, around `plain`.
    fn around(plain: Plain) -> Self;
    /// Reads under the shared lock.
    fn read<R>(&self, with: impl FnOnce(&Plain) -> R) -> R;
    /// Writes under the exclusive lock.
    fn write<R>(&self, with: impl FnOnce(&mut Plain) -> R) -> R;
}

/// The standard library's lock.
#[derive(Debug)]
pub struct Std(std::sync::RwLock<Plain>);

impl Lock for Std {
    const NAME: &'static str = "rwlock_btreemap_std";

    fn around(plain: Plain) -> Self {
        Self(std::sync::RwLock::new(plain))
    }

    fn read<R>(&self, with: impl FnOnce(&Plain) -> R) -> R {
        with(&self.0.read().expect("no holder panics"))
    }

    fn write<R>(&self, with: impl FnOnce(&mut Plain) -> R) -> R {
        with(&mut self.0.write().expect("no holder panics"))
    }
}

/// `parking_lot`'s lock.
#[derive(Debug)]
pub struct ParkingLot(parking_lot::RwLock<Plain>);

impl Lock for ParkingLot {
    const NAME: &'static str = "rwlock_btreemap_parking_lot";

    fn around(plain: Plain) -> Self {
        Self(parking_lot::RwLock::new(plain))
    }

    fn read<R>(&self, with: impl FnOnce(&Plain) -> R) -> R {
        with(&self.0.read())
    }

    fn write<R>(&self, with: impl FnOnce(&mut Plain) -> R) -> R {
        with(&mut self.0.write())
    }
}

/// [`Plain`] behind the lock `L`.
#[derive(Debug)]
pub struct Locked<L> {
    lock: L,
}

#[cfg(test)]
impl<L: Lock> Locked<L> {
    /// Regions by key and by id.
    pub(super) fn len(&self) -> (usize, usize) {
        let len = |plain: &Plain| (plain.by_start.len(), plain.by_id.len());
        self.lock.read(len)
    }
}

impl<L: Lock> Contender for Locked<L> {
    const NAME: &'static str = L::NAME;

    fn load(regions: Vec<Region>) -> Self {
        let mut plain = Plain::default();
        for region in regions {
            plain.insert(region);
        }
        Self {
            lock: L::around(plain),
        }
    }

    fn get(&self, key: &RowKey) -> u64 {
        self.lock.read(|plain| plain.get(key).map_or(0, digest))
    }

    fn scan(&self, key: &RowKey, limit: usize) -> u64 {
        self.lock.read(|plain| plain.scan(key, limit))
    }

    fn update(&self, region: Region) {
        self.lock.write(|plain| plain.update(region));
    }

    fn split(&self, left: Region, right: Region) {
        self.lock.write(|plain| plain.split(left, right));
    }

    fn merge(&self, whole: Region, gone: Gone) {
        self.lock.write(|plain| plain.merge(whole, &gone));
    }
}
