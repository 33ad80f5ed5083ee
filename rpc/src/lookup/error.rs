//! Why a batch scan gives no answer, in PD's words.

use std::fmt;

use super::batch::MOST_RANGES;
use crate::proto::header::error_header;
use crate::proto::pdpb::{ErrorType, ResponseHeader};

/// Why a batch scan gives no answer. `Display` is PD's text, to the letter, wherever PD has one:
/// clients match on it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookupError {
    /// A range starts before the one in front of it ends.
    RangesOverlap,
    /// A range ends before it starts.
    RangeInverted,
    /// There are more ranges, namely so many, than one request may have.
    TooManyRanges(usize),
    /// The answer would have more regions than these, the most of a scan.
    TooManyRegions(usize),
    /// The answer would have more bytes than these, the most of a scan.
    TooManyBytes(usize),
    /// Nobody waits for the answer any more.
    Abandoned,
    /// The request forbids holes, and between two regions, or before the first, there is one.
    Hole {
        /// The range that was scanned, and the regions on both sides of the hole; in front of the
        /// first region stands a nameless one that ends where the range starts.
        range: Span,
        /// The region before.
        before: Span,
        /// The region behind.
        behind: Span,
    },
    /// The request forbids holes, and the last region ends before the range does.
    HoleAtTheEnd {
        /// The range that was scanned.
        range: Span,
        /// The last region found.
        last: Span,
    },
}

/// Two keys, for a message: written in hex as `[start, end)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it starts.
    pub start: Box<[u8]>,
    /// Where it ends; empty for nowhere.
    pub end: Box<[u8]>,
}

impl Span {
    pub(super) fn new(start: &[u8], end: &[u8]) -> Self {
        Self {
            start: start.into(),
            end: end.into(),
        }
    }
}

impl LookupError {
    /// The type PD gives it.
    #[must_use]
    pub fn error_type(&self) -> ErrorType {
        match self {
            Self::RangesOverlap
            | Self::RangeInverted
            | Self::TooManyRanges(_)
            | Self::TooManyRegions(_)
            | Self::TooManyBytes(_)
            | Self::Abandoned => ErrorType::Unknown,
            Self::Hole { .. } | Self::HoleAtTheEnd { .. } => {
                ErrorType::RegionsNotContainAllKeyRange
            }
        }
    }

    /// Whether the request itself is at fault, rather than what the map holds.
    #[must_use]
    pub fn is_bad_request(&self) -> bool {
        matches!(
            self,
            Self::RangesOverlap | Self::RangeInverted | Self::TooManyRanges(_)
        )
    }

    /// Whether the answer was not finished: it is not about the request, nor about the map.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        matches!(
            self,
            Self::TooManyRegions(_) | Self::TooManyBytes(_) | Self::Abandoned
        )
    }

    /// The header that carries it.
    #[must_use]
    pub fn header(&self, cluster_id: u64) -> ResponseHeader {
        error_header(cluster_id, self.error_type(), self.to_string())
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RangesOverlap => f.write_str("invalid key range, ranges overlapped"),
            Self::RangeInverted => f.write_str("invalid key range, start key > end key"),
            Self::TooManyRanges(count) => write!(
                f,
                "invalid request, {count} key ranges are more than the {MOST_RANGES} that one \
                 request may have; send them in several"
            ),
            Self::TooManyRegions(most) => write!(
                f,
                "the answer has more than {most} regions (max-scan-regions); ask with a limit, \
                 and go on behind the last region"
            ),
            Self::TooManyBytes(most) => write!(
                f,
                "the answer has more than {most} bytes (max-scan-size); ask with a lower limit, \
                 and go on behind the last region, or in smaller batches"
            ),
            Self::Abandoned => f.write_str("nobody waits for the answer any more"),
            Self::Hole {
                range,
                before,
                behind,
            } => write!(
                f,
                "[PD:region:ErrRegionNotAdjacent]key range{range} found a hole region between \
                 region{before} and region{behind}"
            ),
            Self::HoleAtTheEnd { range, last } => write!(
                f,
                "[PD:region:ErrRegionNotAdjacent]key range{range} found a hole region in the \
                 last, the last scanned region is {last}, {} is missing",
                Span::new(&last.end, &range.end)
            ),
        }
    }
}

impl std::error::Error for LookupError {}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for byte in &self.start {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(", ")?;
        for byte in &self.end {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}
