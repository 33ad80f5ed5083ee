//! The calls that read-through takes, as a trait: gRPC in production, a script in tests under virtual time.

use std::future::Future;

use tonic::Status;

use crate::pd::Term;
use crate::proto::pdpb::{
    BatchScanRegionsRequest, BatchScanRegionsResponse, GetRegionByIdRequest, GetRegionRequest,
    GetRegionResponse, QueryRegionRequest, QueryRegionResponse, ScanRegionsRequest,
    ScanRegionsResponse,
};

/// Calls to the PD leader. Deadlines are the caller's. All carry [`MARK`](super::MARK), and none lets a follower
/// answer. An answer that does not come from PD itself is a `FailedPrecondition`.
pub trait LeaderCalls: Send + Sync + 'static {
    /// A stream of QueryRegion.
    type Queries: QueryLink;

    /// Opens a stream of QueryRegion.
    fn queries(&self, url: &str) -> impl Future<Output = Result<Self::Queries, Status>> + Send;

    /// GetRegion
    fn get_region(
        &self,
        url: &str,
        request: GetRegionRequest,
    ) -> impl Future<Output = Result<GetRegionResponse, Status>> + Send;

    /// GetPrevRegion
    fn get_prev_region(
        &self,
        url: &str,
        request: GetRegionRequest,
    ) -> impl Future<Output = Result<GetRegionResponse, Status>> + Send;

    /// GetRegionByID
    fn get_region_by_id(
        &self,
        url: &str,
        request: GetRegionByIdRequest,
    ) -> impl Future<Output = Result<GetRegionResponse, Status>> + Send;

    /// ScanRegions
    fn scan_regions(
        &self,
        url: &str,
        request: ScanRegionsRequest,
    ) -> impl Future<Output = Result<ScanRegionsResponse, Status>> + Send;

    /// BatchScanRegions
    fn batch_scan_regions(
        &self,
        url: &str,
        request: BatchScanRegionsRequest,
    ) -> impl Future<Output = Result<BatchScanRegionsResponse, Status>> + Send;

    /// Whether the member at `url` leads, in that term.
    fn leads(&self, url: &str, cluster_id: u64, term: Term) -> impl Future<Output = bool> + Send;
}

/// A stream of QueryRegion: questions in, answers out, one for one.
pub trait QueryLink: Send + 'static {
    /// One batch. Not cancel safe: a link that was left in the middle of a question is of no use.
    fn query(
        &mut self,
        request: QueryRegionRequest,
    ) -> impl Future<Output = Result<QueryRegionResponse, Status>> + Send;
}
