//! Region lookups as a client sends them, with the answers in one shape that two servers can be compared by.

use std::time::Duration;

use tidegate::proto::pdpb;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::error::InteropError;

pub use tidegate::proto::pdpb::pd_client::PdClient;

/// Deadline of one call.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// Largest answer that is read: a scan of every region.
const MESSAGE_LIMIT: usize = 256 << 20;

/// Connects to one server.
pub async fn connect(url: &str) -> Result<PdClient<Channel>, InteropError> {
    let client = PdClient::new(channel(url).await?);
    Ok(client.max_decoding_message_size(MESSAGE_LIMIT))
}

/// A connection to one server.
pub async fn channel(url: &str) -> Result<Channel, InteropError> {
    let refuse = |e: tonic::transport::Error| InteropError::Call {
        call: "connect",
        source: Box::new(tonic::Status::unavailable(e.to_string())),
    };
    Endpoint::from_shared(url.to_owned())
        .map_err(refuse)?
        .connect_timeout(Duration::from_secs(3))
        .timeout(CALL_LIMIT)
        .connect()
        .await
        .map_err(refuse)
}

/// One region in an answer, reduced to what routing depends on, in comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Region id.
    pub id: u64,
    /// Range.
    pub start: Vec<u8>,
    /// Range's end; empty is the end of the key space.
    pub end: Vec<u8>,
    /// Split and merge count.
    pub version: u64,
    /// Membership change count.
    pub conf_ver: u64,
    /// Peers by id, with store, role and witness flag.
    pub peers: Vec<(u64, u64, i32, bool)>,
    /// Leader's peer id; zero when unknown.
    pub leader: u64,
}

/// What a lookup came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The regions found.
    Regions(Vec<Found>),
    /// The header's error.
    Refused(String),
}

impl Answer {
    /// The only region of a point lookup.
    pub fn region(&self) -> Option<&Found> {
        match self {
            Self::Regions(regions) => regions.first(),
            Self::Refused(_) => None,
        }
    }
}

/// A question that both servers are asked.
#[derive(Clone, Debug)]
pub enum Question {
    /// GetRegion.
    Key(Vec<u8>),
    /// GetPrevRegion.
    Previous(Vec<u8>),
    /// GetRegionByID.
    Id(u64),
    /// BatchScanRegions over one range, with a limit.
    Batch(Vec<u8>, Vec<u8>, i32),
    /// ScanRegions, with a limit.
    Scan(Vec<u8>, Vec<u8>, i32),
}

/// One server, asked with the metadata that lets a follower answer.
#[derive(Clone, Debug)]
pub struct Asker {
    client: PdClient<Channel>,
    cluster_id: u64,
}

impl Asker {
    /// An asker of the server behind `client`.
    pub fn new(client: PdClient<Channel>, cluster_id: u64) -> Self {
        Self { client, cluster_id }
    }

    fn header(&self) -> Option<pdpb::RequestHeader> {
        Some(pdpb::RequestHeader {
            cluster_id: self.cluster_id,
            ..Default::default()
        })
    }

    /// Asks.
    pub async fn ask(&mut self, question: &Question) -> Result<Answer, InteropError> {
        let header = self.header();
        match question.clone() {
            Question::Key(key) => {
                let request = pdpb::GetRegionRequest {
                    header,
                    region_key: key.into(),
                    need_buckets: false,
                };
                let answer = self.client.get_region(allowed(request)).await;
                Ok(point(
                    answer
                        .map_err(InteropError::call("GetRegion"))?
                        .into_inner(),
                ))
            }
            Question::Previous(key) => {
                let request = pdpb::GetRegionRequest {
                    header,
                    region_key: key.into(),
                    need_buckets: false,
                };
                let answer = self.client.get_prev_region(allowed(request)).await;
                Ok(point(
                    answer
                        .map_err(InteropError::call("GetPrevRegion"))?
                        .into_inner(),
                ))
            }
            Question::Id(region_id) => {
                let request = pdpb::GetRegionByIdRequest {
                    header,
                    region_id,
                    need_buckets: false,
                };
                let answer = self.client.get_region_by_id(allowed(request)).await;
                Ok(point(
                    answer
                        .map_err(InteropError::call("GetRegionByID"))?
                        .into_inner(),
                ))
            }
            Question::Batch(start, end, limit) => {
                let request = pdpb::BatchScanRegionsRequest {
                    header,
                    need_buckets: false,
                    ranges: vec![pdpb::KeyRange {
                        start_key: start.into(),
                        end_key: end.into(),
                    }],
                    limit,
                    contain_all_key_range: false,
                };
                let answer = self.client.batch_scan_regions(allowed(request)).await;
                let answer = answer
                    .map_err(InteropError::call("BatchScanRegions"))?
                    .into_inner();
                Ok(range(answer.header, answer.regions))
            }
            Question::Scan(start, end, limit) => {
                let request = pdpb::ScanRegionsRequest {
                    header,
                    start_key: start.into(),
                    limit,
                    end_key: end.into(),
                };
                #[allow(
                    deprecated,
                    reason = "deprecated upstream, still asked by clients in use"
                )]
                let answer = self.client.scan_regions(allowed(request)).await;
                let answer = answer
                    .map_err(InteropError::call("ScanRegions"))?
                    .into_inner();
                Ok(range(answer.header, answer.regions))
            }
        }
    }
}

fn allowed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_LIMIT);
    request.metadata_mut().insert(
        "pd-allow-follower-handle",
        tonic::metadata::MetadataValue::from_static(""),
    );
    request
}

fn refusal(header: Option<pdpb::ResponseHeader>) -> Option<Answer> {
    header
        .and_then(|h| h.error)
        .map(|e| Answer::Refused(e.message))
}

fn point(answer: pdpb::GetRegionResponse) -> Answer {
    refusal(answer.header).unwrap_or_else(|| {
        let leader = answer.leader;
        Answer::Regions(
            answer
                .region
                .map(|region| found(region, leader))
                .into_iter()
                .collect(),
        )
    })
}

fn range(header: Option<pdpb::ResponseHeader>, regions: Vec<pdpb::Region>) -> Answer {
    refusal(header).unwrap_or_else(|| {
        Answer::Regions(
            regions
                .into_iter()
                .filter_map(|r| Some(found(r.region?, r.leader)))
                .collect(),
        )
    })
}

/// A region and its leader, in comparable form.
pub fn found(
    region: tidegate::proto::metapb::Region,
    leader: Option<tidegate::proto::metapb::Peer>,
) -> Found {
    let epoch = region.region_epoch.unwrap_or_default();
    let mut peers: Vec<_> = region
        .peers
        .iter()
        .map(|p| (p.id, p.store_id, p.role, p.is_witness))
        .collect();
    peers.sort_unstable();
    Found {
        id: region.id,
        start: region.start_key.to_vec(),
        end: region.end_key.to_vec(),
        version: epoch.version,
        conf_ver: epoch.conf_ver,
        peers,
        leader: leader.map_or(0, |p| p.id),
    }
}
