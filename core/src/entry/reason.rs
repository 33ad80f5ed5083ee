//! Why an entry is no longer good for routing.

use std::fmt;

/// Why an entry is no longer good for routing. A valid entry has no reason
/// (`None` where one is asked for).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum InvalidReason {
    /// The region has no leader that anyone knows of.
    NoLeader,
    /// The store does not hold the region.
    RegionNotFound,
    /// The region has moved on to another epoch.
    EpochNotMatch,
    /// The store does not exist any more.
    StoreNotFound,
    /// Anything else.
    Other,
}

impl InvalidReason {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [
        Self::NoLeader,
        Self::RegionNotFound,
        Self::EpochNotMatch,
        Self::StoreNotFound,
        Self::Other,
    ];

    /// A name for metrics and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoLeader => "no_leader",
            Self::RegionNotFound => "region_not_found",
            Self::EpochNotMatch => "epoch_not_match",
            Self::StoreNotFound => "store_not_found",
            Self::Other => "other",
        }
    }

    /// As it stands in a word; 0 is "valid".
    pub(super) const fn code(self) -> u64 {
        match self {
            Self::NoLeader => 1,
            Self::RegionNotFound => 2,
            Self::EpochNotMatch => 3,
            Self::StoreNotFound => 4,
            Self::Other => 5,
        }
    }

    pub(super) const fn from_code(code: u64) -> Option<Self> {
        match code {
            0 => None,
            1 => Some(Self::NoLeader),
            2 => Some(Self::RegionNotFound),
            3 => Some(Self::EpochNotMatch),
            4 => Some(Self::StoreNotFound),
            _ => Some(Self::Other),
        }
    }
}

impl fmt::Display for InvalidReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
