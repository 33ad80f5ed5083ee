//! `concurrent-map`: a lock-free B+tree whose handles belong to one thread each.

use std::fmt;
use std::sync::{Arc, Mutex};

use concurrent_map::{ConcurrentMap, Minimum};
use tidegate_core::{Key, Region};

use super::ids::Ids;
use super::{Gone, Runs, Split, digest, interleave, reaches};
use crate::row_key::RowKey;

/// A key with the minimum that the map asks for.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Start(Key);

impl Minimum for Start {
    const MIN: Self = Self(Key::EMPTY);
}

impl std::borrow::Borrow<[u8]> for Start {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

type Handle = ConcurrentMap<Start, Arc<Region>>;

/// `ConcurrentMap` by start key. A run of operations takes a handle of its own once.
pub struct Handles {
    by_start: Mutex<Handle>,
    ids: Ids,
}

impl Handles {
    /// Name in the table.
    pub const NAME: &'static str = "concurrent_map";

    /// Loads disjoint regions, in the order they come in.
    #[must_use]
    pub fn load(regions: Vec<Region>) -> Self {
        let ids = Ids::of(&regions);
        let by_start = Handle::default();
        for region in regions {
            by_start.insert(Start(region.start().clone()), Arc::new(region));
        }
        Self {
            by_start: Mutex::new(by_start),
            ids,
        }
    }

    fn handle(&self) -> Handle {
        self.by_start.lock().expect("no holder panics").clone()
    }
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handles").finish_non_exhaustive()
    }
}

impl Runs for Handles {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn gets(&self, keys: &[RowKey]) -> u64 {
        let handle = self.handle();
        let get = |key| get(&handle, key);
        keys.iter().fold(0, |sum, key| sum.wrapping_add(get(key)))
    }

    fn scans(&self, keys: &[RowKey], limit: usize) -> u64 {
        let handle = self.handle();
        let scan = |key: &RowKey| {
            let first = handle.get_lte::<[u8]>(key);
            let first = first.as_ref().map_or(&key[..], |(start, _)| &start.0[..]);
            let regions = handle
                .range::<[u8], _>((std::ops::Bound::Included(first), std::ops::Bound::Unbounded));
            regions
                .take(limit)
                .fold(0u64, |sum, (_, region)| sum.wrapping_add(digest(&region)))
        };
        keys.iter().fold(0, |sum, key| sum.wrapping_add(scan(key)))
    }

    fn updates(&self, regions: Vec<Region>) {
        let handle = self.handle();
        for region in regions {
            update(&handle, region);
        }
    }

    // The right half first, so that there is no hole, but an overlap for a while.
    fn splits(&self, splits: Vec<Split>) {
        let handle = self.handle();
        for Split { left, right, whole } in splits {
            let gone = Gone::of(&right);
            self.ids.insert(&right);
            update(&handle, right);
            update(&handle, left);
            update(&handle, whole);
            handle.remove(&Start(gone.start));
            self.ids.remove(gone.id);
        }
    }

    fn mixed(&self, keys: &[RowKey], regions: Vec<Region>) -> u64 {
        let handle = self.handle();
        let update = |region| update(&handle, region);
        interleave(keys, regions, |key| get(&handle, key), update)
    }
}

fn get(handle: &Handle, key: &RowKey) -> u64 {
    match handle.get_lte::<[u8]>(key) {
        Some((_, region)) if reaches(&region, key) => digest(&region),
        _ => 0,
    }
}

fn update(handle: &Handle, region: Region) {
    handle.insert(Start(region.start().clone()), Arc::new(region));
}
