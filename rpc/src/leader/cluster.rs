//! What the services of a leader share, and what of it outlives the leader.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use prost::Message;
use tidegate_core::history::Capacity;
use tidegate_core::{Region, RegionMap};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::config::LeaderConfig;
use super::etcd::{Etcd, Keys};
use super::limiter::Limiter;
use super::regions::{Regions, Seed, StaleRegion};
use super::stores::{StoreError, StoreRecord, Stores};
use super::sync::Audience;
use super::tso::Tso;
use crate::pd::Dialect;
use crate::pd::leader_key_name;
use crate::proto::header::{check_cluster, error_header, not_bootstrapped, ok_header};
use crate::proto::metapb::Store;
use crate::proto::pdpb::{ErrorType, Member, RequestHeader, ResponseHeader};
use crate::syncer::registry::Registry;

/// Everything of a running leader.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) config: LeaderConfig,
    pub(super) member: Member,
    /// The create revision of the leader key: the term.
    pub(super) revision: i64,
    pub(super) etcd: Etcd,
    pub(super) ids: Ids,
    pub(super) tso: Tso,
    pub(super) stores: Stores,
    pub(super) regions: Regions,
    pub(super) streams: Registry,
    /// Who hears the broadcaster of release 8.5; nobody on master.
    pub(super) audience: Audience,
    pub(super) limiter: Limiter,
    pub(super) counters: Counters,
    pub(super) stopping: CancellationToken,
    bootstrapped: OnceLock<()>,
    bootstrapping: Mutex<()>,
}

/// Hands out ids.
#[derive(Debug)]
pub(super) struct Ids {
    last: Mutex<u64>,
}

/// What was asked of a leader. Counters only grow; each stands for itself.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) lookups: AtomicU64,
    pub(super) full_syncs: AtomicU64,
}

/// What a stopped leader leaves behind: start the next one with it.
///
/// The regions, stores and ids are those of the old leader; the history is gone, as PD's is after a restart, and the
/// next leader has a term of its own.
#[derive(Debug)]
pub struct LeaderState {
    pub(super) addr: SocketAddr,
    pub(super) seed: Seed,
    pub(super) stores: Vec<StoreRecord>,
    pub(super) last_id: u64,
    pub(super) physical: i64,
    pub(super) keys: Keys,
    pub(super) bootstrapped: bool,
}

impl Cluster {
    pub(super) fn new(config: LeaderConfig, addr: SocketAddr, state: LeaderState) -> Self {
        let mut seed = state.seed;
        seed.clock = Arc::clone(&config.clock);
        if config.observer.is_some() {
            seed.observer.clone_from(&config.observer);
        }
        let url = config
            .advertise
            .clone()
            .unwrap_or_else(|| format!("{}://{addr}", config.scheme()));
        let member = Member {
            name: config.name.clone(),
            member_id: config.cluster_id.rotate_left(17) | 1,
            peer_urls: vec![url.clone()],
            client_urls: vec![url],
            binary_version: version(config.dialect),
            ..Member::default()
        };
        let mut keys = state.keys;
        keys.settle(
            Bytes::from_static(b"/pd/cluster_id"),
            Bytes::copy_from_slice(&config.cluster_id.to_be_bytes()),
        );
        let leader_key = Bytes::from(leader_key_name(config.cluster_id));
        let revision = keys.begin_reign(leader_key, member.encode_to_vec().into());
        Self {
            revision,
            etcd: Etcd::new(config.cluster_id, member.member_id, keys),
            member,
            ids: Ids {
                last: Mutex::new(state.last_id),
            },
            tso: Tso::new(Arc::clone(&config.wall), state.physical),
            stores: Stores::new(state.stores),
            regions: Regions::new(seed, capacity(&config), config.dialect),
            streams: Registry::default(),
            audience: Audience::default(),
            limiter: Limiter::new(config.full_sync_rate),
            counters: Counters::default(),
            stopping: CancellationToken::new(),
            bootstrapped: if state.bootstrapped {
                OnceLock::from(())
            } else {
                OnceLock::new()
            },
            bootstrapping: Mutex::new(()),
            config,
        }
    }

    pub(super) fn state(&self, addr: SocketAddr) -> LeaderState {
        LeaderState {
            addr,
            seed: self.regions.seed(),
            stores: self.stores.all(),
            last_id: self.ids.last(),
            physical: self.tso.saved(),
            keys: self.etcd.keys(),
            bootstrapped: self.is_bootstrapped(),
        }
    }

    pub(super) fn is_bootstrapped(&self) -> bool {
        self.bootstrapped.get().is_some()
    }

    /// Returns whether this call was the first.
    pub(super) fn set_bootstrapped(&self) -> bool {
        self.bootstrapped.set(()).is_ok()
    }

    /// Takes the first store and the first region. `false`: the cluster was bootstrapped already.
    pub(super) fn bootstrap(&self, store: Store, region: Region) -> Result<bool, StoreError> {
        let _one_at_a_time = self
            .bootstrapping
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.is_bootstrapped() {
            return Ok(false);
        }
        self.stores.put(store)?;
        // As PD does, which reads the first region back from its storage: there is no record of it.
        if let Err(stale) = self.regions.load(region) {
            tracing::error!(%stale, "the first region lost to one that was already there");
        }
        Ok(self.set_bootstrapped())
    }

    pub(super) fn ok(&self) -> Option<ResponseHeader> {
        Some(ok_header(self.config.cluster_id))
    }

    pub(super) fn error(&self, kind: ErrorType, text: impl ToString) -> Option<ResponseHeader> {
        Some(error_header(self.config.cluster_id, kind, text.to_string()))
    }

    /// What every call checks first: that the leader is not stopping, and that it is the one that was meant.
    pub(super) fn admit(&self, header: Option<&RequestHeader>) -> Result<(), Status> {
        self.check_open()?;
        check_cluster(header, self.config.cluster_id)
    }

    pub(super) fn check_open(&self) -> Result<(), Status> {
        if self.stopping.is_cancelled() {
            return Err(Status::unavailable("server not started"));
        }
        Ok(())
    }

    /// The header that refuses a call before the cluster is bootstrapped.
    pub(super) fn unless_bootstrapped(&self) -> Option<ResponseHeader> {
        (!self.is_bootstrapped()).then(|| not_bootstrapped(self.config.cluster_id))
    }
}

/// What the member says that it is: of the dialect that it speaks, and not PD itself.
fn version(dialect: Dialect) -> String {
    match dialect {
        Dialect::Master => format!("v{}-tidegate", env!("CARGO_PKG_VERSION")),
        Dialect::Release85 => "v8.5.7-tidegate".to_owned(),
    }
}

fn capacity(config: &LeaderConfig) -> Capacity {
    match config.dialect {
        Dialect::Master => Capacity::growing(config.ring_capacity, config.ring_limit),
        Dialect::Release85 => Capacity::fixed(config.ring_capacity),
    }
}

impl Ids {
    /// Takes `count` ids and returns the last of them; `None` when there are not that many left.
    pub(super) fn take(&self, count: u32) -> Option<u64> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.checked_add(u64::from(count.max(1)))?;
        Some(*last)
    }

    fn last(&self) -> u64 {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counters {
    pub(super) fn count(counter: &AtomicU64, by: usize) {
        // Relaxed: a count publishes nothing else.
        counter.fetch_add(by as u64, Ordering::Relaxed);
    }

    pub(super) fn read(counter: &AtomicU64) -> u64 {
        // Relaxed: a count publishes nothing else.
        counter.load(Ordering::Relaxed)
    }
}

impl LeaderState {
    /// The state of a cluster that has never had a leader.
    pub(super) fn fresh(config: &LeaderConfig) -> Self {
        Self {
            addr: config.listen,
            seed: Seed {
                map: Arc::new(RegionMap::new()),
                next_index: 0,
                sequence: 0,
                observer: config.observer.clone(),
                clock: Arc::clone(&config.clock),
            },
            stores: Vec::new(),
            last_id: 0,
            physical: 0,
            // A leader without a past must not reuse the term of one whose state was not kept.
            keys: Keys::at(config.wall.unix_nanos() / 1_000_000),
            bootstrapped: false,
        }
    }

    /// Where the old leader listened.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The regions.
    pub fn regions(&self) -> &RegionMap {
        &self.seed.map
    }

    /// The index that the next leader gives to its first record.
    pub fn next_index(&self) -> u64 {
        self.seed.next_index
    }

    /// Moves the next index back, as a restart does in PD, which saves its index only once in a hundred records.
    pub fn rewind_index(&mut self, by: u64) {
        self.seed.next_index = self.seed.next_index.saturating_sub(by);
    }

    /// Changes a region while there is no leader. The observer hears of it; no record is made.
    ///
    /// # Errors
    ///
    /// The report is older than what is known.
    pub fn report_region(&mut self, region: Region) -> Result<(), StaleRegion> {
        let seed = &self.seed;
        let offline = Regions::new(
            Seed {
                map: Arc::clone(&seed.map),
                next_index: seed.next_index,
                sequence: seed.sequence,
                observer: seed.observer.clone(),
                clock: Arc::clone(&seed.clock),
            },
            Capacity::fixed(1),
            Dialect::Master,
        );
        offline.load(region)?;
        self.seed.sequence = offline.seed().sequence;
        Ok(())
    }
}
