//! Region lookups by PD's rules: one snapshot of the map in, answers in PD's messages out.
//!
//! The rules are those of PD's in-memory model, its corner cases included, because stock clients
//! were written against them. They are pure functions of a snapshot, so that the embedded leader
//! and the replica answer alike; what a miss means is theirs to decide, and therefore a value
//! here: `None`, or a count beside the answer. A leader says so in a successful header, a replica
//! refuses. Headers are left unset.
//!
//! | lookup | rule |
//! |---|---|
//! | get | the region that contains the key; none in a hole |
//! | prev | the region that ends where the key's own region starts; none if the key lies in a hole or a hole comes before its region |
//! | by id | id 0 never exists |
//! | scan, batch scan | in key order, holes skipped; see `scan.rs` and `batch.rs` for limits and errors |
//! | query | keys, previous keys and ids at once; see `query.rs` |
//!
//! A region's buckets are sent only when they were asked for. A region without a known leader has
//! the field unset, except in scans, where PD puts an empty peer.

mod batch;
mod error;
pub(crate) mod fit;
mod hole;
mod query;
mod reach;
mod scan;

use tidegate_core::{EntryRef, Snapshot};

use crate::proto::convert::pdpb_region;
use crate::proto::pdpb::{
    BatchScanRegionsRequest, BatchScanRegionsResponse, GetRegionByIdRequest, GetRegionRequest,
    GetRegionResponse, QueryRegionRequest, QueryRegionResponse, Region, RegionResponse,
    ScanRegionsRequest, ScanRegionsResponse,
};
use crate::proto::wire::{Tags, Told};
use crate::proto::written::Written;

pub use error::LookupError;
pub use query::Queried;
pub(crate) use query::{check_items, items, size};
pub(crate) use reach::Gone;
pub use reach::{Bounds, Reach};
pub(crate) use scan::limit;

/// Lookups on one snapshot. Whatever is asked of the same `Lookup` is answered from the same
/// state of the map.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'s, 'm> {
    snapshot: &'s Snapshot<'m>,
}

impl<'s, 'm> Lookup<'s, 'm> {
    /// Lookups on `snapshot`.
    #[must_use]
    pub fn new(snapshot: &'s Snapshot<'m>) -> Self {
        Self { snapshot }
    }

    /// GetRegion: O(log n).
    #[must_use]
    pub fn get(&self, request: &GetRegionRequest) -> Option<GetRegionResponse> {
        let entry = self.snapshot.get(&request.region_key)?;
        Some(whole(&entry, request.need_buckets))
    }

    /// GetPrevRegion: O(log n).
    #[must_use]
    pub fn prev(&self, request: &GetRegionRequest) -> Option<GetRegionResponse> {
        let entry = self.snapshot.prev(&request.region_key)?;
        Some(whole(&entry, request.need_buckets))
    }

    /// GetRegion, written at once.
    pub(crate) fn get_written(
        &self,
        request: &GetRegionRequest,
    ) -> Option<Written<GetRegionResponse>> {
        let entry = self.snapshot.get(&request.region_key)?;
        Some(written(&entry, request.need_buckets))
    }

    /// GetPrevRegion, written at once.
    pub(crate) fn prev_written(
        &self,
        request: &GetRegionRequest,
    ) -> Option<Written<GetRegionResponse>> {
        let entry = self.snapshot.prev(&request.region_key)?;
        Some(written(&entry, request.need_buckets))
    }

    /// GetRegionByID, written at once.
    pub(crate) fn by_id_written(
        &self,
        request: &GetRegionByIdRequest,
    ) -> Option<Written<GetRegionResponse>> {
        let entry = self.snapshot.by_id(request.region_id)?;
        Some(written(&entry, request.need_buckets))
    }

    /// GetRegionByID.
    #[must_use]
    pub fn by_id(&self, request: &GetRegionByIdRequest) -> Option<GetRegionResponse> {
        let entry = self.snapshot.by_id(request.region_id)?;
        Some(whole(&entry, request.need_buckets))
    }

    /// ScanRegions: O(log n + answer). An empty answer is an answer.
    #[must_use]
    pub fn scan(&self, request: &ScanRegionsRequest) -> ScanRegionsResponse {
        // Without bounds nothing ends it.
        let endless = Reach::within(Bounds::NONE);
        self.scan_within(request, endless).unwrap_or_default()
    }

    /// The same as far as `reach` lets it go.
    ///
    /// # Errors
    /// The answer would be beyond its bounds, or nobody waits for it any more.
    pub fn scan_within(
        &self,
        request: &ScanRegionsRequest,
        mut reach: Reach<'_>,
    ) -> Result<ScanRegionsResponse, LookupError> {
        scan::scan(self.snapshot, request, &mut reach)
    }

    /// The same, written at once.
    ///
    /// # Errors
    /// As those of [`scan_within`](Self::scan_within).
    pub(crate) fn scan_written(
        &self,
        request: &ScanRegionsRequest,
        mut reach: Reach<'_>,
    ) -> Result<Written<ScanRegionsResponse>, LookupError> {
        scan::scan_written(self.snapshot, request, &mut reach)
    }

    /// BatchScanRegions: O(ranges × log n + answer). An empty answer is an answer.
    ///
    /// # Errors
    /// PD's errors for ranges that overlap or are inverted and, where the request forbids holes,
    /// for a hole; one for too many ranges.
    pub fn batch_scan(
        &self,
        request: &BatchScanRegionsRequest,
    ) -> Result<BatchScanRegionsResponse, LookupError> {
        self.batch_scan_within(request, Reach::within(Bounds::NONE))
    }

    /// The same as far as `reach` lets it go.
    ///
    /// # Errors
    /// As those of [`batch_scan`](Self::batch_scan); the answer would be beyond its bounds, or nobody waits for it any
    /// more.
    pub fn batch_scan_within(
        &self,
        request: &BatchScanRegionsRequest,
        mut reach: Reach<'_>,
    ) -> Result<BatchScanRegionsResponse, LookupError> {
        batch::batch_scan(self.snapshot, request, &mut reach)
    }

    /// The same, written at once.
    ///
    /// # Errors
    /// As those of [`batch_scan_within`](Self::batch_scan_within).
    pub(crate) fn batch_scan_written(
        &self,
        request: &BatchScanRegionsRequest,
        mut reach: Reach<'_>,
    ) -> Result<Written<BatchScanRegionsResponse>, LookupError> {
        batch::batch_scan_written(self.snapshot, request, &mut reach)
    }

    /// QueryRegion: O(items × log n).
    pub fn query(&self, request: &QueryRegionRequest) -> Queried {
        // Without bounds nothing ends it.
        let endless = Reach::within(Bounds::NONE);
        self.query_within(request, endless).unwrap_or_default()
    }

    /// The same as far as `reach` lets it go.
    ///
    /// # Errors
    /// The answer would be beyond its bounds, or nobody waits for it any more.
    pub fn query_within(
        &self,
        request: &QueryRegionRequest,
        mut reach: Reach<'_>,
    ) -> Result<Queried, LookupError> {
        query::query(self.snapshot, request, &mut reach)
    }

    /// QueryRegion where a batch with a miss has no answer: `None` at the first one. Written at once.
    ///
    /// # Errors
    /// As those of [`query_within`](Self::query_within).
    pub(crate) fn query_whole(
        &self,
        request: &QueryRegionRequest,
        mut reach: Reach<'_>,
    ) -> Result<Option<Written<QueryRegionResponse>>, LookupError> {
        query::query_whole(self.snapshot, request, &mut reach)
    }
}

/// The answer of the three lookups that give one region, written.
fn written(entry: &EntryRef<'_>, need_buckets: bool) -> Written<GetRegionResponse> {
    let told = Told {
        region: entry.region(),
        with_buckets: need_buckets,
        always_led: false,
        tags: Tags::ANSWER,
    };
    let mut bytes = Vec::with_capacity(told.len());
    told.put(&mut bytes);
    Written::bytes(bytes, entry.region().id())
}

/// The same as a message.
fn whole(entry: &EntryRef<'_>, need_buckets: bool) -> GetRegionResponse {
    let Region {
        region,
        leader,
        down_peers,
        pending_peers,
        buckets,
    } = pdpb_region(entry.region(), need_buckets);
    GetRegionResponse {
        header: None,
        region,
        leader,
        down_peers,
        pending_peers,
        buckets,
    }
}

/// The same as an item of a batch.
fn item(entry: &EntryRef<'_>, need_buckets: bool) -> RegionResponse {
    let Region {
        region,
        leader,
        down_peers,
        pending_peers,
        buckets,
    } = pdpb_region(entry.region(), need_buckets);
    RegionResponse {
        region,
        leader,
        down_peers,
        pending_peers,
        buckets,
    }
}

/// The same as an item of a scan: the leader is never unset.
fn scanned(entry: &EntryRef<'_>, need_buckets: bool) -> Region {
    let mut region = pdpb_region(entry.region(), need_buckets);
    region.leader.get_or_insert_default();
    region
}

#[cfg(test)]
mod tests;
