//! A region as a record on disk.
//!
//! The key of a record is the region's start key, so that the file is in the order of the map. The value is the length
//! of the end key (four bytes, the lowest first), the end key, and the rest as the `pdpb.Region` message that lookups
//! answer with, its keys left out. Flow statistics are not kept: no lookup answers with them, and they are most of what
//! a leader records.

use prost::Message;
use tidegate_core::Region;

use crate::proto::convert::{Extras, pdpb_region, region_with};
use crate::proto::pdpb;

/// A record that cannot be read. The file is intact by its checksums, so whoever wrote it was at fault.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a record that cannot be read: {0}")]
pub(super) struct Unreadable(String);

/// The value of a region's record; its key is the region's start key.
pub(super) fn value(region: &Region) -> Vec<u8> {
    let mut message = pdpb_region(region, true);
    if let Some(descriptor) = &mut message.region {
        descriptor.start_key.clear();
        descriptor.end_key.clear();
    }
    let end = region.end();
    let mut value = Vec::with_capacity(4 + end.len() + message.encoded_len());
    // Keys are far below 4 GiB: a message holds 16 MiB at most.
    let length = u32::try_from(end.len()).unwrap_or(u32::MAX);
    value.extend_from_slice(&length.to_le_bytes());
    value.extend_from_slice(end);
    value.extend_from_slice(&message.encode_to_vec());
    value
}

/// The end key of a record; `None` when the value is cut short.
pub(super) fn end_key(value: &[u8]) -> Option<&[u8]> {
    let (length, rest) = value.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// The region of a record.
pub(super) fn region(start: &[u8], value: &[u8]) -> Result<Region, Unreadable> {
    let end = end_key(value).ok_or_else(|| Unreadable("it is cut short".to_owned()))?;
    let message = pdpb::Region::decode(&value[4 + end.len()..])
        .map_err(|error| Unreadable(error.to_string()))?;
    let mut descriptor = message.region.unwrap_or_default();
    descriptor.start_key = bytes::Bytes::copy_from_slice(start);
    descriptor.end_key = bytes::Bytes::copy_from_slice(end);
    let extras = Extras {
        leader: message.leader.as_ref(),
        buckets: message.buckets.as_ref(),
        stats: None,
        down_peers: &message.down_peers,
        pending_peers: &message.pending_peers,
    };
    region_with(&descriptor, extras).map_err(|malformed| Unreadable(malformed.to_string()))
}

#[cfg(test)]
mod tests {
    use tidegate_core::{
        Buckets, Details, DownPeer, Flashback, Key, KeyRange, Peer, PeerRole, RegionEpoch,
        RegionStats,
    };

    use super::*;

    fn peer(id: u64) -> Peer {
        Peer {
            id,
            store_id: id + 100,
            role: PeerRole::Learner,
            is_witness: true,
        }
    }

    fn full(end: &[u8], stats: RegionStats) -> Region {
        let range = KeyRange::new(Key::from(&b"a"[..]), Key::from(end)).unwrap();
        let epoch = RegionEpoch {
            conf_ver: 3,
            version: 4,
        };
        Region::builder(9, range, epoch)
            .peers([peer(1), peer(2)])
            .leader(Some(peer(2)))
            .details(Details {
                down_peers: vec![DownPeer {
                    peer: peer(1),
                    down_seconds: 5,
                }],
                pending_peers: vec![peer(2)],
                buckets: Some(Buckets {
                    version: 7,
                    keys: vec![Key::from(&b"a"[..]), Key::from(&b"m"[..])],
                }),
                flashback: Some(Flashback { start_ts: 8 }),
                stats,
            })
            .build()
            .unwrap()
    }

    #[test]
    fn everything_but_the_flow_survives() {
        let flow = RegionStats {
            bytes_written: 1,
            ..RegionStats::default()
        };
        for end in [&b"z"[..], b""] {
            let written = value(&full(end, flow));
            assert_eq!(end_key(&written), Some(end));
            let read = region(b"a", &written).unwrap();
            assert_eq!(read, full(end, RegionStats::default()));
            assert_eq!(value(&read), written, "flow alone makes no other record");
        }
    }

    #[test]
    fn what_is_cut_short_or_garbled_is_an_error() {
        let written = value(&full(b"z", RegionStats::default()));
        for length in [0, 3, 4, 6] {
            assert!(region(b"a", &written[..length]).is_err(), "{length}");
        }
        assert!(region(b"zz", &written).is_err(), "an inverted range");
        let mut garbled = written;
        garbled[5] = 0xff;
        assert!(region(b"a", &garbled).is_err());
        assert!(end_key(&[0xff, 0xff, 0xff, 0xff, 1]).is_none());
    }
}
