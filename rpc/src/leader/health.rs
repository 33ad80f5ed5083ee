//! The health of a leader: serving until it stops.

use std::sync::Arc;

use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::cluster::Cluster;
use crate::proto::health::health_check_response::ServingStatus;
use crate::proto::health::health_server::Health;
use crate::proto::health::{HealthCheckRequest, HealthCheckResponse};
use crate::syncer::outlet::{Outflow, outlet};

/// Answers for the whole server, whose service name is empty.
#[derive(Clone, Debug)]
pub(super) struct HealthService(pub(super) Arc<Cluster>);

impl HealthService {
    fn status(&self) -> HealthCheckResponse {
        let status = if self.0.stopping.is_cancelled() {
            ServingStatus::NotServing
        } else {
            ServingStatus::Serving
        };
        HealthCheckResponse {
            status: status.into(),
        }
    }
}

#[tonic::async_trait]
impl Health for HealthService {
    type WatchStream = Outflow<HealthCheckResponse>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if request.get_ref().service.is_empty() {
            Ok(Response::new(self.status()))
        } else {
            Err(Status::not_found("unknown service"))
        }
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        // A watch of an unknown service waits for it to appear.
        let known = request.get_ref().service.is_empty();
        let (statuses, flow) = outlet(1);
        let health = self.clone();
        tokio::spawn(async move {
            let unknown = HealthCheckResponse {
                status: ServingStatus::ServiceUnknown.into(),
            };
            let first = if known { health.status() } else { unknown };
            if statuses.send(first).await.is_err() {
                return;
            }
            tokio::select! {
                () = health.0.stopping.cancelled() => {
                    let last = statuses.send(health.status());
                    let _ = timeout(health.0.config.stop_grace, last).await;
                }
                () = statuses.closed() => {}
            }
        });
        Ok(Response::new(flow))
    }
}
