//! What the following side of a replica writes and its serving side reads.
//!
//! The map and the gate are lock-free and have their own rules; what is here beside them is for finding the leader and
//! for display. One [`Shared`] belongs to one replica for its whole life; the cluster is settled once, by the first
//! member that answers.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tidegate_core::clock::Clock;
use tidegate_core::gate::{Gate, Thresholds};
use tidegate_core::{Key, Moment, RegionMap, SharedEntry};
use tokio::sync::watch;

use super::audit::AuditState;
use super::heal::HealCounters;
use super::limits::Limits;
use crate::pd::{Dialect, Term};
use crate::proto::pdpb::Member;

use super::chain::Chain;
use super::persist::Persist;

/// Regions in the order of their keys, and where those after them begin, if there can be any.
pub(super) type Page = (Vec<SharedEntry>, Option<Key>);

/// The state that a replica's tasks share.
#[derive(Debug)]
pub struct Shared {
    /// What is answered from.
    pub map: RegionMap,
    /// Whether it may be.
    pub gate: Gate,
    /// The clock of every stamp in the map and the gate.
    pub clock: Arc<dyn Clock>,
    /// What shuts the gate.
    pub thresholds: Limits,
    /// Counts of what the stream did.
    pub counters: SyncCounters,
    /// Counts of what the leader's own answers did.
    pub heals: HealCounters,
    /// The comparison with the leader.
    pub audit: AuditState,
    cluster_id: OnceLock<u64>,
    pd: watch::Sender<Option<Arc<PdView>>>,
    /// When PD was last seen to have no leader at all; zero while there may be one.
    outage: AtomicU64,
    stream: AtomicU8,
    dialect: Mutex<Option<DialectView>>,
    started_at: Moment,
    ready: OnceLock<Ready>,
    broken: Mutex<Option<Broken>>,
    /// The last generation that was found to hold what the leader does not say.
    distrusted: watch::Sender<u64>,
    persist: OnceLock<Arc<Persist>>,
    chain: OnceLock<Arc<Chain>>,
    /// What is unwise about the settings, as they are now.
    unwise: Mutex<Vec<String>>,
}

/// Why the leader was not followed, or no longer.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The kind of reason.
    pub reason: &'static str,
    /// What is known beyond it, and what helps.
    pub detail: String,
    /// When it was found.
    pub at: Moment,
}

impl Shared {
    /// An empty map behind a shut gate.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, thresholds: Thresholds) -> Self {
        Self {
            map: RegionMap::new(),
            gate: Gate::new(),
            started_at: clock.now(),
            clock,
            thresholds: Limits::new(thresholds),
            counters: SyncCounters::default(),
            heals: HealCounters::default(),
            audit: AuditState::default(),
            cluster_id: OnceLock::new(),
            pd: watch::Sender::new(None),
            outage: AtomicU64::new(0),
            stream: AtomicU8::new(StreamState::Connecting as u8),
            dialect: Mutex::new(None),
            ready: OnceLock::new(),
            broken: Mutex::new(None),
            distrusted: watch::Sender::new(0),
            persist: OnceLock::new(),
            chain: OnceLock::new(),
            unwise: Mutex::default(),
        }
    }

    /// What is unwise about the settings, as they are now, a line each.
    pub fn unwise(&self) -> Vec<String> {
        let unwise = self.unwise.lock();
        unwise.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Other settings are in effect from now on, and this is unwise about them.
    pub fn note_unwise(&self, lines: Vec<String>) {
        *self.unwise.lock().unwrap_or_else(PoisonError::into_inner) = lines;
    }

    /// Demands a full sync in the place of `generation`, which holds what the leader does not say: no stream would show
    /// it. Generations that began later are not meant.
    pub fn distrust(&self, generation: u64) {
        self.distrusted.send_if_modified(|last| {
            let newer = generation > *last;
            *last = generation.max(*last);
            newer
        });
    }

    /// Waits until a full sync is demanded in the place of `generation`.
    pub(super) async fn distrusted(&self, generation: u64) {
        // The sender lives as long as this.
        let _ = self
            .distrusted
            .subscribe()
            .wait_for(|last| *last >= generation)
            .await;
    }

    /// The cluster that this replica follows; `None` until a member has told it. Never changes once known.
    pub fn cluster_id(&self) -> Option<u64> {
        self.cluster_id.get().copied()
    }

    /// The regions on disk; `None` when none are kept.
    pub fn persist(&self) -> Option<&Arc<Persist>> {
        self.persist.get()
    }

    /// Settles that regions are kept on disk; before anything is applied, and once.
    pub(super) fn keep_on_disk(&self, persist: Arc<Persist>) {
        let _ = self.persist.set(persist);
    }

    /// This replica's place in a chain of replicas; `None` where none can be.
    pub fn chain(&self) -> Option<&Arc<Chain>> {
        self.chain.get()
    }

    /// Settles the place in a chain; before anything is applied, and once.
    pub(super) fn link(&self, chain: Arc<Chain>) {
        let _ = self.chain.set(chain);
    }

    /// At most `most` regions of a generation from `start` on, and where the next ones begin; `None` once another generation
    /// answers. A snapshot of its own, so that nothing is held between two pages.
    pub(super) fn page(&self, generation: u64, start: &Key, most: usize) -> Option<Page> {
        let snapshot = self.map.pin();
        if snapshot.generation() != generation {
            return None;
        }
        let page: Vec<SharedEntry> = snapshot
            .scan(start, &[])
            .take(most)
            .map(|entry| entry.to_shared())
            .collect();
        let next = page
            .last()
            .map(|last| last.end().clone())
            .filter(|end| !end.is_empty());
        Some((page, next))
    }

    /// PD as it was last seen; `None` before the first answer.
    pub fn pd(&self) -> Option<Arc<PdView>> {
        self.pd.borrow().clone()
    }

    /// Follows [`pd`](Self::pd): wakes up when members, leader or term change.
    pub fn watch_pd(&self) -> watch::Receiver<Option<Arc<PdView>>> {
        self.pd.subscribe()
    }

    /// The last reason why the leader was not followed, or no longer; `None` when there has been none.
    pub fn last_broken(&self) -> Option<Broken> {
        // A poisoned reason is still a reason.
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        broken.clone()
    }

    pub(super) fn note_broken(&self, reason: &'static str, detail: String) {
        let at = self.clock.now();
        let broken = Broken { reason, detail, at };
        *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(broken);
    }

    /// Where the sync stream stands.
    pub fn stream(&self) -> StreamState {
        // Relaxed: a value for display; nothing is read on the strength of it.
        StreamState::from_u8(self.stream.load(Relaxed))
    }

    pub(super) fn set_stream(&self, state: StreamState) {
        // Relaxed: see `stream`.
        self.stream.store(state as u8, Relaxed);
    }

    /// The dialect of the stream that is followed, or was last; `None` before the first.
    pub fn dialect(&self) -> Option<DialectView> {
        *self.dialect.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the stream that is followed has shown by now.
    pub(super) fn note_dialect(&self, dialect: Dialect) {
        let mut last = self.dialect.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.dialect != dialect) {
            let since = self.clock.now();
            *last = Some(DialectView { dialect, since });
        }
    }

    /// When the map could first answer; `None` before.
    pub fn ready(&self) -> Option<Ready> {
        self.ready.get().copied()
    }

    /// Notes that the map can answer. Only the first time counts.
    pub(super) fn note_ready(&self) -> Ready {
        *self.ready.get_or_init(|| Ready {
            after: self.clock.now().saturating_since(self.started_at),
            warm: self.counters.full_syncs_published.get() == 0,
        })
    }

    /// Settles the cluster with the first id told; false when it is settled on another.
    pub(super) fn settle_cluster(&self, cluster_id: u64) -> bool {
        *self.cluster_id.get_or_init(|| cluster_id) == cluster_id
    }

    pub(super) fn publish_pd(&self, view: PdView) {
        self.pd.send_if_modified(|current| {
            if current.as_deref() == Some(&view) {
                return false;
            }
            *current = Some(Arc::new(view));
            true
        });
    }

    /// Notes whether every member has just said that there is no leader, or is not there to lead.
    pub(super) fn note_outage(&self, is_one: bool) {
        // A reading is never zero.
        let seen = if is_one {
            self.clock.now().as_nanos()
        } else {
            0
        };
        // Relaxed: nothing is read on the strength of it but the moment itself.
        self.outage.store(seen, Relaxed);
    }

    /// Whether PD has no leader at all, as far as can be known at `now`: it was seen without one less than `max-age` ago,
    /// and with none since.
    pub fn is_outage(&self, now: Moment) -> bool {
        // Relaxed: see `note_outage`.
        let seen = self.outage.load(Relaxed);
        let ago = now.saturating_since(Moment::from_nanos(seen));
        seen != 0 && ago <= self.thresholds.get().max_age
    }

    /// What the gate decides by at `now`.
    pub fn limits(&self, now: Moment) -> Thresholds {
        if self.is_outage(now) {
            self.thresholds.in_outage()
        } else {
            self.thresholds.get()
        }
    }

    /// Keeps the members and forgets the leader.
    pub(super) fn publish_no_leader(&self) {
        let Some(view) = self.pd() else { return };
        self.publish_pd(PdView {
            leader: None,
            ..PdView::clone(&view)
        });
    }
}

/// PD as the replica knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct PdView {
    /// The cluster's id.
    pub cluster_id: u64,
    /// All members, the leader included.
    pub members: Vec<Member>,
    /// The leader; `None` while none is known.
    pub leader: Option<LeaderView>,
}

/// The leader that the replica follows.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaderView {
    /// The member that leads.
    pub member: Member,
    /// The client URL that it was reached at.
    pub url: String,
    /// Its reign; `None` when it could not be read.
    pub term: Option<Term>,
}

/// The dialect of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DialectView {
    /// Master's once it has been shown; release 8.5's is what nothing has been seen against.
    pub dialect: Dialect,
    /// Since when that is held.
    pub since: Moment,
}

/// How a start went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ready {
    /// From the start until the map was first proven fresh.
    pub after: Duration,
    /// The map came from disk, and no full sync was needed.
    pub warm: bool,
}

impl Ready {
    /// The kind of start, in metrics and logs.
    #[must_use]
    pub const fn start(self) -> &'static str {
        if self.warm { "warm" } else { "cold" }
    }
}

/// Where the sync stream stands. Decides whether a proof can advance, not whether an old one still counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum StreamState {
    /// No stream.
    Connecting = 0,
    /// Receiving the leader's whole state, in no order of keys.
    Snapshot = 1,
    /// Receiving recorded changes up to the leader's head.
    CatchUp = 2,
    /// Receiving changes as they happen.
    Live = 3,
}

impl StreamState {
    fn from_u8(value: u8) -> Self {
        match value {
            1 => Self::Snapshot,
            2 => Self::CatchUp,
            3 => Self::Live,
            _ => Self::Connecting,
        }
    }

    /// The name in metrics and status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Snapshot => "snapshot",
            Self::CatchUp => "catch_up",
            Self::Live => "live",
        }
    }
}

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, by: u64) {
        // Relaxed: a count for display; nothing is ordered by it.
        self.0.fetch_add(by, Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        // Relaxed: see `add`.
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What the sync stream did since the replica started.
        #[derive(Debug, Default)]
        pub struct SyncCounters { $($(#[$doc])* pub $name: Counter,)* }

        /// The counts at one time.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
        pub struct SyncCounts { $($(#[$doc])* pub $name: u64,)* }

        impl SyncCounters {
            /// Reads all counts; each is exact, together they need not be of one instant.
            pub fn read(&self) -> SyncCounts {
                SyncCounts { $($name: self.$name.get(),)* }
            }
        }

        impl SyncCounts {
            /// Name and value of each count.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Frames received.
    frames,
    /// Regions of applied frames, refused ones included.
    regions,
    /// Regions that the map refused because it held something newer.
    stale_skips,
    /// Frames with something that cannot be used.
    malformed,
    /// Attempts to find the leader and to follow it.
    attempts,
    /// Attempts that ended before a leader was followed.
    connect_failures,
    /// Times that a leader was followed again after following had ended.
    reconnects,
    /// Full syncs begun.
    full_syncs,
    /// Full syncs published.
    full_syncs_published,
    /// Streams that ended because indexes were skipped.
    gaps,
    /// Streams that ended because the leader's index went back.
    regressions,
    /// Times that a leader had no answer for the own index, as releases up to 8.5 have none for one that is too old.
    unanswered,
    /// Streams that ended because nothing was heard.
    silences,
    /// New terms that were followed after the first.
    term_changes,
    /// Frames in which the leader reported an error.
    error_frames,
    /// Probes sent.
    probes_sent,
    /// Probes whose answer is a proof.
    probes_proved,
    /// Probes that were not answered, or whose answer proves nothing.
    probes_failed,
    /// Times that a probe was due and not sent because its conditions did not hold.
    probes_held,
}
