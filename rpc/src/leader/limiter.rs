//! The byte rate that all full syncs of a leader share.
//!
//! A token bucket that holds one second's worth. Tokens are taken before they are there: who takes them waits until
//! the debt is paid, so that waiting streams are served in the order in which they asked.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A shared byte rate.
#[derive(Debug)]
pub(super) struct Limiter {
    /// Bytes a second; 0 lifts the limit.
    rate: u64,
    /// When the bucket will be full again. Earlier than now: it is full.
    full_at: Mutex<Instant>,
}

/// A single message is larger than the bucket, so it could never be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a frame of {bytes} bytes exceeds the full sync's burst of {burst} bytes")]
pub(super) struct TooLarge {
    bytes: u64,
    burst: u64,
}

impl Limiter {
    pub(super) fn new(rate: u64) -> Self {
        Self {
            rate,
            full_at: Mutex::new(Instant::now()),
        }
    }

    /// Takes `bytes` and returns how long to wait before they may be sent. Bytes of a wait that is given up stay taken.
    pub(super) fn take(&self, bytes: u64) -> Result<Duration, TooLarge> {
        if self.rate == 0 {
            return Ok(Duration::ZERO);
        }
        if bytes > self.rate {
            return Err(TooLarge {
                bytes,
                burst: self.rate,
            });
        }
        let now = Instant::now();
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let price = Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        *full_at = (*full_at).max(now) + price;
        // The bucket holds one second: the wait is what the debt exceeds it by.
        Ok(full_at
            .saturating_duration_since(now)
            .saturating_sub(Duration::from_secs(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_the_rest_waits_its_turn() {
        let limiter = Limiter::new(1000);
        assert_eq!(limiter.take(1000), Ok(Duration::ZERO));
        assert_eq!(limiter.take(500), Ok(Duration::from_millis(500)));
        assert_eq!(limiter.take(1000), Ok(Duration::from_millis(1500)));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(
            limiter.take(1000),
            Ok(Duration::ZERO),
            "a full bucket holds one burst"
        );
        assert_eq!(
            limiter.take(1000),
            Ok(Duration::from_secs(1)),
            "and no more"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_beyond_the_burst_is_an_error() {
        let error = Limiter::new(1000).take(1001).unwrap_err();
        assert_eq!(
            error,
            TooLarge {
                bytes: 1001,
                burst: 1000
            }
        );
        assert_eq!(Limiter::new(0).take(u64::MAX), Ok(Duration::ZERO));
    }
}
