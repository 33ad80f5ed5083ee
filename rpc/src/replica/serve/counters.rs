//! What became of the requests, by method.
//!
//! Several things can happen to a lookup, and an operator acts differently on each: it was *served* from the map; it was
//! served from entries that the leader had *confirmed*, although the gate was shut; the leader was *asked* for it;
//! it was *refused*, because the gate was shut, with the gate's reason; it *missed*, because the
//! map had no answer, although the gate was open; it was *invalid*, because the request itself
//! gets an error from PD too; or it was *rejected* before the gate was asked. A batch of
//! QueryRegion counts once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;
use tidegate_core::gate::RefuseReason;

use super::timing::Latencies;

/// The lookups that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// BatchScanRegions
    BatchScanRegions,
    /// GetPrevRegion
    GetPrevRegion,
    /// GetRegion
    GetRegion,
    /// GetRegionByID
    GetRegionById,
    /// A batch of QueryRegion
    QueryRegion,
    /// ScanRegions
    ScanRegions,
}

/// What became of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Answered from the map.
    Served,
    /// Answered from entries that the leader has confirmed.
    Confirmed,
    /// Answered by the leader, or after it was asked.
    Asked,
    /// The map had no answer.
    Missed,
    /// The request gets an error from PD too.
    Invalid,
    /// The gate was shut.
    Refused(RefuseReason),
    /// Turned away before the gate was asked.
    Rejected(Rejection),
}

/// Why a request was turned away before the gate was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// It is heavy work, and too much of that is under way.
    Busy,
    /// It is for another cluster.
    ClusterId,
    /// We have stopped.
    Closed,
    /// It demands something in its metadata that cannot be read.
    Demand,
    /// The caller has not said that an answer from a follower will do.
    FollowerHandle,
    /// It is to be forwarded.
    ForwardedHost,
    /// It asks for too much at once.
    TooLarge,
}

const METHODS: usize = Method::ALL.len();
const REASONS: usize = RefuseReason::ALL.len();
const REJECTIONS: usize = Rejection::ALL.len();
const FATES: usize = 5 + REASONS + REJECTIONS;

/// The counters of one replica.
#[derive(Debug)]
pub(crate) struct ServeCounters {
    counts: [[AtomicU64; FATES]; METHODS],
    /// How long unary lookups take.
    pub(in crate::replica) latencies: Latencies,
}

/// The counters of one method, or their sums, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Answered from the map, proven fresh.
    pub served: u64,
    /// Answered from entries of the map that the leader has confirmed, although the gate was shut.
    pub confirmed: u64,
    /// Answered by the leader, or from the map after the leader was asked.
    pub asked: u64,
    /// Without an answer in the map.
    pub missed: u64,
    /// Given the error that PD gives too.
    pub invalid: u64,
    /// Refused by the gate.
    pub refused: u64,
    /// The same by the gate's reason; reasons that did not occur are left out.
    pub refused_by_reason: BTreeMap<&'static str, u64>,
    /// Turned away before the gate was asked.
    pub rejected: u64,
    /// The same by cause; causes that did not occur are left out.
    pub rejected_by_cause: BTreeMap<&'static str, u64>,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 6] = [
        Self::BatchScanRegions,
        Self::GetPrevRegion,
        Self::GetRegion,
        Self::GetRegionById,
        Self::QueryRegion,
        Self::ScanRegions,
    ];

    /// PD's name for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BatchScanRegions => "BatchScanRegions",
            Self::GetPrevRegion => "GetPrevRegion",
            Self::GetRegion => "GetRegion",
            Self::GetRegionById => "GetRegionByID",
            Self::QueryRegion => "QueryRegion",
            Self::ScanRegions => "ScanRegions",
        }
    }
}

impl Rejection {
    /// Every cause.
    pub const ALL: [Self; 7] = [
        Self::Busy,
        Self::ClusterId,
        Self::Closed,
        Self::Demand,
        Self::FollowerHandle,
        Self::ForwardedHost,
        Self::TooLarge,
    ];

    /// Its name in metrics and on the status page.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::ClusterId => "cluster_id",
            Self::Closed => "closed",
            Self::Demand => "demand",
            Self::FollowerHandle => "follower_handle",
            Self::ForwardedHost => "forwarded_host",
            Self::TooLarge => "too_large",
        }
    }
}

impl Fate {
    fn slot(self) -> usize {
        match self {
            Self::Served => 0,
            Self::Missed => 1,
            Self::Invalid => 2,
            Self::Confirmed => 3,
            Self::Asked => 4,
            Self::Refused(reason) => 5 + position(&RefuseReason::ALL, &reason),
            Self::Rejected(cause) => 5 + REASONS + position(&Rejection::ALL, &cause),
        }
    }
}

impl ServeCounters {
    /// All at zero.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            counts: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            latencies: Latencies::default(),
        }
    }

    /// Counts one request.
    pub(crate) fn record(&self, method: Method, fate: Fate) {
        let counts = &self.counts[position(&Method::ALL, &method)];
        // Relaxed: a counter for display; nothing is ordered by it.
        counts[fate.slot()].fetch_add(1, Relaxed);
    }

    /// The counts of one method.
    #[must_use]
    pub(crate) fn of(&self, method: Method) -> Counts {
        let mut counts = Counts::default();
        counts.add(&self.counts[position(&Method::ALL, &method)]);
        counts
    }

    /// The sums over all methods.
    #[must_use]
    pub(crate) fn total(&self) -> Counts {
        let mut counts = Counts::default();
        for method in &self.counts {
            counts.add(method);
        }
        counts
    }
}

impl Default for ServeCounters {
    fn default() -> Self {
        Self::new()
    }
}

impl Counts {
    /// All requests.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.answered() + self.missed + self.invalid + self.refused + self.rejected
    }

    /// Requests with an answer, wherever it came from.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.served + self.confirmed + self.asked
    }

    fn add(&mut self, counts: &[AtomicU64; FATES]) {
        // Relaxed: see `record`.
        let count = |fate: Fate| counts[fate.slot()].load(Relaxed);
        self.served += count(Fate::Served);
        self.confirmed += count(Fate::Confirmed);
        self.asked += count(Fate::Asked);
        self.missed += count(Fate::Missed);
        self.invalid += count(Fate::Invalid);
        for reason in RefuseReason::ALL {
            let refused = count(Fate::Refused(reason));
            self.refused += refused;
            note(&mut self.refused_by_reason, reason.as_str(), refused);
        }
        for cause in Rejection::ALL {
            let rejected = count(Fate::Rejected(cause));
            self.rejected += rejected;
            note(&mut self.rejected_by_cause, cause.as_str(), rejected);
        }
    }
}

fn note(by_name: &mut BTreeMap<&'static str, u64>, name: &'static str, count: u64) {
    if count > 0 {
        *by_name.entry(name).or_default() += count;
    }
}

/// Where a value stands in the list of all of its kind.
fn position<T: PartialEq>(all: &[T], value: &T) -> usize {
    all.iter().position(|other| other == value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fate_of_every_method_has_a_counter_of_its_own() {
        let fates = || {
            let refused = RefuseReason::ALL.into_iter().map(Fate::Refused);
            let rejected = Rejection::ALL.into_iter().map(Fate::Rejected);
            [
                Fate::Served,
                Fate::Missed,
                Fate::Invalid,
                Fate::Confirmed,
                Fate::Asked,
            ]
            .into_iter()
            .chain(refused)
            .chain(rejected)
        };
        let mut slots: Vec<usize> = fates().map(Fate::slot).collect();
        slots.sort_unstable();
        assert_eq!(slots, (0..FATES).collect::<Vec<_>>());

        let counters = ServeCounters::new();
        for (times, method) in (1..).zip(Method::ALL) {
            for fate in fates() {
                (0..times).for_each(|_| counters.record(method, fate));
            }
        }
        for (times, method) in (1..).zip(Method::ALL) {
            let counts = counters.of(method);
            assert_eq!(
                (counts.served, counts.missed, counts.invalid),
                (times, times, times)
            );
            assert_eq!(counts.refused, times * REASONS as u64);
            assert_eq!(counts.rejected_by_cause["follower_handle"], times);
        }
        let total = counters.total();
        assert_eq!(total.served, 1 + 2 + 3 + 4 + 5 + 6);
        assert_eq!(total.refused_by_reason["apply_stall"], total.served);
        assert_eq!(total.all(), total.served * FATES as u64);
    }
}
