//! What a region is: the immutable descriptor that lookups answer with.

mod members;
mod peers;

use std::fmt;

use crate::epoch::RegionEpoch;
use crate::error::InvalidRegion;
use crate::key::Key;
use crate::range::KeyRange;

use members::Members;
pub use peers::{Peers, PeersIter};

/// What a peer may do in its Raft group.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum PeerRole {
    /// Votes and can lead.
    #[default]
    Voter,
    /// Receives the log without a vote.
    Learner,
    /// Becomes a voter when the joint change of members ends.
    IncomingVoter,
    /// Becomes a learner when the joint change of members ends.
    DemotingVoter,
}

/// One replica of a region on one store.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Peer {
    /// Unique in the cluster, never 0 for a peer that exists.
    pub id: u64,
    /// The store that holds the replica.
    pub store_id: u64,
    /// Its part in the Raft group.
    pub role: PeerRole,
    /// Whether it votes without holding data.
    pub is_witness: bool,
}

/// A peer that its leader has not heard of for a while.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct DownPeer {
    /// The silent peer.
    pub peer: Peer,
    /// Seconds since it was last heard of.
    pub down_seconds: u64,
}

/// The subdivision of a region into buckets.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Buckets {
    /// Grows with each new subdivision.
    pub version: u64,
    /// The boundaries, both ends of the region included.
    pub keys: Vec<Key>,
}

/// A region that is being flashed back.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Flashback {
    /// The start timestamp of the flashback.
    pub start_ts: u64,
}

/// The traffic of a region during its last heartbeat interval.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct RegionStats {
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Keys written.
    pub keys_written: u64,
    /// Keys read.
    pub keys_read: u64,
}

/// What few lookups ask for; a region without any of it stores none of it.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Details {
    /// Peers that the region's leader has not heard of.
    pub down_peers: Vec<DownPeer>,
    /// Peers that are still catching up with the log.
    pub pending_peers: Vec<Peer>,
    /// The region's buckets, if any were reported.
    pub buckets: Option<Buckets>,
    /// Set while the region is being flashed back.
    pub flashback: Option<Flashback>,
    /// The region's traffic.
    pub stats: RegionStats,
}

/// A region: a range of keys, the peers that hold it and the one that leads.
///
/// Immutable. A change of any part is a new `Region`, usually with a higher
/// epoch; a change of leader keeps the epoch.
#[derive(Clone, Eq, PartialEq)]
#[repr(C)]
pub struct Region {
    // The order matters: what a lookup answers with stands together, before the
    // range's start, which only walks and ties read. See the layout of `Entry`.
    members: Members,
    id: u64,
    epoch: RegionEpoch,
    range: KeyRange,
    // Invariant: never a box of the default value.
    details: Option<Box<Details>>,
}

/// Collects the parts of a [`Region`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct RegionBuilder {
    id: u64,
    range: KeyRange,
    epoch: RegionEpoch,
    // Without regard to who leads among them: whatever they say of it, `leader`
    // counts in the end.
    members: Members,
    leader: Option<Peer>,
    details: Option<Box<Details>>,
}

// === impl Region ===

impl Region {
    /// Starts a description without peers, leader or details.
    pub fn builder(id: u64, range: KeyRange, epoch: RegionEpoch) -> RegionBuilder {
        RegionBuilder {
            id,
            range,
            epoch,
            members: Members::EMPTY,
            leader: None,
            details: None,
        }
    }

    /// Starts a description that is equal to this one.
    pub fn to_builder(&self) -> RegionBuilder {
        RegionBuilder {
            id: self.id,
            range: self.range.clone(),
            epoch: self.epoch,
            members: self.members.clone(),
            leader: self.leader(),
            details: self.details.clone(),
        }
    }

    /// The region's id, never 0.
    #[inline]
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The keys that the region holds.
    #[inline]
    #[must_use]
    pub const fn range(&self) -> &KeyRange {
        &self.range
    }

    /// The first key of the range.
    #[inline]
    #[must_use]
    pub const fn start(&self) -> &Key {
        self.range.start()
    }

    /// The first key after the range; empty is plus infinity.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> &Key {
        self.range.end()
    }

    /// The region's epoch.
    #[inline]
    #[must_use]
    pub const fn epoch(&self) -> RegionEpoch {
        self.epoch
    }

    /// All peers, in the order in which they were reported.
    #[inline]
    #[must_use]
    pub const fn peers(&self) -> Peers<'_> {
        self.members.peers()
    }

    /// The peer that leads, if it is known. It was reported apart from the peers,
    /// and need not be one of them.
    #[inline]
    #[must_use]
    pub fn leader(&self) -> Option<Peer> {
        self.members.leader()
    }

    /// What few lookups ask for; `None` if all of it is empty.
    #[must_use]
    pub fn details(&self) -> Option<&Details> {
        self.details.as_deref()
    }

    /// Whether PD's exception for recreated regions applies: an epoch made from
    /// nothing, on less than the whole key space.
    #[must_use]
    pub fn is_recreated(&self) -> bool {
        self.epoch.is_recreated() && !self.range.is_all()
    }

    /// The parts that a lookup answers with, how many bytes behind the beginning of the
    /// region each ends, and in which line it may.
    #[cfg(all(test, not(tidegate_loom)))]
    pub(crate) fn ends_of_what_a_lookup_reads(&self) -> [(&'static str, usize, usize); 5] {
        fn end<T>(region: &Region, part: &T) -> usize {
            std::ptr::from_ref(part).addr() + size_of::<T>() - std::ptr::from_ref(region).addr()
        }
        [
            ("leader", Members::IDS_END, 1),
            ("members", end(self, &self.members), 2),
            ("id", end(self, &self.id), 2),
            ("epoch", end(self, &self.epoch), 2),
            ("end", end(self, self.range.end()), 2),
        ]
    }

    /// Bytes of memory that the region refers to.
    pub(crate) fn heap_bytes(&self) -> usize {
        let details = self.details.as_deref();
        self.start().heap_bytes()
            + self.end().heap_bytes()
            + self.members.heap_bytes()
            + details.map_or(0, |details| size_of::<Details>() + details.heap_bytes())
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("id", &self.id)
            .field("range", &self.range)
            .field("epoch", &self.epoch)
            .field("leader", &self.leader())
            .field("peers", &self.peers())
            .field("details", &self.details)
            .finish()
    }
}

// === impl Details ===

impl Details {
    fn heap_bytes(&self) -> usize {
        let buckets = self.buckets.as_ref().map_or(0, |Buckets { keys, .. }| {
            keys.capacity() * size_of::<Key>() + keys.iter().map(Key::heap_bytes).sum::<usize>()
        });
        self.down_peers.capacity() * size_of::<DownPeer>()
            + self.pending_peers.capacity() * size_of::<Peer>()
            + buckets
    }
}

// === impl RegionBuilder ===

impl RegionBuilder {
    /// Sets the range.
    pub fn range(mut self, range: KeyRange) -> Self {
        self.range = range;
        self
    }

    /// Sets the epoch.
    pub const fn epoch(mut self, epoch: RegionEpoch) -> Self {
        self.epoch = epoch;
        self
    }

    /// Sets the peers, in the order in which they were reported.
    ///
    /// Up to four peers allocate nothing, as long as their stores have ids of 32
    /// bits and the leader, if it is set, is one of them.
    pub fn peers(mut self, peers: impl IntoIterator<Item = Peer>) -> Self {
        self.members = Members::of(peers);
        self
    }

    /// Sets the leader, before or after the peers; `None` if it is not known.
    pub const fn leader(mut self, leader: Option<Peer>) -> Self {
        self.leader = leader;
        self
    }

    /// Sets the details; the default value stores nothing.
    pub fn details(mut self, details: Details) -> Self {
        self.details = (details != Details::default()).then(|| Box::new(details));
        self
    }

    /// The finished region.
    ///
    /// # Errors
    ///
    /// The id is 0.
    pub fn build(self) -> Result<Region, InvalidRegion> {
        if self.id == 0 {
            return Err(InvalidRegion::ZeroId);
        }
        Ok(Region {
            id: self.id,
            range: self.range,
            epoch: self.epoch,
            members: self.members.led_by(self.leader),
            details: self.details,
        })
    }
}

impl fmt::Debug for RegionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionBuilder")
            .field("id", &self.id)
            .field("range", &self.range)
            .field("epoch", &self.epoch)
            .field("leader", &self.leader)
            .field("peers", &self.members.peers())
            .field("details", &self.details)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_details_are_not_stored() {
        let region = Region::builder(1, KeyRange::all(), RegionEpoch::new(1, 1))
            .details(Details::default())
            .build()
            .expect("a valid region");
        assert!(region.details().is_none());
        assert!(
            !region.is_recreated(),
            "the whole key space is a first region"
        );
    }

    fn peer(id: u64) -> Peer {
        Peer {
            id,
            store_id: id + 1,
            role: PeerRole::Learner,
            is_witness: true,
        }
    }

    /// Regions whose members are in place, too many, and led by a stranger.
    fn regions() -> [Region; 3] {
        let region = |count, leader| {
            Region::builder(9, KeyRange::all(), RegionEpoch::new(2, 3))
                .peers((1..=count).map(peer))
                .leader(Some(peer(leader)))
                .details(Details {
                    pending_peers: vec![peer(3)],
                    ..Details::default()
                })
                .build()
                .expect("a valid region")
        };
        [region(3, 2), region(5, 4), region(3, 7)]
    }

    #[test]
    fn a_builder_from_a_region_keeps_every_part() {
        for region in regions() {
            assert_eq!(region.to_builder().build().as_ref(), Ok(&region));
            assert_eq!(region.clone(), region);
        }
    }

    #[test]
    fn peers_and_leader_can_be_set_in_any_order() {
        for region in regions() {
            let plain = region.to_builder().peers([]).leader(None);
            let (peers, leader) = (region.peers(), region.leader());
            let peers_first = plain.clone().peers(peers).leader(leader);
            assert_eq!(peers_first.build().as_ref(), Ok(&region));
            let leader_first = plain.clone().leader(leader).peers(peers);
            assert_eq!(leader_first.build().as_ref(), Ok(&region));
            let twice = plain.leader(Some(peer(1))).peers([peer(1), peer(8)]);
            let twice = twice.peers(peers).leader(leader);
            assert_eq!(twice.build().as_ref(), Ok(&region));
        }
    }

    #[test]
    fn regions_differ_by_their_peers_and_by_their_leader() {
        for region in regions() {
            let build = |builder: RegionBuilder| builder.build().expect("a valid region");
            let unled = build(region.to_builder().leader(None));
            assert_eq!(unled.leader(), None);
            assert_eq!(unled.peers(), region.peers());
            assert_ne!(unled, region);
            let fewer = build(region.to_builder().peers(region.peers().iter().skip(1)));
            assert_eq!(fewer.leader(), region.leader());
            assert_ne!(fewer, region);
        }
    }

    #[test]
    fn a_region_prints_its_peers_and_its_leader() {
        for region in regions() {
            let (peers, leader) = (region.peers().to_vec(), region.leader());
            let members = format!("leader: {leader:?}, peers: {peers:?}, details: ");
            assert!(format!("{region:?}").contains(&members));
            assert!(format!("{:?}", region.to_builder()).contains(&members));
        }
    }

    #[test]
    fn id_0_is_rejected() {
        let built = Region::builder(0, KeyRange::all(), RegionEpoch::default()).build();
        assert_eq!(built, Err(InvalidRegion::ZeroId));
    }
}
