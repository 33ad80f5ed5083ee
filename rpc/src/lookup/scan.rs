//! ScanRegions.
//!
//! From the region that contains the start key, or the first one behind it, in key order; up to
//! and without the first region that starts at the end key or later (an empty end key is none),
//! or until `limit` regions are found. A limit that is not positive is none. Holes are skipped in
//! silence. Of a range that ends before it starts, the region that contains the start key is
//! still found if it starts before the end key.
//!
//! The whole answer comes from one snapshot, however long it is, as PD holds its lock for one:
//! regions from the pages of different moments could overlap, and a client could not tell.

use tidegate_core::Snapshot;

use super::error::LookupError;
use super::reach::Reach;
use super::scanned;
use crate::proto::pdpb::{ScanRegionsRequest, ScanRegionsResponse};

/// PD's limit: a positive one, or none.
pub(super) fn limit(requested: i32) -> usize {
    usize::try_from(requested)
        .ok()
        .filter(|&limit| limit > 0)
        .unwrap_or(usize::MAX)
}

pub(super) fn scan(
    snapshot: &Snapshot<'_>,
    request: &ScanRegionsRequest,
    reach: &mut Reach<'_>,
) -> Result<ScanRegionsResponse, LookupError> {
    let mut response = ScanRegionsResponse::default();
    let entries = snapshot.scan(&request.start_key, &request.end_key);
    for entry in entries.take(limit(request.limit)) {
        // Buckets cannot be asked for here.
        let region = scanned(&entry, false);
        reach.take(&region, 2)?;
        // Old clients read the pair, new ones the list; PD fills both.
        response.region_metas.extend(region.region.clone());
        response.leaders.extend(region.leader);
        response.regions.push(region);
    }
    Ok(response)
}
