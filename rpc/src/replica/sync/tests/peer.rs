//! A PD that does what the test says: members and the leader key are values, streams are channels.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tonic::Status;

use crate::pd::{CallError, FrameSource, Lane, LeaderKey, PdTransport};
use crate::proto::etcdserverpb::RangeResponse;
use crate::proto::metapb::{Peer, Region};
use crate::proto::mvccpb::KeyValue;
use crate::proto::pdpb::{
    GetMembersResponse, Member, ResponseHeader, ScanRegionsResponse, SyncRegionRequest,
    SyncRegionResponse,
};

pub(super) const CLUSTER: u64 = 77;

/// What the leader key says.
#[derive(Clone, Debug)]
pub(super) enum Key {
    Held { revision: i64, by: String },
    Absent,
    Unreadable,
}

#[derive(Debug)]
struct State {
    /// A part of an address, and the cluster that such addresses belong to.
    other: Option<(String, u64)>,
    leader: Option<String>,
    /// Further members.
    members: Vec<String>,
    /// Members that answer nothing.
    frozen: Vec<String>,
    key: Key,
    /// Takes the place of `key` for reads after this many more.
    next_key: Option<(usize, Key)>,
    key_reads: usize,
    streams: VecDeque<Stream>,
    /// What scans answer, in key order; `None` is an error.
    listed: Option<Vec<Region>>,
    /// Start keys of the scans so far.
    scans: Vec<Bytes>,
}

/// The scripted PD: one transport for any number of addresses.
#[derive(Clone, Debug)]
pub(super) struct Pd {
    state: Arc<Mutex<State>>,
    opened: Arc<Notify>,
}

impl Pd {
    /// A member at `http://pd-1:2379` that leads in the term 5.
    pub(super) fn new() -> Self {
        let url = "http://pd-1:2379".to_owned();
        Self {
            state: Arc::new(Mutex::new(State {
                other: None,
                leader: Some(url.clone()),
                members: Vec::new(),
                frozen: Vec::new(),
                key: Key::Held {
                    revision: 5,
                    by: url,
                },
                next_key: None,
                key_reads: 0,
                streams: VecDeque::new(),
                listed: Some(Vec::new()),
                scans: Vec::new(),
            })),
            opened: Arc::new(Notify::new()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn url(&self) -> String {
        "http://pd-1:2379".to_owned()
    }

    pub(super) fn set_key(&self, key: Key) {
        self.state().key = key;
    }

    /// Lets the key change after `reads` more reads of it.
    pub(super) fn set_key_after(&self, reads: usize, key: Key) {
        self.state().next_key = Some((reads, key));
    }

    /// The present leader in another term.
    pub(super) fn set_term(&self, revision: i64) {
        self.set_key(Key::Held {
            revision,
            by: self.url(),
        });
    }

    pub(super) fn set_leader(&self, leader: Option<&str>) {
        self.state().leader = leader.map(str::to_owned);
    }

    /// Adds a member that does not lead.
    pub(super) fn add_member(&self, url: &str) {
        self.state().members.push(url.to_owned());
    }

    /// Lets the member at `url` answer nothing about the leader key from now on.
    pub(super) fn freeze(&self, url: &str) {
        self.state().frozen.push(url.to_owned());
    }

    /// The cluster that addresses with `part` in them belong to from now on.
    pub(super) fn set_other_cluster(&self, part: &str, cluster_id: u64) {
        self.state().other = Some((part.to_owned(), cluster_id));
    }

    /// What a scan finds, each region led by its first peer; `None` makes scans fail.
    pub(super) fn set_listed(&self, regions: Option<Vec<Region>>) {
        self.state().listed = regions;
    }

    /// Start keys of the scans so far.
    pub(super) fn scans(&self) -> Vec<Bytes> {
        self.state().scans.clone()
    }

    pub(super) fn key_reads(&self) -> usize {
        self.state().key_reads
    }

    /// Waits for the next stream in `lane`. Time passes while nothing else happens, ten minutes of it at most.
    pub(super) async fn accept(&self, lane: Lane) -> Stream {
        let accepted = async {
            loop {
                let opened = self.opened.notified();
                if let Some(stream) = self.try_accept(lane) {
                    return stream;
                }
                opened.await;
            }
        };
        match timeout(Duration::from_secs(600), accepted).await {
            Ok(stream) => stream,
            Err(_) => panic!("no stream was opened in {lane:?}"),
        }
    }

    /// A stream that has been opened in `lane`, if there is one.
    pub(super) fn try_accept(&self, lane: Lane) -> Option<Stream> {
        self.take(|stream| stream.lane == lane && !stream.asks_who())
    }

    /// The stream on which the replica asks for the leader's dialect, if there is one.
    pub(super) fn try_who(&self) -> Option<Stream> {
        self.take(Stream::asks_who)
    }

    fn take(&self, which: impl Fn(&Stream) -> bool) -> Option<Stream> {
        let mut state = self.state();
        let at = state.streams.iter().position(which)?;
        state.streams.remove(at)
    }
}

impl PdTransport for Pd {
    type Frames = Frames;

    async fn members(&self, url: &str) -> Result<GetMembersResponse, CallError> {
        let state = self.state();
        let cluster_id = match &state.other {
            Some((part, other)) if url.contains(part.as_str()) => *other,
            _ => CLUSTER,
        };
        let member = |url: &String| Member {
            member_id: 1 + url.len() as u64,
            client_urls: vec![url.clone()],
            ..Member::default()
        };
        let mut urls = vec![url.to_owned()];
        urls.extend(state.leader.clone().filter(|leader| leader != url));
        urls.extend(state.members.clone());
        Ok(GetMembersResponse {
            header: Some(ResponseHeader {
                cluster_id,
                error: None,
            }),
            members: urls.iter().map(member).collect(),
            leader: state.leader.as_ref().map(member),
            etcd_leader: None,
        })
    }

    async fn leader_key(&self, url: &str, cluster_id: u64) -> Result<Option<LeaderKey>, CallError> {
        assert_eq!(cluster_id, CLUSTER);
        if self.state().frozen.iter().any(|frozen| frozen == url) {
            std::future::pending::<()>().await;
        }
        let mut state = self.state();
        state.key_reads += 1;
        if let Some((left, key)) = state.next_key.take() {
            if left == 0 {
                state.key = key;
            } else {
                state.next_key = Some((left - 1, key));
            }
        }
        match &state.key {
            Key::Unreadable => Err(CallError::status(url, Status::unavailable("no etcd"))),
            Key::Absent => Ok(None),
            Key::Held { revision, by } => {
                let member = Member {
                    client_urls: vec![by.clone()],
                    ..Member::default()
                };
                Ok(LeaderKey::from_range(&RangeResponse {
                    kvs: vec![KeyValue {
                        create_revision: *revision,
                        value: member.encode_to_vec().into(),
                        ..KeyValue::default()
                    }],
                    ..RangeResponse::default()
                }))
            }
        }
    }

    async fn scan_regions(
        &self,
        url: &str,
        cluster_id: u64,
        start: Bytes,
        limit: u32,
    ) -> Result<ScanRegionsResponse, CallError> {
        assert_eq!(cluster_id, CLUSTER);
        let mut state = self.state();
        state.scans.push(start.clone());
        let Some(listed) = &state.listed else {
            return Err(CallError::status(url, Status::unavailable("no scans")));
        };
        let regions: Vec<Region> = listed
            .iter()
            .filter(|region| region.end_key.is_empty() || region.end_key > start)
            .take(limit as usize)
            .cloned()
            .collect();
        let leader = |region: &Region| region.peers.first().cloned().unwrap_or_default();
        let leaders: Vec<Peer> = regions.iter().map(leader).collect();
        Ok(ScanRegionsResponse {
            region_metas: regions,
            leaders,
            ..ScanRegionsResponse::default()
        })
    }

    async fn sync_regions(
        &self,
        url: &str,
        lane: Lane,
        request: SyncRegionRequest,
    ) -> Result<Frames, CallError> {
        let (sender, frames) = mpsc::unbounded_channel();
        self.state().streams.push_back(Stream {
            url: url.to_owned(),
            lane,
            request,
            frames: sender,
        });
        self.opened.notify_one();
        Ok(Frames(frames))
    }
}

/// The leader's end of a stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) url: String,
    lane: Lane,
    pub(super) request: SyncRegionRequest,
    frames: mpsc::UnboundedSender<Result<SyncRegionResponse, CallError>>,
}

impl Stream {
    pub(super) fn start_index(&self) -> u64 {
        self.request.start_index
    }

    /// Whether the replica asked for everything.
    pub(super) fn asks_for_everything(&self) -> bool {
        matches!(self.start_index(), 0 | u64::MAX)
    }

    /// Whether it is opened for the leader's dialect.
    fn asks_who(&self) -> bool {
        self.member().name.ends_with("-who")
    }

    pub(super) fn member(&self) -> &Member {
        self.request.member.as_ref().unwrap()
    }

    /// Sends a frame; one that nobody receives any more is lost.
    pub(super) fn send(&self, frame: SyncRegionResponse) {
        let _ = self.frames.send(Ok(frame));
    }

    /// Ends the stream with a status.
    pub(super) fn fail(&self, status: Status) {
        let _ = self.frames.send(Err(CallError::status(&self.url, status)));
    }

    /// Whether the replica has dropped its end.
    pub(super) fn is_cancelled(&self) -> bool {
        self.frames.is_closed()
    }
}

/// The replica's end of a stream.
#[derive(Debug)]
pub(super) struct Frames(mpsc::UnboundedReceiver<Result<SyncRegionResponse, CallError>>);

impl FrameSource for Frames {
    async fn next_frame(&mut self) -> Result<Option<SyncRegionResponse>, CallError> {
        self.0.recv().await.transpose()
    }
}
