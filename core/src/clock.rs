//! Time, passed in: a [`Moment`] is a reading, a [`Clock`] is where readings come from.
//!
//! No decision of this crate reads a clock (the memory of maps counts seconds until what
//! nobody wants goes back to the system). Decisions take a `Moment`, so tests drive time by
//! hand and a request reads the clock where it wants to be judged.
//!
//! # Why boot time
//!
//! The gate compares *now* with the time of a proof. A clock that stands still while the machine
//! is suspended would let a resumed process serve what was fresh before the pause, and so would
//! a tick that a background thread has cached. [`BootClock`] therefore reads `CLOCK_BOOTTIME` for
//! each decision. It counts through `SIGSTOP` and through suspend, never steps with the wall
//! clock, and is answered from the vDSO without entering the kernel.

use std::fmt::Debug;
use std::time::Duration;

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// One reading of a clock: nanoseconds since an origin that only the clock knows.
///
/// Moments of different clocks must not be compared. A real reading is never zero, so that
/// atomics can use zero for "never".
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Moment(u64);

impl Moment {
    /// The moment `nanos` nanoseconds after the origin.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to this moment; zero when `earlier` is in fact later.
    ///
    /// Two threads' readings may cross, so a small negative distance is normal and means "just
    /// now".
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment moved on by `distance`, or `None` when that is out of range.
    #[must_use]
    pub fn checked_add(self, distance: Duration) -> Option<Self> {
        let nanos = u64::try_from(distance.as_nanos()).ok()?;
        self.0.checked_add(nanos).map(Self)
    }

    /// This moment moved on by `distance`, or the last representable moment (584 years on).
    #[must_use]
    pub fn saturating_add(self, distance: Duration) -> Self {
        self.checked_add(distance).unwrap_or(Self(u64::MAX))
    }

    /// The moment as a counter value in which zero means "never".
    pub(crate) const fn to_bits(self) -> u64 {
        if self.0 == 0 { 1 } else { self.0 }
    }

    /// The inverse of [`Moment::to_bits`].
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Option<Self> {
        if bits == 0 { None } else { Some(Self(bits)) }
    }
}

/// A source of readings. Readings of one clock never decrease within a thread.
pub trait Clock: Send + Sync + Debug {
    /// The present moment.
    fn now(&self) -> Moment;
}

/// The machine's time since boot, suspended time included.
///
/// On systems other than Linux it counts from the first reading in this process on the standard
/// library's monotonic clock, which may stand still during suspend.
#[derive(Copy, Clone, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    #[cfg(target_os = "linux")]
    #[inline]
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // The kernel reports a non-negative time for this clock; 584 years fit.
        let nanos = (time.tv_sec as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(time.tv_nsec as u64);
        Moment(nanos.max(1))
    }

    #[cfg(not(target_os = "linux"))]
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the clock"
    )]
    fn now(&self) -> Moment {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        let elapsed = ORIGIN.get_or_init(std::time::Instant::now).elapsed();
        Moment(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).max(1))
    }
}

/// A clock that moves only when told to. Clones share the time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    nanos: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that stands at `start`.
    #[must_use]
    pub fn new(start: Moment) -> Self {
        Self {
            nanos: Arc::new(AtomicU64::new(start.0)),
        }
    }

    /// Moves the time on by `distance`.
    pub fn advance(&self, distance: Duration) {
        let nanos = u64::try_from(distance.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: the time is a value of its own and publishes nothing else.
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Sets the time. Setting it back breaks the promise of [`Clock`]; tests may want that.
    pub fn set(&self, moment: Moment) {
        // Relaxed: the time is a value of its own and publishes nothing else.
        self.nanos.store(moment.0, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        // Relaxed: the time is a value of its own and publishes nothing else.
        Moment(self.nanos.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(tidegate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn distances_saturate_at_both_ends() {
        let (early, late) = (Moment::from_nanos(5), Moment::from_nanos(9));
        assert_eq!(late.saturating_since(early), Duration::from_nanos(4));
        assert_eq!(early.saturating_since(late), Duration::ZERO);
        assert_eq!(late.checked_add(Duration::MAX), None);
        assert_eq!(
            late.saturating_add(Duration::MAX),
            Moment::from_nanos(u64::MAX)
        );
        assert_eq!(early.checked_add(Duration::from_nanos(4)), Some(late));
    }

    #[test]
    fn boot_clock_readings_are_real_and_never_decrease() {
        let mut last = BootClock.now();
        assert_ne!(last.as_nanos(), 0);
        for _ in 0..1_000 {
            let next = BootClock.now();
            assert!(next >= last);
            last = next;
        }
    }

    #[test]
    fn clones_of_a_manual_clock_share_the_time() {
        let clock = ManualClock::new(Moment::from_nanos(10));
        let twin = clock.clone();
        clock.advance(Duration::from_nanos(7));
        assert_eq!(twin.now(), Moment::from_nanos(17));
        twin.set(Moment::from_nanos(3));
        assert_eq!(clock.now(), Moment::from_nanos(3));
    }
}
