//! The services of a leader: each call is checked, handed to the part that answers it, and given its header.

use std::sync::Arc;

use tonic::{Request, Response, Status, Streaming};

use super::cluster::Cluster;
use super::converse::{Step, converse};
use super::{bootstrap, heartbeat, lookups, sync};
use crate::proto::metapb::NodeState;
use crate::proto::pdpb::pd_server::Pd;
use crate::proto::pdpb::*;
use crate::syncer::outlet::Outflow;

/// All that PD's client port answers here.
#[derive(Clone, Debug)]
pub(super) struct Service(pub(super) Arc<Cluster>);

#[tonic::async_trait]
impl Pd for Service {
    type TsoStream = Outflow<TsoResponse>;
    type RegionHeartbeatStream = Outflow<RegionHeartbeatResponse>;
    type QueryRegionStream = Outflow<QueryRegionResponse>;
    type SyncRegionsStream = Outflow<SyncRegionResponse>;

    async fn get_members(
        &self,
        _: Request<GetMembersRequest>,
    ) -> Result<Response<GetMembersResponse>, Status> {
        self.0.check_open()?;
        let member = self.0.member.clone();
        Ok(Response::new(GetMembersResponse {
            header: self.0.ok(),
            members: vec![member.clone()],
            leader: Some(member.clone()),
            etcd_leader: Some(member),
        }))
    }

    async fn get_cluster_info(
        &self,
        _: Request<GetClusterInfoRequest>,
    ) -> Result<Response<GetClusterInfoResponse>, Status> {
        self.0.check_open()?;
        Ok(Response::new(GetClusterInfoResponse {
            header: self.0.ok(),
            service_modes: vec![ServiceMode::PdSvcMode.into()],
            tso_urls: Vec::new(),
        }))
    }

    async fn get_min_ts(
        &self,
        request: Request<GetMinTsRequest>,
    ) -> Result<Response<GetMinTsResponse>, Status> {
        self.0.admit(request.get_ref().header.as_ref())?;
        let taken = self
            .0
            .tso
            .take(1)
            .map_err(|error| Status::unknown(error.to_string()))?;
        Ok(Response::new(GetMinTsResponse {
            header: self.0.ok(),
            timestamp: Some(taken),
        }))
    }

    async fn tso(
        &self,
        request: Request<Streaming<TsoRequest>>,
    ) -> Result<Response<Self::TsoStream>, Status> {
        self.0.check_open()?;
        let answer = |cluster: &Cluster, request: TsoRequest| {
            if let Err(status) = cluster.admit(request.header.as_ref()) {
                return Step::End(status);
            }
            match cluster.tso.take(request.count) {
                Ok(timestamp) => Step::Answer(TsoResponse {
                    header: cluster.ok(),
                    count: request.count,
                    timestamp: Some(timestamp),
                }),
                Err(error) => Step::End(Status::unknown(error.to_string())),
            }
        };
        Ok(Response::new(converse(
            Arc::clone(&self.0),
            request.into_inner(),
            answer,
        )))
    }

    async fn bootstrap(
        &self,
        request: Request<BootstrapRequest>,
    ) -> Result<Response<BootstrapResponse>, Status> {
        let cluster = &self.0;
        let request = request.into_inner();
        cluster.admit(request.header.as_ref())?;
        let already = || {
            cluster.error(
                ErrorType::AlreadyBootstrapped,
                "cluster is already bootstrapped",
            )
        };
        if cluster.is_bootstrapped() {
            return Ok(Response::new(BootstrapResponse { header: already() }));
        }
        let header = match bootstrap::check(request, cluster.config.cluster_id) {
            Err(error) => cluster.error(ErrorType::Unknown, error),
            Ok((store, region)) => match cluster.bootstrap(store, region) {
                Ok(true) => cluster.ok(),
                Ok(false) => already(),
                Err(error) => cluster.error(error.error_type(), error),
            },
        };
        Ok(Response::new(BootstrapResponse { header }))
    }

    async fn is_bootstrapped(
        &self,
        request: Request<IsBootstrappedRequest>,
    ) -> Result<Response<IsBootstrappedResponse>, Status> {
        self.0.admit(request.get_ref().header.as_ref())?;
        let bootstrapped = self.0.is_bootstrapped();
        Ok(Response::new(IsBootstrappedResponse {
            header: self.0.ok(),
            bootstrapped,
        }))
    }

    async fn alloc_id(
        &self,
        request: Request<AllocIdRequest>,
    ) -> Result<Response<AllocIdResponse>, Status> {
        let request = request.get_ref();
        self.0.admit(request.header.as_ref())?;
        let count = if request.count > 1 { request.count } else { 0 };
        Ok(Response::new(match self.0.ids.take(request.count) {
            Some(id) => AllocIdResponse {
                header: self.0.ok(),
                id,
                count,
            },
            None => AllocIdResponse {
                header: self.0.error(ErrorType::Unknown, "no ids are left"),
                ..Default::default()
            },
        }))
    }

    async fn get_store(
        &self,
        request: Request<GetStoreRequest>,
    ) -> Result<Response<GetStoreResponse>, Status> {
        let request = request.get_ref();
        self.0.admit(request.header.as_ref())?;
        if let Some(header) = self.0.unless_bootstrapped() {
            let header = Some(header);
            return Ok(Response::new(GetStoreResponse {
                header,
                ..Default::default()
            }));
        }
        Ok(Response::new(match self.0.stores.get(request.store_id) {
            Ok(record) => GetStoreResponse {
                header: self.0.ok(),
                store: Some(record.store),
                stats: record.stats,
            },
            Err(error) => {
                let header = self.0.error(error.error_type(), error);
                GetStoreResponse {
                    header,
                    ..Default::default()
                }
            }
        }))
    }

    async fn put_store(
        &self,
        request: Request<PutStoreRequest>,
    ) -> Result<Response<PutStoreResponse>, Status> {
        let request = request.into_inner();
        self.0.admit(request.header.as_ref())?;
        let header = match self.0.unless_bootstrapped() {
            Some(header) => Some(header),
            None => match self.0.stores.put(request.store.unwrap_or_default()) {
                Ok(()) => self.0.ok(),
                Err(error) => self.0.error(error.error_type(), error),
            },
        };
        Ok(Response::new(PutStoreResponse { header }))
    }

    async fn get_all_stores(
        &self,
        request: Request<GetAllStoresRequest>,
    ) -> Result<Response<GetAllStoresResponse>, Status> {
        let request = request.get_ref();
        self.0.admit(request.header.as_ref())?;
        if let Some(header) = self.0.unless_bootstrapped() {
            let header = Some(header);
            return Ok(Response::new(GetAllStoresResponse {
                header,
                ..Default::default()
            }));
        }
        let mut stores: Vec<_> = self
            .0
            .stores
            .all()
            .into_iter()
            .map(|record| record.store)
            .collect();
        if request.exclude_tombstone_stores {
            stores.retain(|store| store.node_state() != NodeState::Removed);
        }
        Ok(Response::new(GetAllStoresResponse {
            header: self.0.ok(),
            stores,
        }))
    }

    async fn store_heartbeat(
        &self,
        request: Request<StoreHeartbeatRequest>,
    ) -> Result<Response<StoreHeartbeatResponse>, Status> {
        let request = request.into_inner();
        self.0.admit(request.header.as_ref())?;
        let Some(stats) = request.stats else {
            return Err(Status::unknown(
                "invalid store heartbeat command, it has no stats",
            ));
        };
        let mut response = StoreHeartbeatResponse::default();
        response.header = match self.0.unless_bootstrapped() {
            Some(header) => Some(header),
            None => match self
                .0
                .stores
                .heartbeat(stats, self.0.config.wall.unix_nanos())
            {
                Ok(state) => {
                    response.set_state(state);
                    self.0.ok()
                }
                Err(error) => self.0.error(error.error_type(), error),
            },
        };
        Ok(Response::new(response))
    }

    async fn region_heartbeat(
        &self,
        request: Request<Streaming<RegionHeartbeatRequest>>,
    ) -> Result<Response<Self::RegionHeartbeatStream>, Status> {
        self.0.check_open()?;
        let cluster = Arc::clone(&self.0);
        Ok(Response::new(converse(
            cluster,
            request.into_inner(),
            heartbeat::take,
        )))
    }

    async fn get_region(
        &self,
        request: Request<GetRegionRequest>,
    ) -> Result<Response<GetRegionResponse>, Status> {
        lookups::get(&self.0, request.into_inner())
    }

    async fn get_prev_region(
        &self,
        request: Request<GetRegionRequest>,
    ) -> Result<Response<GetRegionResponse>, Status> {
        lookups::prev(&self.0, request.into_inner())
    }

    async fn get_region_by_id(
        &self,
        request: Request<GetRegionByIdRequest>,
    ) -> Result<Response<GetRegionResponse>, Status> {
        lookups::by_id(&self.0, request.into_inner())
    }

    async fn query_region(
        &self,
        request: Request<Streaming<QueryRegionRequest>>,
    ) -> Result<Response<Self::QueryRegionStream>, Status> {
        self.0.check_open()?;
        Ok(Response::new(converse(
            Arc::clone(&self.0),
            request.into_inner(),
            lookups::query,
        )))
    }

    async fn scan_regions(
        &self,
        request: Request<ScanRegionsRequest>,
    ) -> Result<Response<ScanRegionsResponse>, Status> {
        lookups::scan(&self.0, request.into_inner())
    }

    async fn batch_scan_regions(
        &self,
        request: Request<BatchScanRegionsRequest>,
    ) -> Result<Response<BatchScanRegionsResponse>, Status> {
        lookups::batch_scan(&self.0, request.into_inner())
    }

    async fn sync_regions(
        &self,
        request: Request<Streaming<SyncRegionRequest>>,
    ) -> Result<Response<Self::SyncRegionsStream>, Status> {
        self.0.check_open()?;
        if !self.0.is_bootstrapped() {
            return Err(Status::unavailable("server not started"));
        }
        Ok(Response::new(sync::open(
            Arc::clone(&self.0),
            request.into_inner(),
        )))
    }
}
