//! A region's epoch and what follows from comparing two of them.

use std::fmt;

/// How often a region has changed: its members and its range.
///
/// Split and merge raise `version`, a change of members raises `conf_ver`; a
/// change of leader raises neither. The two grow independently, so epochs are
/// only partially ordered, and there is no `Ord` to compare them by accident.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct RegionEpoch {
    /// Raised by each change of the members.
    pub conf_ver: u64,
    /// Raised by each change of the range.
    pub version: u64,
}

impl RegionEpoch {
    /// An epoch from its two counters, in the order of the wire's fields.
    #[must_use]
    pub const fn new(conf_ver: u64, version: u64) -> Self {
        Self { conf_ver, version }
    }

    /// Whether a region with this epoch has just been made from nothing, as
    /// unsafe recovery does; PD lets such a region replace anything, unless it
    /// covers the whole key space (then it is a new cluster's first region).
    #[must_use]
    pub const fn is_recreated(self) -> bool {
        self.conf_ver == 1 && self.version == 1
    }

    /// Whether either counter is behind that of `other`: the test by which PD
    /// refuses a report about a region that it knows under `other`.
    #[must_use]
    pub const fn is_older_than(self, other: Self) -> bool {
        self.version < other.version || self.conf_ver < other.conf_ver
    }
}

impl fmt::Display for RegionEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { conf_ver, version } = self;
        write!(f, "conf_ver {conf_ver} version {version}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_counter_behind_is_older() {
        let known = RegionEpoch::new(5, 7);
        assert!(RegionEpoch::new(4, 9).is_older_than(known));
        assert!(RegionEpoch::new(9, 6).is_older_than(known));
        assert!(!known.is_older_than(known));
        assert!(!RegionEpoch::new(5, 8).is_older_than(known));
    }
}
