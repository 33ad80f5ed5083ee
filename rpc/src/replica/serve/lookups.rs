//! The unary lookups that both services have, behind their first checks.
//!
//! Each knows how it is answered from the map ([`Inquiry::lookup`]), on which entries that answer rests
//! ([`Inquiry::evidence`]), and how the leader is asked for it ([`Inquiry::question`], [`Inquiry::read`]). What is made
//! of these is in `through.rs`.
//!
//! A miss is no answer of a follower's, as it may only not have heard of the region yet. Nor is a hole that a scan
//! passes over, as long as there is somebody to ask; if there is nobody, it is one: the ranges asked for hold no region.

use std::sync::Arc;

use tidegate_core::{KeyRange, Snapshot};
use tonic::{Response, Status};

use super::counters::Method;
use super::demand::Demand;
use super::evidence::Evidence;
use super::through::Inquiry;
use super::{Found, Serving, Weight};
use crate::lookup::{Lookup, Reach};
use crate::proto::header::ok_header;
use crate::proto::pdpb::{
    BatchScanRegionsRequest, BatchScanRegionsResponse, GetRegionByIdRequest, GetRegionRequest,
    GetRegionResponse, KeyRange as PbRange, RegionResponse, ScanRegionsRequest,
    ScanRegionsResponse,
};
use crate::replica::ask::{Answer, Encoded, Point, Question};

impl Serving {
    pub(super) async fn get_region(
        self: &Arc<Self>,
        demand: &Demand,
        request: GetRegionRequest,
    ) -> Result<Response<GetRegionResponse>, Status> {
        self.inquire(demand, Get(request)).await
    }

    pub(super) async fn get_prev_region(
        self: &Arc<Self>,
        demand: &Demand,
        request: GetRegionRequest,
    ) -> Result<Response<GetRegionResponse>, Status> {
        self.inquire(demand, Prev(request)).await
    }

    pub(super) async fn get_region_by_id(
        self: &Arc<Self>,
        demand: &Demand,
        request: GetRegionByIdRequest,
    ) -> Result<Response<GetRegionResponse>, Status> {
        self.inquire(demand, request).await
    }

    /// ResourceExhausted if there is no room, or the answer would be too large.
    pub(super) async fn scan_regions(
        self: &Arc<Self>,
        demand: &Demand,
        request: ScanRegionsRequest,
    ) -> Result<Response<ScanRegionsResponse>, Status> {
        self.inquire(demand, request).await
    }

    /// ResourceExhausted if there is no room, or the answer would be too large.
    pub(super) async fn batch_scan_regions(
        self: &Arc<Self>,
        demand: &Demand,
        request: BatchScanRegionsRequest,
    ) -> Result<Response<BatchScanRegionsResponse>, Status> {
        self.inquire(demand, request).await
    }
}

struct Get(GetRegionRequest);

struct Prev(GetRegionRequest);

impl Inquiry for Get {
    type Response = GetRegionResponse;
    const METHOD: Method = Method::GetRegion;

    fn lookup(&self, lookup: &Lookup<'_, '_>, _: u64, _: Reach<'_>) -> Found<GetRegionResponse> {
        one(lookup.get(&self.0))
    }

    fn evidence(&self, snapshot: &Snapshot<'_>, evidence: &mut Evidence) {
        evidence.rests_on(snapshot.get(&self.0.region_key));
    }

    fn question(&self) -> Question {
        point(Point::Key(self.0.region_key.clone()), self.0.need_buckets)
    }

    fn read(&self, answer: &Answer, cluster_id: u64) -> Option<GetRegionResponse> {
        read_one(answer, cluster_id)
    }
}

impl Inquiry for Prev {
    type Response = GetRegionResponse;
    const METHOD: Method = Method::GetPrevRegion;

    fn lookup(&self, lookup: &Lookup<'_, '_>, _: u64, _: Reach<'_>) -> Found<GetRegionResponse> {
        one(lookup.prev(&self.0))
    }

    /// Which region is the one before depends on the one that holds the key.
    fn evidence(&self, snapshot: &Snapshot<'_>, evidence: &mut Evidence) {
        evidence.rests_on(snapshot.get(&self.0.region_key));
        evidence.rests_on(snapshot.prev(&self.0.region_key));
    }

    fn question(&self) -> Question {
        point(Point::Prev(self.0.region_key.clone()), self.0.need_buckets)
    }

    fn read(&self, answer: &Answer, cluster_id: u64) -> Option<GetRegionResponse> {
        read_one(answer, cluster_id)
    }
}

impl Inquiry for GetRegionByIdRequest {
    type Response = GetRegionResponse;
    const METHOD: Method = Method::GetRegionById;

    fn lookup(&self, lookup: &Lookup<'_, '_>, _: u64, _: Reach<'_>) -> Found<GetRegionResponse> {
        one(lookup.by_id(self))
    }

    fn evidence(&self, snapshot: &Snapshot<'_>, evidence: &mut Evidence) {
        evidence.rests_on(snapshot.by_id(self.region_id));
    }

    fn question(&self) -> Question {
        point(Point::Id(self.region_id), self.need_buckets)
    }

    fn read(&self, answer: &Answer, cluster_id: u64) -> Option<GetRegionResponse> {
        read_one(answer, cluster_id)
    }
}

impl Inquiry for ScanRegionsRequest {
    type Response = ScanRegionsResponse;
    const METHOD: Method = Method::ScanRegions;

    fn weight(&self) -> Weight {
        Weight::of_scan(self.limit, 1)
    }

    fn lookup(
        &self,
        lookup: &Lookup<'_, '_>,
        _: u64,
        reach: Reach<'_>,
    ) -> Found<ScanRegionsResponse> {
        match lookup.scan_within(self, reach) {
            Ok(response) => Found::Answer(response),
            Err(error) => Found::Unfinished(error),
        }
    }

    fn evidence(&self, snapshot: &Snapshot<'_>, evidence: &mut Evidence) {
        evidence.rests_on_scan(snapshot, &self.start_key, &self.end_key, limit(self.limit));
    }

    fn passes_over_a_hole(&self, response: &ScanRegionsResponse) -> bool {
        let ranges = [(&self.start_key[..], &self.end_key[..])];
        has_hole(&ranges, regions(&response.regions), limit(self.limit))
    }

    fn question(&self) -> Question {
        Question::Scan(Self {
            header: None,
            ..self.clone()
        })
    }

    fn read(&self, answer: &Answer, _: u64) -> Option<ScanRegionsResponse> {
        match answer {
            Answer::Scan(response) => Some(response.clone()),
            _ => None,
        }
    }
}

impl Inquiry for BatchScanRegionsRequest {
    type Response = BatchScanRegionsResponse;
    const METHOD: Method = Method::BatchScanRegions;

    fn weight(&self) -> Weight {
        Weight::of_scan(self.limit, self.ranges.len())
    }

    fn lookup(
        &self,
        lookup: &Lookup<'_, '_>,
        cluster_id: u64,
        reach: Reach<'_>,
    ) -> Found<BatchScanRegionsResponse> {
        match lookup.batch_scan_within(self, reach) {
            Ok(response) => Found::Answer(response),
            Err(error) if error.is_unfinished() => Found::Unfinished(error),
            Err(error) => {
                let response = BatchScanRegionsResponse {
                    header: Some(error.header(cluster_id)),
                    ..BatchScanRegionsResponse::default()
                };
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

    fn passes_over_a_hole(&self, response: &BatchScanRegionsResponse) -> bool {
        let ranges: Vec<(&[u8], &[u8])> = self
            .ranges
            .iter()
            .map(|range| (&range.start_key[..], &range.end_key[..]))
            .collect();
        has_hole(&ranges, regions(&response.regions), limit(self.limit))
    }

    fn question(&self) -> Question {
        Question::BatchScan(Encoded::of(&Self {
            header: None,
            ..self.clone()
        }))
    }

    fn read(&self, answer: &Answer, _: u64) -> Option<BatchScanRegionsResponse> {
        match answer {
            Answer::BatchScan(response) => Some(response.clone()),
            _ => None,
        }
    }
}

fn one(found: Option<GetRegionResponse>) -> Found<GetRegionResponse> {
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

/// A limit in PD's reading.
fn limit(limit: i32) -> usize {
    usize::try_from(limit)
        .ok()
        .filter(|limit| *limit > 0)
        .unwrap_or(usize::MAX)
}

fn regions(
    regions: &[crate::proto::pdpb::Region],
) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + Clone {
    regions.iter().map(|found| match &found.region {
        Some(region) => (&region.start_key[..], &region.end_key[..]),
        None => (&[][..], &[][..]),
    })
}

/// Whether the ranges have keys that none of the regions found there holds, up to where the limit stopped the scan.
fn has_hole<'a>(
    ranges: &[(&'a [u8], &'a [u8])],
    found: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
    limit: usize,
) -> bool {
    let stopped = found.len() >= limit;
    let mut found = found.peekable();
    for &(start, end) in ranges {
        if KeyRange::new(start, end).is_err() {
            continue;
        }
        let mut reached = start;
        loop {
            let Some(&(from, to)) = found.peek() else {
                return !stopped;
            };
            if from > reached {
                return true;
            }
            let covers_the_rest = to.is_empty() || (!end.is_empty() && to >= end);
            if covers_the_rest {
                // It may reach into the next range as well.
                break;
            }
            if to > reached {
                reached = to;
            }
            found.next();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hole(ranges: &[(&str, &str)], found: &[(&str, &str)], limit: usize) -> bool {
        let bytes = |pairs: &[(&str, &str)]| -> Vec<(Vec<u8>, Vec<u8>)> {
            let pair = |&(a, b): &(&str, &str)| (a.as_bytes().to_vec(), b.as_bytes().to_vec());
            pairs.iter().map(pair).collect()
        };
        let (ranges, found) = (bytes(ranges), bytes(found));
        let ranges: Vec<_> = ranges.iter().map(|(a, b)| (&a[..], &b[..])).collect();
        has_hole(&ranges, found.iter().map(|(a, b)| (&a[..], &b[..])), limit)
    }

    #[test]
    fn a_hole_is_found_before_between_and_behind_regions() {
        let found = [("a", "d"), ("d", "g"), ("k", "")];
        assert!(!hole(&[("b", "f")], &found[..2], 9));
        assert!(!hole(&[("b", "g")], &found[..2], 9));
        assert!(hole(&[("", "f")], &found[..2], 9), "before");
        assert!(hole(&[("b", "z")], &found, 9), "between");
        assert!(hole(&[("b", "h")], &found[..2], 9), "behind");
        assert!(hole(&[("h", "i")], &[], 9), "nothing but a hole");
        assert!(!hole(&[("k", "")], &found[2..], 9));
        assert!(!hole(&[("z", "b")], &[], 9), "no keys at all");
    }

    #[test]
    fn what_lies_behind_the_limit_is_no_hole() {
        let found = [("a", "d"), ("d", "g")];
        assert!(!hole(&[("b", "z")], &found, 2));
        assert!(hole(&[("b", "z")], &found, 3));
    }

    #[test]
    fn one_region_may_cover_several_ranges() {
        let found = [("a", "m"), ("m", "")];
        assert!(!hole(
            &[("b", "c"), ("e", "f"), ("l", "p"), ("x", "")],
            &found,
            9
        ));
        assert!(hole(&[("b", "c"), ("l", "p")], &found[..1], 9));
    }
}
