//! What keeps happening to a cluster's regions: splits, merges, leader moves and peer changes.
//!
//! Each change is one region's report, as a region's leader would send it in a heartbeat. A split is
//! two reports, in either order and with other changes between them, so that for a moment there is a
//! hole where the second half will be; a merge is the report of the survivor, and takes the other's id
//! away; a leader move keeps the epoch. Epochs follow TiKV: a split gives both halves the next version,
//! a merge the larger of the two plus one, a peer change the next conf_ver.

use std::collections::VecDeque;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate_core::{Key, KeyRange, Peer, PeerRole, Region, RegionEpoch};

use super::judge::Ledger;
use super::keys::{key_at, position_of};

/// Positions that a region covers at the start.
pub const REGION_WIDTH: u64 = 1_000_000;
/// The stores that hold every region.
pub const STORES: [u64; 3] = [1, 2, 3];

/// Changes between the two halves of a split.
const SPLIT_DELAY: u64 = 3;
/// How often a place for a change is looked for before a change of another kind is made.
const TRIES: usize = 16;
const FIRST_EPOCH: RegionEpoch = RegionEpoch {
    conf_ver: 5,
    version: 10,
};
/// Ids from 1 are the stores'.
const FIRST_ID: u64 = 1_000;

/// The source of all changes. Deterministic for a seed.
#[derive(Debug)]
pub struct Churn {
    rng: SmallRng,
    next_id: u64,
    span: u64,
    made: u64,
    second_halves: VecDeque<(u64, Region)>,
}

/// The regions of a quiet cluster: `count` of equal width that cover everything.
pub fn initial_regions(count: u64) -> Vec<Region> {
    let count = count.max(1);
    let boundary = |at: u64| {
        if at == 0 || at == count {
            Key::EMPTY
        } else {
            key_at(at * REGION_WIDTH)
        }
    };
    let ids_each = STORES.len() as u64 + 1;
    (0..count)
        .filter_map(|at| {
            let id = FIRST_ID + at * ids_each;
            let range = KeyRange::new(boundary(at), boundary(at + 1)).ok()?;
            let peers = [0, 1, 2].map(|store: usize| voter(id + 1 + store as u64, STORES[store]));
            let leader = peers[(at % ids_each.saturating_sub(1)) as usize];
            Region::builder(id, range, FIRST_EPOCH)
                .peers(peers)
                .leader(Some(leader))
                .build()
                .ok()
        })
        .collect()
}

const fn voter(id: u64, store_id: u64) -> Peer {
    Peer {
        id,
        store_id,
        role: PeerRole::Voter,
        is_witness: false,
    }
}

// === impl Churn ===

impl Churn {
    /// Changes to a cluster that started with [`initial_regions`] of this count.
    pub fn new(count: u64, seed: u64) -> Self {
        let count = count.max(1);
        Self {
            rng: SmallRng::seed_from_u64(seed),
            next_id: FIRST_ID + count * (STORES.len() as u64 + 1),
            span: count * REGION_WIDTH,
            made: 0,
            second_halves: VecDeque::new(),
        }
    }

    /// The positions that hold distinct keys: `0..span`.
    pub const fn span(&self) -> u64 {
        self.span
    }

    /// The next report, given what the leader knows. None only if no region can be found.
    ///
    /// The caller reports it before it asks for the next one.
    pub fn next(&mut self, ledger: &Ledger) -> Option<Region> {
        self.made += 1;
        if self
            .second_halves
            .front()
            .is_some_and(|(due, _)| *due <= self.made)
        {
            return self.second_halves.pop_front().map(|(_, half)| half);
        }
        for _ in 0..TRIES {
            let position = self.rng.random_range(0..self.span);
            let Some(region) = ledger.containing(&key_at(position)).map(Arc::clone) else {
                continue;
            };
            let change = match self.rng.random_range(0..100) {
                0..25 => self.split(&region),
                25..50 => self.merge(&region, ledger),
                50..85 => self.move_leader(&region),
                _ => self.change_peer(&region),
            };
            if change.is_some() {
                return change;
            }
        }
        // A map of few regions may have nothing to split or to merge; a hole may be all there is.
        self.second_halves.pop_front().map(|(_, half)| half)
    }

    fn split(&mut self, region: &Region) -> Option<Region> {
        let start = if region.start().is_empty() {
            0
        } else {
            position_of(region.start())?
        };
        let end = if region.end().is_empty() {
            self.span
        } else {
            position_of(region.end())?
        };
        let middle = start + end.checked_sub(start)? / 2;
        if middle <= start {
            return None;
        }
        let epoch = RegionEpoch {
            version: region.epoch().version + 1,
            ..region.epoch()
        };
        let left = KeyRange::new(region.start().clone(), key_at(middle)).ok()?;
        let right = KeyRange::new(key_at(middle), region.end().clone()).ok()?;
        // As TiKV does by default, the new region gets the left half.
        let new_id = self.allot(1 + region.peers().len() as u64);
        let peers: Vec<Peer> = region
            .peers()
            .iter()
            .zip(new_id + 1..)
            .map(|(peer, id)| Peer { id, ..peer })
            .collect();
        let on_store = |store: u64| peers.iter().copied().find(|peer| peer.store_id == store);
        let leader = region.leader().and_then(|leader| on_store(leader.store_id));
        let new = Region::builder(new_id, left, epoch)
            .peers(peers)
            .leader(leader)
            .build()
            .ok()?;
        let rest = region.to_builder().range(right).epoch(epoch).build().ok()?;
        let (first, second) = if self.rng.random() {
            (new, rest)
        } else {
            (rest, new)
        };
        self.second_halves
            .push_back((self.made + SPLIT_DELAY, second));
        Some(first)
    }

    fn merge(&mut self, region: &Region, ledger: &Ledger) -> Option<Region> {
        let right = ledger.after(region)?;
        let range = KeyRange::new(region.start().clone(), right.end().clone()).ok()?;
        let survivor: &Region = if self.rng.random() { region } else { right };
        let version = region.epoch().version.max(right.epoch().version) + 1;
        let epoch = RegionEpoch {
            version,
            ..survivor.epoch()
        };
        survivor.to_builder().range(range).epoch(epoch).build().ok()
    }

    fn move_leader(&mut self, region: &Region) -> Option<Region> {
        let others: Vec<Peer> = region
            .peers()
            .iter()
            .filter(|peer| peer.role == PeerRole::Voter && Some(*peer) != region.leader())
            .collect();
        let leader = *others.get(self.rng.random_range(0..others.len().max(1)))?;
        region.to_builder().leader(Some(leader)).build().ok()
    }

    /// A voter is removed, comes back as a learner, and is promoted.
    fn change_peer(&mut self, region: &Region) -> Option<Region> {
        let mut peers = region.peers().to_vec();
        let missing = STORES
            .into_iter()
            .find(|store| peers.iter().all(|peer| peer.store_id != *store));
        if let Some(learner) = peers.iter_mut().find(|peer| peer.role == PeerRole::Learner) {
            learner.role = PeerRole::Voter;
        } else if let Some(store) = missing {
            peers.push(Peer {
                role: PeerRole::Learner,
                ..voter(self.allot(1), store)
            });
        } else {
            let removable = |peer: &Peer| Some(*peer) != region.leader();
            let at = peers.iter().rposition(removable)?;
            peers.remove(at);
        }
        let epoch = RegionEpoch {
            conf_ver: region.epoch().conf_ver + 1,
            ..region.epoch()
        };
        region.to_builder().peers(peers).epoch(epoch).build().ok()
    }

    fn allot(&mut self, count: u64) -> u64 {
        let first = self.next_id;
        self.next_id += count;
        first
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use tidegate_core::{Moment, Provenance, RegionMap};

    use super::*;

    fn ledger_of(regions: &[Region]) -> Ledger {
        let shared = regions.iter().cloned().map(Arc::new);
        Ledger::new(shared, Moment::from_nanos(1), Duration::from_secs(60))
    }

    #[test]
    fn a_quiet_cluster_is_covered_once() {
        let regions = initial_regions(5);
        assert_eq!(regions.len(), 5);
        assert!(regions[0].start().is_empty() && regions[4].end().is_empty());
        for pair in regions.windows(2) {
            assert!(pair[0].range().is_followed_by(pair[1].range()));
        }
        assert!(initial_regions(1)[0].range().is_all());
    }

    /// The leader's own epoch rules take every report, and the ledger agrees with its map.
    #[test]
    fn every_report_is_one_that_pd_would_take() {
        let regions = initial_regions(40);
        let mut ledger = ledger_of(&regions);
        let map = RegionMap::new();
        let received_at = Moment::from_nanos(1);
        for region in regions {
            assert!(
                !map.put(region, Provenance::Stream { received_at })
                    .is_refused()
            );
        }
        let mut churn = Churn::new(40, 7);
        let mut kinds: HashMap<&str, usize> = HashMap::new();
        for step in 0..4_000_u64 {
            let region = churn.next(&ledger).expect("a change");
            let kind = match ledger.by_id(region.id()) {
                None => "appears",
                Some(old) if old.range() != region.range() => "moves its bounds",
                Some(old) if old.epoch() == region.epoch() => "moves its leader",
                Some(_) => "changes its peers",
            };
            *kinds.entry(kind).or_default() += 1;
            let outcome = map.put(region.clone(), Provenance::Stream { received_at });
            assert!(!outcome.is_refused(), "{region:?}: {outcome:?}");
            ledger.record(Arc::new(region), Moment::from_nanos(step + 2));
        }
        assert!(
            kinds.len() == 4 && kinds.values().all(|count| *count > 100),
            "{kinds:?}"
        );
        let snapshot = map.pin();
        assert_eq!(snapshot.len(), ledger.len());
        for entry in snapshot.iter() {
            let held = ledger.by_id(entry.region().id()).expect("a live region");
            assert_eq!(entry.region(), &**held);
        }
    }

    #[test]
    fn a_split_leaves_a_hole_until_its_other_half_is_reported() {
        let regions = initial_regions(1);
        let mut ledger = ledger_of(&regions);
        let mut churn = Churn::new(1, 3);
        let half = churn.split(&regions[0]).expect("a wide region splits");
        ledger.record(Arc::new(half), Moment::from_nanos(2));
        let covered = [0, REGION_WIDTH - 1].map(|at| ledger.containing(&key_at(at)).is_some());
        assert_eq!(covered.iter().filter(|covered| **covered).count(), 1);
        for step in 0..=SPLIT_DELAY {
            let change = churn.next(&ledger).expect("a change");
            ledger.record(Arc::new(change), Moment::from_nanos(3 + step));
        }
        assert!(ledger.len() >= 2);
    }
}
