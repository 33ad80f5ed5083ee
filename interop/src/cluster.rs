//! The cluster that is played to PD: its stores, its regions, and what happens to them.
//!
//! PD only ever learns of regions by heartbeats. This model is the side that sends them: it owns the truth of ranges,
//! epochs, peers and leaders, and each change returns the regions whose heartbeats tell PD of it.

use rand::Rng;
use rand::rngs::SmallRng;
use tidegate::proto::metapb;

use crate::client::{Found, found};
use crate::keys::key_at;

/// Stores of the played cluster; every region has a voter on each.
pub const STORES: [u64; 3] = [1, 2, 3];

/// One region of the model. `lo` and `hi` are positions; zero and `u64::MAX` are the open ends.
#[derive(Clone, Debug)]
pub struct ModelRegion {
    /// Region id.
    pub id: u64,
    /// First position of the range; zero is the empty start key.
    pub lo: u64,
    /// Position behind the range; `u64::MAX` is the empty end key.
    pub hi: u64,
    version: u64,
    conf_ver: u64,
    peers: [u64; 3],
    leader: usize,
}

impl ModelRegion {
    fn peer(&self, index: usize) -> metapb::Peer {
        metapb::Peer {
            id: self.peers[index],
            store_id: STORES[index],
            ..Default::default()
        }
    }

    /// The store whose heartbeat stream reports this region: its leader's.
    pub fn leader_store(&self) -> u64 {
        STORES[self.leader]
    }

    /// The leader peer as PD is told of it.
    pub fn leader_peer(&self) -> metapb::Peer {
        self.peer(self.leader)
    }

    /// The region as PD and its replicas are to answer it.
    pub fn found(&self) -> Found {
        found(self.meta(), Some(self.leader_peer()))
    }

    /// The region as PD is told of it.
    pub fn meta(&self) -> metapb::Region {
        metapb::Region {
            id: self.id,
            start_key: if self.lo == 0 {
                Vec::new()
            } else {
                key_at(self.lo)
            }
            .into(),
            end_key: if self.hi == u64::MAX {
                Vec::new()
            } else {
                key_at(self.hi)
            }
            .into(),
            region_epoch: Some(metapb::RegionEpoch {
                conf_ver: self.conf_ver,
                version: self.version,
            }),
            peers: (0..STORES.len()).map(|i| self.peer(i)).collect(),
            ..Default::default()
        }
    }
}

/// All regions, in no particular order, covering the whole key space.
#[derive(Debug)]
pub struct Cluster {
    regions: Vec<ModelRegion>,
    next_id: u64,
    recent: Vec<u64>,
}

impl Cluster {
    /// `count` regions of equal width. Their epoch is above that of a bootstrap region, so that they displace it.
    pub fn new(count: u64, first_id: u64) -> Self {
        let width = u64::MAX / count;
        let mut cluster = Self {
            regions: Vec::new(),
            next_id: first_id,
            recent: Vec::new(),
        };
        for i in 0..count {
            let id = cluster.take_id();
            let peers = [cluster.take_id(), cluster.take_id(), cluster.take_id()];
            let hi = if i + 1 == count {
                u64::MAX
            } else {
                (i + 1) * width
            };
            cluster.regions.push(ModelRegion {
                id,
                lo: i * width,
                hi,
                version: 2,
                conf_ver: 2,
                peers,
                leader: (i % 3) as usize,
            });
        }
        cluster
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// How many regions there are.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there is no region at all.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// All regions.
    pub fn regions(&self) -> &[ModelRegion] {
        &self.regions
    }

    /// A position to look up: every other one inside a region that changed lately.
    pub fn interesting_position(&self, rng: &mut SmallRng) -> u64 {
        if !self.recent.is_empty() && rng.random_bool(0.5) {
            self.recent[rng.random_range(0..self.recent.len())]
        } else {
            rng.random_range(1..u64::MAX - 1)
        }
    }

    fn touch(&mut self, position: u64) {
        const KEPT: usize = 256;
        if self.recent.len() == KEPT {
            self.recent.remove(0);
        }
        self.recent.push(position);
    }

    /// Halves a region that is wide enough; both halves are reported, the new one first, as TiKV does on a right-derive
    /// split. The id stays with the right half.
    pub fn split(&mut self, rng: &mut SmallRng) -> Vec<ModelRegion> {
        let index = rng.random_range(0..self.regions.len());
        let (lo, hi) = (self.regions[index].lo, self.regions[index].hi);
        if hi - lo < 4 {
            return Vec::new();
        }
        let middle = lo + (hi - lo) / 2;
        let id = self.take_id();
        let peers = [self.take_id(), self.take_id(), self.take_id()];
        let parent = &mut self.regions[index];
        parent.version += 1;
        parent.lo = middle;
        let right = parent.clone();
        let left = ModelRegion {
            id,
            lo,
            hi: middle,
            peers,
            ..right
        };
        self.regions.push(left.clone());
        self.touch(lo.max(1));
        self.touch(middle);
        vec![left, right]
    }

    /// Moves a region's leader to another of its voters; the epoch stays.
    pub fn move_leader(&mut self, rng: &mut SmallRng) -> Vec<ModelRegion> {
        self.move_leader_of(rng.random_range(0..self.regions.len()))
    }

    /// The same for the region at `index` of [`Cluster::regions`].
    pub fn move_leader_of(&mut self, index: usize) -> Vec<ModelRegion> {
        let region = &mut self.regions[index];
        region.leader = (region.leader + 1) % STORES.len();
        let (position, changed) = (region.lo.max(1), region.clone());
        self.touch(position);
        vec![changed]
    }

    /// Replaces one follower peer by another on the same store: two steps of a membership change.
    pub fn change_peer(&mut self, rng: &mut SmallRng) -> Vec<ModelRegion> {
        let index = rng.random_range(0..self.regions.len());
        let peer = self.take_id();
        let region = &mut self.regions[index];
        let follower = (region.leader + 1) % STORES.len();
        region.peers[follower] = peer;
        region.conf_ver += 2;
        let (position, changed) = (region.lo.max(1), region.clone());
        self.touch(position);
        vec![changed]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn splits_keep_the_key_space_covered() {
        let mut rng = SmallRng::seed_from_u64(7);
        let mut cluster = Cluster::new(50, 1000);
        for _ in 0..500 {
            cluster.split(&mut rng);
            cluster.move_leader(&mut rng);
            cluster.change_peer(&mut rng);
        }
        let mut regions = cluster.regions().to_vec();
        regions.sort_by_key(|r| r.lo);
        assert_eq!(regions[0].lo, 0);
        assert_eq!(regions[regions.len() - 1].hi, u64::MAX);
        assert!(regions.windows(2).all(|w| w[0].hi == w[1].lo));
    }
}
