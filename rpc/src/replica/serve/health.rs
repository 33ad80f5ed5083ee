//! The standard gRPC health service. The server as a whole (the empty name) and both its services
//! are SERVING while a lookup would be answered; PD's clients ask once a second.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::Serving;
use crate::proto::health::health_check_response::ServingStatus;
use crate::proto::health::health_server::Health;
use crate::proto::health::{HealthCheckRequest, HealthCheckResponse};

/// How often a watched status is looked at. Freshness is computed when it is asked for, so there
/// is no event to wait for.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// The service on one replica.
#[derive(Clone, Debug)]
pub(in crate::replica) struct HealthService(pub(in crate::replica) Arc<Serving>);

impl HealthService {
    /// The status of a service; `None` if there is no such service.
    fn status(&self, service: &str) -> Option<ServingStatus> {
        match service {
            "" | "pdpb.PD" | "routerpb.Router" if self.0.is_serving() => {
                Some(ServingStatus::Serving)
            }
            "" | "pdpb.PD" | "routerpb.Router" => Some(ServingStatus::NotServing),
            _ => None,
        }
    }
}

#[tonic::async_trait]
impl Health for HealthService {
    type WatchStream =
        Pin<Box<dyn tokio_stream::Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let status = self.status(&request.get_ref().service);
        let status = status.ok_or_else(|| Status::not_found("unknown service"))?;
        Ok(Response::new(HealthCheckResponse {
            status: status.into(),
        }))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (sender, receiver) = mpsc::channel(1);
        let service = request.into_inner().service;
        let health = self.clone();
        tokio::spawn(async move {
            let mut ticks = interval(WATCH_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut last = None;
            loop {
                let status = health
                    .status(&service)
                    .unwrap_or(ServingStatus::ServiceUnknown);
                if last.replace(status) != Some(status) {
                    let response = HealthCheckResponse {
                        status: status.into(),
                    };
                    if sender.send(Ok(response)).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = sender.closed() => return,
                    () = health.0.draining.cancelled() => {
                        // The last word of a server that stops is NOT_SERVING.
                        if last != Some(ServingStatus::Serving) {
                            return;
                        }
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}
