//! The four calls that following a leader takes, as a trait: gRPC in production, a script in tests under virtual time.

use std::future::Future;

use bytes::Bytes;

use crate::proto::pdpb::{
    GetMembersResponse, ScanRegionsResponse, SyncRegionRequest, SyncRegionResponse,
};

use super::channel::Lane;
use super::error::CallError;
use super::term::LeaderKey;
use super::told::Told;

/// Calls to PD members. Deadlines are the caller's: see [`within`](super::within).
pub trait PdTransport: Send + Sync + 'static {
    /// The receiving side of a sync stream.
    type Frames: FrameSource;

    /// Asks a member for the members of its cluster. Any member answers.
    fn members(
        &self,
        url: &str,
    ) -> impl Future<Output = Result<GetMembersResponse, CallError>> + Send;

    /// Reads the leader key at a member; `None` means that there is no leader now.
    fn leader_key(
        &self,
        url: &str,
        cluster_id: u64,
    ) -> impl Future<Output = Result<Option<LeaderKey>, CallError>> + Send;

    /// Asks the leader for at most `limit` regions from the one that holds `start` on, in key order. An answer whose
    /// header carries an error is [`CallError::Refused`].
    fn scan_regions(
        &self,
        url: &str,
        cluster_id: u64,
        start: Bytes,
        limit: u32,
    ) -> impl Future<Output = Result<ScanRegionsResponse, CallError>> + Send;

    /// Opens a sync stream with one request. Dropping what comes back cancels the stream.
    fn sync_regions(
        &self,
        url: &str,
        lane: Lane,
        request: SyncRegionRequest,
    ) -> impl Future<Output = Result<Self::Frames, CallError>> + Send;
}

/// Frames of one sync stream, in order.
pub trait FrameSource: Send + 'static {
    /// The next frame; `None` when the leader closed the stream without a word. Cancel safe.
    fn next_frame(
        &mut self,
    ) -> impl Future<Output = Result<Option<SyncRegionResponse>, CallError>> + Send;

    /// What was told beside the frames; `None` when a PD leader sends them.
    fn told(&self) -> Option<&Told> {
        None
    }
}
