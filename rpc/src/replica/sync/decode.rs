//! From a frame to regions, by PD's own rules of what a frame may leave out.
//!
//! The lists of a frame are parallel by convention only. Statistics and buckets count when their list is as long as
//! that of the regions and are ignored otherwise; leaders are taken by index as far as they go. A region that cannot be
//! used (id 0, no epoch, an empty or inverted range) spoils its frame: the regions beside it are used, the index does
//! not move, and the stream ends.

use tidegate_core::Region;

use crate::proto::convert::{Malformed, region_from_pb};
use crate::proto::pdpb::SyncRegionResponse;

/// The usable regions of a frame in order, and the first fault found.
pub(super) fn regions(frame: &SyncRegionResponse) -> (Vec<Region>, Option<Malformed>) {
    let count = frame.regions.len();
    let stats = (frame.region_stats.len() == count).then_some(&frame.region_stats);
    let buckets = (frame.buckets.len() == count).then_some(&frame.buckets);
    let mut usable = Vec::with_capacity(count);
    let mut fault = None;
    for (at, region) in frame.regions.iter().enumerate() {
        let read = region_from_pb(
            region,
            frame.region_leaders.get(at),
            buckets.and_then(|list| list.get(at)),
            stats.and_then(|list| list.get(at)),
        );
        match read {
            Ok(region) => usable.push(region),
            Err(malformed) => {
                fault.get_or_insert(malformed);
            }
        }
    }
    (usable, fault)
}

#[cfg(test)]
mod tests {
    use crate::proto::metapb::{Buckets, Peer, Region as PbRegion, RegionEpoch};
    use crate::proto::pdpb::RegionStat;

    use super::*;

    fn region(id: u64) -> PbRegion {
        PbRegion {
            id,
            start_key: vec![id as u8].into(),
            end_key: vec![id as u8 + 1].into(),
            region_epoch: Some(RegionEpoch {
                conf_ver: 1,
                version: 1,
            }),
            peers: vec![peer(id * 10)],
            ..PbRegion::default()
        }
    }

    fn peer(id: u64) -> Peer {
        Peer {
            id,
            store_id: 1,
            ..Peer::default()
        }
    }

    fn two_regions() -> SyncRegionResponse {
        SyncRegionResponse {
            regions: vec![region(1), region(2)],
            ..SyncRegionResponse::default()
        }
    }

    #[test]
    fn statistics_and_buckets_of_another_length_are_ignored() {
        let stat = RegionStat {
            bytes_written: 9,
            ..RegionStat::default()
        };
        let buckets = Buckets {
            version: 3,
            keys: vec![vec![1].into()],
            ..Buckets::default()
        };
        let short = SyncRegionResponse {
            region_stats: vec![stat],
            buckets: vec![buckets.clone()],
            ..two_regions()
        };
        let (usable, fault) = regions(&short);
        assert_eq!(fault, None);
        assert!(usable.iter().all(|region| region.details().is_none()));

        let whole = SyncRegionResponse {
            region_stats: vec![stat; 2],
            buckets: vec![buckets; 2],
            ..two_regions()
        };
        let (usable, _) = regions(&whole);
        let details = usable[1].details().unwrap();
        assert_eq!(details.stats.bytes_written, 9);
        assert_eq!(details.buckets.as_ref().unwrap().version, 3);
    }

    #[test]
    fn leaders_are_taken_by_index_as_far_as_they_go() {
        let frame = SyncRegionResponse {
            region_leaders: vec![peer(10)],
            ..two_regions()
        };
        let (usable, fault) = regions(&frame);
        assert_eq!(fault, None);
        assert_eq!(usable[0].leader().map(|peer| peer.id), Some(10));
        assert_eq!(usable[1].leader(), None);
    }

    #[test]
    fn a_region_that_cannot_be_used_is_named_and_those_beside_it_are_used() {
        type Spoil = fn(&mut PbRegion);
        let spoils: [(&str, Spoil); 4] = [
            ("id", |region| region.id = 0),
            ("region_epoch", |region| region.region_epoch = None),
            ("end_key", |region| {
                std::mem::swap(&mut region.start_key, &mut region.end_key);
            }),
            ("end_key", |region| {
                region.end_key = region.start_key.clone()
            }),
        ];
        for (field, spoil) in spoils {
            let mut frame = two_regions();
            spoil(&mut frame.regions[0]);
            let (usable, fault) = regions(&frame);
            assert_eq!(fault.map(|fault| fault.field), Some(field));
            assert_eq!(usable.iter().map(Region::id).collect::<Vec<_>>(), [2]);
        }
    }
}
