//! Regions that cover the whole key space, and queries for them.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tidegate_core::{Key, KeyRange, Peer, PeerRole, Region, RegionEpoch};

use crate::contender::Split;
use crate::row_key::{RowKey, row_key};

/// Regions of one table: a cut of 96 MiB at about a kilobyte a row.
const REGIONS_PER_TABLE: usize = 100;
const ROWS_PER_REGION: u64 = 100_000;
const FIRST_TABLE: u64 = 45;
const FIRST_ID: u64 = 1_000;
const STORES: u64 = 12;

/// A number of regions, without a hole between the empty key and the end of the key space.
#[derive(Debug)]
pub struct Fixture {
    ids: Vec<u64>,
}

impl Fixture {
    /// `count` regions, whose ids are in no relation to the order of their keys.
    ///
    /// # Panics
    /// If `count` is 0.
    #[must_use]
    pub fn new(count: usize) -> Self {
        assert!(count > 0, "a fixture has at least one region");
        let mut ids: Vec<u64> = (0..count as u64).map(|n| FIRST_ID + 4 * n).collect();
        ids.shuffle(&mut seeded(count as u64));
        Self { ids }
    }

    /// Number of regions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Always `false`; beside [`Self::len`] because callers expect it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Id of the region at `index` in key order.
    #[must_use]
    pub fn id(&self, index: usize) -> u64 {
        self.ids[index]
    }

    /// The region at `index` in key order, as it is after `change` changes of leader and epoch.
    ///
    /// # Panics
    /// If `index` is not below [`Self::len`].
    #[must_use]
    pub fn region(&self, index: usize, change: u64) -> Region {
        let id = self.ids[index];
        let peers = [1, 2, 3].map(|nth| Peer {
            id: id + nth,
            store_id: 1 + (id / 4 + nth) % STORES,
            role: PeerRole::Voter,
            is_witness: false,
        });
        let range = KeyRange::new(self.boundary(index), self.boundary(index + 1))
            .expect("boundaries ascend");
        let epoch = RegionEpoch {
            conf_ver: 5 + change,
            version: 60,
        };
        Region::builder(id, range, epoch)
            .peers(peers)
            .leader(Some(peers[(change % 3) as usize]))
            .build()
            .expect("ids begin above 0")
    }

    /// The region at `index` split in two, and merged again under epochs that are above those of all
    /// [`region`](Self::region)s and of lower `change`s.
    ///
    /// # Panics
    /// If `index` is not below [`Self::len`].
    #[must_use]
    pub fn split(&self, index: usize, change: u64) -> Split {
        const ABOVE_ALL: u64 = 1 << 30;
        let whole = self.region(index, ABOVE_ALL);
        let (table, handle) = self.start(index);
        let middle = Key::from(&row_key(table, handle + ROWS_PER_REGION / 2)[..]);
        let part = |id, start: &Key, end: &Key, change| {
            let range = KeyRange::new(start.clone(), end.clone()).expect("a middle is in between");
            let epoch = RegionEpoch {
                version: whole.epoch().version + change,
                ..whole.epoch()
            };
            Region::builder(id, range, epoch)
                .peers(whole.peers())
                .leader(whole.leader())
                .build()
                .expect("ids begin above 0")
        };
        let (start, end) = (whole.start(), whole.end());
        Split {
            left: part(whole.id(), start, &middle, 2 * change - 1),
            // Regions' ids are four apart.
            right: part(whole.id() + 2, &middle, end, 2 * change - 1),
            whole: part(whole.id(), start, end, 2 * change),
        }
    }

    /// Every region, in key order.
    #[must_use]
    pub fn sorted(&self) -> Vec<Region> {
        (0..self.len()).map(|index| self.region(index, 0)).collect()
    }

    /// Every region, in the order of a shuffle that `seed` determines.
    #[must_use]
    pub fn shuffled(&self, seed: u64) -> Vec<Region> {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.shuffle(&mut seeded(seed));
        order
            .into_iter()
            .map(|index| self.region(index, 0))
            .collect()
    }

    /// `count` keys, each somewhere in a region drawn at random.
    #[must_use]
    pub fn queries(&self, count: usize, seed: u64) -> Vec<RowKey> {
        let mut random = seeded(seed);
        let mut key = || {
            let (table, handle) = self.start(random.random_range(0..self.len()));
            row_key(table, handle + random.random_range(0..ROWS_PER_REGION))
        };
        (0..count).map(|_| key()).collect()
    }

    /// `count` indices of regions, drawn at random.
    #[must_use]
    pub fn picks(&self, count: usize, seed: u64) -> Vec<usize> {
        let mut random = seeded(seed);
        (0..count)
            .map(|_| random.random_range(0..self.len()))
            .collect()
    }

    fn boundary(&self, index: usize) -> Key {
        if index == 0 || index == self.len() {
            return Key::EMPTY;
        }
        let (table, handle) = self.start(index);
        Key::from(&row_key(table, handle)[..])
    }

    fn start(&self, index: usize) -> (u64, u64) {
        let table = FIRST_TABLE + 2 * (index / REGIONS_PER_TABLE) as u64;
        (table, (index % REGIONS_PER_TABLE) as u64 * ROWS_PER_REGION)
    }
}

fn seeded(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_cover_the_key_space_without_holes() {
        let regions = Fixture::new(250).sorted();
        assert!(regions[0].start().is_empty());
        assert!(regions[249].end().is_empty());
        for pair in regions.windows(2) {
            assert_eq!(pair[0].end(), pair[1].start());
        }
    }

    #[test]
    fn a_shuffle_keeps_every_region_and_ids_are_unique() {
        let fixture = Fixture::new(250);
        let mut ids: Vec<u64> = fixture.shuffled(1).iter().map(Region::id).collect();
        assert!(!ids.is_sorted());
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 250);
    }

    #[test]
    fn a_change_alters_leader_and_epoch_only() {
        let fixture = Fixture::new(3);
        let (before, after) = (fixture.region(1, 0), fixture.region(1, 1));
        assert_eq!((before.id(), before.range()), (after.id(), after.range()));
        assert!(before.epoch().conf_ver < after.epoch().conf_ver);
        assert_ne!(
            before.leader().map(|peer| peer.id),
            after.leader().map(|peer| peer.id)
        );
    }
}
