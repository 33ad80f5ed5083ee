//! The thresholds of the gate, as they are now: an operator can change them while lookups are answered.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::gate::Thresholds;

use crate::pd::Dialect;

/// Thresholds that can be changed. Reading them costs four loads.
///
/// Each is a bound of its own: a decision that sees some of a change and not yet the rest has used bounds that an
/// operator has set, and the next one sees all.
#[derive(Debug)]
pub struct Limits {
    /// The one of `ages` that holds now.
    max_age: AtomicU64,
    ages: Mutex<Ages>,
    time: AtomicU64,
    index: AtomicU64,
    stall: AtomicU64,
    /// Zero: as `max_age`.
    max_outage: AtomicU64,
}

/// What the age is bounded by, depending on the leader's dialect.
#[derive(Clone, Copy, Debug, Default)]
struct Ages {
    usual: Duration,
    /// `None`: as usual.
    on_release85: Option<Duration>,
    is_release85: bool,
}

impl Ages {
    fn now(self) -> Duration {
        match self.on_release85 {
            Some(age) if self.is_release85 => age,
            _ => self.usual,
        }
    }
}

impl Limits {
    /// The thresholds to begin with. Durations are kept to the nanosecond, up to 584 years.
    #[must_use]
    pub fn new(thresholds: Thresholds) -> Self {
        let limits = Self {
            max_age: AtomicU64::new(0),
            ages: Mutex::default(),
            time: AtomicU64::new(0),
            index: AtomicU64::new(0),
            stall: AtomicU64::new(0),
            max_outage: AtomicU64::new(0),
        };
        limits.set(thresholds);
        limits
    }

    /// The thresholds now.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Thresholds {
        // Relaxed: nothing is published with a threshold, and each stands for itself.
        let time = |from: &AtomicU64| Duration::from_nanos(from.load(Relaxed));
        Thresholds {
            max_age: time(&self.max_age),
            time_threshold: time(&self.time),
            index_threshold: self.index.load(Relaxed),
            stall_threshold: time(&self.stall),
        }
    }

    /// The thresholds while PD has no leader at all: nothing can be asked, and whoever could change a region's place at
    /// PD is gone as well. `max-outage` takes the place of the age and of the silence.
    #[must_use]
    pub fn in_outage(&self) -> Thresholds {
        let thresholds = self.get();
        // Relaxed: see `get`.
        let max_outage = match self.max_outage.load(Relaxed) {
            0 => thresholds.max_age,
            nanos => Duration::from_nanos(nanos),
        };
        Thresholds {
            max_age: max_outage,
            time_threshold: max_outage,
            ..thresholds
        }
    }

    /// Another `max-outage` from now on; `None` is as much as `max-age`.
    pub fn set_max_outage(&self, max_outage: Option<Duration>) {
        let nanos = max_outage.map_or(0, |time| {
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
        });
        // Relaxed: see `get`.
        self.max_outage.store(nanos, Relaxed);
    }

    /// What takes the place of `max-age` while the leader speaks release 8.5's dialect; `None` is as much as that.
    pub fn set_broadcast_max_age(&self, age: Option<Duration>) {
        self.change_ages(|ages| ages.on_release85 = age);
    }

    /// The dialect of the leader that the map's proofs are from, as far as it has been shown.
    pub(super) fn set_dialect(&self, dialect: Dialect) {
        let is_release85 = dialect == Dialect::Release85;
        self.change_ages(|ages| ages.is_release85 = is_release85);
    }

    fn change_ages(&self, change: impl FnOnce(&mut Ages)) {
        // Each change is a single store into it.
        let mut ages = self.ages.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut ages);
        // Relaxed: see `get`.
        self.max_age.store(nanos(ages.now()), Relaxed);
    }

    /// Other thresholds from now on.
    pub fn set(&self, thresholds: Thresholds) {
        self.change_ages(|ages| ages.usual = thresholds.max_age);
        // Relaxed: see `get`.
        self.time.store(nanos(thresholds.time_threshold), Relaxed);
        self.index.store(thresholds.index_threshold, Relaxed);
        self.stall.store(nanos(thresholds.stall_threshold), Relaxed);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_an_outage_one_bound_takes_the_place_of_age_and_silence() {
        let limits = Limits::new(Thresholds::default());
        let usual = Thresholds::default();
        let by_default = limits.in_outage();
        assert_eq!(by_default.time_threshold, usual.max_age);
        assert_eq!(by_default.max_age, usual.max_age);
        limits.set_max_outage(Some(Duration::from_secs(60)));
        let long = limits.in_outage();
        assert_eq!(long.max_age, Duration::from_secs(60));
        assert_eq!(long.time_threshold, Duration::from_secs(60));
        assert_eq!(long.index_threshold, usual.index_threshold);
        assert_eq!(long.stall_threshold, usual.stall_threshold);
        assert_eq!(limits.get(), usual, "otherwise nothing has changed");
    }

    #[test]
    fn the_age_depends_on_the_leaders_dialect_if_that_was_set() {
        let limits = Limits::new(Thresholds::default());
        let age = |dialect| {
            limits.set_dialect(dialect);
            limits.get().max_age
        };
        let usual = Thresholds::default().max_age;
        assert_eq!(age(Dialect::Release85), usual);
        limits.set_broadcast_max_age(Some(Duration::from_secs(30)));
        assert_eq!(age(Dialect::Master), usual);
        assert_eq!(age(Dialect::Release85), Duration::from_secs(30));
        assert_eq!(limits.in_outage().max_age, Duration::from_secs(30));
        limits.set(Thresholds {
            max_age: Duration::from_secs(4),
            ..Thresholds::default()
        });
        assert_eq!(limits.get().max_age, Duration::from_secs(30));
        assert_eq!(age(Dialect::Master), Duration::from_secs(4));
        limits.set_broadcast_max_age(None);
        assert_eq!(age(Dialect::Release85), Duration::from_secs(4));
    }

    #[test]
    fn what_is_set_is_what_is_read() {
        let limits = Limits::new(Thresholds::default());
        assert_eq!(limits.get(), Thresholds::default());
        let other = Thresholds {
            max_age: Duration::from_nanos(1),
            time_threshold: Duration::MAX,
            index_threshold: 3,
            stall_threshold: Duration::from_millis(4),
        };
        limits.set(other);
        let read = limits.get();
        assert_eq!(
            (read.max_age, read.index_threshold, read.stall_threshold),
            (other.max_age, 3, other.stall_threshold)
        );
        assert_eq!(read.time_threshold, Duration::from_nanos(u64::MAX));
    }
}
