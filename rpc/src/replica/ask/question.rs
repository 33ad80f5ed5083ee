//! What can be asked, and what can come of it.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tidegate_core::Moment;
use tonic::Status;

use crate::proto::pdpb::{
    BatchScanRegionsRequest, BatchScanRegionsResponse, QueryRegionRequest, QueryRegionResponse,
    RegionResponse, ResponseHeader, ScanRegionsRequest, ScanRegionsResponse,
};

/// A question to the leader. Equal questions are asked once.
///
/// It holds on to the caller's message until it is answered, and no longer.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Question {
    /// One region, to be asked together with others.
    Point {
        /// Which.
        point: Point,
        /// Whether its buckets are wanted.
        with_buckets: bool,
    },
    /// ScanRegions, without a header.
    Scan(ScanRegionsRequest),
    /// BatchScanRegions, without a header.
    BatchScan(Encoded<BatchScanRegionsRequest>),
    /// A batch of QueryRegion that has to be answered whole, without a header.
    Batch(QueryRegionRequest),
}

/// One region.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Point {
    /// That holds a key.
    Key(Bytes),
    /// That lies before the one that holds a key.
    Prev(Bytes),
    /// With an id.
    Id(u64),
}

/// A message that is compared by its bytes.
#[derive(Debug)]
pub struct Encoded<M> {
    bytes: Bytes,
    kind: std::marker::PhantomData<fn() -> M>,
}

impl<M: Message + Default> Encoded<M> {
    /// The message, encoded.
    #[must_use]
    pub fn of(message: &M) -> Self {
        Self {
            bytes: message.encode_to_vec().into(),
            kind: std::marker::PhantomData,
        }
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> M {
        // Encoded by us, so that it can be decoded.
        M::decode(self.bytes.clone()).unwrap_or_default()
    }
}

impl<M> Clone for Encoded<M> {
    fn clone(&self) -> Self {
        Self {
            bytes: self.bytes.clone(),
            kind: self.kind,
        }
    }
}

impl<M> PartialEq for Encoded<M> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<M> Eq for Encoded<M> {}

impl<M> std::hash::Hash for Encoded<M> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

/// The leader's answer, as it gave it.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To a point: the region.
    Region(RegionResponse),
    /// To a point: there is none.
    Nothing,
    /// To a point: an error in the header.
    Error(ResponseHeader),
    /// To a scan.
    Scan(ScanRegionsResponse),
    /// To several scans.
    BatchScan(BatchScanRegionsResponse),
    /// To a batch.
    Batch(QueryRegionResponse),
    /// To anything: a status that is no matter of who leads.
    Status(Status),
}

/// An answer and its age.
#[derive(Clone, Debug)]
pub struct Told {
    /// The answer.
    pub answer: Answer,
    /// When the question was sent: the answer is at least as new.
    pub asked_at: Moment,
}

/// What came of a question.
pub type Outcome = Result<Arc<Told>, AskError>;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AskError {
    /// Too much is asked already.
    #[error("too many questions are waiting for the PD leader; ask it directly")]
    Overflow,
    /// No leader is known.
    #[error("no PD leader is known; ask again when there is one")]
    NoLeader,
    /// The answer has not come in time.
    #[error("the PD leader has not answered in time; ask it directly")]
    Deadline,
    /// The leader could not be asked, or was not the leader any more.
    #[error("the PD leader could not be asked; ask again, or ask it directly")]
    Failed,
    /// The leader has answered something else than was asked.
    #[error("the PD leader's answer does not fit the question; ask again, or ask it directly")]
    Unfit,
}

impl AskError {
    /// Every error.
    pub const ALL: [Self; 5] = [
        Self::Overflow,
        Self::NoLeader,
        Self::Deadline,
        Self::Failed,
        Self::Unfit,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::NoLeader => "no_leader",
            Self::Deadline => "deadline",
            Self::Failed => "failed",
            Self::Unfit => "unfit",
        }
    }
}
