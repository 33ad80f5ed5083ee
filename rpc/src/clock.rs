//! Time from tokio's timer, so that a test that pauses and advances tokio's clock moves the gate's time with it.
//!
//! Production code uses the core's boot-time clock instead: it counts through a suspended machine, which tokio's does
//! not promise.

use tidegate_core::clock::{Clock, Moment};
use tokio::time::Instant;

/// Readings start here rather than at zero, so that a test can speak of moments before the clock was made.
const ORIGIN_NANOS: u64 = 3_600_000_000_000;

/// A [`Clock`] that reads tokio's time.
///
/// Clones of one clock agree; two clocks made apart have different origins.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: Instant,
}

impl TokioClock {
    /// A clock whose origin is one hour before now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
        }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        let elapsed = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Moment::from_nanos(ORIGIN_NANOS.saturating_add(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn paused_time_moves_the_clock_by_exactly_what_was_advanced() {
        let clock = TokioClock::new();
        let copy = clock;
        let before = clock.now();
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(
            copy.now().saturating_since(before),
            Duration::from_millis(1500)
        );
    }
}
