//! Between the messages on the wire and the regions in the map.
//!
//! Inwards everything is copied: a message's keys are slices of the frame it came in, and a key in the map must not
//! keep that frame alive. What a message says is checked here once; nothing behind this file meets an inverted range.
//!
//! PD's placeholders are undone inwards and put back where PD has them: a peer with id 0 is no leader, buckets without
//! version and keys are none.

use bytes::Bytes;
use tidegate_core::{
    Buckets, Details, DownPeer, Flashback, Key, KeyRange, Peer, PeerRole, Region, RegionEpoch,
    RegionStats,
};

use super::{metapb, pdpb};

/// A region message that breaks the rules of the wire. Whoever sent it is at fault; nothing of the region is used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("malformed region {region_id}: {field} {fault}")]
pub struct Malformed {
    /// The id that the message gave, or 0.
    pub region_id: u64,
    /// The field at fault, by its name on the wire.
    pub field: &'static str,
    /// What is wrong with it.
    pub fault: &'static str,
}

/// What a message may say about a region beyond its descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// The region's leader; a peer with id 0 is none.
    pub leader: Option<&'a metapb::Peer>,
    /// The region's buckets; without version and keys they are none.
    pub buckets: Option<&'a metapb::Buckets>,
    /// Flow since the last report.
    pub stats: Option<&'a pdpb::RegionStat>,
    /// Peers that the leader has not heard of lately.
    pub down_peers: &'a [pdpb::PeerStats],
    /// Peers that lag behind the leader's log.
    pub pending_peers: &'a [metapb::Peer],
}

/// Reads a region as the sync stream gives it: the descriptor and its element of each parallel list.
///
/// # Errors
///
/// [`Malformed`] when the id is 0, the epoch absent, the range empty or inverted, or a role unknown.
pub fn region_from_pb(
    region: &metapb::Region,
    leader: Option<&metapb::Peer>,
    buckets: Option<&metapb::Buckets>,
    stats: Option<&pdpb::RegionStat>,
) -> Result<Region, Malformed> {
    region_with(
        region,
        Extras {
            leader,
            buckets,
            stats,
            ..Extras::default()
        },
    )
}

/// Reads a region with all that a message may say about it.
///
/// # Errors
///
/// As [`region_from_pb`].
pub fn region_with(region: &metapb::Region, extras: Extras<'_>) -> Result<Region, Malformed> {
    let malformed = |field, fault| Malformed {
        region_id: region.id,
        field,
        fault,
    };
    if region.id == 0 {
        return Err(malformed("id", "is 0"));
    }
    let Some(epoch) = region.region_epoch else {
        return Err(malformed("region_epoch", "is absent"));
    };
    let range = KeyRange::new(
        Key::from(&region.start_key[..]),
        Key::from(&region.end_key[..]),
    )
    .map_err(|_| malformed("end_key", "is not above start_key"))?;
    let epoch = RegionEpoch {
        conf_ver: epoch.conf_ver,
        version: epoch.version,
    };
    // Straight into the region, which has room for them.
    let mut all_known = true;
    let peers = region.peers.iter().map_while(|peer| {
        let peer = peer_from_pb(peer);
        all_known = peer.is_some();
        peer
    });
    let builder = Region::builder(region.id, range, epoch).peers(peers);
    if !all_known {
        return Err(malformed("peers", "have an unknown role"));
    }
    let leader = match extras.leader {
        Some(peer) if peer.id != 0 => {
            Some(peer_from_pb(peer).ok_or(malformed("leader", "has an unknown role"))?)
        }
        _ => None,
    };
    let mut down_peers = Vec::with_capacity(extras.down_peers.len());
    for down in extras.down_peers {
        let Some(peer) = &down.peer else { continue };
        let peer = peer_from_pb(peer).ok_or(malformed("down_peers", "have an unknown role"))?;
        down_peers.push(DownPeer {
            peer,
            down_seconds: down.down_seconds,
        });
    }
    let details = Details {
        down_peers,
        pending_peers: (extras.pending_peers.iter())
            .map(peer_from_pb)
            .collect::<Option<_>>()
            .ok_or(malformed("pending_peers", "have an unknown role"))?,
        buckets: extras.buckets.and_then(buckets_from_pb),
        flashback: region.is_in_flashback.then_some(Flashback {
            start_ts: region.flashback_start_ts,
        }),
        stats: extras.stats.map(stats_from_pb).unwrap_or_default(),
    };
    builder
        .leader(leader)
        .details(details)
        .build()
        .map_err(|_| malformed("region", "was refused"))
}

/// Reads the region of a heartbeat.
///
/// # Errors
///
/// As [`region_from_pb`]; a heartbeat without a region has id 0.
pub fn region_from_heartbeat(report: &pdpb::RegionHeartbeatRequest) -> Result<Region, Malformed> {
    let Some(region) = &report.region else {
        return Err(Malformed {
            region_id: 0,
            field: "region",
            fault: "is absent",
        });
    };
    let buckets = report.bucket_meta.as_ref().map(|meta| metapb::Buckets {
        region_id: region.id,
        version: meta.version,
        keys: meta.keys.clone(),
        period_in_ms: 0,
    });
    let stats = pdpb::RegionStat {
        bytes_written: report.bytes_written,
        bytes_read: report.bytes_read,
        keys_written: report.keys_written,
        keys_read: report.keys_read,
    };
    region_with(
        region,
        Extras {
            leader: report.leader.as_ref(),
            buckets: buckets.as_ref(),
            stats: Some(&stats),
            down_peers: &report.down_peers,
            pending_peers: &report.pending_peers,
        },
    )
}

/// Reads a peer; `None` when its role is none that this version knows.
pub fn peer_from_pb(peer: &metapb::Peer) -> Option<Peer> {
    let role = match metapb::PeerRole::try_from(peer.role).ok()? {
        metapb::PeerRole::Voter => PeerRole::Voter,
        metapb::PeerRole::Learner => PeerRole::Learner,
        metapb::PeerRole::IncomingVoter => PeerRole::IncomingVoter,
        metapb::PeerRole::DemotingVoter => PeerRole::DemotingVoter,
    };
    Some(Peer {
        id: peer.id,
        store_id: peer.store_id,
        role,
        is_witness: peer.is_witness,
    })
}

fn buckets_from_pb(buckets: &metapb::Buckets) -> Option<Buckets> {
    (buckets.version != 0 || !buckets.keys.is_empty()).then(|| Buckets {
        version: buckets.version,
        keys: buckets.keys.iter().map(|key| Key::from(&key[..])).collect(),
    })
}

fn stats_from_pb(stats: &pdpb::RegionStat) -> RegionStats {
    RegionStats {
        bytes_written: stats.bytes_written,
        bytes_read: stats.bytes_read,
        keys_written: stats.keys_written,
        keys_read: stats.keys_read,
    }
}

/// Writes a key.
pub fn key_to_pb(key: &Key) -> Bytes {
    Bytes::copy_from_slice(key)
}

/// Writes a peer.
pub fn peer_to_pb(peer: Peer) -> metapb::Peer {
    let role = match peer.role {
        PeerRole::Voter => metapb::PeerRole::Voter,
        PeerRole::Learner => metapb::PeerRole::Learner,
        PeerRole::IncomingVoter => metapb::PeerRole::IncomingVoter,
        PeerRole::DemotingVoter => metapb::PeerRole::DemotingVoter,
    };
    metapb::Peer {
        id: peer.id,
        store_id: peer.store_id,
        role: role.into(),
        is_witness: peer.is_witness,
    }
}

/// Writes the descriptor of a region.
pub fn region_to_pb(region: &Region) -> metapb::Region {
    let flashback = region
        .details()
        .and_then(|details| details.flashback.as_ref());
    metapb::Region {
        id: region.id(),
        start_key: key_to_pb(region.start()),
        end_key: key_to_pb(region.end()),
        region_epoch: Some(metapb::RegionEpoch {
            conf_ver: region.epoch().conf_ver,
            version: region.epoch().version,
        }),
        peers: region.peers().iter().map(peer_to_pb).collect(),
        is_in_flashback: flashback.is_some(),
        flashback_start_ts: flashback.map_or(0, |flashback| flashback.start_ts),
    }
}

/// The leader of a region, absent when it is unknown.
pub fn leader_to_pb(region: &Region) -> Option<metapb::Peer> {
    region.leader().map(peer_to_pb)
}

/// The buckets of a region, absent when there are none.
pub fn buckets_to_pb(region: &Region) -> Option<metapb::Buckets> {
    let buckets = region.details()?.buckets.as_ref()?;
    Some(metapb::Buckets {
        region_id: region.id(),
        version: buckets.version,
        keys: buckets.keys.iter().map(key_to_pb).collect(),
        period_in_ms: 0,
    })
}

/// The flow of a region since its last report.
pub fn stats_to_pb(region: &Region) -> pdpb::RegionStat {
    let stats = region.details().map(|details| &details.stats);
    stats.map_or_else(pdpb::RegionStat::default, |stats| pdpb::RegionStat {
        bytes_written: stats.bytes_written,
        bytes_read: stats.bytes_read,
        keys_written: stats.keys_written,
        keys_read: stats.keys_read,
    })
}

/// The peers that the region's leader misses.
pub fn down_peers_to_pb(region: &Region) -> Vec<pdpb::PeerStats> {
    let down = region
        .details()
        .map_or(&[][..], |details| &details.down_peers);
    down.iter()
        .map(|down| pdpb::PeerStats {
            peer: Some(peer_to_pb(down.peer)),
            down_seconds: down.down_seconds,
        })
        .collect()
}

/// The peers that lag behind the log of the region's leader.
pub fn pending_peers_to_pb(region: &Region) -> Vec<metapb::Peer> {
    let pending = region
        .details()
        .map_or(&[][..], |details| &details.pending_peers);
    pending.iter().copied().map(peer_to_pb).collect()
}

/// A region as lookups answer it: without a leader when it is unknown (scans put an empty peer there).
pub fn pdpb_region(region: &Region, with_buckets: bool) -> pdpb::Region {
    pdpb::Region {
        region: Some(region_to_pb(region)),
        leader: leader_to_pb(region),
        down_peers: down_peers_to_pb(region),
        pending_peers: pending_peers_to_pb(region),
        buckets: if with_buckets {
            buckets_to_pb(region)
        } else {
            None
        },
    }
}

#[cfg(test)]
mod tests;
