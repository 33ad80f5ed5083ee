//! Answering lookups from the map, while the gate says so.
//!
//! One path for every method of both services:
//!
//! 1. what is checked before ([`checks`]);
//! 2. the gate is asked;
//! 3. the map is pinned and the lookup made, on one snapshot;
//! 4. the gate is asked again, for that very snapshot: a process that was stopped in between must
//!    not answer with what was fresh before;
//! 5. the answer goes out, or PD's `REGION_NOT_FOUND` header, which sends stock clients to the
//!    leader. A shut gate and a map without an answer look the same to the client and are counted
//!    apart.
//!
//! All of it is synchronous: no snapshot lives across a point where the task may be suspended.
//!
//! When a full sync has replaced the map's content, map and gate carry different generations for
//! the moment between the two stores that say so. That is no reason to refuse: the attempt is
//! made again, a bounded number of times, letting other tasks run in between.

mod checks;
pub(super) mod counters;
mod health;
mod lookups;
mod members;
mod metadata;
mod pd;
mod query;
mod refusal;
mod room;
mod router;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tidegate_core::gate::{Decision, RefuseReason, Served};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use self::counters::{Fate, Method, Rejection, ServeCounters};
use self::room::Room;
use super::state::Shared;
use crate::lookup::Lookup;
use crate::pd::Remote;
use crate::proto::header::{ok_header, region_not_found};
use crate::proto::metapb;
use crate::proto::pdpb::{
    BatchScanRegionsResponse, GetRegionResponse, QueryRegionResponse, ResponseHeader,
    ScanRegionsResponse,
};

pub(super) use checks::refuse_to_forward;
pub(super) use health::HealthService;
pub(super) use metadata::{SOURCE, allows_follower, forwarded_host, is_client_url};
pub(super) use pd::PdService;
pub(super) use refusal::closed;
pub(super) use router::RouterService;

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
    /// No new work is wanted; what was accepted is answered.
    draining: CancellationToken,
    closed: AtomicBool,
    scans: Room,
    batches: Room,
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
    Found(Found<T>),
    Refused(RefuseReason),
    /// A change of generation came in between.
    Swapped,
}

/// A response with the header that all of PD's have.
pub(super) trait Headed: Default {
    fn header_mut(&mut self) -> &mut Option<ResponseHeader>;

    /// A region of the answer, if it has any.
    fn a_region(&self) -> Option<&metapb::Region>;

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
        Self {
            shared,
            counters: ServeCounters::new(),
            remote,
            endpoints,
            backend_timeout,
            regardless,
            draining: CancellationToken::new(),
            closed: AtomicBool::new(false),
            scans: Room::new(SCANS),
            batches: Room::new(BATCHES),
        }
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
            let generation = shared.map.generation();
            shared
                .gate
                .decide(generation, shared.clock.now(), &shared.thresholds.get())
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

    /// Whether a lookup would be answered now.
    pub(super) fn is_serving(&self) -> bool {
        !self.draining.is_cancelled() && !self.is_closed() && self.shut().is_none()
    }

    /// Turns a request away.
    fn reject(&self, method: Method, (cause, status): (Rejection, Status)) -> Status {
        self.counters.record(method, Fate::Rejected(cause));
        status
    }

    /// One lookup, with everything behind the first checks.
    pub(super) async fn answer<T: Headed>(
        &self,
        method: Method,
        weight: Weight,
        lookup: impl Fn(&Lookup<'_, '_>) -> Found<T>,
    ) -> T {
        let mut attempts = 0;
        loop {
            match weight.carry(|| self.attempt(&lookup)) {
                Attempt::Swapped if attempts < SWAP_ATTEMPTS => {
                    attempts += 1;
                    tokio::task::yield_now().await;
                }
                attempt => return self.settle(method, attempt),
            }
        }
    }

    /// Steps 2 to 4.
    pub(super) fn attempt<T>(&self, lookup: impl Fn(&Lookup<'_, '_>) -> Found<T>) -> Attempt<T> {
        let shared = &self.shared;
        if self.regardless {
            return Attempt::Found(lookup(&Lookup::new(&shared.map.pin())));
        }
        let at = shared.clock.now();
        let generation = shared.map.generation();
        let age = match shared.gate.decide(generation, at, &shared.thresholds.get()) {
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
        match shared
            .gate
            .recheck(&served, generation, now, &shared.thresholds.get())
        {
            Decision::Serve { .. } => Attempt::Found(found),
            Decision::Refuse(_) if generation != served.generation => Attempt::Swapped,
            Decision::Refuse(refusal) => self.refused(refusal.reason, generation),
        }
    }

    /// Step 5.
    pub(super) fn settle<T: Headed>(&self, method: Method, attempt: Attempt<T>) -> T {
        let cluster_id = self.shared.cluster_id().unwrap_or(0);
        let (fate, response) = match attempt {
            Attempt::Found(Found::Answer(response)) => {
                if let Some(region) = response.a_region() {
                    self.shared.audit.in_use.note(region.id);
                }
                (Fate::Served, response.headed(ok_header(cluster_id)))
            }
            Attempt::Found(Found::Invalid(response)) => (Fate::Invalid, response),
            Attempt::Found(Found::NothingBut(response)) => (Fate::Missed, response),
            Attempt::Found(Found::Nothing) => (
                Fate::Missed,
                T::default().headed(region_not_found(cluster_id)),
            ),
            Attempt::Refused(reason) => (
                Fate::Refused(reason),
                T::default().headed(region_not_found(cluster_id)),
            ),
            Attempt::Swapped => (
                Fate::Refused(RefuseReason::NotProven),
                T::default().headed(region_not_found(cluster_id)),
            ),
        };
        self.counters.record(method, fate);
        response
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
    ($($response:ty => |$answer:ident| $region:expr),* $(,)?) => {
        $(impl Headed for $response {
            fn header_mut(&mut self) -> &mut Option<ResponseHeader> {
                &mut self.header
            }

            fn a_region(&self) -> Option<&metapb::Region> {
                let $answer = self;
                $region
            }
        })*
    };
}

headed!(
    BatchScanRegionsResponse => |answer| answer.regions.first()?.region.as_ref(),
    GetRegionResponse => |answer| answer.region.as_ref(),
    QueryRegionResponse => |answer| answer.regions_by_id.values().next()?.region.as_ref(),
    ScanRegionsResponse => |answer| answer.regions.first()?.region.as_ref(),
);

#[cfg(test)]
mod tests;
