//! What a region displaced at the leader, although the map that it comes to refuses it.
//!
//! A map can know more of some keys than of others: from a copy of the leader's map that was made later than the records
//! which the stream brings, from a history in that copy's place, from the leader's own answers. Regions that are older
//! than what is known are refused, which by itself changes nothing. But the leader held them in their time, and what they
//! displaced there was gone from then on. Where the map has a hole, something from before may have found room (the right
//! half of a split that was merged again, say, while of the split after the merge only the left half is known). It must
//! not stay when the index passes what ended it.

use tidegate_core::{Batch, Entry, Expect, Key, Region, RegionMap};

/// Takes out of `map` what the leader no longer held once it had held `regions`; the first keys of what was taken out.
///
/// Versions of overlapping regions only grow at a leader, so what overlaps a region and is older was there before it. A
/// region that looks recreated is the exception, and stays.
pub(super) fn remove(map: &RegionMap, regions: &[Region]) -> Vec<Key> {
    let mut batch = Batch::new();
    let mut gone = Vec::new();
    {
        let snapshot = map.pin();
        for region in regions {
            let ended = |entry: &Entry| {
                entry.epoch().version < region.epoch().version && !entry.region().is_recreated()
            };
            // An earlier life of the region itself need not overlap it.
            let own = snapshot.by_id(region.id());
            let apart = own.filter(|own| !own.region().range().overlaps(region.range()));
            let overlapped = snapshot.overlaps(region.range());
            for entry in overlapped.chain(apart).filter(|entry| ended(entry)) {
                gone.push(entry.start().clone());
                batch.remove(entry.id(), Expect::Entry(entry.to_shared()));
            }
        }
    }
    if !batch.is_empty() {
        map.apply(batch);
    }
    gone
}

#[cfg(test)]
mod tests {
    use tidegate_core::{KeyRange, Moment, Provenance, RegionEpoch};

    use super::*;

    fn region(id: u64, (start, end): (&str, &str), version: u64) -> Region {
        let range = KeyRange::new(start, end).expect("a range");
        let conf_ver = 2.min(version);
        let epoch = RegionEpoch { conf_ver, version };
        Region::builder(id, range, epoch).build().expect("a region")
    }

    fn ids(map: &RegionMap) -> Vec<u64> {
        map.pin().iter().map(|entry| entry.id()).collect()
    }

    #[test]
    fn what_a_refused_record_ended_goes_and_nothing_else() {
        let map = RegionMap::new();
        let received_at = Moment::from_nanos(1);
        for held in [
            region(1, ("a", "e"), 7),
            region(4, ("e", "g"), 5),
            region(6, ("g", "i"), 1),
            region(7, ("i", "k"), 6),
            region(8, ("k", ""), 5),
        ] {
            let outcome = map.put(held, Provenance::Stream { received_at });
            assert!(!outcome.is_refused());
        }
        let refused = region(1, ("a", "k"), 6);
        // 6 looks recreated, 7 is as new, 8 lies beside.
        assert_eq!(remove(&map, &[refused]), [Key::from(&b"e"[..])]);
        assert_eq!(ids(&map), [1, 6, 7, 8]);
    }

    #[test]
    fn an_earlier_life_of_the_region_itself_goes_too() {
        let map = RegionMap::new();
        let received_at = Moment::from_nanos(1);
        for held in [region(1, ("a", "e"), 2), region(5, ("e", ""), 6)] {
            let outcome = map.put(held, Provenance::Stream { received_at });
            assert!(!outcome.is_refused());
        }
        // Refused because of 5.
        remove(&map, &[region(1, ("e", "g"), 3)]);
        assert_eq!(ids(&map), [5]);
    }
}
