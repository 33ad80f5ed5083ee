//! The time of day, read in one place.

use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time of day.
pub trait WallClock: Debug + Send + Sync {
    /// Nanoseconds since the Unix epoch. May step back.
    fn unix_nanos(&self) -> i64;
}

/// The system's own time of day.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWall;

impl WallClock for SystemWall {
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where this crate reads it"
    )]
    fn unix_nanos(&self) -> i64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }
}
