//! Where regions are asked for: a PD member, a router, a replica of ours.
//!
//! | asked | service | how a miss looks |
//! |---|---|---|
//! | the PD leader | `pdpb.PD` without metadata, so that nobody else answers | an answer without a region |
//! | a PD follower, a replica | `pdpb.PD` with `pd-allow-follower-handle` | `REGION_NOT_FOUND`, as when it refuses |
//! | a router | `routerpb.Router` | an answer without a region |
//!
//! `BatchScanRegions` is asked for pages, `ScanRegions` where a release is too old for it. A follower has one error for
//! a lookup that finds nothing and for not answering at all. A scan that finds nothing is an answer, so that the error
//! means a refusal there; after a lookup, a scan of the first region tells which it was, and what found nothing is asked
//! once more: the refusal may have ended in between.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tidegate_core::{KeyRange, Region};
use tokio::task::JoinSet;
use tonic::{Code, Request, Status};

use crate::lookup::fit::{self, Misfit};
use crate::pd::{CallError, Remote, within};
use crate::proto::convert::{Extras, Malformed, key_to_pb, region_with};
use crate::proto::metapb;
use crate::proto::pdpb::pd_client::PdClient;
use crate::proto::pdpb::{
    self, BatchScanRegionsRequest, ErrorType, GetRegionByIdRequest, RequestHeader, ResponseHeader,
    ScanRegionsRequest,
};
use crate::proto::routerpb::router_client::RouterClient;

/// Lets PD's followers answer.
const ALLOW_FOLLOWER: &str = "pd-allow-follower-handle";
/// What our own replicas put into the metadata of their answers starts with this.
const OURS: &str = "tidegate-";

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It does not answer lookups now, and says so.
    #[error("{url} answers no lookups now: {message}")]
    Refused {
        /// Who was asked.
        url: String,
        /// Its words.
        message: String,
    },
    /// It is of another cluster than the one meant.
    #[error("{url} is of cluster {id}, not of cluster {expected}; give two servers of one cluster")]
    OtherCluster {
        /// Who was asked.
        url: String,
        /// The cluster it is of.
        id: u64,
        /// The cluster that was meant.
        expected: u64,
    },
    /// Who answered for the PD leader is a replica, whose word proves nothing.
    #[error("{url} is a replica and not the PD leader; give the address of a PD member")]
    Replica {
        /// Who was asked.
        url: String,
    },
    /// An answer that cannot be used.
    #[error("{url} sent a region that cannot be used: {fault}")]
    Malformed {
        /// Who was asked.
        url: String,
        /// What is wrong with it.
        fault: Malformed,
    },
    /// An answer to something else than was asked.
    #[error("{url} answered something else than was asked: {fault}")]
    Unfit {
        /// Who was asked.
        url: String,
        /// What does not fit.
        fault: String,
    },
}

/// Somebody who can be asked for regions.
pub trait Source: Send + Sync {
    /// The regions in `ranges`, which are in order and do not touch, at most `limit` of them, in the order of their
    /// keys.
    fn scan(
        &self,
        ranges: &[KeyRange],
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Region>, AskError>> + Send;

    /// The regions with these ids, in their order.
    fn by_ids(
        &self,
        ids: &[u64],
    ) -> impl Future<Output = Result<Vec<Option<Region>>, AskError>> + Send;
}

/// What is asked, and in whose name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Service {
    /// `pdpb.PD`, the leader alone.
    Leader,
    /// `pdpb.PD`, whoever it is.
    Follower,
    /// `routerpb.Router`.
    Router,
}

impl Service {
    /// The name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "PD leader",
            Self::Follower => "PD follower or replica",
            Self::Router => "router",
        }
    }
}

/// A server over gRPC.
#[derive(Clone, Debug)]
pub struct Server {
    remote: Arc<Remote>,
    url: String,
    cluster_id: u64,
    service: Service,
    timeout: Duration,
    /// It knows no BatchScanRegions.
    scans_only: Arc<AtomicBool>,
}

impl Server {
    /// A server that is asked as `service`, with `timeout` for each call.
    #[must_use]
    pub fn new(
        remote: Arc<Remote>,
        url: String,
        cluster_id: u64,
        service: Service,
        timeout: Duration,
    ) -> Self {
        Self {
            remote,
            url,
            cluster_id,
            service,
            timeout,
            scans_only: Arc::default(),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it is asked as.
    #[must_use]
    pub fn service(&self) -> Service {
        self.service
    }

    fn header(&self) -> Option<RequestHeader> {
        Some(RequestHeader {
            cluster_id: self.cluster_id,
            ..RequestHeader::default()
        })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if self.service == Service::Follower {
            request.metadata_mut().insert(
                ALLOW_FOLLOWER,
                tonic::metadata::MetadataValue::from_static(""),
            );
        }
        request
    }

    /// What the header says: true when there is an answer, false for a follower's "not found".
    fn read_header(&self, header: Option<&ResponseHeader>) -> Result<bool, AskError> {
        let url = || self.url.clone();
        let id = header.map_or(0, |header| header.cluster_id);
        if let Some(error) = header.and_then(|header| header.error.as_ref()) {
            if error.r#type == i32::from(ErrorType::RegionNotFound)
                && self.service != Service::Leader
            {
                return Ok(false);
            }
            return Err(AskError::Refused {
                url: url(),
                message: error.message.clone(),
            });
        }
        if id != self.cluster_id {
            return Err(AskError::OtherCluster {
                url: url(),
                id,
                expected: self.cluster_id,
            });
        }
        Ok(true)
    }

    /// A replica of ours may answer for a leader when it passes questions on; then this is a comparison of it with
    /// itself.
    fn check_origin(&self, metadata: &tonic::metadata::MetadataMap) -> Result<(), AskError> {
        let ours = |key: tonic::metadata::KeyRef<'_>| match key {
            tonic::metadata::KeyRef::Ascii(key) => key.as_str().starts_with(OURS),
            tonic::metadata::KeyRef::Binary(_) => false,
        };
        if self.service == Service::Leader && metadata.keys().any(ours) {
            return Err(AskError::Replica {
                url: self.url.clone(),
            });
        }
        Ok(())
    }

    fn region(
        &self,
        region: &metapb::Region,
        leader: Option<&metapb::Peer>,
    ) -> Result<Region, AskError> {
        region_with(
            region,
            Extras {
                leader,
                ..Extras::default()
            },
        )
        .map_err(|fault| AskError::Malformed {
            url: self.url.clone(),
            fault,
        })
    }

    fn unfit(&self, misfit: Misfit) -> AskError {
        AskError::Unfit {
            url: self.url.clone(),
            fault: misfit.to_string(),
        }
    }

    /// The regions of a scan, which have to be some of these ranges.
    fn fitting(&self, regions: Vec<Region>, ranges: &[KeyRange]) -> Result<Vec<Region>, AskError> {
        let ranges: Vec<_> = ranges
            .iter()
            .map(|range| (range.start().as_bytes(), range.end().as_bytes()))
            .collect();
        let found = regions.iter().map(|region| {
            (
                region.id(),
                (region.start().as_bytes(), region.end().as_bytes()),
            )
        });
        let fits = fit::in_order(found, &ranges, None);
        fits.map(|()| regions).map_err(|misfit| self.unfit(misfit))
    }

    fn regions(&self, scanned: &[pdpb::Region]) -> Result<Vec<Region>, AskError> {
        let with_leaders = scanned
            .iter()
            .filter_map(|item| Some((item.region.as_ref()?, item.leader.as_ref())));
        with_leaders
            .map(|(region, leader)| self.region(region, leader))
            .collect()
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<tonic::Response<T>, CallError> {
        within(self.timeout, &self.url, async {
            call.await
                .map_err(|status| CallError::status(&self.url, status))
        })
        .await
    }

    /// `None` for a follower's "not found".
    async fn batch_scan(
        &self,
        asked: &[KeyRange],
        limit: i32,
    ) -> Result<Option<Vec<Region>>, AskError> {
        let ranges = asked
            .iter()
            .map(|range| pdpb::KeyRange {
                start_key: key_to_pb(range.start()),
                end_key: key_to_pb(range.end()),
            })
            .collect();
        let request = self.request(BatchScanRegionsRequest {
            header: self.header(),
            ranges,
            limit,
            ..BatchScanRegionsRequest::default()
        });
        let (channel, most) = (self.remote.channel(&self.url)?, self.remote.receive_limit());
        let answer = match self.service {
            Service::Router => {
                let mut client = RouterClient::new(channel).max_decoding_message_size(most);
                self.call(client.batch_scan_regions(request)).await
            }
            Service::Leader | Service::Follower => {
                let mut client = PdClient::new(channel).max_decoding_message_size(most);
                self.call(client.batch_scan_regions(request)).await
            }
        }?;
        self.check_origin(answer.metadata())?;
        let answer = answer.into_inner();
        if !self.read_header(answer.header.as_ref())? {
            return Ok(None);
        }
        let mut regions = self.fitting(self.regions(&answer.regions)?, asked)?;
        // PD scans the last range with the whole limit, whatever the others have found.
        regions.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(Some(regions))
    }

    /// One range by the older call.
    async fn scan_one(
        &self,
        range: &KeyRange,
        limit: i32,
    ) -> Result<Option<Vec<Region>>, AskError> {
        let request = self.request(ScanRegionsRequest {
            header: self.header(),
            start_key: key_to_pb(range.start()),
            end_key: key_to_pb(range.end()),
            limit,
        });
        let mut client = PdClient::new(self.remote.channel(&self.url)?)
            .max_decoding_message_size(self.remote.receive_limit());
        let answer = self.call(client.scan_regions(request)).await?;
        self.check_origin(answer.metadata())?;
        let answer = answer.into_inner();
        if !self.read_header(answer.header.as_ref())? {
            return Ok(None);
        }
        if answer.regions.is_empty() {
            // The oldest releases fill the first pair of lists alone.
            let regions = answer.region_metas.iter().enumerate();
            let read = regions.map(|(at, region)| self.region(region, answer.leaders.get(at)));
            let regions = read.collect::<Result<_, _>>()?;
            return self.fitting(regions, std::slice::from_ref(range)).map(Some);
        }
        let regions = self.regions(&answer.regions)?;
        self.fitting(regions, std::slice::from_ref(range)).map(Some)
    }

    async fn scan_each(
        &self,
        ranges: &[KeyRange],
        limit: i32,
    ) -> Result<Option<Vec<Region>>, AskError> {
        let mut found: Vec<Region> = Vec::new();
        for range in ranges {
            let left = limit.saturating_sub(i32::try_from(found.len()).unwrap_or(i32::MAX));
            if left <= 0 {
                break;
            }
            // A part of the ranges is no answer: the rest would count as missing.
            let Some(regions) = self.scan_one(range, left).await? else {
                return Ok(None);
            };
            let repeated = found.last().map(Region::id);
            found.extend(
                regions
                    .into_iter()
                    .filter(|region| Some(region.id()) != repeated),
            );
        }
        Ok(Some(found))
    }

    async fn pages(
        &self,
        ranges: &[KeyRange],
        limit: i32,
    ) -> Result<Option<Vec<Region>>, AskError> {
        // Relaxed: whoever does not see it yet finds out for itself.
        if !self.scans_only.load(Relaxed) {
            match self.batch_scan(ranges, limit).await {
                Err(AskError::Call(CallError::Status { status, .. }))
                    if status.code() == Code::Unimplemented && self.service != Service::Router =>
                {
                    self.scans_only.store(true, Relaxed);
                }
                answer => return answer,
            }
        }
        self.scan_each(ranges, limit).await
    }

    /// The regions, unless it answers nothing now.
    async fn answered(&self, ranges: &[KeyRange], limit: i32) -> Result<Vec<Region>, AskError> {
        let answer = self.pages(ranges, limit).await?;
        answer.ok_or_else(|| AskError::Refused {
            url: self.url.clone(),
            message: "region not found".to_owned(),
        })
    }

    async fn by_id(&self, region_id: u64) -> Result<Option<Option<Region>>, AskError> {
        let request = self.request(GetRegionByIdRequest {
            header: self.header(),
            region_id,
            ..GetRegionByIdRequest::default()
        });
        let channel = self.remote.channel(&self.url)?;
        let answer = match self.service {
            Service::Router => {
                let mut client = RouterClient::new(channel);
                self.call(client.get_region_by_id(request)).await
            }
            Service::Leader | Service::Follower => {
                let mut client = PdClient::new(channel);
                self.call(client.get_region_by_id(request)).await
            }
        }?;
        self.check_origin(answer.metadata())?;
        let answer = answer.into_inner();
        if !self.read_header(answer.header.as_ref())? {
            return Ok(None);
        }
        let Some(region) = &answer.region else {
            return Ok(Some(None));
        };
        fit::has_id(region, region_id).map_err(|misfit| self.unfit(misfit))?;
        let region = self.region(region, answer.leader.as_ref())?;
        Ok(Some(Some(region)))
    }
}

impl Server {
    /// Asks for each of `ids`, all at once; `None` in the place of one that a follower has not found.
    async fn each(&self, ids: &[u64]) -> Result<Vec<Option<Option<Region>>>, AskError> {
        let mut asked = JoinSet::new();
        for (at, id) in ids.iter().copied().enumerate() {
            let server = self.clone();
            asked.spawn(async move { (at, server.by_id(id).await) });
        }
        let mut found = vec![None; ids.len()];
        while let Some(joined) = asked.join_next().await {
            // Only a panic in a call could make it an error.
            let Ok((at, answer)) = joined else { continue };
            found[at] = answer?;
        }
        Ok(found)
    }
}

impl Source for Server {
    async fn scan(&self, ranges: &[KeyRange], limit: usize) -> Result<Vec<Region>, AskError> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        self.answered(ranges, limit).await
    }

    async fn by_ids(&self, ids: &[u64]) -> Result<Vec<Option<Region>>, AskError> {
        let mut found = self.each(ids).await?;
        let missed: Vec<usize> = (0..ids.len()).filter(|&at| found[at].is_none()).collect();
        if !missed.is_empty() {
            self.answered(&[KeyRange::all()], 1).await?;
            let again: Vec<u64> = missed.iter().map(|&at| ids[at]).collect();
            for (at, answer) in missed.into_iter().zip(self.each(&again).await?) {
                found[at] = answer;
            }
        }
        Ok(found.into_iter().map(Option::flatten).collect())
    }
}

#[cfg(test)]
pub(super) mod tests;
