//! The leader: everything that it ever held and recorded.

use std::collections::BTreeMap;

use crate::pd::Dialect;
use crate::proto::metapb::{Peer, Region, RegionEpoch};
use crate::proto::pdpb::{ResponseHeader, SyncRegionResponse};

pub(super) const CLUSTER: u64 = 7;
/// The key space: one letter a slot.
const SLOTS: u8 = 8;
/// Regions in a full frame.
pub(super) const BATCH: usize = 3;

/// A region and who leads it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Held {
    pub(super) region: Region,
    pub(super) leader: Peer,
}

/// The model of a leader.
#[derive(Debug)]
pub(super) struct Leader {
    pub(super) dialect: Dialect,
    /// The map by first slot.
    map: BTreeMap<u8, Held>,
    /// The last slot of each region, by id.
    ends: BTreeMap<u64, u8>,
    /// Records from `base` on; only those before `recorded` have an index.
    records: Vec<Held>,
    base: u64,
    recorded: usize,
    ring: usize,
    next_id: u64,
    /// The map after each change, and how many records there were by then.
    past: Vec<(usize, Vec<Held>)>,
}

impl Leader {
    pub(super) fn new(dialect: Dialect, base: u64, ring: usize) -> Self {
        let mut leader = Self {
            dialect,
            map: BTreeMap::new(),
            ends: BTreeMap::new(),
            records: Vec::new(),
            base,
            recorded: 0,
            ring,
            next_id: 3,
            past: Vec::new(),
        };
        leader.put(1, 0, SLOTS / 2, 1, 1);
        leader.put(2, SLOTS / 2, SLOTS, 1, 1);
        leader.remember();
        leader
    }

    fn put(&mut self, id: u64, start: u8, end: u8, version: u64, store: u64) -> Held {
        let key = |slot: u8| match slot {
            0 | SLOTS => Vec::new(),
            slot => vec![b'a' + slot],
        };
        let peer = |store| Peer {
            id: id * 10 + store,
            store_id: store,
            ..Peer::default()
        };
        let held = Held {
            region: Region {
                id,
                start_key: key(start).into(),
                end_key: key(end).into(),
                region_epoch: Some(RegionEpoch {
                    conf_ver: 2,
                    version,
                }),
                peers: (1..=3).map(peer).collect(),
                ..Region::default()
            },
            leader: peer(store),
        };
        self.map.insert(start, held.clone());
        self.ends.insert(id, end);
        held
    }

    fn remember(&mut self) {
        let map = self.map.values().cloned().collect();
        self.past.push((self.records.len(), map));
    }

    /// A leader move, a split or a merge.
    pub(super) fn change(&mut self, choice: u8) {
        let starts: Vec<u8> = self.map.keys().copied().collect();
        let start = starts[usize::from(choice >> 2) % starts.len()];
        let held = self.map[&start].clone();
        let id = held.region.id;
        let end = self.ends[&id];
        let version = held.region.region_epoch.map_or(1, |epoch| epoch.version);
        let store = held.leader.store_id;
        match choice % 4 {
            0 | 1 => {
                let moved = self.put(id, start, end, version, store % 3 + 1);
                self.records.push(moved);
            }
            2 if end - start >= 2 => {
                let middle = start + (end - start) / 2;
                let new = self.next_id;
                self.next_id += 1;
                let left = self.put(id, start, middle, version + 1, store);
                let right = self.put(new, middle, end, version + 1, store);
                self.records.extend([left, right]);
            }
            _ => {
                let Some(next) = self.map.get(&end).cloned() else {
                    return;
                };
                let other = next.region.region_epoch.map_or(1, |epoch| epoch.version);
                let wide = self.ends.remove(&next.region.id).unwrap_or(SLOTS);
                self.map.remove(&end);
                let merged = self.put(id, start, wide, version.max(other) + 1, store);
                self.records.push(merged);
            }
        }
        if self.dialect == Dialect::Master {
            self.recorded = self.records.len();
        }
        self.remember();
    }

    /// Release 8.5's broadcaster takes some of what waits.
    pub(super) fn record_some(&mut self, most: usize) {
        self.recorded = self.recorded.saturating_add(most).min(self.records.len());
    }

    pub(super) fn head(&self) -> u64 {
        self.base + self.recorded as u64
    }

    fn first(&self) -> u64 {
        self.base + self.recorded.saturating_sub(self.ring) as u64
    }

    pub(super) fn everything_is_recorded(&self) -> bool {
        self.recorded == self.records.len()
    }

    /// Records from an index on, at most `most`; `None` when the ring does not hold them all.
    pub(super) fn records(&self, from: u64, most: usize) -> Option<&[Held]> {
        if from < self.first() || from > self.head() {
            return None;
        }
        let at = usize::try_from(from - self.base).ok()?;
        Some(&self.records[at..self.recorded.min(at.saturating_add(most))])
    }

    /// The map, in no order of keys.
    pub(super) fn copy(&self) -> Vec<Held> {
        let mut copy: Vec<Held> = self.map.values().cloned().collect();
        copy.sort_by_key(|held| held.region.id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        copy
    }

    /// At most `limit` regions from a key on.
    pub(super) fn scan(&self, start: &[u8], limit: usize) -> Vec<Held> {
        self.map
            .values()
            .filter(|held| held.region.end_key.is_empty() || held.region.end_key.as_ref() > start)
            .take(limit)
            .cloned()
            .collect()
    }

    pub(super) fn map(&self) -> Vec<Held> {
        self.map.values().cloned().collect()
    }

    /// Whether the map has held this at any time since the records before `index` were made.
    pub(super) fn held_since(&self, index: u64, held: &Held) -> bool {
        let made = usize::try_from(index.saturating_sub(self.base)).unwrap_or(usize::MAX);
        let superseded = |at: usize| {
            self.past
                .get(at + 1)
                .is_some_and(|(records, _)| *records <= made)
        };
        self.past
            .iter()
            .enumerate()
            .rev()
            .any(|(at, (_, map))| !superseded(at) && map.contains(held))
    }
}

pub(super) fn frame(start_index: u64, held: &[Held]) -> SyncRegionResponse {
    SyncRegionResponse {
        header: Some(ResponseHeader {
            cluster_id: CLUSTER,
            error: None,
        }),
        start_index,
        regions: held.iter().map(|held| held.region.clone()).collect(),
        region_leaders: held.iter().map(|held| held.leader).collect(),
        ..SyncRegionResponse::default()
    }
}
