//! What changes a running replica: on an address of its own, off unless it is given one, read-only unless told
//! otherwise.
//!
//! | request | answer |
//! |---|---|
//! | `GET /router/api/v1/config` | all settings as JSON, as PD shows its own |
//! | `POST /router/api/v1/config` | an object with the settings to change, all or nothing; 400 names each that cannot be |
//!
//! It knows no users: whoever reaches the address may use it, so it belongs on loopback or behind something that asks.
//! What is changed here lasts until the next start, or the next reload of the file.

mod tuner;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

pub use self::tuner::Tuner;
use crate::config::AdminConfig;

/// The admin address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {}: {source}; give another address with admin-addr", url.as_str().trim_end_matches('/'))]
pub struct AdminError {
    /// The address.
    url: Url,
    /// Why not.
    source: io::Error,
}

/// Takes the admin address; `None` when there is to be none.
///
/// # Errors
/// [`AdminError`].
pub async fn bind(config: &AdminConfig) -> Result<Option<TcpListener>, AdminError> {
    let Some(url) = &config.addr else {
        return Ok(None);
    };
    let failed = |source| AdminError {
        url: url.clone(),
        source,
    };
    let addresses = url.socket_addrs(|| None).map_err(failed)?;
    TcpListener::bind(&addresses[..])
        .await
        .map(Some)
        .map_err(failed)
}

/// Answers on `listener` until `stop`.
pub fn spawn(listener: TcpListener, tuner: Arc<Tuner>, stop: CancellationToken) -> JoinHandle<()> {
    let routes = Router::new()
        .route("/router/api/v1/config", get(show).post(change))
        .with_state(tuner);
    tokio::spawn(async move {
        let served = axum::serve(listener, routes)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await;
        if let Err(error) = served {
            tracing::error!(%error, "the admin address is not answered any more");
        }
    })
}

async fn show(State(tuner): State<Arc<Tuner>>) -> Response {
    json(StatusCode::OK, &tuner.page())
}

async fn change(State(tuner): State<Arc<Tuner>>, body: Bytes) -> Response {
    let refused = |code, why: &str| json(code, &Value::from(why));
    if !tuner.is_writable() {
        let why =
            "this address only shows; set admin-writable = true in the config file and start again";
        return refused(StatusCode::FORBIDDEN, why);
    }
    let patch: Value = match serde_json::from_slice(&body) {
        Ok(patch) => patch,
        Err(error) => return refused(StatusCode::BAD_REQUEST, &format!("not JSON: {error}")),
    };
    match tuner.change(&patch) {
        Ok(warnings) => {
            let mut said = "The config is updated.".to_owned();
            for warning in warnings {
                said += &format!(" Warning: {warning}.");
            }
            json(StatusCode::OK, &Value::from(said))
        }
        Err(unchanged) => refused(StatusCode::BAD_REQUEST, &unchanged.to_string()),
    }
}

fn json(code: StatusCode, page: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (code, kind, format!("{page:#}\n")).into_response()
}
