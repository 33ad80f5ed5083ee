//! `routerpb.Router`: the lookups as PD's router service has them.
//!
//! GetStore and GetAllStores get the leader's answer before they come here; what still comes here is answered as by a follower.

use std::sync::Arc;

use tonic::{Request, Response, Status, Streaming};

use super::direct::Face;
use super::lookups::{BatchScan, ById, Get, Prev};
use super::query::{Messages, QueryStream};
use super::{Serving, message, refusal};
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
    type QueryRegionStream = Messages<Streaming<QueryRegionRequest>>;

    async fn get_region(
        &self,
        request: Request<GetRegionRequest>,
    ) -> Result<Response<GetRegionResponse>, Status> {
        let answer = self.0.unary::<Get>(Face::Router, request).await?;
        Ok(answer.map(message))
    }

    async fn get_prev_region(
        &self,
        request: Request<GetRegionRequest>,
    ) -> Result<Response<GetRegionResponse>, Status> {
        let answer = self.0.unary::<Prev>(Face::Router, request).await?;
        Ok(answer.map(message))
    }

    async fn get_region_by_id(
        &self,
        request: Request<GetRegionByIdRequest>,
    ) -> Result<Response<GetRegionResponse>, Status> {
        let answer = self.0.unary::<ById>(Face::Router, request).await?;
        Ok(answer.map(message))
    }

    async fn batch_scan_regions(
        &self,
        request: Request<BatchScanRegionsRequest>,
    ) -> Result<Response<BatchScanRegionsResponse>, Status> {
        let answer = self.0.unary::<BatchScan>(Face::Router, request).await?;
        Ok(answer.map(message))
    }

    async fn query_region(
        &self,
        request: Request<Streaming<QueryRegionRequest>>,
    ) -> Result<Response<Self::QueryRegionStream>, Status> {
        let answers = QueryStream::open(&self.0, request)?;
        Ok(answers.map(QueryStream::messages))
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
