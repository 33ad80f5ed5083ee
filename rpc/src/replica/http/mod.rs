//! HTTP on the gRPC port, as PD has it. Everything here only reads.
//!
//! | path | answer |
//! |---|---|
//! | `GET /metrics` | Prometheus' text format; see `metrics.rs` |
//! | `GET /status` | [`ReplicaStatus`] as JSON |
//! | `GET /health` | 200 while lookups are answered, from the map or by the leader, 503 while they are not; the gate as JSON |
//! | other | 404; gRPC is passed on to the PD leader where it is a service of PD's, else it is `Unimplemented` |

mod metrics;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;

use super::forward::{self, Gateway};
use super::listener::Door;
use super::register::Registrar;
use super::serve::Serving;
use super::status::{GateStatus, Identity, ReplicaStatus};
use crate::config::LogHandle;
use crate::tls::Tls;

/// What the pages are made from.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) identity: Identity,
    pub(super) serving: Arc<Serving>,
    pub(super) gateway: Arc<Gateway>,
    pub(super) door: Arc<Door>,
    /// Absent where it is not to be registered.
    pub(super) registrar: Option<Arc<Registrar>>,
    /// Absent where no file names a certificate.
    pub(super) tls: Option<Arc<Tls>>,
    /// Empty where the process logs in a way that is not ours.
    pub(super) log: OnceLock<LogHandle>,
}

/// The routes of this module.
pub(super) fn routes(pages: Arc<Pages>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .route("/health", get(health))
        .fallback(nothing_here)
        .method_not_allowed_fallback(only_read)
        .with_state(pages)
}

async fn metrics(State(pages): State<Arc<Pages>>) -> Response {
    match metrics::render(&pages.read()) {
        Ok(text) => {
            let text = text + &pages.serving.counters.latencies.render();
            ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn status(State(pages): State<Arc<Pages>>) -> Response {
    json(StatusCode::OK, &pages.read())
}

/// JSON as a person on a terminal reads it.
fn json(code: StatusCode, page: &impl Serialize) -> Response {
    match serde_json::to_string_pretty(page) {
        Ok(text) => {
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (code, kind, text + "\n").into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn nothing_here(State(pages): State<Arc<Pages>>, request: Request) -> Response {
    if forward::is_grpc(request.headers()) {
        return grpc(&pages, request).await;
    }
    (StatusCode::NOT_FOUND, "see /metrics, /status, /health\n").into_response()
}

async fn only_read(State(pages): State<Arc<Pages>>, request: Request) -> Response {
    if forward::is_grpc(request.headers()) {
        return grpc(&pages, request).await;
    }
    let only = [(header::ALLOW, "GET, HEAD")];
    let why = "this port only shows: GET; settings are changed at admin-addr\n";
    (StatusCode::METHOD_NOT_ALLOWED, only, why).into_response()
}

/// A call that no service here takes.
async fn grpc(pages: &Pages, request: Request) -> Response {
    let request = request.map(tonic::body::Body::new);
    let answer = forward::fallback(Arc::clone(&pages.gateway), request).await;
    answer.map(axum::body::Body::new)
}

async fn health(State(pages): State<Arc<Pages>>) -> Response {
    let code = if pages.serving.is_serving() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let status = pages.read();
    let page = Health {
        serving: code == StatusCode::OK,
        reading_through: status.reading_through,
        gate: status.gate,
    };
    json(code, &page)
}

/// Whether lookups are answered, and whether from the map.
#[derive(Debug, Serialize)]
struct Health {
    /// They are: from the map or by the leader.
    serving: bool,
    /// There is a leader to ask for what the map may not answer.
    reading_through: bool,
    #[serde(flatten)]
    gate: GateStatus,
}

impl Pages {
    pub(super) fn read(&self) -> ReplicaStatus {
        ReplicaStatus::read(self)
    }
}
