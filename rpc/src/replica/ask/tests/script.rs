//! A PD leader that does as it is told.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tidegate_core::{KeyRange, Peer, PeerRole, Provenance, Region, RegionEpoch, RegionMap};
use tokio::sync::Semaphore;
use tonic::Status;

use crate::lookup::Lookup;
use crate::pd::Term;
use crate::proto::header::{ok_header, region_not_found};
use crate::proto::pdpb::*;
use crate::replica::ask::{LeaderCalls, QueryLink};

pub(in crate::replica) const CLUSTER: u64 = 7;

/// A region, short: id, range, version, and the store of its leader.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::replica) struct Is(
    pub u64,
    pub &'static str,
    pub &'static str,
    pub u64,
    pub u64,
);

pub(in crate::replica) fn region(Is(id, start, end, version, store_id): Is) -> Region {
    let leader = Peer {
        id: id * 100 + store_id,
        store_id,
        role: PeerRole::Voter,
        is_witness: false,
    };
    let range = KeyRange::new(start, end).expect("a range");
    let region = Region::builder(id, range, RegionEpoch::new(1, version));
    region
        .peers([leader])
        .leader(Some(leader))
        .build()
        .expect("a region")
}

/// What was asked, in order.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::replica) enum Call {
    Query {
        keys: Vec<String>,
        prev: Vec<String>,
        ids: Vec<u64>,
    },
    Get(String),
    Prev(String),
    Id(u64),
    Scan(String, String),
    BatchScan(usize),
    Look,
}

/// What becomes of an answer on its way.
#[derive(Clone, Copy, Debug)]
pub(in crate::replica) struct Twist {
    pub(in crate::replica) query: fn(&mut QueryRegionResponse),
    pub(in crate::replica) one: fn(&mut GetRegionResponse),
    pub(in crate::replica) scan: fn(&mut Vec<crate::proto::pdpb::Region>),
}

#[derive(Debug)]
pub(in crate::replica) struct Script {
    /// What the leader knows.
    pub(in crate::replica) map: RegionMap,
    pub(in crate::replica) calls: Mutex<Vec<Call>>,
    /// Answers come only as permits are added; none are held at the start.
    pub(in crate::replica) pace: Semaphore,
    /// QueryRegion and BatchScanRegions are not known.
    pub(in crate::replica) is_old: AtomicBool,
    /// It is the leader, as the leader key has it.
    pub(in crate::replica) leads: AtomicBool,
    /// Calls fail with this.
    pub(in crate::replica) fails: Mutex<Option<Status>>,
    /// Every header carries this error type.
    pub(in crate::replica) error: Mutex<Option<ErrorType>>,
    /// Every answer is twisted.
    pub(in crate::replica) twist: Mutex<Option<Twist>>,
    /// How many streams of QueryRegion were opened.
    pub(in crate::replica) streams: AtomicUsize,
    /// Whoever looks at the leader key panics.
    pub(in crate::replica) panics_at_looks: AtomicBool,
}

impl Script {
    pub(in crate::replica) fn new(regions: &[Is]) -> Arc<Self> {
        let script = Self {
            map: RegionMap::new(),
            calls: Mutex::default(),
            pace: Semaphore::new(Semaphore::MAX_PERMITS / 2),
            is_old: AtomicBool::new(false),
            leads: AtomicBool::new(true),
            fails: Mutex::new(None),
            error: Mutex::new(None),
            twist: Mutex::new(None),
            streams: AtomicUsize::new(0),
            panics_at_looks: AtomicBool::new(false),
        };
        regions.iter().for_each(|is| script.knows(*is));
        Arc::new(script)
    }

    pub(in crate::replica) fn knows(&self, is: Is) {
        let received_at = tidegate_core::Moment::from_nanos(1);
        let _ = self.map.put(region(is), Provenance::Stream { received_at });
    }

    /// From now on answers are held, but for those that are let through.
    pub(in crate::replica) fn hold(&self) {
        self.pace.forget_permits(usize::MAX);
    }

    pub(in crate::replica) fn release(&self, answers: usize) {
        self.pace.add_permits(answers);
    }

    pub(in crate::replica) fn fail(&self, status: Option<Status>) {
        *self.fails.lock().expect("unpoisoned") = status;
    }

    /// What was asked, without the looks at the leader key.
    pub(in crate::replica) fn asked(&self) -> Vec<Call> {
        let calls = self.calls.lock().expect("unpoisoned");
        calls
            .iter()
            .filter(|call| **call != Call::Look)
            .cloned()
            .collect()
    }

    pub(in crate::replica) fn twist(&self, twist: Option<Twist>) {
        *self.twist.lock().expect("unpoisoned") = twist;
    }

    fn twisted<A>(&self, mut answer: A, by: impl Fn(Twist) -> fn(&mut A)) -> A {
        let twist = *self.twist.lock().expect("unpoisoned");
        if let Some(twist) = twist {
            by(twist)(&mut answer);
        }
        answer
    }

    async fn answer(&self, call: Call, is_new: bool) -> Result<ResponseHeader, Status> {
        self.calls.lock().expect("unpoisoned").push(call);
        if let Some(status) = self.fails.lock().expect("unpoisoned").clone() {
            return Err(status);
        }
        if is_new && self.is_old.load(SeqCst) {
            return Err(Status::unimplemented("unknown method"));
        }
        let pass = self.pace.acquire().await;
        pass.expect("never closed").forget();
        let header = match *self.error.lock().expect("unpoisoned") {
            None => ok_header(CLUSTER),
            Some(ErrorType::RegionNotFound) => region_not_found(CLUSTER),
            Some(kind) => crate::proto::header::error_header(CLUSTER, kind, "as told"),
        };
        Ok(header)
    }

    async fn one(
        &self,
        call: Call,
        lookup: impl Fn(&Lookup<'_, '_>) -> Option<GetRegionResponse>,
    ) -> Result<GetRegionResponse, Status> {
        let header = self.answer(call, false).await?;
        let found = lookup(&Lookup::new(&self.map.pin())).unwrap_or_default();
        let answer = GetRegionResponse {
            header: Some(header),
            ..found
        };
        Ok(self.twisted(answer, |twist| twist.one))
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

/// The clone that the calls are made on.
#[derive(Clone, Debug)]
pub(in crate::replica) struct Leader(pub(in crate::replica) Arc<Script>);

#[derive(Debug)]
pub(in crate::replica) struct Link(Arc<Script>);

impl QueryLink for Link {
    async fn query(&mut self, request: QueryRegionRequest) -> Result<QueryRegionResponse, Status> {
        let texts = |keys: &[bytes::Bytes]| keys.iter().map(|key| text(key)).collect();
        let call = Call::Query {
            keys: texts(&request.keys),
            prev: texts(&request.prev_keys),
            ids: request.ids.clone(),
        };
        let header = self.0.answer(call, true).await?;
        let snapshot = self.0.map.pin();
        let found = Lookup::new(&snapshot).query(&request).response;
        let answer = QueryRegionResponse {
            header: Some(header),
            ..found
        };
        Ok(self.0.twisted(answer, |twist| twist.query))
    }
}

impl LeaderCalls for Leader {
    type Queries = Link;

    async fn queries(&self, _: &str) -> Result<Link, Status> {
        self.0.streams.fetch_add(1, SeqCst);
        Ok(Link(Arc::clone(&self.0)))
    }

    async fn get_region(
        &self,
        _: &str,
        request: GetRegionRequest,
    ) -> Result<GetRegionResponse, Status> {
        let call = Call::Get(text(&request.region_key));
        self.0.one(call, |lookup| lookup.get(&request)).await
    }

    async fn get_prev_region(
        &self,
        _: &str,
        request: GetRegionRequest,
    ) -> Result<GetRegionResponse, Status> {
        let call = Call::Prev(text(&request.region_key));
        self.0.one(call, |lookup| lookup.prev(&request)).await
    }

    async fn get_region_by_id(
        &self,
        _: &str,
        request: GetRegionByIdRequest,
    ) -> Result<GetRegionResponse, Status> {
        let call = Call::Id(request.region_id);
        self.0.one(call, |lookup| lookup.by_id(&request)).await
    }

    async fn scan_regions(
        &self,
        _: &str,
        request: ScanRegionsRequest,
    ) -> Result<ScanRegionsResponse, Status> {
        let call = Call::Scan(text(&request.start_key), text(&request.end_key));
        let header = self.0.answer(call, false).await?;
        let found = Lookup::new(&self.0.map.pin()).scan(&request);
        Ok(ScanRegionsResponse {
            header: Some(header),
            regions: self.0.twisted(found.regions, |twist| twist.scan),
            ..ScanRegionsResponse::default()
        })
    }

    async fn batch_scan_regions(
        &self,
        _: &str,
        request: BatchScanRegionsRequest,
    ) -> Result<BatchScanRegionsResponse, Status> {
        let header = self
            .0
            .answer(Call::BatchScan(request.ranges.len()), true)
            .await?;
        let found = Lookup::new(&self.0.map.pin())
            .batch_scan(&request)
            .expect("good ranges");
        Ok(BatchScanRegionsResponse {
            header: Some(header),
            regions: self.0.twisted(found.regions, |twist| twist.scan),
        })
    }

    async fn leads(&self, _: &str, _: u64, _: Term) -> bool {
        self.0.calls.lock().expect("unpoisoned").push(Call::Look);
        assert!(!self.0.panics_at_looks.load(SeqCst), "as told");
        self.0.leads.load(SeqCst)
    }
}
