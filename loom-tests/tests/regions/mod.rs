//! Regions for the models of the map.

use tidegate_core::{Batch, KeyRange, Moment, Provenance, Region, RegionEpoch};

pub(crate) const STREAM: Provenance = Provenance::Stream {
    received_at: Moment::from_nanos(1),
};

/// Region `id` from `start` to `end` under an epoch that only `version` tells
/// from that of others.
pub(crate) fn region(id: u64, start: &str, end: &str, version: u64) -> Region {
    let range = KeyRange::new(start, end).expect("start before end");
    let epoch = RegionEpoch::new(2, version);
    Region::builder(id, range, epoch).build().expect("an id")
}

#[allow(dead_code, reason = "each file of models uses a part")]
pub(crate) fn batch<const N: usize>(regions: [Region; N]) -> Batch {
    let mut batch = Batch::new();
    for region in regions {
        batch.put(region, STREAM);
    }
    batch
}
