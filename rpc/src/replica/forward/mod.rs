//! Passing calls on to the PD leader.
//!
//! What is not ours to answer is the leader's. Such a call is handed on as it came: the HTTP/2 frames of its messages
//! and its trailers are copied, never decoded, so that fields and methods which this program does not know arrive as
//! they were sent; metadata, deadline (`grpc-timeout`) and compression are the caller's. Both directions stream, each at
//! the pace of its reader. What the leader answers, errors included, is what the caller gets.
//!
//! | service on PD's port | here |
//! |---|---|
//! | `pdpb.PD` | region lookups, GetMembers and GetClusterInfo are answered; GetStore and GetAllStores get the leader's answer of a moment ago ([`stores`]); the rest is forwarded |
//! | `meta_storagepb.MetaStorage`, `keyspacepb.Keyspace`, `resource_manager.ResourceManager` | forwarded |
//! | `etcdserverpb.KV`, `Lease`, `Watch` | forwarded: TiDB asks PD's addresses for these |
//! | `etcdserverpb.Cluster`, `Maintenance`, `Auth` | not there, as any other service (`Unimplemented`): they change or name PD's own members |
//! | `routerpb.Router`, `grpc.health.v1.Health` | answered; stores as in `pdpb.PD` |
//!
//! A forwarded call ends when the leader that it went to is replaced: the old one may not know yet. It ends, too, when
//! this replica stops; a moment is left for what is about to be answered.
//!
//! # Loops
//! A call that was to go to ourselves is not sent, and each call that is passed on carries the marks of the replicas
//! that it came through (`tidegate-via`); one that comes back is turned away.

mod arriving;
mod body;
mod counters;
mod front;
mod headers;
mod leader;
mod nobody;
mod raw;
mod route;
mod self_member;
mod stores;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

pub(super) use self::arriving::{Arrivals, Hall};
use self::body::{Asking, Passing};
use self::counters::ForwardCounters;
pub use self::counters::ForwardCounts;
pub(super) use self::front::{Front, fallback};
use self::leader::Reign;
pub(super) use self::nobody::is_grpc;
use self::stores::StoreCache;
use super::serve::Serving;
use super::state::Shared;
use crate::config::PresentAs;
use crate::pd::Remote;

/// How clients see this replica, and what of the leader.
#[derive(Clone, Debug)]
pub(super) struct Presence {
    pub(super) present_as: PresentAs,
    /// Under [`PresentAs::Me`]: a lookup that asks for the leader's answer may be given ours.
    pub(super) allow_bounded_staleness: bool,
    /// The leader is asked on callers' behalf (F7).
    pub(super) reads_through: bool,
    pub(super) name: String,
    /// Where clients reach us.
    pub(super) advertise: String,
    /// How long the leader's answers about stores are given again.
    pub(super) store_cache_ttl: Duration,
    /// How long the leader may take for one.
    pub(super) backend_timeout: Duration,
    /// The largest request, in bytes.
    pub(super) largest_message: usize,
}

/// The way to the leader, shared by all calls.
#[derive(Debug)]
pub(super) struct Gateway {
    shared: Arc<Shared>,
    serving: Arc<Serving>,
    remote: Arc<Remote>,
    presence: Presence,
    stores: StoreCache,
    /// What is held of requests that are not whole.
    hall: Hall,
    /// For a call that is not passed on but asked.
    backend_timeout: Duration,
    /// This process among the replicas that a call came through.
    mark: HeaderValue,
    draining: CancellationToken,
    pub(super) counters: ForwardCounters,
}

impl Gateway {
    pub(super) fn new(serving: Arc<Serving>, remote: Arc<Remote>, presence: Presence) -> Self {
        Self {
            shared: Arc::clone(&serving.shared),
            draining: serving.draining(),
            serving,
            remote,
            stores: StoreCache::new(presence.store_cache_ttl),
            hall: Hall::new(presence.largest_message),
            backend_timeout: presence.backend_timeout,
            presence,
            mark: headers::mark(rand::random()),
            counters: ForwardCounters::default(),
        }
    }

    pub(super) fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Hands a call on to the leader and comes back with what it answers, or with why that cannot be.
    async fn forward(
        self: Arc<Self>,
        mut request: http::Request<Body>,
    ) -> Result<http::Response<Body>, Status> {
        let refused = |status| {
            self.counters.refused.add(1);
            status
        };
        let (reign, url) = self.leader().map_err(refused)?;
        let changes_stores = route::changes_stores(request.uri().path());
        headers::pass_on(request.headers_mut(), &self.mark).map_err(refused)?;
        let mut channel = self
            .remote
            .forward_channel(&url)
            .map_err(|error| refused(Status::unavailable(format!("no leader: {error}"))))?;
        self.counters.forwarded.add(1);
        let (head, body) = request.into_parts();
        let (body, question) = Asking::new(body);
        let request = http::Request::from_parts(head, Body::new(body));
        let mut ending = body::Ending::new(reign, self.shared.watch_pd(), self.draining.clone());
        let answer = async {
            // The channel queues what it is not ready for.
            std::future::poll_fn(|cx| channel.poll_ready(cx)).await?;
            channel.call(request).await
        };
        let answered = tokio::select! {
            biased;
            answered = answer => answered,
            end = ending.wait() => return Err(self.ended(end)),
        };
        let response = answered.map_err(|error| {
            self.counters.broken.add(1);
            body::broken(&url, Status::from_error(error.into()))
        })?;
        if changes_stores {
            self.stores.forget();
        }
        let (mut parts, body) = response.into_parts();
        headers::strip_hop_by_hop(&mut parts.headers);
        let body = Passing::new(body, ending, question, Arc::clone(&self), url);
        Ok(http::Response::from_parts(parts, Body::new(body)))
    }

    /// The leader's reign and address, unless it is ourselves.
    fn leader(&self) -> Result<(Reign, String), Status> {
        let pd = self.shared.pd();
        let Some(leader) = pd.as_deref().and_then(|pd| pd.leader.as_ref()) else {
            return Err(Status::unavailable(
                "no leader: no PD leader is known at the moment",
            ));
        };
        if headers::same_address(&leader.url, &self.presence.advertise) {
            return Err(headers::in_a_circle());
        }
        Ok((Reign::of(leader), leader.url.clone()))
    }

    /// Why a call ended here while the leader was still at it.
    fn ended(&self, end: body::End) -> Status {
        match end {
            body::End::Deposed => {
                self.counters.deposed.add(1);
                Status::unavailable("not leader: the PD leader was replaced during the call")
            }
            body::End::Stopping => Status::unavailable("server not started: it is stopping"),
        }
    }
}

#[cfg(test)]
mod tests;
