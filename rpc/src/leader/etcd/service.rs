//! Etcd's services, and PD's window on its keys.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

use super::Etcd;
use crate::leader::cluster::Cluster;
use crate::leader::converse::{Step, converse};
use crate::leader::service::Service;
use crate::proto::etcdserverpb::kv_server::Kv;
use crate::proto::etcdserverpb::lease_server::Lease;
use crate::proto::etcdserverpb::*;
use crate::proto::meta_storagepb::meta_storage_server::MetaStorage;
use crate::proto::meta_storagepb::{self, GetRequest, GetResponse};
use crate::syncer::outlet::Outflow;

impl Etcd {
    pub(super) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Status> {
        let keys = self.now();
        let mut response = keys.range(request)?;
        response.header = self.header(&keys);
        Ok(response)
    }

    pub(super) fn put(&self, request: PutRequest) -> Result<PutResponse, Status> {
        let mut keys = self.now();
        keys.check_put(&request)?;
        keys.revision += 1;
        let revision = keys.revision;
        let mut response = keys.put(revision, request);
        response.header = self.header(&keys);
        Ok(response)
    }

    pub(super) fn delete(
        &self,
        request: &DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse, Status> {
        if request.key.is_empty() {
            return Err(Status::invalid_argument("etcdserver: key is not provided"));
        }
        let mut keys = self.now();
        let mut response = keys.delete(request);
        if response.deleted > 0 {
            keys.revision += 1;
        }
        response.header = self.header(&keys);
        Ok(response)
    }

    pub(super) fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        let mut keys = self.now();
        let mut response = keys.txn(request)?;
        response.header = self.header(&keys);
        Ok(response)
    }

    pub(super) fn grant(&self, request: &LeaseGrantRequest) -> Result<LeaseGrantResponse, Status> {
        let mut keys = self.now();
        let granted = keys.leases.grant(request.id, request.ttl, Instant::now());
        let (id, ttl) = granted.map_err(|error| Status::failed_precondition(error.to_string()))?;
        Ok(LeaseGrantResponse {
            header: self.header(&keys),
            id,
            ttl,
            error: String::new(),
        })
    }

    pub(super) fn revoke(
        &self,
        request: &LeaseRevokeRequest,
    ) -> Result<LeaseRevokeResponse, Status> {
        let mut keys = self.now();
        if !keys.end_lease(request.id) {
            return Err(Status::not_found("etcdserver: requested lease not found"));
        }
        Ok(LeaseRevokeResponse {
            header: self.header(&keys),
        })
    }

    pub(super) fn keep_alive(&self, request: &LeaseKeepAliveRequest) -> LeaseKeepAliveResponse {
        let mut keys = self.now();
        LeaseKeepAliveResponse {
            ttl: keys.leases.renew(request.id, Instant::now()),
            header: self.header(&keys),
            id: request.id,
        }
    }
}

#[tonic::async_trait]
impl Kv for Service {
    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        self.0.check_open()?;
        self.0.etcd.range(request.get_ref()).map(Response::new)
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        self.0.check_open()?;
        self.0.etcd.put(request.into_inner()).map(Response::new)
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        self.0.check_open()?;
        self.0.etcd.delete(request.get_ref()).map(Response::new)
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        self.0.check_open()?;
        self.0.etcd.txn(request.into_inner()).map(Response::new)
    }
}

#[tonic::async_trait]
impl Lease for Service {
    type LeaseKeepAliveStream = Outflow<LeaseKeepAliveResponse>;

    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        self.0.check_open()?;
        self.0.etcd.grant(request.get_ref()).map(Response::new)
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        self.0.check_open()?;
        self.0.etcd.revoke(request.get_ref()).map(Response::new)
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        self.0.check_open()?;
        let answer = |cluster: &Cluster, request: LeaseKeepAliveRequest| {
            Step::Answer(cluster.etcd.keep_alive(&request))
        };
        let cluster = Arc::clone(&self.0);
        Ok(Response::new(converse(
            cluster,
            request.into_inner(),
            answer,
        )))
    }
}

#[tonic::async_trait]
impl MetaStorage for Service {
    /// As PD does: key and value alone, without a word on their revisions.
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        self.0.check_open()?;
        let GetRequest {
            key,
            range_end,
            limit,
            revision,
            ..
        } = request.into_inner();
        let found = self.0.etcd.range(&RangeRequest {
            key,
            range_end,
            limit,
            revision,
            ..RangeRequest::default()
        })?;
        let header = meta_storagepb::ResponseHeader {
            cluster_id: self.0.config.cluster_id,
            revision: found.header.map_or(0, |header| header.revision),
            error: None,
        };
        let pair = |kv: crate::proto::mvccpb::KeyValue| meta_storagepb::KeyValue {
            key: kv.key,
            value: kv.value,
            ..meta_storagepb::KeyValue::default()
        };
        Ok(Response::new(GetResponse {
            header: Some(header),
            kvs: found.kvs.into_iter().map(pair).collect(),
            more: found.more,
            count: found.count,
        }))
    }
}
