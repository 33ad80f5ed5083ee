//! An embedded PD leader: what a routing service needs of PD, in this process, on loopback.
//!
//! For the playground, for tests, and for a PD on a laptop. It is the only member of its cluster and always the leader;
//! it schedules nothing and keeps nothing on disk. What it says on the wire is PD's, master's where releases differ,
//! except that its sync streams speak the dialect that it is told to:
//!
//! - members, cluster info, ids, timestamps (`tso`), stores and the bootstrap;
//! - region and store heartbeats by PD's rules (`regions`, `publish`);
//! - region lookups in leader mode: a miss is a successful answer without a region;
//! - etcd's keys and leases (`etcd`): the create revision of the leader key is the term, routers register with a lease;
//! - the leader's side of `SyncRegions` (`sync`).
//!
//! ```no_run
//! # async fn example(region: tidegate_core::Region) -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate::leader::{EmbeddedLeader, LeaderConfig};
//!
//! let leader = EmbeddedLeader::start(LeaderConfig::default()).await?;
//! println!("a PD leader for any client: {}", leader.url());
//! leader.report_region(region)?;
//!
//! let state = leader.stop().await;
//! let again = EmbeddedLeader::start_with(LeaderConfig::default(), state).await?;
//! # Ok(())
//! # }
//! ```

mod bootstrap;
mod cluster;
mod config;
mod converse;
mod etcd;
mod health;
mod heartbeat;
mod limiter;
mod lookups;
mod observer;
mod publish;
mod regions;
mod service;
mod stores;
mod sync;
mod tso;
mod wall;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Region, RegionMap};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

pub use self::cluster::LeaderState;
pub use self::config::{LeaderConfig, LeaderError};
pub use self::observer::{Change, ChangeObserver};
pub use self::regions::{Reported, StaleRegion};
pub use self::stores::StoreError;
pub use self::wall::{SystemWall, WallClock};

use self::cluster::{Cluster, Counters};
use self::health::HealthService;
use self::service::Service;
use crate::link::Link;
use crate::pd::Dialect;
use crate::proto::etcdserverpb::kv_server::KvServer;
use crate::proto::etcdserverpb::lease_server::LeaseServer;
use crate::proto::health::health_server::HealthServer;
use crate::proto::meta_storagepb::meta_storage_server::MetaStorageServer;
use crate::proto::metapb::Store;
use crate::proto::pdpb::pd_server::PdServer;
use crate::tls::Tls;

/// PD's limit for what it receives.
const MAX_REQUEST: usize = 150 << 20;

/// How often PD looks whether its history can shrink.
const HISTORY_CHECK: Duration = Duration::from_secs(300);

/// A running leader. Dropping it ends it at once; [`EmbeddedLeader::stop`] ends it in order.
pub struct EmbeddedLeader {
    cluster: Arc<Cluster>,
    addr: SocketAddr,
    cut: CancellationToken,
    server: JoinHandle<()>,
}

impl fmt::Debug for EmbeddedLeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLeader")
            .field("addr", &self.addr)
            .field("term", &self.term())
            .field("next_index", &self.next_index())
            .finish_non_exhaustive()
    }
}

impl EmbeddedLeader {
    /// Starts the leader of a new cluster.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on, or a setting cannot work.
    pub async fn start(config: LeaderConfig) -> Result<Self, LeaderError> {
        let state = LeaderState::fresh(&config);
        Self::start_with(config, state).await
    }

    /// Starts the next leader of a cluster, under a new term. Where `config.listen` has port 0, it takes the address of
    /// the leader before.
    ///
    /// # Errors
    ///
    /// As [`EmbeddedLeader::start`]. The state is lost with it.
    pub async fn start_with(config: LeaderConfig, state: LeaderState) -> Result<Self, LeaderError> {
        config.check()?;
        let addr = if config.listen.port() == 0 {
            state.addr
        } else {
            config.listen
        };
        let failed = |source| LeaderError::Listen { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let cluster = Arc::new(Cluster::new(config, addr, state));
        let cut = CancellationToken::new();
        tokio::spawn(maintain(Arc::clone(&cluster)));
        if cluster.config.dialect == Dialect::Release85 {
            tokio::spawn(sync::broadcast(Arc::clone(&cluster)));
        }
        let server = tokio::spawn(serve(listener, Arc::clone(&cluster), cut.clone()));
        Ok(Self {
            cluster,
            addr,
            cut,
            server,
        })
    }

    /// The address, as PD names its own: `http://127.0.0.1:2379`.
    pub fn url(&self) -> String {
        format!("{}://{}", self.cluster.config.scheme(), self.addr)
    }

    /// The address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> u64 {
        self.cluster.config.cluster_id
    }

    /// The term: the create revision of the leader key.
    pub fn term(&self) -> i64 {
        self.cluster.revision
    }

    /// The regions. To be read; what is written past [`EmbeddedLeader::report_region`] reaches no follower.
    pub fn regions(&self) -> &RegionMap {
        self.cluster.regions.map()
    }

    /// The index of the next record.
    pub fn next_index(&self) -> u64 {
        self.cluster.regions.next_index()
    }

    /// How many lookups were asked for; a batch counts by its items.
    pub fn lookups(&self) -> u64 {
        Counters::read(&self.cluster.counters.lookups)
    }

    /// How many full syncs were begun.
    pub fn full_syncs(&self) -> u64 {
        Counters::read(&self.cluster.counters.full_syncs)
    }

    /// How sync streams are served.
    pub fn dialect(&self) -> Dialect {
        self.cluster.config.dialect
    }

    /// How many sync streams are open.
    pub fn sync_streams(&self) -> usize {
        self.cluster.streams.len()
    }

    /// Does what a region heartbeat does: the epoch check, the map, and a record for the followers if the change is one
    /// that PD passes on. A cluster that was not bootstrapped is so from then on.
    ///
    /// # Errors
    ///
    /// The report is older than what is known; nothing changed.
    pub fn report_region(&self, region: Region) -> Result<Reported, StaleRegion> {
        self.cluster.set_bootstrapped();
        self.cluster.regions.report(region, 0)
    }

    /// The same for several regions in order. Those that touch each other by neither id nor range become visible
    /// together, so that both halves of a split, or a whole cluster, appear at once.
    pub fn report_regions(&self, regions: Vec<Region>) -> Vec<Result<Reported, StaleRegion>> {
        self.cluster.set_bootstrapped();
        self.cluster.regions.report_all(regions)
    }

    /// Adds or replaces a store. A cluster that was not bootstrapped is so from then on.
    ///
    /// # Errors
    ///
    /// PD's: a store without an id, one that has left, or an address that another store has.
    pub fn put_store(&self, store: Store) -> Result<(), StoreError> {
        self.cluster.stores.put(store)?;
        self.cluster.set_bootstrapped();
        Ok(())
    }

    /// Takes an id that nothing else in the cluster has, provided that all come from here. `None` after the last.
    pub fn alloc_id(&self) -> Option<u64> {
        self.cluster.ids.take(1)
    }

    /// Stops the leader: sync streams are told, other streams end, and what is left after the grace is cut.
    pub async fn stop(mut self) -> LeaderState {
        self.cluster.stopping.cancel();
        if timeout(self.cluster.config.stop_grace, &mut self.server)
            .await
            .is_err()
        {
            self.cut.cancel();
            // Nothing can hold the connections now; if the task still does not end, it is dropped.
            if timeout(self.cluster.config.stop_grace, &mut self.server)
                .await
                .is_err()
            {
                self.server.abort();
            }
        }
        self.cluster.state(self.addr)
    }
}

impl Drop for EmbeddedLeader {
    fn drop(&mut self) {
        self.cluster.stopping.cancel();
        self.cut.cancel();
    }
}

async fn serve(listener: TcpListener, cluster: Arc<Cluster>, cut: CancellationToken) {
    let service = Service(Arc::clone(&cluster));
    // Handshakes are made one after the other, in order of arrival: the clients are few.
    let tls = cluster.config.tls.clone();
    let incoming = TcpListenerStream::new(listener).then(move |accepted| {
        let (tls, cut) = (tls.as_deref().and_then(Tls::server), cut.clone());
        async move {
            match tls {
                None => accepted.map(|stream| Link::new(stream, cut)),
                Some(config) => Link::secured(accepted?, config, cut).await,
            }
        }
    });
    // A connection that fails is no reason to end the server.
    let incoming = incoming.filter(|link| link.as_ref().map_err(log_refusal).is_ok());
    let served = Server::builder()
        .add_service(PdServer::new(service.clone()).max_decoding_message_size(MAX_REQUEST))
        .add_service(KvServer::new(service.clone()))
        .add_service(LeaseServer::new(service.clone()))
        .add_service(MetaStorageServer::new(service))
        .add_service(HealthServer::new(HealthService(Arc::clone(&cluster))))
        .serve_with_incoming_shutdown(incoming, cluster.stopping.clone().cancelled_owned())
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the embedded leader's server failed");
    }
}

fn log_refusal(error: &std::io::Error) {
    tracing::debug!(%error, "a connection to the embedded leader was not let in");
}

/// Lets the history shrink after a slow stream has left, until the leader stops.
async fn maintain(cluster: Arc<Cluster>) {
    let mut check = interval_at(Instant::now() + HISTORY_CHECK, HISTORY_CHECK);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cluster.stopping.cancelled() => return,
            _ = check.tick() => cluster.regions.maintain(),
        }
    }
}

#[cfg(test)]
mod tests;
