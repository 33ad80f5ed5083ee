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

use tidegate_core::{EntryRef, Snapshot};

use super::error::LookupError;
use super::hole::has_hole;
use super::reach::Reach;
use super::scanned;
use crate::proto::pdpb::{ScanRegionsRequest, ScanRegionsResponse};
use crate::proto::wire::{Tags, Told, put_descriptor, put_leader, put_told};
use crate::proto::written::Written;

/// PD's limit: a positive one, or none.
pub(crate) fn limit(requested: i32) -> usize {
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

/// The same answer, written; what it has in three lists is gone over three times.
pub(super) fn scan_written(
    snapshot: &Snapshot<'_>,
    request: &ScanRegionsRequest,
    reach: &mut Reach<'_>,
) -> Result<Written<ScanRegionsResponse>, LookupError> {
    let (start, end) = (&request.start_key[..], &request.end_key[..]);
    let limit = limit(request.limit);
    let mut found: Vec<EntryRef<'_>> = Vec::new();
    let mut len = 0;
    for entry in snapshot.scan(start, end).take(limit) {
        let told = as_scanned(&entry, false);
        let bytes = told.len() * 2;
        reach.take_len(|| bytes, 2)?;
        len += bytes + FRAMES;
        found.push(entry);
    }
    let mut bytes = Vec::with_capacity(len);
    for entry in &found {
        put_descriptor(2, entry.region(), &mut bytes);
    }
    for entry in &found {
        put_leader(3, entry.region(), &mut bytes);
    }
    for entry in &found {
        put_told(4, &as_scanned(entry, false), &mut bytes);
    }
    let spans = found.iter().map(span);
    let has_hole = has_hole(&[(start, end)], spans, limit);
    let a_region = found.first().map_or(0, |entry| entry.region().id());
    let mut written = Written::bytes(bytes, a_region);
    written.has_hole = has_hole;
    Ok(written)
}

/// Tags and lengths around a region and its pair in the older lists, at most.
const FRAMES: usize = 18;

/// A region as a scan tells of it.
pub(super) fn as_scanned<'r>(entry: &'r EntryRef<'_>, with_buckets: bool) -> Told<'r> {
    Told {
        region: entry.region(),
        with_buckets,
        always_led: true,
        tags: Tags::ITEM,
    }
}

/// Its range.
pub(super) fn span<'r>(entry: &'r EntryRef<'_>) -> (&'r [u8], &'r [u8]) {
    let region = entry.region();
    (region.start(), region.end())
}
