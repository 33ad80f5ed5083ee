//! The leader that the map is compared with.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::audit::{Server, Service, Source};
use crate::pd::{PdTransport, Remote, within};
use crate::replica::state::LeaderView;

/// The way to the leader: gRPC in production, a script in tests.
pub(super) trait Upstream: Send + Sync + 'static {
    /// What is asked for regions.
    type Leader: Source + Send;

    /// The leader as one that can be asked.
    fn leader(&self, leader: &LeaderView, cluster_id: u64) -> Self::Leader;

    /// Whether `leader` still reigns in its term.
    fn reigns(&self, leader: &LeaderView, cluster_id: u64) -> impl Future<Output = bool> + Send;
}

/// Real PD.
#[derive(Debug)]
pub(super) struct OverGrpc {
    remote: Arc<Remote>,
    timeout: Duration,
}

impl OverGrpc {
    pub(super) fn new(remote: Arc<Remote>, timeout: Duration) -> Self {
        Self { remote, timeout }
    }
}

impl Upstream for OverGrpc {
    type Leader = Server;

    fn leader(&self, leader: &LeaderView, cluster_id: u64) -> Server {
        Server::new(
            Arc::clone(&self.remote),
            leader.url.clone(),
            cluster_id,
            Service::Leader,
            self.timeout,
        )
    }

    async fn reigns(&self, leader: &LeaderView, cluster_id: u64) -> bool {
        let read = self.remote.leader_key(&leader.url, cluster_id);
        match within(self.timeout, &leader.url, read).await {
            Ok(Some(key)) => Some(key.term) == leader.term && key.is_held_by(&leader.url),
            Ok(None) | Err(_) => false,
        }
    }
}
