//! What changes a running replica: on an address of its own, off unless it is given one, read-only unless told
//! otherwise.
//!
//! | request | answer |
//! |---|---|
//! | `GET /router/api/v1/config` | all settings as JSON, as PD shows its own |
//! | `POST /router/api/v1/config` | an object with the settings to change, all or nothing: which were, and what is unwise about it; 400 names each that cannot be |
//! | other | 404; gRPC, which belongs on the port of the lookups, is `Unimplemented` and told so |
//!
//! It knows no users: whoever reaches the address may use it, so it belongs on loopback, or asks for certificates: an
//! address with `https://` speaks TLS with the files and the rules of the port of the lookups. What is changed here
//! lasts until the next start, or the next reload of the file.

mod once;
mod tuner;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::service::Routes;
use tonic::transport::Server;
use url::Url;

pub use self::tuner::Tuner;
use crate::config::AdminConfig;
use crate::config::tune::Change;
use crate::replica::listener::{self, Door};
use crate::tls::Tls;

/// Connections that may be open.
const CONNECTIONS: usize = 64;
/// The most that settings take, in bytes.
const LARGEST: usize = 64 << 10;
/// What is taken of more than that, so that a client which does not listen before it has said all of it hears why not.
const HEARD_OUT: usize = 16 << 20;
/// How long a client may take for them: less than a question may altogether.
const PATIENCE: Duration = Duration::from_secs(5);

/// The admin address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {}: {source}; give another address with admin-addr", url.as_str().trim_end_matches('/'))]
pub struct AdminError {
    /// The address.
    url: Url,
    /// Why not.
    source: io::Error,
}

/// The admin address, held and not answered yet.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    secured: bool,
}

/// Takes the admin address; `None` when there is to be none.
///
/// # Errors
/// [`AdminError`].
pub async fn bind(config: &AdminConfig) -> Result<Option<Admin>, AdminError> {
    let Some(url) = &config.addr else {
        return Ok(None);
    };
    let listener = listener::bind(url).await.map_err(|source| AdminError {
        url: url.clone(),
        source,
    })?;
    let secured = url.scheme() == "https";
    Ok(Some(Admin { listener, secured }))
}

impl Admin {
    /// Where it listens, as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.secured { "https" } else { "http" };
        match self.listener.local_addr() {
            Ok(addr) => format!("{scheme}://{addr}"),
            Err(error) => format!("{scheme}://({error})"),
        }
    }

    /// Answers until `stop`; with the certificates of `tls` where it speaks TLS.
    pub fn spawn(
        self,
        tls: Option<Arc<Tls>>,
        tuner: Arc<Tuner>,
        stop: CancellationToken,
    ) -> JoinHandle<()> {
        let routes = Router::new()
            .route("/router/api/v1/config", get(show).post(change))
            .fallback(elsewhere)
            .with_state(tuner);
        let door = Door::new(tls.filter(|_| self.secured), CONNECTIONS);
        // Nobody waits for what is open here.
        let cut = stop.clone();
        let incoming = listener::accept(self.listener, Arc::new(door), stop.clone(), cut);
        tokio::spawn(async move {
            let served = Server::builder()
                .accept_http1(true)
                .add_routes(Routes::from(routes))
                .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
                .await;
            if let Err(error) = served {
                tracing::error!(%error, "the admin address is not answered any more");
            }
        })
    }
}

async fn show(State(tuner): State<Arc<Tuner>>) -> Response {
    json(StatusCode::OK, &tuner.page())
}

async fn elsewhere(request: Request) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        let why = "this is the admin address of a replica, where only its settings are; lookups are at its listen-addr";
        return Status::unimplemented(why).into_http::<Body>();
    }
    let why = "see /router/api/v1/config; lookups, /status and /metrics are at listen-addr";
    refused(StatusCode::NOT_FOUND, why)
}

async fn change(State(tuner): State<Arc<Tuner>>, request: Request) -> Response {
    if !tuner.is_writable() {
        let why =
            "this address only shows; set admin-writable = true in the config file and start again";
        return refused(StatusCode::FORBIDDEN, why);
    }
    let body = match timeout(PATIENCE, posted(request)).await {
        Ok(Ok(Some(body))) => body,
        Ok(Ok(None)) => {
            let why = format!(
                "these are too many bytes for settings; post a JSON object of {LARGEST} bytes at most, as \
                 {{\"max-age\": \"15s\"}}"
            );
            return refused(StatusCode::PAYLOAD_TOO_LARGE, &why);
        }
        Ok(Err(error)) => {
            let why = format!("the settings cannot be read ({error}); post them again");
            return refused(StatusCode::BAD_REQUEST, &why);
        }
        Err(_) => {
            let why = format!("the settings did not come within {PATIENCE:?}; post them again");
            return refused(StatusCode::REQUEST_TIMEOUT, &why);
        }
    };
    let patch: Value = match once::parse(&body) {
        Ok(patch) => patch,
        Err(error) if error.is_data() => {
            let why = format!("{error}; give it once");
            return refused(StatusCode::BAD_REQUEST, &why);
        }
        Err(error) => {
            let why = format!("not JSON: {error}; post an object, as {{\"max-age\": \"15s\"}}");
            return refused(StatusCode::BAD_REQUEST, &why);
        }
    };
    match tuner.change(&patch) {
        Ok(Change { changed, warnings }) => {
            let mut said = match &changed[..] {
                [] => "There is nothing to change.".to_owned(),
                keys => format!("The config is updated: {}.", keys.join(", ")),
            };
            for warning in warnings {
                said += &format!(" Warning: {warning}.");
            }
            json(StatusCode::OK, &Value::from(said))
        }
        Err(unchanged) => refused(StatusCode::BAD_REQUEST, &unchanged.to_string()),
    }
}

/// What was posted; `None` if it is too much.
async fn posted(request: Request) -> Result<Option<Vec<u8>>, axum::Error> {
    let headers = request.headers();
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok())
        .unwrap_or(0);
    // Who asks before it sends so much hears at once that it need not.
    let asks_first = headers.contains_key(header::EXPECT);
    if announced > HEARD_OUT || (announced > LARGEST && asks_first) {
        return Ok(None);
    }
    let mut chunks = request.into_body().into_data_stream();
    let (mut body, mut heard) = (Vec::new(), 0);
    while heard <= HEARD_OUT
        && let Some(chunk) = chunks.next().await
    {
        let chunk = chunk?;
        heard += chunk.len();
        if heard <= LARGEST {
            body.extend_from_slice(&chunk);
        }
    }
    Ok((heard <= LARGEST).then_some(body))
}

fn refused(code: StatusCode, why: &str) -> Response {
    json(code, &Value::from(why))
}

fn json(code: StatusCode, page: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (code, kind, format!("{page:#}\n")).into_response()
}
