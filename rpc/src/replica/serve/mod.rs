//! Answering lookups from the map, while the gate says so.
//!
//! One path for every method of both services:
//!
//! 1. what is checked before ([`checks`]);
//! 2. the gate is asked;
//! 3. the map is pinned and the lookup made, on one snapshot;
//! 4. the gate is asked again, for that very snapshot: a process that was stopped in between must
//!    not answer with what was fresh before;
//! 5. the answer goes out; or entries that the leader has confirmed lately answer in spite of the
//!    gate, or the leader is asked ([`through`], and [`batch`] for QueryRegion); or else PD's
//!    `REGION_NOT_FOUND` header goes out, which sends stock clients to the leader. A shut gate and a
//!    map without an answer look the same to the client and are counted apart.
//!
//! The answers to single lookups and to QueryRegion are written while the snapshot is held, and are bytes from then on
//! ([`direct`]).
//!
//! All of it is synchronous: no snapshot lives across a point where the task may be suspended.
//!
//! When a full sync has replaced the map's content, map and gate carry different generations for
//! the moment between the two stores that say so. That is no reason to refuse: the attempt is
//! made again, a bounded number of times, letting other tasks run in between.

mod batch;
mod checks;
pub(super) mod counters;
mod demand;
mod direct;
mod evidence;
mod fresh;
mod health;
mod lookups;
mod members;
mod metadata;
mod pd;
mod query;
mod refusal;
mod room;
mod router;
mod through;
mod timing;
mod unread;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use prost::Message;
use tidegate_core::Moment;
use tidegate_core::gate::{Decision, RefuseReason, Served, Thresholds};
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status};

use self::counters::{Fate, Method, Rejection, ServeCounters};
use self::demand::Demand;
use self::fresh::Fresh;
use self::room::{Queue, Room};
use super::ask::Asker;
use super::state::Shared;
use crate::config::LimitsConfig;
use crate::lookup::{Bounds, Lookup, LookupError};
use crate::pd::Remote;
use crate::proto::header::{ok_header, region_not_found};
use crate::proto::pdpb::{
    BatchScanRegionsResponse, GetRegionResponse, QueryRegionResponse, ResponseHeader,
    ScanRegionsResponse,
};
use crate::proto::written::Written;

pub(super) use checks::refuse_to_forward;
pub(super) use demand::MAX_AGE;
pub(super) use direct::{Direct, Face};
pub(super) use fresh::SOURCE;
pub(super) use health::HealthService;
pub(super) use metadata::{allows_follower, forwarded_host, is_client_url};
pub(super) use pd::PdService;
pub(super) use refusal::closed;
pub(super) use router::RouterService;
pub(super) use timing::Timed;

/// How often an attempt that met a change of generation is made again.
const SWAP_ATTEMPTS: usize = 64;

/// The largest limit of a scan that is no work to speak of, and the most ranges.
const LIGHT_SCAN: usize = 1_024;

/// The most items of a batch that is no work to speak of.
const LIGHT_BATCH: usize = 1_000;

/// How many heavy scans are made at once.
const SCANS: usize = 3;

/// How many heavy batches are resolved at once.
const BATCHES: usize = 3;

/// How many answers to heavy batches may wait for their readers, and how many to heavy scans. Up to 25 MiB each, and
/// `max-scan-size`.
const UNREAD: usize = 16;

/// What the services share.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) shared: Arc<Shared>,
    pub(super) counters: ServeCounters,
    /// Connections to PD, for what is not ours to answer.
    remote: Arc<Remote>,
    /// Client URLs of PD members that the operator gave.
    endpoints: Vec<String>,
    /// For a call to PD.
    backend_timeout: Duration,
    /// Answer whatever the gate says.
    regardless: bool,
    /// Carries to the leader what the map cannot answer; without it that is refused.
    asker: Option<Arc<Asker>>,
    /// No new work is wanted; what was accepted is answered.
    draining: CancellationToken,
    closed: AtomicBool,
    scans: Room,
    batches: Room,
    unread: Room,
    unread_scans: Room,
    scan_bounds: Bounds,
}

/// What a lookup found.
#[derive(Debug)]
pub(super) enum Found<T> {
    /// An answer.
    Answer(T),
    /// The map has none.
    Nothing,
    /// The map has none, and PD has an error for that.
    NothingBut(T),
    /// The request gets an error from PD too.
    Invalid(T),
    /// The answer would be too large, or nobody waits for it any more.
    Unfinished(LookupError),
}

/// How much a lookup may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// Microseconds.
    Light,
    /// Up to seconds: a scan of the whole map.
    Heavy,
}

impl Weight {
    /// Of a scan of so many ranges with this limit, in PD's reading. A range costs a search even
    /// if it finds nothing.
    pub(super) fn of_scan(limit: i32, ranges: usize) -> Self {
        let light = |count| (1..=LIGHT_SCAN).contains(&count);
        if usize::try_from(limit).is_ok_and(light) && ranges <= LIGHT_SCAN {
            Self::Light
        } else {
            Self::Heavy
        }
    }

    /// Of a batch of QueryRegion with so many items.
    pub(super) fn of_batch(items: usize) -> Self {
        if items <= LIGHT_BATCH {
            Self::Light
        } else {
            Self::Heavy
        }
    }

    /// Does the work here, and lets the thread's other tasks move elsewhere first if it is heavy.
    fn carry<T>(self, work: impl FnOnce() -> T) -> T {
        let elsewhere = || {
            let runtime = tokio::runtime::Handle::try_current().map(|h| h.runtime_flavor());
            matches!(runtime, Ok(tokio::runtime::RuntimeFlavor::MultiThread))
        };
        if self == Self::Heavy && elsewhere() {
            tokio::task::block_in_place(work)
        } else {
            work()
        }
    }
}

/// What one attempt came to.
#[derive(Debug)]
pub(super) enum Attempt<T> {
    Found(Found<T>, Fresh),
    Refused(RefuseReason),
    /// A change of generation came in between.
    Swapped,
}

impl<T> Attempt<T> {
    /// Whether the gate does not let the map answer.
    fn is_shut(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Swapped)
    }

    /// The same after so long a wait: an answer of the map is as much older by then, and none if that is too old.
    fn aged(self, waited: Duration, max_age: Duration) -> Self {
        match self {
            Self::Found(Found::Answer(answer), Fresh::Map { age, lag }) => {
                let age = age + waited;
                if age > max_age {
                    return Self::Refused(RefuseReason::Age);
                }
                Self::Found(Found::Answer(answer), Fresh::Map { age, lag })
            }
            other => other,
        }
    }
}

/// A response with the header that all of PD's have.
pub(super) trait Headed: Default {
    fn header_mut(&mut self) -> &mut Option<ResponseHeader>;

    /// The id of a region of the answer, if it has any.
    fn a_region(&self) -> Option<u64>;

    /// Whether all regions of the answer are as demanded.
    fn meets(&self, demand: &Demand) -> bool;

    fn headed(mut self, header: ResponseHeader) -> Self {
        // An error that the lookup itself has put there stays.
        self.header_mut().get_or_insert(header);
        self
    }
}

impl Serving {
    pub(super) fn new(
        shared: Arc<Shared>,
        remote: Arc<Remote>,
        endpoints: Vec<String>,
        backend_timeout: Duration,
        regardless: bool,
    ) -> Self {
        let queue = Queue::new();
        Self {
            shared,
            counters: ServeCounters::new(),
            remote,
            endpoints,
            backend_timeout,
            regardless,
            asker: None,
            draining: CancellationToken::new(),
            closed: AtomicBool::new(false),
            scans: Room::new(SCANS, &queue),
            batches: Room::new(BATCHES, &queue),
            unread: Room::new(UNREAD, &queue),
            unread_scans: Room::new(UNREAD, &queue),
            scan_bounds: LimitsConfig::default().scan,
        }
    }

    /// The same with other bounds on the answer of a scan.
    pub(super) fn bounding_scans(mut self, bounds: Bounds) -> Self {
        self.scan_bounds = bounds;
        self
    }

    /// The same, asking the leader for what the map cannot answer. With the gate switched off nobody is asked.
    pub(super) fn reading_through(mut self, asker: Arc<Asker>) -> Self {
        self.asker = Some(asker).filter(|_| !self.regardless);
        self
    }

    /// How large the answer to a batch may be. A light one is not measured: it has too few regions to be large.
    fn batch_bounds(&self, weight: Weight) -> Bounds {
        match weight {
            Weight::Light => Bounds::NONE,
            Weight::Heavy => Bounds {
                regions: usize::MAX,
                ..self.scan_bounds
            },
        }
    }

    /// Whom to ask, unless nobody is asked on this caller's behalf.
    fn asker(&self, demand: &Demand) -> Option<&Arc<Asker>> {
        self.asker.as_ref().filter(|_| !demand.is_marked)
    }

    /// What was asked of the leader; `None` where nobody is asked.
    pub(super) fn asked(&self) -> Option<&Asker> {
        self.asker.as_deref()
    }

    /// Says that no new work is wanted: health turns, streams end once they are empty.
    pub(super) fn drain(&self) {
        self.draining.cancel();
    }

    /// Turns everything away from now on.
    pub(super) fn close(&self) {
        self.drain();
        // Relaxed: a request that comes at the same time may go either way.
        self.closed.store(true, Relaxed);
    }

    /// Cancelled once no new work is wanted.
    pub(super) fn draining(&self) -> CancellationToken {
        self.draining.clone()
    }

    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: see `close`.
        self.closed.load(Relaxed)
    }

    /// Why a lookup would be refused now; `None` if it would be answered.
    pub(super) fn shut(&self) -> Option<RefuseReason> {
        if self.regardless {
            return None;
        }
        let shared = &self.shared;
        let decide = || {
            let (generation, now) = (shared.map.generation(), shared.clock.now());
            let limits = self.thresholds(&Demand::default(), now).into();
            shared.gate.decide(generation, now, &limits)
        };
        match decide().refused() {
            // Once more: a change of generation may have come in between.
            Some(RefuseReason::NotProven) => decide().refused(),
            other => other,
        }
    }

    /// Whether the gate is switched off.
    pub(super) fn is_regardless(&self) -> bool {
        self.regardless
    }

    /// Whether a lookup would be answered now, from the map or by the leader.
    pub(super) fn is_serving(&self) -> bool {
        !self.draining.is_cancelled()
            && !self.is_closed()
            && (self.shut().is_none() || self.is_reading_through())
    }

    /// Whether there is a leader to ask.
    pub(super) fn is_reading_through(&self) -> bool {
        let leads = || self.shared.pd().is_some_and(|pd| pd.leader.is_some());
        self.asker.is_some() && leads()
    }

    /// What the gate decides by, for one caller.
    fn thresholds(&self, demand: &Demand, now: Moment) -> Thresholds {
        demand.sharpen(self.shared.limits(now))
    }

    /// How fresh an answer from the map would be now.
    pub(super) fn freshness(&self) -> Fresh {
        match self.attempt(&Demand::default(), |_| Found::Answer(())) {
            Attempt::Found(_, fresh) => fresh,
            Attempt::Refused(reason) => Fresh::None {
                why: reason.as_str(),
            },
            Attempt::Swapped => Fresh::None {
                why: RefuseReason::NotProven.as_str(),
            },
        }
    }

    /// Turns a request away.
    fn reject(&self, method: Method, (cause, status): (Rejection, Status)) -> Status {
        self.counters.record(method, Fate::Rejected(cause));
        status
    }

    /// Steps 2 to 4, made again while map and gate are of different generations.
    pub(super) async fn local<T>(
        &self,
        demand: &Demand,
        lookup: impl Fn(&Lookup<'_, '_>) -> Found<T>,
    ) -> Attempt<T> {
        let mut attempts = 0;
        loop {
            match self.attempt(demand, &lookup) {
                Attempt::Swapped if attempts < SWAP_ATTEMPTS => {
                    attempts += 1;
                    tokio::task::yield_now().await;
                }
                attempt => return attempt,
            }
        }
    }

    /// The same on a thread that may be held up.
    pub(super) fn local_blocking<T>(
        &self,
        demand: &Demand,
        lookup: impl Fn(&Lookup<'_, '_>) -> Found<T>,
    ) -> Attempt<T> {
        for _ in 0..SWAP_ATTEMPTS {
            match self.attempt(demand, &lookup) {
                Attempt::Swapped => std::thread::yield_now(),
                attempt => return attempt,
            }
        }
        self.attempt(demand, &lookup)
    }

    /// Steps 2 to 4.
    pub(super) fn attempt<T>(
        &self,
        demand: &Demand,
        lookup: impl Fn(&Lookup<'_, '_>) -> Found<T>,
    ) -> Attempt<T> {
        let shared = &self.shared;
        if self.regardless {
            let found = lookup(&Lookup::new(&shared.map.pin()));
            return Attempt::Found(found, Fresh::Unproven);
        }
        let at = shared.clock.now();
        let limits = self.thresholds(demand, at).into();
        let generation = shared.map.generation();
        let age = match shared.gate.decide(generation, at, &limits) {
            Decision::Serve { age } => age,
            Decision::Refuse(refusal) => return self.refused(refusal.reason, generation),
        };
        let served = Served {
            generation,
            at,
            age,
        };
        let snapshot = shared.map.pin();
        let found = lookup(&Lookup::new(&snapshot));
        let generation = snapshot.generation();
        drop(snapshot);
        let now = shared.clock.now();
        let decision = shared.gate.recheck(&served, generation, now, &limits);
        match decision {
            Decision::Serve { age } => {
                let lag = shared.gate.view().lag;
                Attempt::Found(found, Fresh::Map { age, lag })
            }
            Decision::Refuse(_) if generation != served.generation => Attempt::Swapped,
            Decision::Refuse(refusal) => self.refused(refusal.reason, generation),
        }
    }

    /// Step 5.
    pub(super) fn settle<T: Headed>(&self, method: Method, attempt: Attempt<T>) -> Response<T> {
        let cluster_id = self.shared.cluster_id().unwrap_or(0);
        let nothing = || T::default().headed(region_not_found(cluster_id));
        let missed = Fresh::None { why: "missed" };
        let refused = |reason: RefuseReason| {
            let fresh = Fresh::None {
                why: reason.as_str(),
            };
            (Fate::Refused(reason), nothing(), fresh)
        };
        let (fate, response, fresh) = match attempt {
            Attempt::Found(Found::Answer(response), fresh) => {
                self.note_use(&response);
                (Fate::Served, response.headed(ok_header(cluster_id)), fresh)
            }
            Attempt::Found(Found::Invalid(response), fresh) => (Fate::Invalid, response, fresh),
            Attempt::Found(Found::NothingBut(response), _) => (Fate::Missed, response, missed),
            Attempt::Found(Found::Nothing, _) => (Fate::Missed, nothing(), missed),
            // Who asks is told before it comes to this.
            Attempt::Found(Found::Unfinished(_), _) => {
                (Fate::Rejected(Rejection::TooLarge), nothing(), missed)
            }
            Attempt::Refused(reason) => refused(reason),
            Attempt::Swapped => refused(RefuseReason::NotProven),
        };
        self.counters.record(method, fate);
        fresh.with(response)
    }

    /// Says that a region is in use.
    fn note_use<T: Headed>(&self, response: &T) {
        if let Some(region_id) = response.a_region() {
            self.shared.audit.in_use.note(region_id);
        }
    }

    /// A refusal, unless it only says that map and gate are of different generations.
    fn refused<T>(&self, reason: RefuseReason, generation: u64) -> Attempt<T> {
        let moved = self.shared.map.generation() != generation
            || self.shared.gate.generation() != generation;
        // Generation 0 is the empty map of the start, which no gate ever publishes.
        if reason == RefuseReason::NotProven && generation != 0 && moved {
            Attempt::Swapped
        } else {
            Attempt::Refused(reason)
        }
    }
}

macro_rules! headed {
    ($($response:ty => |$answer:ident| $regions:expr),* $(,)?) => {
        $(impl Headed for $response {
            fn header_mut(&mut self) -> &mut Option<ResponseHeader> {
                &mut self.header
            }

            fn a_region(&self) -> Option<u64> {
                let $answer = self;
                $regions.next().map(|region| region.id)
            }

            fn meets(&self, demand: &Demand) -> bool {
                let $answer = self;
                demand.floors.is_empty() || $regions.all(|region| demand.is_met_by(region))
            }
        })*
    };
}

headed!(
    BatchScanRegionsResponse => |it| it.regions.iter().filter_map(|found| found.region.as_ref()),
    GetRegionResponse => |it| it.region.iter(),
    QueryRegionResponse => |it| it.regions_by_id.values().filter_map(|found| found.region.as_ref()),
    ScanRegionsResponse => |it| it.regions.iter().filter_map(|found| found.region.as_ref()),
);

/// The header apart; a floor is looked for in the message, which few callers make necessary.
impl<M: Headed + Message + Clone> Headed for Written<M> {
    fn header_mut(&mut self) -> &mut Option<ResponseHeader> {
        &mut self.header
    }

    fn a_region(&self) -> Option<u64> {
        Some(self.a_region).filter(|id| *id != 0)
    }

    fn meets(&self, demand: &Demand) -> bool {
        demand.floors.is_empty() || self.clone().decoded().1.meets(demand)
    }
}

/// A message with its header apart.
fn written<M: Headed>(mut message: M) -> Written<M> {
    let header = message.header_mut().take();
    let a_region = message.a_region().unwrap_or(0);
    Written::message(header, message, a_region)
}

/// The other way round.
fn message<M: Headed + Message>(written: Written<M>) -> M {
    let (header, mut message) = written.decoded();
    *message.header_mut() = header;
    message
}

#[cfg(test)]
mod tests;
