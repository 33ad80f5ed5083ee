//! What the comparison with the leader is told, and what it tells.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

use super::in_use::InUse;
use crate::audit::Kind;
use crate::replica::state::Counter;

/// How the map is compared with the leader; can be changed while it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Knobs {
    /// How long one pass over all regions takes, unless the leader's bound makes it longer (`audit-pass`); `None`:
    /// nothing is compared.
    pub pass: Option<Duration>,
    /// How old a difference is when it is healed (`audit-grace`): longer than the stream takes in bad times.
    pub grace: Duration,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            pass: Some(Duration::from_secs(600)),
            grace: Duration::from_secs(10),
        }
    }
}

/// What the comparison shares with the rest of the replica.
#[derive(Debug)]
pub struct AuditState {
    /// Which regions are asked for.
    pub in_use: InUse,
    /// Nanoseconds; 0 for none.
    pass: AtomicU64,
    grace: AtomicU64,
    pub(super) passes: Counter,
    pub(super) compared: Counter,
    pub(super) failed: Counter,
    pub(super) overtaken: Counter,
    pub(super) full_syncs: Counter,
    pub(super) full_syncs_held: Counter,
    found: [Counter; Kind::ALL.len()],
    healed: [Counter; Kind::ALL.len()],
    pub(super) open: AtomicU64,
    pub(super) oldest_ms: AtomicU64,
    pub(super) last_pass_ms: AtomicU64,
    pub(super) waiting: AtomicU64,
}

/// The comparison with the leader, for operators.
#[derive(Clone, Debug, Serialize)]
pub struct AuditStatus {
    /// Whether it is switched on and, of late, not waiting for the gate to open or for a leader.
    pub running: bool,
    /// Whole passes over the map.
    pub passes: u64,
    /// Regions compared.
    pub compared: u64,
    /// How long the last whole pass took; `None` before there was one.
    pub last_pass_ms: Option<u64>,
    /// Questions that the leader did not answer.
    pub failed: u64,
    /// Answers that did not count because the leader or the map had changed meanwhile.
    pub overtaken: u64,
    /// Differences that are being followed.
    pub open: u64,
    /// The age of the oldest of them; `None` while there is none.
    pub oldest_ms: Option<u64>,
    /// Differences that grew older than the grace, by kind.
    pub found: BTreeMap<&'static str, u64>,
    /// Those of them that were healed.
    pub healed: BTreeMap<&'static str, u64>,
    /// Full syncs that were demanded.
    pub full_syncs: u64,
    /// Those that were not, because the last one was too short a time ago.
    pub full_syncs_held: u64,
}

impl Default for AuditState {
    fn default() -> Self {
        Self::new(Knobs::default())
    }
}

impl AuditState {
    /// The state at the start.
    #[must_use]
    pub fn new(knobs: Knobs) -> Self {
        let state = Self {
            in_use: InUse::default(),
            pass: AtomicU64::new(0),
            grace: AtomicU64::new(0),
            passes: Counter::default(),
            compared: Counter::default(),
            failed: Counter::default(),
            overtaken: Counter::default(),
            full_syncs: Counter::default(),
            full_syncs_held: Counter::default(),
            found: Default::default(),
            healed: Default::default(),
            open: AtomicU64::new(0),
            oldest_ms: AtomicU64::new(0),
            last_pass_ms: AtomicU64::new(0),
            waiting: AtomicU64::new(1),
        };
        state.set_knobs(knobs);
        state
    }

    /// The knobs now.
    #[must_use]
    pub fn knobs(&self) -> Knobs {
        // Relaxed: each stands for itself.
        let (pass, grace) = (self.pass.load(Relaxed), self.grace.load(Relaxed));
        Knobs {
            pass: (pass > 0).then(|| Duration::from_nanos(pass)),
            grace: Duration::from_nanos(grace),
        }
    }

    /// Other knobs from the next question on.
    pub fn set_knobs(&self, knobs: Knobs) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: see `knobs`.
        self.pass.store(knobs.pass.map_or(0, nanos), Relaxed);
        self.grace.store(nanos(knobs.grace), Relaxed);
    }

    pub(super) fn note_found(&self, kind: Kind) {
        self.found[kind as usize].add(1);
    }

    pub(super) fn note_healed(&self, kind: Kind) {
        self.healed[kind as usize].add(1);
    }

    /// How it is now.
    #[must_use]
    pub fn read(&self) -> AuditStatus {
        // Relaxed: values for display.
        let now = |value: &AtomicU64| value.load(Relaxed);
        let by_kind = |counts: &[Counter; Kind::ALL.len()]| {
            Kind::ALL
                .into_iter()
                .map(|kind| (kind.as_str(), counts[kind as usize].get()))
                .collect()
        };
        let (passes, open) = (self.passes.get(), now(&self.open));
        AuditStatus {
            running: self.knobs().pass.is_some() && now(&self.waiting) == 0,
            passes,
            compared: self.compared.get(),
            last_pass_ms: (passes > 0).then(|| now(&self.last_pass_ms)),
            failed: self.failed.get(),
            overtaken: self.overtaken.get(),
            open,
            oldest_ms: (open > 0).then(|| now(&self.oldest_ms)),
            found: by_kind(&self.found),
            healed: by_kind(&self.healed),
            full_syncs: self.full_syncs.get(),
            full_syncs_held: self.full_syncs_held.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_can_be_changed_and_switched_off() {
        let state = AuditState::default();
        assert_eq!(state.knobs(), Knobs::default());
        let off = Knobs {
            pass: None,
            grace: Duration::from_millis(3),
        };
        state.set_knobs(off);
        assert_eq!(state.knobs(), off);
        assert!(!state.read().running);
    }
}
