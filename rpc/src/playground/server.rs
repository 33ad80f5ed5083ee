//! The servers that the load asks, over gRPC, the way a PD client would.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tidegate_core::{Key, KeyRange, Region};
use tokio_stream::StreamExt;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::judge::{Answer, Question};
use super::load::{Declined, Target};
use crate::proto::convert::region_from_pb;
use crate::proto::pdpb::pd_client::PdClient;
use crate::proto::{metapb, pdpb};

/// Tells a PD follower that its answer will do.
const ALLOW_FOLLOWER: &str = "pd-allow-follower-handle";
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// So that one client's large answer does not hold up another's small one.
const CONNECTIONS: usize = 2;

/// One server, leader or replica.
#[derive(Debug)]
pub struct PdServer {
    clients: Vec<PdClient<Channel>>,
    turn: AtomicUsize,
    cluster_id: u64,
}

impl PdServer {
    /// The server at `url`; it is dialled on the first question.
    ///
    /// # Errors
    ///
    /// `url` is no address.
    pub fn new(url: String, cluster_id: u64) -> Result<Self, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(url)?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true);
        let clients = (0..CONNECTIONS)
            .map(|_| PdClient::new(endpoint.connect_lazy()))
            .collect();
        Ok(Self {
            clients,
            turn: AtomicUsize::new(0),
            cluster_id,
        })
    }

    fn client(&self) -> Result<PdClient<Channel>, Declined> {
        // Relaxed: any turn will do.
        let turn = self.turn.fetch_add(1, Relaxed);
        let client = self.clients.get(turn % self.clients.len().max(1));
        client
            .cloned()
            .ok_or_else(|| Declined::Failed("there is no connection".to_owned()))
    }

    fn request<M>(message: M) -> Request<M> {
        let mut request = Request::new(message);
        request
            .metadata_mut()
            .insert(ALLOW_FOLLOWER, MetadataValue::from_static("true"));
        request
    }

    fn header(&self) -> Option<pdpb::RequestHeader> {
        Some(pdpb::RequestHeader {
            cluster_id: self.cluster_id,
            ..pdpb::RequestHeader::default()
        })
    }

    async fn region(&self, question: &Question) -> Result<pdpb::GetRegionResponse, Declined> {
        let mut client = self.client()?;
        let by_key = |key: &Key| {
            Self::request(pdpb::GetRegionRequest {
                header: self.header(),
                region_key: key.to_vec().into(),
                need_buckets: false,
            })
        };
        let answered = match question {
            Question::Previous(key) => client.get_prev_region(by_key(key)).await,
            Question::ById(region_id) => {
                let message = pdpb::GetRegionByIdRequest {
                    header: self.header(),
                    region_id: *region_id,
                    need_buckets: false,
                };
                client.get_region_by_id(Self::request(message)).await
            }
            Question::Get(key) => client.get_region(by_key(key)).await,
            _ => return Err(Declined::Failed("no question for one region".to_owned())),
        };
        Ok(answered.map_err(failed)?.into_inner())
    }

    async fn scan(&self, range: &KeyRange, limit: usize) -> Result<Answer, Declined> {
        let message = pdpb::ScanRegionsRequest {
            header: self.header(),
            start_key: range.start().to_vec().into(),
            limit: wire_limit(limit),
            end_key: range.end().to_vec().into(),
        };
        let answer = self
            .client()?
            .scan_regions(Self::request(message))
            .await
            .map_err(failed)?
            .into_inner();
        many(answer.header.as_ref(), &answer.regions)
    }

    async fn batch_scan(&self, ranges: &[KeyRange], limit: usize) -> Result<Answer, Declined> {
        let ranges = ranges.iter().map(|range| pdpb::KeyRange {
            start_key: range.start().to_vec().into(),
            end_key: range.end().to_vec().into(),
        });
        let message = pdpb::BatchScanRegionsRequest {
            header: self.header(),
            need_buckets: false,
            ranges: ranges.collect(),
            limit: wire_limit(limit),
            contain_all_key_range: false,
        };
        let answer = self
            .client()?
            .batch_scan_regions(Self::request(message))
            .await
            .map_err(failed)?
            .into_inner();
        many(answer.header.as_ref(), &answer.regions)
    }

    async fn query(&self, keys: &[Key], previous: &[Key], ids: &[u64]) -> Result<Answer, Declined> {
        let message = pdpb::QueryRegionRequest {
            header: self.header(),
            need_buckets: false,
            ids: ids.to_vec(),
            keys: keys.iter().map(|key| key.to_vec().into()).collect(),
            prev_keys: previous.iter().map(|key| key.to_vec().into()).collect(),
        };
        let batches = tokio_stream::once(message);
        let mut answers = self
            .client()?
            .query_region(Self::request(batches))
            .await
            .map_err(failed)?
            .into_inner();
        let Some(answer) = answers.next().await else {
            return Err(Declined::Failed(
                "the stream ended without an answer".to_owned(),
            ));
        };
        let answer = answer.map_err(failed)?;
        accepted(answer.header.as_ref())?;
        let found = |id: &u64| match answer.regions_by_id.get(id) {
            // A miss is id 0 for a key, and an entry without a region for an id.
            None => Ok(None),
            Some(found) => one(found.region.as_ref(), found.leader.as_ref()),
        };
        Ok(Answer::Query {
            keys: answer
                .key_id_map
                .iter()
                .map(found)
                .collect::<Result<_, _>>()?,
            previous: answer
                .prev_key_id_map
                .iter()
                .map(found)
                .collect::<Result<_, _>>()?,
            ids: ids.iter().map(found).collect::<Result<_, _>>()?,
        })
    }
}

impl Target for PdServer {
    async fn ask(&self, question: &Question) -> Result<Answer, Declined> {
        match question {
            Question::Get(_) | Question::Previous(_) | Question::ById(_) => {
                let answer = self.region(question).await?;
                accepted(answer.header.as_ref())?;
                one(answer.region.as_ref(), answer.leader.as_ref()).map(Answer::One)
            }
            Question::Scan { range, limit } => self.scan(range, *limit).await,
            Question::BatchScan { ranges, limit } => self.batch_scan(ranges, *limit).await,
            Question::Query {
                keys,
                previous,
                ids,
            } => self.query(keys, previous, ids).await,
        }
    }
}

fn accepted(header: Option<&pdpb::ResponseHeader>) -> Result<(), Declined> {
    match header.and_then(|header| header.error.as_ref()) {
        None => Ok(()),
        Some(error) if error.r#type == i32::from(pdpb::ErrorType::RegionNotFound) => {
            Err(Declined::NoAnswer)
        }
        Some(error) => Err(Declined::Failed(error.message.clone())),
    }
}

fn one(
    region: Option<&metapb::Region>,
    leader: Option<&metapb::Peer>,
) -> Result<Option<Region>, Declined> {
    let region = region.filter(|region| region.id != 0);
    region
        .map(|region| region_from_pb(region, leader, None, None))
        .transpose()
        .map_err(|error| Declined::Failed(error.to_string()))
}

/// The regions of a scan's answer, unless its header declines.
fn many(
    header: Option<&pdpb::ResponseHeader>,
    regions: &[pdpb::Region],
) -> Result<Answer, Declined> {
    accepted(header)?;
    regions
        .iter()
        .map(listed)
        .collect::<Result<_, _>>()
        .map(Answer::Many)
}

fn listed(region: &pdpb::Region) -> Result<Region, Declined> {
    one(region.region.as_ref(), region.leader.as_ref())?
        .ok_or_else(|| Declined::Failed("a list of regions with an empty one".to_owned()))
}

fn failed(status: Status) -> Declined {
    Declined::Failed(format!("{:?}: {}", status.code(), status.message()))
}

fn wire_limit(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX)
}
