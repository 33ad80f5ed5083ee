//! What became of a change.

use std::error::Error;
use std::fmt;

use crate::entry::Entry;
use crate::epoch::RegionEpoch;

/// What became of one change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "a refused change changed nothing"]
#[non_exhaustive]
pub enum Outcome {
    /// The region entered the map under a range that it did not have before.
    Inserted {
        /// How many entries left for it: those of other regions that it
        /// overlapped, and its own former one.
        displaced: usize,
    },
    /// The region was there with the same range, and has a new entry.
    Replaced,
    /// The region left the map.
    Removed,
    /// Nothing changed.
    Refused(Refusal),
}

/// Why a change was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// The rule that spoke against it.
    pub reason: RefusalReason,
    /// The live entry that won; `None` if there was none (the expected entry is
    /// gone, or the region to remove is not there).
    pub lost_to: Option<Winner>,
}

/// The live entry that a refused change lost to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Winner {
    /// Its region's id.
    pub id: u64,
    /// Its region's epoch.
    pub epoch: RegionEpoch,
}

/// The rule by which a change was refused.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The region is known under an epoch with a higher version or conf_ver.
    OlderEpoch,
    /// The region is known under the same epoch from a better or later source.
    OlderTruth,
    /// The range overlaps another region that has a higher version.
    OverlapsNewer,
    /// The map did not hold what the change expected.
    Unexpected,
    /// No region with this id is in the map, so that it cannot be removed.
    UnknownId,
}

// === impl Outcome ===

impl Outcome {
    /// Whether nothing changed.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Why nothing changed, if so.
    #[must_use]
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

// === impl Refusal ===

impl Refusal {
    pub(crate) const fn lost_to(reason: RefusalReason, winner: &Entry) -> Self {
        Self {
            reason,
            lost_to: Some(Winner {
                id: winner.id(),
                epoch: winner.epoch(),
            }),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)?;
        match self.lost_to {
            Some(Winner { id, epoch }) => write!(f, ": region {id} has {epoch}"),
            None => Ok(()),
        }
    }
}

impl Error for Refusal {}

// === impl RefusalReason ===

impl RefusalReason {
    /// A name for metrics and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OlderEpoch => "older_epoch",
            Self::OlderTruth => "older_truth",
            Self::OverlapsNewer => "overlaps_newer",
            Self::Unexpected => "unexpected",
            Self::UnknownId => "unknown_id",
        }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
