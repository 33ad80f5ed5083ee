//! The lookups that both services have, behind their first checks.
//!
//! A miss is no answer of a follower's, as it may only not have heard of the region yet. An empty
//! scan is one: the ranges asked for hold no region.

use tonic::Status;

use super::counters::Method;
use super::{Found, Serving, Weight};
use crate::proto::pdpb::{
    BatchScanRegionsRequest, BatchScanRegionsResponse, GetRegionByIdRequest, GetRegionRequest,
    GetRegionResponse, QueryRegionRequest, QueryRegionResponse, ScanRegionsRequest,
    ScanRegionsResponse,
};

use crate::lookup::Lookup;

impl Serving {
    pub(super) async fn get_region(&self, request: &GetRegionRequest) -> GetRegionResponse {
        self.answer(Method::GetRegion, Weight::Light, |lookup| {
            one(lookup.get(request))
        })
        .await
    }

    pub(super) async fn get_prev_region(&self, request: &GetRegionRequest) -> GetRegionResponse {
        self.answer(Method::GetPrevRegion, Weight::Light, |lookup| {
            one(lookup.prev(request))
        })
        .await
    }

    pub(super) async fn get_region_by_id(
        &self,
        request: &GetRegionByIdRequest,
    ) -> GetRegionResponse {
        self.answer(Method::GetRegionById, Weight::Light, |lookup| {
            one(lookup.by_id(request))
        })
        .await
    }

    /// ResourceExhausted if there is no room.
    pub(super) async fn scan_regions(
        &self,
        request: &ScanRegionsRequest,
    ) -> Result<ScanRegionsResponse, Status> {
        let method = Method::ScanRegions;
        let weight = Weight::of_scan(request.limit, 1);
        let place = self.scans.enter(weight).await;
        let _place = place.map_err(|r| self.reject(method, r))?;
        let scan = |lookup: &Lookup<'_, '_>| Found::Answer(lookup.scan(request));
        Ok(self.answer(method, weight, scan).await)
    }

    /// ResourceExhausted if there is no room.
    pub(super) async fn batch_scan_regions(
        &self,
        request: &BatchScanRegionsRequest,
    ) -> Result<BatchScanRegionsResponse, Status> {
        let method = Method::BatchScanRegions;
        let weight = Weight::of_scan(request.limit, request.ranges.len());
        let place = self.scans.enter(weight).await;
        let _place = place.map_err(|r| self.reject(method, r))?;
        let cluster_id = self.shared.cluster_id().unwrap_or(0);
        let scan = |lookup: &Lookup<'_, '_>| match lookup.batch_scan(request) {
            Ok(response) => Found::Answer(response),
            Err(error) => {
                let response = BatchScanRegionsResponse {
                    header: Some(error.header(cluster_id)),
                    ..BatchScanRegionsResponse::default()
                };
                if error.is_bad_request() {
                    Found::Invalid(response)
                } else {
                    Found::NothingBut(response)
                }
            }
        };
        Ok(self.answer(method, weight, scan).await)
    }
}

/// A batch of QueryRegion: one miss, and there is no answer to the batch. An item left out would
/// say that there is no such region.
pub(super) fn batch(
    lookup: &Lookup<'_, '_>,
    request: &QueryRegionRequest,
) -> Found<QueryRegionResponse> {
    let found = lookup.query_whole(request);
    found.map_or(Found::Nothing, Found::Answer)
}

fn one(found: Option<GetRegionResponse>) -> Found<GetRegionResponse> {
    found.map_or(Found::Nothing, Found::Answer)
}
