//! The frames of a sync stream.
//!
//! The lists of a frame are parallel and always of equal length: an unknown leader is an empty peer, and absent buckets
//! are an empty message, because PD's own followers count on it.

use tidegate_core::SharedEntry;

use crate::proto::convert::{buckets_to_pb, leader_to_pb, region_to_pb, stats_to_pb};
use crate::proto::header::{error_header, ok_header};
use crate::proto::pdpb::{ErrorType, SyncRegionResponse};

/// A frame of regions.
pub(crate) fn regions<'a>(
    cluster_id: u64,
    start_index: u64,
    entries: impl ExactSizeIterator<Item = &'a SharedEntry>,
) -> SyncRegionResponse {
    let mut frame = SyncRegionResponse {
        header: Some(ok_header(cluster_id)),
        start_index,
        regions: Vec::with_capacity(entries.len()),
        region_stats: Vec::with_capacity(entries.len()),
        region_leaders: Vec::with_capacity(entries.len()),
        buckets: Vec::with_capacity(entries.len()),
    };
    for entry in entries {
        let region = entry.region();
        frame.regions.push(region_to_pb(region));
        frame.region_stats.push(stats_to_pb(region));
        frame
            .region_leaders
            .push(leader_to_pb(region).unwrap_or_default());
        frame
            .buckets
            .push(buckets_to_pb(region).unwrap_or_default());
    }
    frame
}

/// A frame without regions: a keepalive, the end of a full sync, or "nothing new".
pub(crate) fn empty(cluster_id: u64, start_index: u64) -> SyncRegionResponse {
    regions(cluster_id, start_index, [].iter())
}

/// The last frame before the leader is gone.
pub(crate) fn stopped(cluster_id: u64) -> SyncRegionResponse {
    let text = "server stopped, close the region syncer client";
    SyncRegionResponse {
        header: Some(error_header(cluster_id, ErrorType::Unknown, text)),
        ..SyncRegionResponse::default()
    }
}
