//! The unary lookups that both services have, behind their first checks.
//!
//! Each knows how it is answered from the map ([`Inquiry::lookup`]), on which entries that answer rests
//! ([`Inquiry::evidence`]), and how the leader is asked for it ([`Inquiry::question`], [`Inquiry::read`]). What is made
//! of these is in `through.rs`.
//!
//! A miss is no answer of a follower's, as it may only not have heard of the region yet. Nor is a hole that a scan
//! passes over, as long as there is somebody to ask; if there is nobody, it is one: the ranges asked for hold no region.

use prost::Message;
use tidegate_core::Snapshot;

use super::counters::Method;
use super::evidence::Evidence;
use super::through::Inquiry;
use super::{Found, Headed, Weight, written};
use crate::lookup::{Lookup, Reach, limit};
use crate::proto::header::ok_header;
use crate::proto::pdpb::{
    BatchScanRegionsRequest, BatchScanRegionsResponse, GetRegionByIdRequest, GetRegionRequest,
    GetRegionResponse, KeyRange as PbRange, RegionResponse, RequestHeader, ScanRegionsRequest,
    ScanRegionsResponse,
};
use crate::proto::written::Written;
use crate::replica::ask::{Answer, Encoded, Point, Question};

/// A unary lookup, as it comes in.
pub(super) trait Unary: Inquiry<Response = Written<Self::Message>> {
    type Request: Message + Default + 'static;
    /// What is answered.
    type Message: Headed + Message + Clone + 'static;

    fn of(request: Self::Request) -> Self;

    fn header(&self) -> Option<&RequestHeader>;
}

pub(super) struct Get(GetRegionRequest);

pub(super) struct Prev(GetRegionRequest);

pub(super) type ById = GetRegionByIdRequest;

/// ResourceExhausted if there is no room, or the answer would be too large; so with the next.
pub(super) type Scan = ScanRegionsRequest;

pub(super) type BatchScan = BatchScanRegionsRequest;

macro_rules! unary {
    ($($inquiry:ty: $request:ty => $message:ty, |$asked:ident| $of:expr, |$it:ident| $header:expr;)*) => {
        $(impl Unary for $inquiry {
            type Request = $request;
            type Message = $message;

            fn of($asked: $request) -> Self {
                $of
            }

            fn header(&self) -> Option<&RequestHeader> {
                let $it = self;
                $header.as_ref()
            }
        })*
    };
}

unary! {
    Get: GetRegionRequest => GetRegionResponse, |asked| Self(asked), |it| it.0.header;
    Prev: GetRegionRequest => GetRegionResponse, |asked| Self(asked), |it| it.0.header;
    ById: GetRegionByIdRequest => GetRegionResponse, |asked| asked, |it| it.header;
    Scan: ScanRegionsRequest => ScanRegionsResponse, |asked| asked, |it| it.header;
    BatchScan: BatchScanRegionsRequest => BatchScanRegionsResponse, |asked| asked, |it| it.header;
}

impl Inquiry for Get {
    type Response = Written<GetRegionResponse>;
    const METHOD: Method = Method::GetRegion;

    fn lookup(&self, lookup: &Lookup<'_, '_>, _: u64, _: Reach<'_>) -> Found<Self::Response> {
        one(lookup.get_written(&self.0))
    }

    fn evidence(&self, snapshot: &Snapshot<'_>, evidence: &mut Evidence) {
        evidence.rests_on(snapshot.get(&self.0.region_key));
    }

    fn question(&self) -> Question {
        point(Point::Key(self.0.region_key.clone()), self.0.need_buckets)
    }

    fn read(&self, answer: &Answer, cluster_id: u64) -> Option<Self::Response> {
        read_one(answer, cluster_id).map(written)
    }
}

impl Inquiry for Prev {
    type Response = Written<GetRegionResponse>;
    const METHOD: Method = Method::GetPrevRegion;

    fn lookup(&self, lookup: &Lookup<'_, '_>, _: u64, _: Reach<'_>) -> Found<Self::Response> {
        one(lookup.prev_written(&self.0))
    }

    /// Which region is the one before depends on the one that holds the key.
    fn evidence(&self, snapshot: &Snapshot<'_>, evidence: &mut Evidence) {
        evidence.rests_on(snapshot.get(&self.0.region_key));
        evidence.rests_on(snapshot.prev(&self.0.region_key));
    }

    fn question(&self) -> Question {
        point(Point::Prev(self.0.region_key.clone()), self.0.need_buckets)
    }

    fn read(&self, answer: &Answer, cluster_id: u64) -> Option<Self::Response> {
        read_one(answer, cluster_id).map(written)
    }
}

impl Inquiry for GetRegionByIdRequest {
    type Response = Written<GetRegionResponse>;
    const METHOD: Method = Method::GetRegionById;

    fn lookup(&self, lookup: &Lookup<'_, '_>, _: u64, _: Reach<'_>) -> Found<Self::Response> {
        one(lookup.by_id_written(self))
    }

    fn evidence(&self, snapshot: &Snapshot<'_>, evidence: &mut Evidence) {
        evidence.rests_on(snapshot.by_id(self.region_id));
    }

    fn question(&self) -> Question {
        point(Point::Id(self.region_id), self.need_buckets)
    }

    fn read(&self, answer: &Answer, cluster_id: u64) -> Option<Self::Response> {
        read_one(answer, cluster_id).map(written)
    }
}

impl Inquiry for ScanRegionsRequest {
    type Response = Written<ScanRegionsResponse>;
    const METHOD: Method = Method::ScanRegions;

    fn weight(&self) -> Weight {
        Weight::of_scan(self.limit, 1)
    }

    fn lookup(&self, lookup: &Lookup<'_, '_>, _: u64, reach: Reach<'_>) -> Found<Self::Response> {
        match lookup.scan_written(self, reach) {
            Ok(response) => Found::Answer(response),
            Err(error) => Found::Unfinished(error),
        }
    }

    fn evidence(&self, snapshot: &Snapshot<'_>, evidence: &mut Evidence) {
        evidence.rests_on_scan(snapshot, &self.start_key, &self.end_key, limit(self.limit));
    }

    fn passes_over_a_hole(&self, response: &Self::Response) -> bool {
        response.has_hole
    }

    fn question(&self) -> Question {
        Question::Scan(Self {
            header: None,
            ..self.clone()
        })
    }

    fn read(&self, answer: &Answer, _: u64) -> Option<Self::Response> {
        match answer {
            Answer::Scan(response) => Some(written(response.clone())),
            _ => None,
        }
    }
}

impl Inquiry for BatchScanRegionsRequest {
    type Response = Written<BatchScanRegionsResponse>;
    const METHOD: Method = Method::BatchScanRegions;

    fn weight(&self) -> Weight {
        Weight::of_scan(self.limit, self.ranges.len())
    }

    fn size(&self) -> usize {
        let keys = self.ranges.iter();
        let keys = keys.map(|range| range.start_key.len() + range.end_key.len());
        keys.sum::<usize>() + size_of_val(&self.ranges[..])
    }

    fn lookup(
        &self,
        lookup: &Lookup<'_, '_>,
        cluster_id: u64,
        reach: Reach<'_>,
    ) -> Found<Self::Response> {
        match lookup.batch_scan_written(self, reach) {
            Ok(response) => Found::Answer(response),
            Err(error) if error.is_unfinished() => Found::Unfinished(error),
            Err(error) => {
                let response = Written::default().headed(error.header(cluster_id));
                if error.is_bad_request() {
                    Found::Invalid(response)
                } else {
                    Found::NothingBut(response)
                }
            }
        }
    }

    fn evidence(&self, snapshot: &Snapshot<'_>, evidence: &mut Evidence) {
        for PbRange { start_key, end_key } in &self.ranges {
            evidence.rests_on_scan(snapshot, start_key, end_key, limit(self.limit));
        }
    }

    fn passes_over_a_hole(&self, response: &Self::Response) -> bool {
        response.has_hole
    }

    fn question(&self) -> Question {
        Question::BatchScan(Encoded::of(&Self {
            header: None,
            ..self.clone()
        }))
    }

    fn read(&self, answer: &Answer, _: u64) -> Option<Self::Response> {
        match answer {
            Answer::BatchScan(response) => Some(written(response.clone())),
            _ => None,
        }
    }
}

fn one(found: Option<Written<GetRegionResponse>>) -> Found<Written<GetRegionResponse>> {
    found.map_or(Found::Nothing, Found::Answer)
}

fn point(point: Point, with_buckets: bool) -> Question {
    Question::Point {
        point,
        with_buckets,
    }
}

/// A leader's miss is a success without a region.
fn read_one(answer: &Answer, cluster_id: u64) -> Option<GetRegionResponse> {
    let header = Some(ok_header(cluster_id));
    match answer {
        Answer::Region(RegionResponse {
            region,
            leader,
            down_peers,
            pending_peers,
            buckets,
        }) => Some(GetRegionResponse {
            header,
            region: region.clone(),
            leader: *leader,
            down_peers: down_peers.clone(),
            pending_peers: pending_peers.clone(),
            buckets: buckets.clone(),
        }),
        Answer::Nothing => Some(GetRegionResponse {
            header,
            ..GetRegionResponse::default()
        }),
        Answer::Error(header) => Some(GetRegionResponse {
            header: Some(header.clone()),
            ..GetRegionResponse::default()
        }),
        _ => None,
    }
}
