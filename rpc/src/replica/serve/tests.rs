//! The serving side without a network: services called directly, the clock standing still.

mod checks;
mod gate;
mod health;
mod p0;
mod query;
mod reach;
mod room;
mod through;

use std::sync::atomic::AtomicUsize;

use tidegate_core::clock::{Clock, ManualClock, Moment};
use tidegate_core::gate::Thresholds;
use tidegate_core::{KeyRange, Peer, PeerRole, Provenance, Region, RegionEpoch, RegionMap};
use tokio_stream::StreamExt;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response};

use super::*;
use crate::pd::ChannelSettings;
use crate::proto::health::HealthCheckRequest;
use crate::proto::health::health_server::Health;
use crate::proto::pdpb::pd_server::Pd;
use crate::proto::pdpb::{
    BatchScanRegionsRequest, GetRegionByIdRequest, GetRegionRequest, GetStoreRequest,
    KeyRange as PbRange, Member, QueryRegionRequest, RequestHeader, ScanRegionsRequest,
};
use crate::proto::routerpb::router_server::Router;
use crate::replica::state::{LeaderView, PdView};

const CLUSTER: u64 = 7;
const REGION_NOT_FOUND: i32 = 6;

/// A replica's serving side with a clock that stands still.
struct Bench {
    serving: Arc<Serving>,
    clock: ManualClock,
}

impl Bench {
    /// Nothing synced yet.
    fn empty() -> Self {
        Self::with(false)
    }

    /// Three regions, proven fresh at this moment: ["", b), [b, d), [f, "").
    fn fresh() -> Self {
        let bench = Self::with(false);
        bench.full_sync(1, &[(1, b"", b"b"), (2, b"b", b"d"), (3, b"f", b"")]);
        bench
    }

    /// The same with other bounds on the answers of scans.
    fn bounded(regions: usize, bytes: usize) -> Self {
        let mut bench = Self::fresh();
        let serving = Arc::get_mut(&mut bench.serving).expect("nobody else has it");
        serving.scan_bounds = Bounds { regions, bytes };
        bench
    }

    fn with(regardless: bool) -> Self {
        let clock = ManualClock::new(Moment::from_nanos(1_000_000_000));
        let shared = Shared::new(Arc::new(clock.clone()), Thresholds::default());
        assert!(shared.settle_cluster(CLUSTER));
        let remote = Arc::new(Remote::new(ChannelSettings::default(), None));
        let timeout = Duration::from_millis(100);
        let serving = Serving::new(Arc::new(shared), remote, vec![], timeout, regardless);
        Self {
            serving: Arc::new(serving),
            clock,
        }
    }

    /// Swaps a whole map in and proves it fresh at this moment.
    fn full_sync(&self, generation: u64, regions: &[(u64, &[u8], &[u8])]) {
        let shared = &self.serving.shared;
        let now = self.clock.now();
        shared.gate.begin(generation);
        shared.gate.head_received(generation, 10);
        shared.gate.apply_started(generation, now);
        shared.gate.apply_finished(generation, 10, now);
        shared.gate.probe_answered(generation, now, 10);
        shared.map.replace_with(map_of(regions), generation);
        shared.gate.publish(generation);
    }

    fn pd(&self) -> PdService {
        PdService(Arc::clone(&self.serving))
    }

    fn router(&self) -> RouterService {
        RouterService(Arc::clone(&self.serving))
    }

    fn counts(&self, method: Method) -> counters::Counts {
        self.serving.counters.of(method)
    }

    fn leader_is(&self, url: &str) {
        let member = Member {
            member_id: 1,
            client_urls: vec![url.to_owned()],
            ..Member::default()
        };
        self.serving.shared.publish_pd(PdView {
            cluster_id: CLUSTER,
            members: vec![member.clone()],
            leader: Some(LeaderView {
                member,
                url: url.to_owned(),
                term: None,
            }),
        });
    }
}

impl Serving {
    /// One lookup from the map alone.
    async fn answer<T: Headed>(
        &self,
        method: Method,
        lookup: impl Fn(&Lookup<'_, '_>) -> Found<T>,
    ) -> T {
        let attempt = self.local(&Demand::default(), lookup).await;
        self.settle(method, attempt).into_inner()
    }
}

fn map_of(regions: &[(u64, &[u8], &[u8])]) -> RegionMap {
    let map = RegionMap::new();
    for &(id, start, end) in regions {
        let leader = Peer {
            id: id * 10,
            store_id: 1,
            role: PeerRole::Voter,
            is_witness: false,
        };
        let range = KeyRange::new(start, end).expect("a range");
        let region = Region::builder(
            id,
            range,
            RegionEpoch {
                conf_ver: 1,
                version: 2,
            },
        )
        .peers([leader])
        .leader(Some(leader))
        .build()
        .expect("a region");
        let received_at = Moment::from_nanos(1);
        assert!(
            !map.put(region, Provenance::Stream { received_at })
                .is_refused()
        );
    }
    map
}

fn header() -> Option<RequestHeader> {
    Some(RequestHeader {
        cluster_id: CLUSTER,
        ..RequestHeader::default()
    })
}

fn key(key: &[u8]) -> GetRegionRequest {
    GetRegionRequest {
        header: header(),
        region_key: key.to_vec().into(),
        need_buckets: false,
    }
}

/// A request as a stock client sends it to a follower.
fn to_follower<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("pd-allow-follower-handle", "".parse().expect("ascii"));
    request
}

fn error_of(header: Option<&ResponseHeader>) -> Option<(i32, String)> {
    let header = header.expect("every answer has a header");
    assert_eq!(header.cluster_id, CLUSTER);
    header
        .error
        .as_ref()
        .map(|error| (error.r#type, error.message.clone()))
}

fn refused() -> Option<(i32, String)> {
    Some((REGION_NOT_FOUND, "region not found".to_owned()))
}

fn id_of(response: &GetRegionResponse) -> u64 {
    response.region.as_ref().map_or(0, |region| region.id)
}

fn failure<T: std::fmt::Debug>(result: Result<Response<T>, Status>) -> (Code, String) {
    let status = result.expect_err("turned away");
    (status.code(), status.message().to_owned())
}

struct QueryOf<'b>(&'b Bench);

impl QueryOf<'_> {
    fn stream(
        &self,
        batches: Vec<QueryRegionRequest>,
    ) -> impl tokio_stream::Stream<Item = Result<QueryRegionResponse, Status>> + Unpin + use<> {
        let requests = tokio_stream::iter(batches.into_iter().map(Ok));
        super::query::QueryStream::new(Arc::clone(&self.0.serving), Demand::default(), requests)
            .messages()
    }
}
