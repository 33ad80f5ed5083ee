//! [`PdTransport`] over gRPC.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_stream::{Stream, StreamExt};
use tonic::Streaming;
use tonic::transport::Channel;

use crate::proto::etcdserverpb::RangeRequest;
use crate::proto::etcdserverpb::kv_client::KvClient;
use crate::proto::pdpb::pd_client::PdClient;
use crate::proto::pdpb::{
    GetMembersRequest, GetMembersResponse, RequestHeader, ResponseHeader, ScanRegionsRequest,
    ScanRegionsResponse, SyncRegionRequest, SyncRegionResponse,
};
use crate::tls::Tls;

use super::channel::{ChannelSettings, Channels, Lane};
use super::error::CallError;
use super::term::{LeaderKey, leader_key_name};
use super::told::Told;
use super::transport::{FrameSource, PdTransport};

/// Gives the address to dial for a member's address: the identity, or a relay in front of the member.
pub type Redial = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Real PD members.
pub struct Remote {
    channels: Channels,
    redial: Option<Redial>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("channels", &self.channels)
            .field("redial", &self.redial.is_some())
            .finish()
    }
}

impl Remote {
    /// A transport without connections; they are made as calls need them.
    #[must_use]
    pub fn new(settings: ChannelSettings, redial: Option<Redial>) -> Self {
        Self::secured(settings, redial, None)
    }

    /// The same, with what `https://` addresses need.
    #[must_use]
    pub fn secured(
        settings: ChannelSettings,
        redial: Option<Redial>,
        tls: Option<Arc<Tls>>,
    ) -> Self {
        Self {
            channels: Channels::new(settings, tls),
            redial,
        }
    }

    /// The connection for short calls to the member at `url`. Dials on its first call.
    ///
    /// # Errors
    ///
    /// [`CallError::Address`] when `url` cannot be dialled.
    pub fn channel(&self, url: &str) -> Result<Channel, CallError> {
        self.lane(url, Lane::Calls)
    }

    /// The largest message accepted, in bytes.
    #[must_use]
    pub fn receive_limit(&self) -> usize {
        self.channels.settings().receive_limit
    }

    /// The connection for calls of others that are passed on to the member at `url`. Dials on its first call.
    ///
    /// # Errors
    ///
    /// [`CallError::Address`] when `url` cannot be dialled.
    pub fn forward_channel(&self, url: &str) -> Result<Channel, CallError> {
        self.lane(url, Lane::Forward)
    }

    /// The connection to the member at `url` for one kind of call. Dials on its first call.
    ///
    /// # Errors
    ///
    /// [`CallError::Address`] when `url` cannot be dialled.
    pub fn lane(&self, url: &str, lane: Lane) -> Result<Channel, CallError> {
        match &self.redial {
            Some(redial) => self.channels.get(&redial(url), lane),
            None => self.channels.get(url, lane),
        }
    }
}

/// An error in the header is one of the call.
fn check(url: &str, header: Option<&ResponseHeader>) -> Result<(), CallError> {
    match header.and_then(|header| header.error.as_ref()) {
        Some(error) => Err(CallError::Refused {
            url: url.to_owned(),
            message: error.message.clone(),
        }),
        None => Ok(()),
    }
}

impl PdTransport for Remote {
    type Frames = RemoteFrames;

    async fn members(&self, url: &str) -> Result<GetMembersResponse, CallError> {
        let answer = PdClient::new(self.channel(url)?)
            .get_members(GetMembersRequest { header: None })
            .await
            .map_err(|status| CallError::status(url, status))?
            .into_inner();
        check(url, answer.header.as_ref())?;
        Ok(answer)
    }

    async fn leader_key(&self, url: &str, cluster_id: u64) -> Result<Option<LeaderKey>, CallError> {
        let request = RangeRequest {
            key: leader_key_name(cluster_id).into_bytes().into(),
            ..RangeRequest::default()
        };
        let answer = KvClient::new(self.channel(url)?)
            .range(request)
            .await
            .map_err(|status| CallError::status(url, status))?;
        Ok(LeaderKey::from_range(answer.get_ref()))
    }

    async fn scan_regions(
        &self,
        url: &str,
        cluster_id: u64,
        start: Bytes,
        limit: u32,
    ) -> Result<ScanRegionsResponse, CallError> {
        let request = ScanRegionsRequest {
            header: Some(RequestHeader {
                cluster_id,
                ..RequestHeader::default()
            }),
            start_key: start,
            limit: i32::try_from(limit).unwrap_or(i32::MAX),
            ..ScanRegionsRequest::default()
        };
        let answer = PdClient::new(self.channel(url)?)
            .max_decoding_message_size(self.receive_limit())
            .scan_regions(request)
            .await
            .map_err(|status| CallError::status(url, status))?
            .into_inner();
        check(url, answer.header.as_ref())?;
        Ok(answer)
    }

    async fn sync_regions(
        &self,
        url: &str,
        lane: Lane,
        request: SyncRegionRequest,
    ) -> Result<RemoteFrames, CallError> {
        // One request, and the sending side stays open: older leaders take its end for the end of the stream. It is
        // closed with the frames: HTTP/2 knows a stream whose two directions are held apart, and as long as one is
        // open the leader goes on sending, to nobody, until the window is full and it waits.
        let (open, given_up) = oneshot::channel::<()>();
        let requests = tokio_stream::once(request).chain(until(given_up));
        let answer = PdClient::new(self.lane(url, lane)?)
            .max_decoding_message_size(self.receive_limit())
            .sync_regions(requests)
            .await
            .map_err(|status| CallError::status(url, status))?;
        Ok(RemoteFrames {
            url: url.to_owned(),
            told: Told::read(answer.metadata()),
            frames: answer.into_inner(),
            _open: open,
        })
    }
}

/// A sync stream from a real leader.
#[derive(Debug)]
pub struct RemoteFrames {
    url: String,
    told: Option<Told>,
    frames: Streaming<SyncRegionResponse>,
    /// Dropped, it ends the requests.
    _open: oneshot::Sender<()>,
}

/// A stream that yields nothing and ends when the sender is dropped.
fn until<T>(given_up: oneshot::Receiver<()>) -> impl Stream<Item = T> {
    Until {
        given_up,
        item: PhantomData,
    }
}

struct Until<T> {
    given_up: oneshot::Receiver<()>,
    item: PhantomData<fn() -> T>,
}

impl<T> Stream for Until<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.given_up).poll(cx).map(|_| None)
    }
}

impl FrameSource for RemoteFrames {
    async fn next_frame(&mut self) -> Result<Option<SyncRegionResponse>, CallError> {
        self.frames
            .message()
            .await
            .map_err(|status| CallError::status(&self.url, status))
    }

    fn told(&self) -> Option<&Told> {
        self.told.as_ref()
    }
}
