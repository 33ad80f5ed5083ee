//! `pdpb.PD` as a follower has it: the lookups, and whom to ask for the rest.
//!
//! GetMembers and GetClusterInfo are answered by PD itself, any member of it: the client is told
//! the real members. What only the leader does is passed on to it before it gets here
//! ([`forward`](crate::replica::forward)), methods that we do not even know included; what still
//! gets here is answered as by a follower.

use std::sync::Arc;

use tonic::{Request, Response, Status, Streaming};

use super::direct::Face;
use super::lookups::{BatchScan, ById, Get, Prev, Scan};
use super::query::{Messages, QueryStream};
use super::{Serving, message, refusal};
use crate::proto::pdpb::pd_server::Pd;
use crate::proto::pdpb::*;
use crate::replica::chain;
use crate::syncer::outlet::Outflow;

/// The service on one replica.
#[derive(Clone, Debug)]
pub(in crate::replica) struct PdService(pub(in crate::replica) Arc<Serving>);

/// What only a leader does.
macro_rules! leader_only {
    ($($method:ident: $request:ty => $response:ty;)*) => {
        $(
            fn $method<'life0, 'async_trait>(
                &'life0 self,
                _: Request<$request>,
            ) -> std::pin::Pin<Box<
                dyn Future<Output = Result<Response<$response>, Status>> + Send + 'async_trait,
            >>
            where
                'life0: 'async_trait,
                Self: 'async_trait,
            {
                Box::pin(std::future::ready(Err(refusal::not_leader())))
            }
        )*
    };
}

/// A stream that is never opened.
type NoStream<T> = tokio_stream::Empty<Result<T, Status>>;

#[tonic::async_trait]
impl Pd for PdService {
    type QueryRegionStream = Messages<Streaming<QueryRegionRequest>>;
    type RegionHeartbeatStream = NoStream<RegionHeartbeatResponse>;
    type SyncRegionsStream = Outflow<SyncRegionResponse>;
    type TsoStream = NoStream<TsoResponse>;

    async fn get_region(
        &self,
        request: Request<GetRegionRequest>,
    ) -> Result<Response<GetRegionResponse>, Status> {
        let answer = self.0.unary::<Get>(Face::Pd, request).await?;
        Ok(answer.map(message))
    }

    async fn get_prev_region(
        &self,
        request: Request<GetRegionRequest>,
    ) -> Result<Response<GetRegionResponse>, Status> {
        let answer = self.0.unary::<Prev>(Face::Pd, request).await?;
        Ok(answer.map(message))
    }

    async fn get_region_by_id(
        &self,
        request: Request<GetRegionByIdRequest>,
    ) -> Result<Response<GetRegionResponse>, Status> {
        let answer = self.0.unary::<ById>(Face::Pd, request).await?;
        Ok(answer.map(message))
    }

    async fn scan_regions(
        &self,
        request: Request<ScanRegionsRequest>,
    ) -> Result<Response<ScanRegionsResponse>, Status> {
        let answer = self.0.unary::<Scan>(Face::Pd, request).await?;
        Ok(answer.map(message))
    }

    async fn batch_scan_regions(
        &self,
        request: Request<BatchScanRegionsRequest>,
    ) -> Result<Response<BatchScanRegionsResponse>, Status> {
        let answer = self.0.unary::<BatchScan>(Face::Pd, request).await?;
        Ok(answer.map(message))
    }

    async fn query_region(
        &self,
        request: Request<Streaming<QueryRegionRequest>>,
    ) -> Result<Response<Self::QueryRegionStream>, Status> {
        let answers = QueryStream::open(&self.0, request)?;
        Ok(answers.map(QueryStream::messages))
    }

    async fn get_members(
        &self,
        request: Request<GetMembersRequest>,
    ) -> Result<Response<GetMembersResponse>, Status> {
        self.0
            .get_members(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn get_cluster_info(
        &self,
        request: Request<GetClusterInfoRequest>,
    ) -> Result<Response<GetClusterInfoResponse>, Status> {
        self.0
            .get_cluster_info(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn sync_regions(
        &self,
        request: Request<Streaming<SyncRegionRequest>>,
    ) -> Result<Response<Self::SyncRegionsStream>, Status> {
        let shared = &self.0.shared;
        let chain = shared.chain().ok_or_else(refusal::not_leader)?;
        let opened = chain::open(shared, chain, request.into_inner()).await?;
        let mut response = Response::new(opened.frames);
        opened.told.write(response.metadata_mut());
        Ok(response)
    }

    leader_only! {
        alloc_id: AllocIdRequest => AllocIdResponse;
        bootstrap: BootstrapRequest => BootstrapResponse;
        get_all_stores: GetAllStoresRequest => GetAllStoresResponse;
        get_min_ts: GetMinTsRequest => GetMinTsResponse;
        get_store: GetStoreRequest => GetStoreResponse;
        is_bootstrapped: IsBootstrappedRequest => IsBootstrappedResponse;
        put_store: PutStoreRequest => PutStoreResponse;
        region_heartbeat: Streaming<RegionHeartbeatRequest> => Self::RegionHeartbeatStream;
        store_heartbeat: StoreHeartbeatRequest => StoreHeartbeatResponse;
        tso: Streaming<TsoRequest> => Self::TsoStream;
    }
}
