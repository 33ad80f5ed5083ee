//! A server under measurement: where it is, what it speaks, and what its process has used.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate::proto::pdpb;
use tidegate::proto::routerpb::router_client::RouterClient;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::client::{PdClient, channel};
use crate::error::InteropError;
use crate::keys::key_at;
use crate::status::status;

/// For one full sync of a million regions and more.
const READY_LIMIT: Duration = Duration::from_secs(300);
/// Ticks of `/proc/PID/stat` in a second, on every Linux that Rust runs on.
const TICKS: f64 = 100.0;
/// Keys, all over the key space, that a server answers when it is ready. A snapshot comes in no order of keys, so that
/// a server that lacks a hundredth of it misses one of them, most likely.
const SAMPLE: usize = 500;

/// What is spoken to a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Service {
    /// `pdpb.PD`, with the leave of a follower to answer.
    Pd,
    /// `routerpb.Router`.
    Router,
}

/// A server and its process.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) label: &'static str,
    pub(super) url: String,
    pub(super) pid: u32,
    pub(super) service: Service,
    pub(super) cluster_id: u64,
}

/// One connection to it.
#[derive(Clone, Debug)]
pub(super) enum Client {
    Pd(PdClient<Channel>),
    Router(RouterClient<Channel>),
}

impl Client {
    pub(super) async fn get_region(
        &mut self,
        message: pdpb::GetRegionRequest,
    ) -> Result<Response<pdpb::GetRegionResponse>, Status> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(
            "pd-allow-follower-handle",
            tonic::metadata::MetadataValue::from_static(""),
        );
        match self {
            Self::Pd(client) => client.get_region(request).await,
            Self::Router(client) => client.get_region(request).await,
        }
    }

    pub(super) async fn query_region(
        &mut self,
        questions: ReceiverStream<pdpb::QueryRegionRequest>,
    ) -> Result<Streaming<pdpb::QueryRegionResponse>, Status> {
        let answers = match self {
            Self::Pd(client) => client.query_region(questions).await,
            Self::Router(client) => client.query_region(questions).await,
        };
        answers.map(Response::into_inner)
    }
}

impl Subject {
    pub(super) async fn connect(&self) -> Result<Client, InteropError> {
        let channel = channel(&self.url).await?;
        Ok(match self.service {
            Service::Pd => Client::Pd(PdClient::new(channel)),
            Service::Router => Client::Router(RouterClient::new(channel)),
        })
    }

    pub(super) fn header(&self) -> Option<pdpb::RequestHeader> {
        Some(pdpb::RequestHeader {
            cluster_id: self.cluster_id,
            ..Default::default()
        })
    }

    pub(super) fn question(&self, position: u64) -> pdpb::GetRegionRequest {
        pdpb::GetRegionRequest {
            header: self.header(),
            region_key: key_at(position).into(),
            need_buckets: false,
        }
    }

    /// Waits until it answers lookups all over the key space; returns how long after `started`.
    pub(super) async fn answers(&self, started: Instant) -> Result<Duration, InteropError> {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut wanted: Vec<u64> = (0..SAMPLE)
            .map(|_| rng.random_range(1..u64::MAX - 1))
            .collect();
        let mut client = None;
        // What it has once answered it has: regions stay.
        while let Some(position) = wanted.last().copied() {
            if client.is_none() {
                client = self.connect().await.ok();
            }
            let answer = match &mut client {
                Some(client) => client.get_region(self.question(position)).await.ok(),
                None => None,
            };
            if answer.is_some_and(|answer| answer.get_ref().region.is_some()) {
                wanted.pop();
                continue;
            }
            if started.elapsed() > READY_LIMIT {
                return Err(InteropError::Timeout {
                    what: "the answers of a server under measurement",
                    limit: READY_LIMIT,
                    detail: format!(": {} lacks {} of {SAMPLE} keys", self.label, wanted.len()),
                });
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(started.elapsed())
    }

    /// Waits until a replica says of itself that it has everything; prints what it says of its start.
    pub(super) async fn states_ready(&self, regions: u64) -> Result<(), InteropError> {
        let started = Instant::now();
        loop {
            let page = status(&self.url).await.unwrap_or_default();
            // The first region of a cluster that was made over gRPC has been displaced by others.
            if page["ready"]["after_ms"].is_u64() && page["regions"] == regions {
                println!(
                    "{}: ready {} ms after its start, which was {}",
                    self.label, page["ready"]["after_ms"], page["ready"]["start"]
                );
                return Ok(());
            }
            if started.elapsed() > READY_LIMIT {
                return Err(InteropError::Timeout {
                    what: "the replica's being ready",
                    limit: READY_LIMIT,
                    detail: format!(": {page}"),
                });
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether it has QueryRegion: PD's releases before 8.5.7 do not.
    pub(super) async fn has_batches(&self) -> Result<bool, InteropError> {
        let (questions, receiver) = tokio::sync::mpsc::channel(1);
        let question = pdpb::QueryRegionRequest {
            header: self.header(),
            keys: vec![key_at(1).into()],
            ..Default::default()
        };
        let sent = questions.send(question).await;
        let mut client = self.connect().await?;
        let answered = async {
            let mut answers = client.query_region(ReceiverStream::new(receiver)).await?;
            answers.message().await
        };
        match answered.await {
            Ok(_) if sent.is_ok() => Ok(true),
            Err(status) if status.code() == tonic::Code::Unimplemented => Ok(false),
            Err(status) => Err(InteropError::call("QueryRegion")(status)),
            Ok(_) => Ok(false),
        }
    }

    /// Processor time that it has used, in seconds.
    pub(super) fn processor_seconds(&self) -> Result<f64, InteropError> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))
            .map_err(InteropError::system("read a server's processor time"))?;
        // Behind the name, which may have spaces: state is the first, utime the twelfth, stime the thirteenth.
        let fields: Vec<_> = text
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .collect();
        let ticks = |at: usize| fields.get(at).and_then(|n| n.parse::<f64>().ok());
        Ok((ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / TICKS)
    }

    /// Its resident and its peak memory, in KiB.
    pub(super) fn memory(&self) -> Result<(u64, u64), InteropError> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid))
            .map_err(InteropError::system("read a server's memory use"))?;
        let kib = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        Ok((kib("VmRSS:").unwrap_or(0), kib("VmHWM:").unwrap_or(0)))
    }
}
