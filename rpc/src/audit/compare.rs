//! Two descriptions of the same keys, region by region: a pure function of both.
//!
//! What is found here is only a *sight*: the two answers were not given at the same time, and one of them may merely
//! be the earlier one. Whether it counts is for a later question to show (`track.rs`).
//!
//! One change of the cluster can show in several regions: a split that one side has not heard of is an older epoch of
//! the region that was split, and a missing region for what was split off.

use std::collections::HashMap;

use serde::Serialize;
use tidegate_core::{Key, KeyRange, Region};

/// How a region differs from the leader's.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The epoch is older than the leader's: a split, a merge or a change of peers is not known.
    OlderEpoch,
    /// The epochs are equal, and another peer leads, or none is known to.
    OtherLeader,
    /// The epochs are equal, and the peers are not.
    PeersDiffer,
    /// The epochs are equal, and the keys are not: one of them is of another history.
    RangeDiffers,
    /// The leader has a region where other regions stand.
    Missing,
    /// The leader has a region where nothing stands, or not everywhere something.
    Hole,
    /// There is a region that the leader does not have: merged or removed.
    UnknownRegion,
    /// The epoch is newer than the leader's: the leader is none, or has lost something.
    NewerEpoch,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::OlderEpoch,
        Self::OtherLeader,
        Self::PeersDiffer,
        Self::RangeDiffers,
        Self::Missing,
        Self::Hole,
        Self::UnknownRegion,
        Self::NewerEpoch,
    ];

    /// The name in reports and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OlderEpoch => "older_epoch",
            Self::OtherLeader => "other_leader",
            Self::PeersDiffer => "peers_differ",
            Self::RangeDiffers => "range_differs",
            Self::Missing => "missing",
            Self::Hole => "hole",
            Self::UnknownRegion => "unknown_region",
            Self::NewerEpoch => "newer_epoch",
        }
    }
}

/// One region that is not the same on both sides.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Difference {
    /// The region's id.
    pub id: u64,
    /// How it differs.
    pub kind: Kind,
    /// What the leader says; `None` if it has no such region.
    pub leader: Option<Region>,
    /// What the other side says; `None` if it has no such region.
    pub other: Option<Region>,
}

impl Difference {
    /// The keys to ask about to see both sides of it again.
    #[must_use]
    pub fn range(&self) -> KeyRange {
        match (&self.leader, &self.other) {
            (Some(leader), Some(other)) => hull(leader.range(), other.range()),
            (Some(region), None) | (None, Some(region)) => region.range().clone(),
            (None, None) => KeyRange::all(),
        }
    }
}

/// The smallest range that holds both.
pub(crate) fn hull(one: &KeyRange, other: &KeyRange) -> KeyRange {
    let start = one.start().min(other.start()).clone();
    let end = if one.end().is_empty() || other.end().is_empty() {
        Key::default()
    } else {
        one.end().max(other.end()).clone()
    };
    KeyRange::new(start, end).unwrap_or_else(|_| one.clone())
}

/// How two descriptions of one region differ; `None` if they do not, as far as a request's way is concerned. A leader
/// that the PD leader does not know is no difference.
#[must_use]
pub fn differs(leader: &Region, other: &Region) -> Option<Kind> {
    let (known, seen) = (leader.epoch(), other.epoch());
    if seen.is_older_than(known) {
        Some(Kind::OlderEpoch)
    } else if known.is_older_than(seen) {
        Some(Kind::NewerEpoch)
    } else if leader.range() != other.range() {
        Some(Kind::RangeDiffers)
    } else if !same_peers(leader, other) {
        Some(Kind::PeersDiffer)
    } else if leader
        .leader()
        .is_some_and(|peer| other.leader().is_none_or(|seen| seen.id != peer.id))
    {
        Some(Kind::OtherLeader)
    } else {
        None
    }
}

fn same_peers(one: &Region, other: &Region) -> bool {
    let sorted = |region: &Region| {
        let mut peers = region.peers().to_vec();
        peers.sort_unstable_by_key(|peer| peer.id);
        peers
    };
    // The order is no difference, and almost always the same.
    one.peers() == other.peers() || sorted(one) == sorted(other)
}

/// Compares what both sides hold in `range`: `leader` and `other` are their regions there in the order of their keys,
/// all of them, those at the edges whole.
///
/// A region that reaches beyond `range` is looked for on the other side within `range` only. O((n + m) log m).
#[must_use]
pub fn compare(range: &KeyRange, leader: &[Region], other: &[Region]) -> Vec<Difference> {
    let seen: HashMap<u64, &Region> = other.iter().map(|region| (region.id(), region)).collect();
    let known: HashMap<u64, &Region> = leader.iter().map(|region| (region.id(), region)).collect();
    let mut differences = Vec::new();
    for region in leader
        .iter()
        .filter(|region| region.range().overlaps(range))
    {
        let found = seen.get(&region.id()).copied();
        let kind = match found {
            Some(found) => differs(region, found),
            None if covers(other, &clipped(region.range(), range)) => Some(Kind::Missing),
            None => Some(Kind::Hole),
        };
        if let Some(kind) = kind {
            differences.push(Difference {
                id: region.id(),
                kind,
                leader: Some(region.clone()),
                other: found.cloned(),
            });
        }
    }
    for region in other.iter().filter(|region| region.range().overlaps(range)) {
        if !known.contains_key(&region.id()) {
            differences.push(Difference {
                id: region.id(),
                kind: Kind::UnknownRegion,
                leader: None,
                other: Some(region.clone()),
            });
        }
    }
    differences
}

/// The part of `range` that lies in `within`, which overlaps it.
fn clipped(range: &KeyRange, within: &KeyRange) -> KeyRange {
    let start = range.start().max(within.start()).clone();
    let end = match (range.end().is_empty(), within.end().is_empty()) {
        (true, _) => within.end().clone(),
        (_, true) => range.end().clone(),
        _ => range.end().min(within.end()).clone(),
    };
    KeyRange::new(start, end).unwrap_or_else(|_| range.clone())
}

/// Whether `regions`, in the order of their keys, leave no part of `range` out.
fn covers(regions: &[Region], range: &KeyRange) -> bool {
    let first = regions.partition_point(|region| !region.range().ends_after(range.start()));
    let mut reached: &[u8] = range.start();
    for region in &regions[first..] {
        if region.start().as_bytes() > reached {
            return false;
        }
        if region.end().is_empty() {
            return true;
        }
        reached = region.end();
        if !range.end().is_empty() && reached >= range.end().as_bytes() {
            return true;
        }
    }
    false
}

#[cfg(test)]
pub(crate) mod tests {
    use tidegate_core::{Peer, PeerRole, RegionEpoch};

    use super::*;

    /// A region on three stores, led from the first.
    pub(crate) fn region(id: u64, start: &str, end: &str, version: u64) -> Region {
        led(id, start, end, version, 1)
    }

    pub(crate) fn led(id: u64, start: &str, end: &str, version: u64, store: u64) -> Region {
        let peers = [1, 2, 3].map(|store_id| Peer {
            id: id * 10 + store_id,
            store_id,
            role: PeerRole::Voter,
            is_witness: false,
        });
        let leader = peers.into_iter().find(|peer| peer.store_id == store);
        Region::builder(
            id,
            KeyRange::new(start, end).expect("a range"),
            RegionEpoch {
                conf_ver: 1,
                version,
            },
        )
        .peers(peers)
        .leader(leader)
        .build()
        .expect("a region")
    }

    fn kinds(range: &KeyRange, leader: &[Region], other: &[Region]) -> Vec<(u64, Kind)> {
        compare(range, leader, other)
            .into_iter()
            .map(|difference| (difference.id, difference.kind))
            .collect()
    }

    #[test]
    fn the_same_regions_do_not_differ_whatever_the_order_of_their_peers() {
        let one = region(1, "", "m", 2);
        let peers = one.peers().iter().rev();
        let other = one.to_builder().peers(peers).build().expect("a region");
        assert_eq!(
            kinds(
                &KeyRange::all(),
                &[one, region(2, "m", "", 2)],
                &[other, region(2, "m", "", 2)]
            ),
            []
        );
    }

    #[test]
    fn each_kind_is_told_by_its_name() {
        let all = KeyRange::all();
        let known = [region(1, "", "m", 5)];
        let with = |other: Region| kinds(&all, &known, &[other]);
        assert_eq!(with(region(1, "", "m", 4)), [(1, Kind::OlderEpoch)]);
        assert_eq!(with(region(1, "", "m", 6)), [(1, Kind::NewerEpoch)]);
        assert_eq!(with(led(1, "", "m", 5, 2)), [(1, Kind::OtherLeader)]);
        assert_eq!(with(led(1, "", "m", 5, 9)), [(1, Kind::OtherLeader)]);
        assert_eq!(with(region(1, "", "n", 5)), [(1, Kind::RangeDiffers)]);
        let fewer = known[0]
            .to_builder()
            .peers(known[0].peers().iter().take(2))
            .build()
            .expect("a region");
        assert_eq!(with(fewer), [(1, Kind::PeersDiffer)]);
        assert_eq!(kinds(&all, &known, &[]), [(1, Kind::Hole)]);
        assert_eq!(
            kinds(&all, &known, &[region(7, "c", "m", 9)]),
            [(1, Kind::Hole), (7, Kind::UnknownRegion)]
        );
        assert_eq!(
            kinds(&all, &known, &[region(7, "", "", 9)]),
            [(1, Kind::Missing), (7, Kind::UnknownRegion)]
        );
        assert_eq!(
            kinds(&all, &[], &[region(7, "", "", 9)]),
            [(7, Kind::UnknownRegion)]
        );
    }

    #[test]
    fn a_leader_that_pd_does_not_know_is_no_difference() {
        assert_eq!(
            kinds(
                &KeyRange::all(),
                &[led(1, "", "", 5, 9)],
                &[led(1, "", "", 5, 2)]
            ),
            []
        );
    }

    #[test]
    fn a_split_that_is_not_known_shows_in_both_halves() {
        let after = [region(1, "", "m", 6), region(2, "m", "", 6)];
        let before = [region(1, "", "", 5)];
        assert_eq!(
            kinds(&KeyRange::all(), &after, &before),
            [(1, Kind::OlderEpoch), (2, Kind::Missing)]
        );
        assert_eq!(
            kinds(&KeyRange::all(), &before, &after),
            [(1, Kind::NewerEpoch), (2, Kind::UnknownRegion)]
        );
    }

    #[test]
    fn what_lies_outside_the_range_is_not_looked_at() {
        let range = KeyRange::new("c", "m").expect("a range");
        let known = [region(1, "", "c", 5), region(2, "c", "m", 5)];
        assert_eq!(
            kinds(
                &range,
                &known,
                &[region(2, "c", "m", 5), region(3, "m", "", 5)]
            ),
            []
        );
        // Its part in the range is covered.
        assert_eq!(
            kinds(&range, &[region(2, "a", "z", 5)], &[region(3, "b", "m", 5)]),
            [(2, Kind::Missing), (3, Kind::UnknownRegion)]
        );
    }

    #[test]
    fn a_difference_is_asked_for_again_where_both_sides_have_it() {
        let range = |difference: &Difference| difference.range().to_string();
        let both = &compare(
            &KeyRange::all(),
            &[region(1, "c", "m", 5)],
            &[region(1, "f", "", 4)],
        )[0];
        assert_eq!(
            range(both),
            KeyRange::new("c", "").expect("a range").to_string()
        );
        let one = &compare(&KeyRange::all(), &[region(1, "c", "m", 5)], &[])[0];
        assert_eq!(
            range(one),
            KeyRange::new("c", "m").expect("a range").to_string()
        );
    }
}
