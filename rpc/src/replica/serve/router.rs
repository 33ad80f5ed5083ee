//! `routerpb.Router`: the lookups as PD's router service has them.
//!
//! GetStore and GetAllStores get the leader's answer before they come here; what still comes here is answered as by a follower.

use std::sync::Arc;

use tonic::{Request, Response, Status, Streaming};

use super::counters::Method;
use super::demand::Demand;
use super::query::QueryStream;
use super::{Serving, refusal};
use crate::proto::pdpb::{
    BatchScanRegionsRequest, BatchScanRegionsResponse, GetAllStoresRequest, GetAllStoresResponse,
    GetRegionByIdRequest, GetRegionRequest, GetRegionResponse, GetStoreRequest, GetStoreResponse,
    QueryRegionRequest,
};
use crate::proto::routerpb::router_server::Router;

/// The service on one replica.
#[derive(Clone, Debug)]
pub(in crate::replica) struct RouterService(pub(in crate::replica) Arc<Serving>);

#[tonic::async_trait]
impl Router for RouterService {
    type QueryRegionStream = QueryStream<Streaming<QueryRegionRequest>>;

    async fn get_region(
        &self,
        request: Request<GetRegionRequest>,
    ) -> Result<Response<GetRegionResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let checked = self.0.check_router(request.header.as_ref());
        let demand = checked.and_then(|()| Demand::of(&metadata));
        let demand = demand.map_err(|r| self.0.reject(Method::GetRegion, r))?;
        self.0.get_region(&demand, request).await
    }

    async fn get_prev_region(
        &self,
        request: Request<GetRegionRequest>,
    ) -> Result<Response<GetRegionResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let checked = self.0.check_router(request.header.as_ref());
        let demand = checked.and_then(|()| Demand::of(&metadata));
        let demand = demand.map_err(|r| self.0.reject(Method::GetPrevRegion, r))?;
        self.0.get_prev_region(&demand, request).await
    }

    async fn get_region_by_id(
        &self,
        request: Request<GetRegionByIdRequest>,
    ) -> Result<Response<GetRegionResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let checked = self.0.check_router(request.header.as_ref());
        let demand = checked.and_then(|()| Demand::of(&metadata));
        let demand = demand.map_err(|r| self.0.reject(Method::GetRegionById, r))?;
        self.0.get_region_by_id(&demand, request).await
    }

    async fn batch_scan_regions(
        &self,
        request: Request<BatchScanRegionsRequest>,
    ) -> Result<Response<BatchScanRegionsResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let checked = self.0.check_router(request.header.as_ref());
        let demand = checked.and_then(|()| Demand::of(&metadata));
        let demand = demand.map_err(|r| self.0.reject(Method::BatchScanRegions, r))?;
        self.0.batch_scan_regions(&demand, request).await
    }

    async fn query_region(
        &self,
        request: Request<Streaming<QueryRegionRequest>>,
    ) -> Result<Response<Self::QueryRegionStream>, Status> {
        QueryStream::open(&self.0, request)
    }

    async fn get_store(
        &self,
        _: Request<GetStoreRequest>,
    ) -> Result<Response<GetStoreResponse>, Status> {
        Err(refusal::not_leader())
    }

    async fn get_all_stores(
        &self,
        _: Request<GetAllStoresRequest>,
    ) -> Result<Response<GetAllStoresResponse>, Status> {
        Err(refusal::not_leader())
    }
}
