//! What this crate rejects, and why. Each error carries the rejected input.

use std::error::Error;
use std::fmt;

use crate::key::Key;

/// A range whose start does not lie before its end.
///
/// The caller's input is at fault; nothing has been changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InvalidRange {
    /// The rejected start.
    pub start: Key,
    /// The rejected end (never empty: an empty end is plus infinity).
    pub end: Key,
}

impl fmt::Display for InvalidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, end } = self;
        write!(f, "the range's start {start} is not before its end {end}")
    }
}

impl Error for InvalidRange {}

/// A region that cannot exist.
///
/// Whoever described the region is at fault; the description has been dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum InvalidRegion {
    /// PD never hands out id 0; on the wire it means that no id was given.
    ZeroId,
}

impl fmt::Display for InvalidRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroId => f.write_str("region id 0 does not exist"),
        }
    }
}

impl Error for InvalidRegion {}
