//! How much may be asked at once.

use std::time::Duration;

/// The bounds of an [`Asker`](super::Asker).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bounds {
    /// Questions that are asked or waiting to be.
    pub waiting: usize,
    /// Items of one QueryRegion.
    pub batch: usize,
    /// Lookups in flight at a leader without QueryRegion.
    pub calls: usize,
    /// Scans in flight.
    pub scans: usize,
    /// For one call to the leader.
    pub call_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            // About 400 bytes each.
            waiting: 131_072,
            batch: 2_048,
            calls: 32,
            scans: 4,
            call_timeout: Duration::from_secs(1),
        }
    }
}
