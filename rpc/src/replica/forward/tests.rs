//! A gateway in front of a leader whose every byte the test writes and reads.

mod ends;
mod raw;
mod routes;
mod stores;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;
use tidegate_core::clock::{ManualClock, Moment};
use tidegate_core::gate::Thresholds;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::Code;
use tonic::transport::Server;

use super::*;
use crate::link::Link;
use crate::pd::{ChannelSettings, Term};
use crate::proto::pdpb::Member;
use crate::replica::state::{LeaderView, PdView};

const CLUSTER: u64 = 7;
const OWN: &str = "http://127.0.0.1:1";

/// A gateway whose replica has synced nothing.
fn gateway(present_as: PresentAs, advertise: &str) -> Arc<Gateway> {
    let clock = ManualClock::new(Moment::from_nanos(1_000_000_000));
    let shared = Shared::new(Arc::new(clock), Thresholds::default());
    assert!(shared.settle_cluster(CLUSTER));
    let settings = ChannelSettings {
        // Virtual time runs ahead of answers to pings.
        ping_interval: Duration::from_secs(1 << 30),
        ..ChannelSettings::default()
    };
    let remote = Arc::new(Remote::new(settings, None));
    let timeout = Duration::from_secs(3);
    let serving = Serving::new(
        Arc::new(shared),
        Arc::clone(&remote),
        vec![],
        timeout,
        false,
    );
    let presence = Presence {
        present_as,
        allow_bounded_staleness: false,
        reads_through: false,
        name: "under-test".to_owned(),
        advertise: advertise.to_owned(),
        store_cache_ttl: Duration::from_secs(1),
        backend_timeout: Duration::from_secs(3),
        largest_message: 16 << 20,
    };
    Arc::new(Gateway::new(Arc::new(serving), remote, presence))
}

fn leader_is(gateway: &Gateway, member_id: u64, url: &str, term: i64) {
    let member = Member {
        member_id,
        client_urls: vec![url.to_owned()],
        binary_version: "v8.5.3".to_owned(),
        ..Member::default()
    };
    gateway.shared.publish_pd(PdView {
        cluster_id: CLUSTER,
        members: vec![member.clone()],
        leader: Some(LeaderView {
            member,
            url: url.to_owned(),
            term: Some(Term::from_create_revision(term)),
        }),
    });
}

/// A call as it arrived at the leader. Its answer is what the test makes it.
struct Arrived {
    head: http::request::Parts,
    body: axum::body::Body,
    answer: tokio::sync::oneshot::Sender<http::Response<Body>>,
}

/// A server that hands every call to the test.
async fn scripted() -> (String, mpsc::Receiver<Arrived>) {
    scripted_until(CancellationToken::new()).await
}

async fn scripted_until(cut: CancellationToken) -> (String, mpsc::Receiver<Arrived>) {
    let (calls, arrived) = mpsc::channel(8);
    let answer = move |request: axum::extract::Request| {
        let calls = calls.clone();
        async move {
            let (head, body) = request.into_parts();
            let (answer, answered) = tokio::sync::oneshot::channel();
            let call = Arrived { head, body, answer };
            if calls.send(call).await.is_err() {
                return Status::unavailable("the script has ended").into_http();
            }
            match answered.await {
                Ok(response) => response.map(axum::body::Body::new),
                Err(_) => Status::unknown("the script gave no answer").into_http(),
            }
        }
    };
    let routes = axum::Router::new().fallback(answer);
    (serve_until(routes, cut).await, arrived)
}

/// Serves on a port of its own until the test ends.
async fn serve(routes: axum::Router) -> String {
    serve_until(routes, CancellationToken::new()).await
}

/// The same, with connections that break at the `cut`.
async fn serve_until(routes: axum::Router, cut: CancellationToken) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr: SocketAddr = listener.local_addr().expect("an address");
    let incoming = TcpListenerStream::new(listener)
        .map(move |stream| stream.map(|stream| Link::new(stream, cut.clone())));
    let routes = tonic::service::Routes::from(routes);
    tokio::spawn(
        Server::builder()
            .add_routes(routes)
            .serve_with_incoming(incoming),
    );
    format!("http://{addr}")
}

/// A body that the test feeds.
pub(super) fn fed() -> (mpsc::Sender<Frame<Bytes>>, Body) {
    let (feed, frames) = mpsc::channel(1);
    (feed, Body::new(Fed(ReceiverStream::new(frames))))
}

struct Fed(ReceiverStream<Frame<Bytes>>);

impl http_body::Body for Fed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Status>>> {
        use tokio_stream::Stream;
        std::pin::Pin::new(&mut self.0)
            .poll_next(cx)
            .map(|frame| frame.map(Ok))
    }
}

/// A gRPC message in its frame.
fn message(bytes: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(bytes.len() as u32);
    frame.put(bytes);
    frame.freeze()
}

fn call(path: &str, body: Body) -> http::Request<Body> {
    http::Request::post(path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .expect("a request")
}

fn answer(body: Body) -> http::Response<Body> {
    http::Response::builder()
        .header("content-type", "application/grpc")
        .body(body)
        .expect("a response")
}

/// The next frame of a body, if there is one.
async fn next<B: http_body::Body<Data = Bytes> + Unpin>(body: &mut B) -> Option<Frame<Bytes>>
where
    B::Error: std::fmt::Debug,
{
    let frame = std::future::poll_fn(|cx| std::pin::Pin::new(&mut *body).poll_frame(cx)).await;
    frame.map(|frame| frame.expect("a frame, not an error"))
}

async fn next_data<B: http_body::Body<Data = Bytes> + Unpin>(body: &mut B) -> Bytes
where
    B::Error: std::fmt::Debug,
{
    let frame = next(body).await.expect("one more frame");
    frame
        .into_data()
        .unwrap_or_else(|frame| panic!("{frame:?}"))
}

/// The trailers that a body ends with.
async fn trailers(body: &mut Body) -> HeaderMap {
    let frame = next(body).await.expect("trailers");
    frame
        .into_trailers()
        .unwrap_or_else(|frame| panic!("{frame:?}"))
}

fn code_of(trailers: &HeaderMap) -> (Code, String) {
    let status = Status::from_header_map(trailers).expect("a status");
    (status.code(), status.message().to_owned())
}
