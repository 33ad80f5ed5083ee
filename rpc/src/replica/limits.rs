//! The thresholds of the gate, as they are now: an operator can change them while lookups are answered.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_core::gate::Thresholds;

/// Thresholds that can be changed. Reading them costs four loads.
///
/// Each is a bound of its own: a decision that sees some of a change and not yet the rest has used bounds that an
/// operator has set, and the next one sees all.
#[derive(Debug)]
pub struct Limits {
    max_age: AtomicU64,
    time: AtomicU64,
    index: AtomicU64,
    stall: AtomicU64,
}

impl Limits {
    /// The thresholds to begin with. Durations are kept to the nanosecond, up to 584 years.
    #[must_use]
    pub fn new(thresholds: Thresholds) -> Self {
        let limits = Self {
            max_age: AtomicU64::new(0),
            time: AtomicU64::new(0),
            index: AtomicU64::new(0),
            stall: AtomicU64::new(0),
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

    /// Other thresholds from now on.
    pub fn set(&self, thresholds: Thresholds) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: see `get`.
        self.max_age.store(nanos(thresholds.max_age), Relaxed);
        self.time.store(nanos(thresholds.time_threshold), Relaxed);
        self.index.store(thresholds.index_threshold, Relaxed);
        self.stall.store(nanos(thresholds.stall_threshold), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
