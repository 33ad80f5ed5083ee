//! The replica: follows the PD leader's sync stream and answers region lookups while it can prove that they are fresh.
//!
//! ```text
//!  PD leader --SyncRegions--> sync --> map, gate --> serve --> clients   (gRPC)
//!            <----probes-----                    \-> http  --> operators (same port)
//! ```
//!
//! [`sync`] writes, `serve` and `http` read; [`Shared`] is all they have in common.
//!
//! # Starting and stopping
//! The port is bound before anything else, so that the address told to PD and to clients is one that somebody listens
//! on. A start fails for what no retry heals: an address that cannot be used, endpoints of different clusters. PD out
//! of reach is retried.
//!
//! A stop first says so (health turns to NOT_SERVING), ends the streams of replicas that follow, stops
//! accepting, answers what was accepted, and then lets go.
//! What is not done by the deadline is cut.

pub mod ask;
pub mod audit;
pub mod chain;
mod forward;
mod gate_log;
pub mod heal;
pub mod hooks;
mod http;
pub mod limits;
pub(crate) mod listener;
pub mod persist;
mod register;
mod serve;
pub mod state;
mod status;
pub mod sync;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_core::clock::BootClock;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use url::Url;

use self::ask::{Asker, Bounds};
use self::chain::Chain;
use self::forward::{Arrivals, Front, Gateway, Hall, Presence};
use self::hooks::Hooks;
use self::http::Pages;
use self::listener::Door;
use self::persist::{DataDirError, OtherCluster, Persist};
use self::register::{Entry, Registering, Registrar};
use self::serve::{Direct, Face, HealthService, PdService, RouterService, Serving, Timed};
use self::state::Shared;
use self::status::Identity;
use self::sync::{SyncConfig, SyncConfigError, WrongCluster};
use crate::config::{
    LimitsConfig, LogHandle, SecurityConfig, ServeConfig, WhenStale, is_loopback, names_no_host,
};
use crate::leader::{SystemWall, WallClock};
use crate::pd::{
    BackoffLimits, ChannelSettings, DifferentClusters, Remote, ResolveError, ResolveLimits, resolve,
};
use crate::proto::health::health_server::HealthServer;
use crate::proto::pdpb::pd_server::PdServer;
use crate::proto::routerpb::router_server::RouterServer;
use crate::tls::{Tls, TlsError};

pub use self::forward::ForwardCounts;
pub use self::register::RegistrationStatus;
pub use self::serve::counters::{Counts, Method, Rejection};
pub use self::status::{
    CertificatesStatus, ConnectionError, DialectStatus, GateStatus, LeaderStatus, ReadyStatus,
    ReplicaStatus,
};

/// HTTP/2 pings to clients that have open calls, so that one that is gone is noticed.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How long a client may leave a ping unanswered.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// The most metadata of one call, in bytes, with 32 more for each key: as many floors as a call may have, a kilobyte each.
const METADATA: u32 = 64 << 10;
/// The largest request of the health service: a name.
const HEALTH: usize = 1 << 10;
/// How long a stop may take for what waits to be written to disk, and before that for the stream to end.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Why a replica cannot start. One line: what, and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {}: {}", with_port(url), listen_remedy(source))]
    Listen {
        /// The address.
        url: Url,
        /// Why not.
        source: io::Error,
    },
    /// The endpoints belong to different clusters.
    #[error(transparent)]
    Clusters(#[from] DifferentClusters),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The data directory is another cluster's.
    #[error(transparent)]
    OtherCluster(#[from] OtherCluster),
    /// A file of TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A setting of the sync stream.
    #[error(transparent)]
    Sync(#[from] SyncConfigError),
}

/// Why a replica gave up. It goes on to refuse until it is stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Endpoints that could not be reached at the start belong to different clusters, or to another one than what is
    /// on disk.
    #[error(transparent)]
    Clusters(#[from] WrongCluster),
    /// The task that follows the leader ended, which it never does unless it is at fault.
    #[error(
        "the task that follows the PD leader has ended; start again, and report what was logged before"
    )]
    SyncEnded,
}

/// A replica that has its port and does nothing yet. Dropping it frees the port.
#[derive(Debug)]
pub struct Bound {
    config: ServeConfig,
    hooks: Hooks,
    listener: TcpListener,
    addr: SocketAddr,
    advertise: String,
    remote: Arc<Remote>,
    tls: Option<Arc<Tls>>,
    sync: SyncConfig,
    persist: Option<Arc<Persist>>,
}

/// How a replica ended.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// Nothing had to be cut.
    pub graceful: bool,
    /// What it had done by then.
    pub status: ReplicaStatus,
}

/// A running replica. Dropping it ends it at once; see [`stop`](Self::stop).
#[derive(Debug)]
pub struct Replica {
    addr: SocketAddr,
    pages: Arc<Pages>,
    /// Ends the sync stream.
    stop_sync: CancellationToken,
    /// Stops accepting and lets connections finish.
    stop_accepting: CancellationToken,
    /// Breaks the connections that are left.
    cut: CancellationToken,
    sync: JoinHandle<Result<(), WrongCluster>>,
    /// Ends the writing to disk.
    stop_writing: CancellationToken,
    writer: Option<JoinHandle<()>>,
    server: JoinHandle<()>,
    /// Keeps it registered in PD's etcd, if it is to be.
    registering: Option<Registering>,
    not_registered: Option<&'static str>,
}

impl Replica {
    /// Binds and starts a replica.
    ///
    /// # Errors
    /// [`StartError`], for what no retry heals.
    pub async fn start(config: ServeConfig, hooks: Hooks) -> Result<Self, StartError> {
        let bound = Bound::new(config, hooks).await?;
        bound.check_endpoints().await?;
        Ok(bound.run())
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where others reach it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.pages.identity.advertise
    }

    /// Whether [`url`](Self::url) stands for every address of this host and thereby for none to others.
    #[must_use]
    pub fn is_advertised_nowhere(&self) -> bool {
        Url::parse(self.url()).is_ok_and(|url| names_no_host(&url))
    }

    /// Why clients are not told of us through PD although that is what was asked for; `None` if they are, or it was not.
    #[must_use]
    pub fn not_registered(&self) -> Option<&'static str> {
        self.not_registered
    }

    /// What it shares with its tasks.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.pages.serving.shared
    }

    /// Tells how the process logs, so that lines which are lost are counted; once, if at all.
    pub fn logs_to(&self, log: LogHandle) {
        let _ = self.pages.log.set(log);
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> ReplicaStatus {
        self.pages.read()
    }

    /// Waits until the replica has given up by itself. Cancel safe; not to be called again after it has returned.
    pub async fn failed(&mut self) -> Failure {
        match (&mut self.sync).await {
            Ok(Err(error)) => Failure::Clusters(error),
            Ok(Ok(())) | Err(_) => Failure::SyncEnded,
        }
    }

    /// Stops: no new connections, what was accepted is answered, what is left at the deadline is cut. Takes `deadline`
    /// at most and a moment.
    pub async fn stop(mut self, deadline: Duration) -> Stopped {
        let deadline = Instant::now() + deadline;
        self.pages.serving.drain();
        if let Some(registering) = self.registering.take() {
            // First, so that no client that looks for a router now finds us.
            let _ = timeout_at(deadline, registering.end()).await;
        }
        self.stop_accepting.cancel();
        let graceful = timeout_at(deadline, &mut self.server).await.is_ok();
        // The map is kept fresh until the last answer is out.
        self.stop_sync.cancel();
        self.pages.serving.close();
        self.cut.cancel();
        if let Some(mut writer) = self.writer.take() {
            // What it has not written is said again by the stream.
            let _ = timeout(LAST_WRITE, &mut self.sync).await;
            self.stop_writing.cancel();
            let _ = timeout(LAST_WRITE, &mut writer).await;
        }
        Stopped {
            graceful,
            status: self.status(),
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.pages.serving.close();
        self.stop_accepting.cancel();
        self.stop_sync.cancel();
        self.stop_writing.cancel();
        self.cut.cancel();
    }
}

impl Bound {
    /// Takes the port.
    ///
    /// # Errors
    /// [`StartError::Tls`], [`StartError::Listen`], [`StartError::Sync`] and those of the data directory.
    pub async fn new(config: ServeConfig, hooks: Hooks) -> Result<Self, StartError> {
        let refused = |source| StartError::Listen {
            url: config.listen.clone(),
            source,
        };
        let tls = if config.security.names_files() {
            Some(Arc::new(load_tls(config.security.clone()).await?))
        } else {
            None
        };
        let listener = listener::bind(&config.listen).await.map_err(refused)?;
        let addr = listener.local_addr().map_err(refused)?;
        let advertise = match &config.advertise {
            Some(url) => text(url),
            None => advertised(&config.listen, addr),
        };
        let endpoints = config.backend_endpoints.iter().map(text).collect();
        let mut sync = SyncConfig::new(&config.name, advertise.clone(), endpoints)?;
        sync.upstreams.clone_from(&config.upstreams);
        sync.probe_interval = config.probe_interval;
        sync.call_timeout = config.backend_timeout;
        sync.full_sync_deadline = config.full_sync_deadline;
        sync.backoff = BackoffLimits {
            first: config.max_backoff / 30,
            longest: config.max_backoff,
        };
        let settings = ChannelSettings {
            connect_timeout: config.backend_timeout,
            ..ChannelSettings::default()
        };
        let redial = hooks.redial.clone();
        let remote = Arc::new(Remote::secured(settings, redial, tls.clone()));
        let persist = match &config.data_dir {
            Some(directory) => Some(Persist::open(directory.clone()).await?),
            None => None,
        };
        Ok(Self {
            config,
            hooks,
            listener,
            addr,
            advertise,
            remote,
            tls,
            sync,
            persist,
        })
    }

    /// The certificates, kept fresh while the replica runs; `None` where no file names any.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    /// Asks the endpoints once for their cluster. Those that do not answer in time are not waited for.
    ///
    /// # Errors
    /// [`StartError::Clusters`], [`StartError::OtherCluster`].
    pub async fn check_endpoints(&self) -> Result<(), StartError> {
        let limits = ResolveLimits {
            deadline: self.config.backend_timeout,
            settle: self.config.backend_timeout,
        };
        match resolve(&self.remote, self.sync.endpoints(), None, limits).await {
            Err(ResolveError::DifferentClusters(error)) => Err(error.into()),
            Ok(membership) => match &self.persist {
                Some(persist) => Ok(persist.check_cluster(membership.cluster_id)?),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Starts to follow and to serve.
    #[must_use]
    pub fn run(self) -> Replica {
        let Self {
            config,
            hooks,
            listener,
            addr,
            advertise,
            remote,
            tls,
            sync,
            persist,
        } = self;
        let clock = hooks.clock.clone().unwrap_or_else(|| Arc::new(BootClock));
        let shared = Arc::new(Shared::new(clock, config.thresholds()));
        shared
            .thresholds
            .set_broadcast_max_age(Some(config.broadcast_max_age()));
        shared.thresholds.set_max_outage(config.max_outage);
        shared.audit.set_knobs(config.audit);
        let stop_sync = CancellationToken::new();
        let mut serving = Serving::new(
            Arc::clone(&shared),
            Arc::clone(&remote),
            sync.endpoints().to_vec(),
            config.backend_timeout,
            hooks.serve_regardless,
        )
        .bounding_scans(config.limits.scan);
        if config.when_stale == WhenStale::ReadThrough {
            let asker = Arc::new(Asker::new(Bounds::default()));
            ask::spawn(&asker, &shared, &remote, &stop_sync);
            serving = serving.reading_through(asker);
        }
        let serving = Arc::new(serving);
        let presence = Presence {
            present_as: config.present_as,
            allow_bounded_staleness: config.allow_bounded_staleness,
            reads_through: config.when_stale == WhenStale::ReadThrough,
            name: config.name.clone(),
            advertise: advertise.clone(),
            store_cache_ttl: config.store_cache_ttl,
            backend_timeout: config.backend_timeout,
            largest_message: config.limits.message,
        };
        let gateway = Gateway::new(Arc::clone(&serving), Arc::clone(&remote), presence);
        let scheme = config.listen.scheme();
        let listen = format!("{scheme}://{addr}");
        let listens_secured = scheme == "https";
        let door = Door::new(
            tls.clone().filter(|_| listens_secured),
            config.limits.connections,
        );
        let wanted = config.register;
        let not_registered = reason_not_to_register(&config, &advertise);
        let registrar = not_registered.is_none().then(|| {
            let now = SystemWall.unix_nanos() / 1_000_000_000;
            let entry = Entry::new(&config.name, &advertise, now);
            let (serving, remote) = (Arc::clone(&serving), Arc::clone(&remote));
            Arc::new(Registrar::new(entry, serving, remote))
        });
        let identity = Identity {
            name: config.name,
            listen,
            advertise,
        };
        let pages = Arc::new(Pages {
            identity,
            serving,
            gateway: Arc::new(gateway),
            door: Arc::new(door),
            registrar,
            tls: tls.clone(),
            log: OnceLock::new(),
        });
        let registering = pages.registrar.clone().map(Registrar::spawn);
        // Followers are let go when a stop begins: they have others to follow, and would outlast every deadline.
        let draining = pages.serving.draining();
        let chain = Chain::new(sync.id(), config.max_downstreams, draining);
        let chain = Arc::new(chain);
        shared.link(Arc::clone(&chain));
        tokio::spawn(chain.maintain());
        let stop_writing = CancellationToken::new();
        let writer = persist.map(|persist| {
            persist.say_what_was_set_aside();
            shared.keep_on_disk(Arc::clone(&persist));
            persist::spawn(persist, Arc::clone(&shared), stop_writing.clone())
        });
        let stop_accepting = CancellationToken::new();
        let cut = CancellationToken::new();
        let server = serve(
            listener,
            Arc::clone(&pages),
            config.limits,
            stop_accepting.clone(),
            cut.clone(),
        );
        if let Some(tls) = tls {
            tokio::spawn(tls.keep_fresh(stop_sync.clone()));
        }
        if !hooks.serve_regardless {
            tokio::spawn(gate_log::keep(Arc::clone(&pages), stop_sync.clone()));
        }
        tokio::spawn(audit::keep(
            Arc::clone(&shared),
            Arc::clone(&remote),
            config.backend_timeout,
            stop_sync.clone(),
        ));
        let sync = sync::spawn(shared, remote, sync, &hooks, stop_sync.clone());
        Replica {
            addr,
            pages,
            stop_sync,
            stop_accepting,
            cut,
            sync,
            stop_writing,
            writer,
            server,
            registering,
            not_registered: not_registered.filter(|_| wanted),
        }
    }
}

/// Reads the files of TLS on a thread that may wait for the disk.
async fn load_tls(security: SecurityConfig) -> Result<Tls, TlsError> {
    match spawn_blocking(move || Tls::load(security)).await {
        Ok(loaded) => loaded,
        Err(panic) => Err(TlsError::Unreadable {
            setting: "security",
            path: PathBuf::new(),
            source: io::Error::other(panic),
        }),
    }
}

/// Why a replica is not to register; `None` if it is.
fn reason_not_to_register(config: &ServeConfig, advertise: &str) -> Option<&'static str> {
    let advertise = Url::parse(advertise).ok()?;
    if !config.register {
        Some("register is false")
    } else if names_no_host(&advertise) {
        Some("the advertised address stands for every address of this host")
    } else if is_loopback(&advertise) && !config.backend_endpoints.iter().any(is_loopback) {
        Some("the advertised address is of this host alone, and PD is on another")
    } else {
        None
    }
}

/// Why an address cannot be listened on, and what helps.
fn listen_remedy(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            "the port is taken; free it or give another with --listen-addr".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => "it is not an address of this machine; give one that \
             is, or http://0.0.0.0:PORT for all of them, with --listen-addr"
            .to_owned(),
        io::ErrorKind::PermissionDenied => {
            "not permitted; give a port of 1024 or above with --listen-addr".to_owned()
        }
        _ => format!("{source}; give another address with --listen-addr"),
    }
}

/// gRPC and HTTP on one port, until `stop`; ends when the last connection has.
fn serve(
    listener: TcpListener,
    pages: Arc<Pages>,
    limits: LimitsConfig,
    stop: CancellationToken,
    cut: CancellationToken,
) -> JoinHandle<()> {
    let serving = &pages.serving;
    let largest = limits.message;
    let pd = PdServer::new(PdService(Arc::clone(serving))).max_decoding_message_size(largest);
    let pd = Direct::new(pd, Arc::clone(serving), Face::Pd, largest);
    let router = RouterServer::new(RouterService(Arc::clone(serving)));
    let router = router.max_decoding_message_size(largest);
    let router = Direct::new(router, Arc::clone(serving), Face::Router, largest);
    let health =
        HealthServer::new(HealthService(Arc::clone(serving))).max_decoding_message_size(HEALTH);
    let http = http::routes(Arc::clone(&pages));
    let routes = Routes::from(http)
        .add_service(Front::new(
            Timed::new(pd, Arc::clone(serving)),
            Arc::clone(&pages.gateway),
        ))
        .add_service(Front::new(
            Timed::new(router, Arc::clone(serving)),
            Arc::clone(&pages.gateway),
        ))
        .add_service(Arrivals::new(health, Hall::new(HEALTH)))
        .prepare();
    let incoming = listener::accept(listener, Arc::clone(&pages.door), stop.clone(), cut);
    tokio::spawn(async move {
        let served = Server::builder()
            .accept_http1(true)
            .http2_keepalive_interval(Some(PING_INTERVAL))
            .http2_keepalive_timeout(Some(PING_TIMEOUT))
            .max_concurrent_streams(limits.streams)
            .http2_max_header_list_size(METADATA)
            .add_routes(routes)
            .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
            .await;
        if let Err(error) = served {
            tracing::error!(%error, "the server ended");
        }
    })
}

/// The address listened on as others would write it: with the port that was found for port 0.
fn advertised(listen: &Url, addr: SocketAddr) -> String {
    let scheme = listen.scheme();
    match listen.host_str() {
        Some(host) => format!("{scheme}://{host}:{}", addr.port()),
        None => format!("{scheme}://{addr}"),
    }
}

/// The same with the port even where it is the scheme's own, which a URL leaves out.
fn with_port(url: &Url) -> String {
    match (url.port(), url.port_or_known_default()) {
        (None, Some(port)) => format!("{}:{port}", text(url)),
        _ => text(url),
    }
}

/// A URL without the slash behind the port, as PD writes them.
fn text(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}
