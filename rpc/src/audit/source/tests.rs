//! Servers whose services, age and mood the test chooses, asked over gRPC on loopback.

use std::future::{Ready, ready};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use tidegate_core::{Moment, Provenance, RegionMap};
use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::Response;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

use super::super::compare::tests::region;
use super::*;
use crate::link::Link;
use crate::lookup::Lookup;
use crate::pd::ChannelSettings;
use crate::proto::header::{ok_header, region_not_found};
use crate::proto::pdpb::{
    BatchScanRegionsResponse, GetMembersRequest, GetMembersResponse, GetRegionResponse, Member,
    ScanRegionsResponse,
};

const CLUSTER: u64 = 7;

/// What a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::audit) enum Is {
    /// A PD that knows everything.
    #[default]
    Pd,
    /// One without BatchScanRegions.
    OlderPd,
    /// One that fills the first lists of a scan alone, too.
    OldestPd,
    /// A router service and nothing else.
    Router,
    /// A router service without BatchScanRegions.
    OlderRouter,
    /// A replica of ours.
    Replica,
}

/// A server that does as it is told.
#[derive(Default)]
pub(in crate::audit) struct Peer {
    is: Is,
    map: RegionMap,
    /// So many answers from now on are a follower's refusals.
    refuses: AtomicUsize,
    asked: Mutex<Vec<String>>,
    /// Answers something else than is asked.
    twists: AtomicBool,
}

/// A method in the script.
struct Scripted<F>(F);

impl<F, I, O> UnaryService<I> for Scripted<F>
where
    F: FnMut(I) -> Result<O, Status>,
{
    type Response = O;
    type Future = Ready<Result<Response<O>, Status>>;

    fn call(&mut self, request: Request<I>) -> Self::Future {
        ready((self.0)(request.into_inner()).map(Response::new))
    }
}

impl Peer {
    /// A server with the regions 1 to 4: ["", b), [b, d), [d, f), [f, "").
    pub(in crate::audit) async fn start(is: Is) -> (Arc<Self>, String) {
        let peer = Self {
            is,
            ..Self::default()
        };
        for (id, start, end) in [(1, "", "b"), (2, "b", "d"), (3, "d", "f"), (4, "f", "")] {
            let received_at = Moment::from_nanos(1);
            let from = Provenance::Stream { received_at };
            let _ = peer.map.put(region(id, start, end, 1), from);
        }
        let peer = Arc::new(peer);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (answering, own) = (Arc::clone(&peer), url.clone());
        let answer = move |request: axum::extract::Request| {
            let (peer, own) = (Arc::clone(&answering), own.clone());
            async move {
                peer.answer(&own, request.map(Body::new))
                    .await
                    .map(axum::body::Body::new)
            }
        };
        let routes = tonic::service::Routes::from(axum::Router::new().fallback(answer));
        let incoming = TcpListenerStream::new(listener)
            .map(|stream| stream.map(|stream| Link::new(stream, CancellationToken::new())));
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_routes(routes)
                .serve_with_incoming(incoming),
        );
        (peer, url)
    }

    /// What it was asked, with `+` where a follower might answer.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("unpoisoned"))
    }

    fn refuse(&self, answers: usize) {
        self.refuses.store(answers, Relaxed);
    }

    fn header(&self) -> Option<ResponseHeader> {
        let refuses = self
            .refuses
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        Some(match refuses {
            Ok(_) => region_not_found(CLUSTER),
            Err(_) => ok_header(CLUSTER),
        })
    }

    async fn answer(&self, own: &str, request: http::Request<Body>) -> http::Response<Body> {
        let path = request.uri().path().to_owned();
        let (service, method) = path[1..].split_once('/').expect("a path");
        let mark = if request.headers().contains_key(ALLOW_FOLLOWER) {
            "+"
        } else {
            ""
        };
        self.asked
            .lock()
            .expect("unpoisoned")
            .push(format!("{method}{mark}"));
        let is_router = matches!(self.is, Is::Router | Is::OlderRouter);
        let known = if is_router {
            "routerpb.Router"
        } else {
            "pdpb.PD"
        };
        let is_older = matches!(self.is, Is::OlderPd | Is::OldestPd | Is::OlderRouter);
        let mut response = match method {
            _ if service != known => Status::unimplemented("unknown service").into_http(),
            "BatchScanRegions" if is_older => Status::unimplemented("unknown method").into_http(),
            "BatchScanRegions" => {
                unary(request, |asked: BatchScanRegionsRequest| {
                    self.batch_scan(&asked)
                })
                .await
            }
            "ScanRegions" if !is_router => {
                unary(request, |asked: ScanRegionsRequest| self.scan(&asked)).await
            }
            "GetRegionByID" => {
                unary(request, |asked: GetRegionByIdRequest| self.by_id(&asked)).await
            }
            "GetMembers" if !is_router => {
                unary(request, |_: GetMembersRequest| Ok(members(own))).await
            }
            _ => Status::unimplemented("unknown method").into_http(),
        };
        if self.is == Is::Replica {
            let source = http::HeaderValue::from_static("map");
            response.headers_mut().insert("tidegate-source", source);
        }
        response
    }

    fn batch_scan(
        &self,
        asked: &BatchScanRegionsRequest,
    ) -> Result<BatchScanRegionsResponse, Status> {
        let header = self.header();
        if header.as_ref().is_some_and(|header| header.error.is_some()) {
            return Ok(BatchScanRegionsResponse {
                header,
                ..Default::default()
            });
        }
        let found = Lookup::new(&self.map.pin()).batch_scan(asked);
        let mut found = found.map_err(|error| Status::internal(error.to_string()))?;
        if self.twists.load(Relaxed) {
            found.regions.reverse();
        }
        Ok(BatchScanRegionsResponse { header, ..found })
    }

    #[expect(clippy::unnecessary_wraps, reason = "as its siblings")]
    fn scan(&self, asked: &ScanRegionsRequest) -> Result<ScanRegionsResponse, Status> {
        let header = self.header();
        let mut found = ScanRegionsResponse::default();
        if header.as_ref().is_some_and(|header| header.error.is_none()) {
            found = Lookup::new(&self.map.pin()).scan(asked);
        }
        if self.twists.load(Relaxed) {
            found.regions.reverse();
            found.region_metas.reverse();
        }
        if self.is == Is::OldestPd {
            found.regions.clear();
        }
        Ok(ScanRegionsResponse { header, ..found })
    }

    /// A follower's miss is its refusal.
    #[expect(clippy::unnecessary_wraps, reason = "as its siblings")]
    fn by_id(&self, asked: &GetRegionByIdRequest) -> Result<GetRegionResponse, Status> {
        let header = self.header();
        let refused = header.as_ref().is_some_and(|header| header.error.is_some());
        let other = u64::from(self.twists.load(Relaxed));
        let asked = GetRegionByIdRequest {
            region_id: asked.region_id + other,
            ..asked.clone()
        };
        let found = Lookup::new(&self.map.pin()).by_id(&asked);
        Ok(match found.filter(|_| !refused) {
            Some(found) => GetRegionResponse { header, ..found },
            None if self.is == Is::Router => GetRegionResponse {
                header,
                ..Default::default()
            },
            None => GetRegionResponse {
                header: Some(region_not_found(CLUSTER)),
                ..Default::default()
            },
        })
    }
}

async fn unary<I, O>(
    request: http::Request<Body>,
    script: impl FnMut(I) -> Result<O, Status>,
) -> http::Response<Body>
where
    I: prost::Message + Default + 'static,
    O: prost::Message + Default + 'static,
{
    let mut grpc = Grpc::new(ProstCodec::<O, I>::default());
    grpc.unary(Scripted(script), request).await
}

/// It is the only member, and leads.
fn members(own: &str) -> GetMembersResponse {
    let member = Member {
        member_id: 1,
        client_urls: vec![own.to_owned()],
        ..Member::default()
    };
    GetMembersResponse {
        header: Some(ok_header(CLUSTER)),
        members: vec![member.clone()],
        leader: Some(member),
        ..GetMembersResponse::default()
    }
}

pub(in crate::audit) fn remote() -> Arc<Remote> {
    Arc::new(Remote::new(ChannelSettings::default(), None))
}

async fn server(is: Is, service: Service) -> (Arc<Peer>, Server) {
    let (peer, url) = Peer::start(is).await;
    let server = Server::new(remote(), url, CLUSTER, service, Duration::from_secs(30));
    (peer, server)
}

fn range(start: &str, end: &str) -> KeyRange {
    KeyRange::new(start, end).expect("a range")
}

fn ids(regions: &[Region]) -> Vec<u64> {
    regions.iter().map(Region::id).collect()
}

async fn by_ids(server: &Server, asked: &[u64]) -> Vec<u64> {
    let found = server.by_ids(asked).await.expect("an answer");
    found
        .iter()
        .map(|found| found.as_ref().map_or(0, Region::id))
        .collect()
}

#[tokio::test]
async fn a_router_is_asked_through_its_own_service_and_its_misses_are_answers() {
    let (peer, router) = server(Is::Router, Service::Router).await;
    let found = router.scan(&[range("a", "c"), range("e", "")], 3).await;
    assert_eq!(ids(&found.expect("an answer")), [1, 2, 3]);
    assert_eq!(by_ids(&router, &[3, 99, 1]).await, [3, 0, 1]);
    let asked = peer.asked();
    assert_eq!(asked[0], "BatchScanRegions");
    // No doubt about a miss, and no key of a follower's.
    assert_eq!(asked[1..], ["GetRegionByID"; 3]);

    // A router has no older scan to fall back to.
    let (peer, router) = server(Is::OlderRouter, Service::Router).await;
    let error = router.scan(&[KeyRange::all()], 1).await;
    let error = error.expect_err("unknown there").to_string();
    assert!(error.contains("unknown method"), "{error}");
    assert_eq!(peer.asked(), ["BatchScanRegions"]);
}

#[tokio::test]
async fn an_older_leader_is_scanned_range_by_range_and_remembered() {
    let ranges = [
        range("a", "b"),
        range("c", "cc"),
        range("ccc", "e"),
        range("g", "h"),
    ];
    for is in [Is::OlderPd, Is::OldestPd] {
        let (peer, leader) = server(is, Service::Leader).await;
        let found = leader.scan(&ranges, 10).await.expect("an answer");
        assert_eq!(
            ids(&found),
            [1, 2, 3, 4],
            "what two ranges share is told once"
        );
        let leads = |region: &Region| region.leader().map(|leader| leader.store_id);
        assert!(
            found.iter().all(|region| leads(region).is_some()),
            "{found:?}"
        );
        let scans = [
            "BatchScanRegions",
            "ScanRegions",
            "ScanRegions",
            "ScanRegions",
            "ScanRegions",
        ];
        assert_eq!(peer.asked(), scans);
        let found = leader.scan(&ranges, 2).await.expect("an answer");
        assert_eq!(ids(&found), [1, 2]);
        assert_eq!(
            peer.asked(),
            ["ScanRegions"; 2],
            "nor asked beyond the limit"
        );
    }
}

#[tokio::test]
async fn a_follower_that_refuses_in_the_middle_has_not_said_that_there_is_nothing() {
    let (peer, follower) = server(Is::OlderPd, Service::Follower).await;
    let ranges = [range("a", "b"), range("c", "d"), range("e", "f")];
    assert_eq!(
        ids(&follower.scan(&ranges, 9).await.expect("an answer")),
        [1, 2, 3]
    );
    assert_eq!(peer.asked()[1..], ["ScanRegions+"; 3]);
    peer.refuse(1);
    let error = follower.scan(&ranges, 9).await.expect_err("refused");
    assert!(matches!(error, AskError::Refused { .. }), "{error}");
    assert_eq!(peer.asked().len(), 1);

    let (peer, follower) = server(Is::Pd, Service::Follower).await;
    peer.refuse(1);
    let error = follower.scan(&ranges, 9).await.expect_err("refused");
    assert!(matches!(error, AskError::Refused { .. }), "{error}");
    assert_eq!(
        ids(&follower.scan(&ranges, 9).await.expect("an answer")),
        [1, 2, 3]
    );
}

#[tokio::test]
async fn what_a_follower_does_not_find_is_missing_only_if_it_answers() {
    let (peer, follower) = server(Is::Pd, Service::Follower).await;
    // It refuses both lookups, and then answers again.
    peer.refuse(2);
    assert_eq!(by_ids(&follower, &[1, 2]).await, [1, 2]);
    assert_eq!(by_ids(&follower, &[1, 99]).await, [1, 0]);
    peer.refuse(1_000);
    let error = follower.by_ids(&[1]).await.expect_err("refused");
    assert!(matches!(error, AskError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn a_replica_is_no_leader_and_a_leaders_refusal_is_none_of_a_followers() {
    let (_, posing) = server(Is::Replica, Service::Leader).await;
    for error in [
        posing
            .scan(&[KeyRange::all()], 1)
            .await
            .expect_err("a replica"),
        posing.by_ids(&[1]).await.expect_err("a replica"),
    ] {
        assert!(matches!(error, AskError::Replica { .. }), "{error}");
    }
    let (_, replica) = server(Is::Replica, Service::Follower).await;
    assert_eq!(by_ids(&replica, &[2]).await, [2]);
    let (peer, leader) = server(Is::Pd, Service::Leader).await;
    peer.refuse(1);
    let error = leader
        .scan(&[KeyRange::all()], 1)
        .await
        .expect_err("deposed");
    assert!(error.to_string().contains("region not found"), "{error}");
}

#[tokio::test]
async fn an_answer_to_something_else_is_an_error_and_compared_with_nothing() {
    let ranges = [range("a", "c"), range("e", "")];
    for (is, service) in [
        (Is::Pd, Service::Leader),
        (Is::OlderPd, Service::Leader),
        (Is::OldestPd, Service::Leader),
        (Is::Router, Service::Router),
    ] {
        let (peer, server) = server(is, service).await;
        assert_eq!(by_ids(&server, &[2]).await, [2]);
        peer.twists.store(true, Relaxed);
        let scanned = server.scan(&ranges, 10).await;
        let by_id = server.by_ids(&[2]).await.map(|_| Vec::new());
        for answer in [scanned, by_id] {
            let error = answer.expect_err("something else");
            assert!(matches!(error, AskError::Unfit { .. }), "{error}");
        }
    }
}
