//! How many records are kept: PD's sizes and rules, as arithmetic.

use super::segment::LONGEST;

/// Between which sizes a history adapts itself to its slowest reader.
///
/// Every size is the base times a power of two.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Capacity {
    base: usize,
    max: usize,
}

impl Capacity {
    /// PD's base and unit: 10,000 records.
    pub const PD_BASE: usize = 10_000;
    /// PD's upper limit: 80,000 records.
    pub const PD_MAX: usize = 80_000;

    /// `size` records (at least one), whatever the readers need.
    #[must_use]
    pub const fn fixed(size: usize) -> Self {
        Self::growing(size, size)
    }

    /// `base` records (at least one), and at most `max` while a reader needs them. The limit is
    /// rounded down to `base` times a power of two, and is never below `base`.
    #[must_use]
    pub const fn growing(base: usize, max: usize) -> Self {
        let base = if base == 0 { 1 } else { base };
        let mut limit = base;
        while limit <= max / 2 {
            limit *= 2;
        }
        Self { base, max: limit }
    }

    /// PD's sizes for a machine with `bytes` of memory: the limit is 10,000 for each 4 GiB, rounded
    /// up to the next size, between 10,000 and 80,000. 0 stands for unknown and gives 10,000.
    #[must_use]
    pub const fn for_memory(bytes: u64) -> Self {
        const SHARE: u64 = 4 << 30;
        let mut max = Self::PD_BASE;
        // As a product that cannot overflow: `max` stays below 80,000.
        while max < Self::PD_MAX && (max as u128) * (SHARE as u128) < bytes as u128 * 10_000 {
            max *= 2;
        }
        Self {
            base: Self::PD_BASE,
            max,
        }
    }

    /// The size at the start, and the smallest.
    #[must_use]
    pub const fn base(self) -> usize {
        self.base
    }

    /// The largest size.
    #[must_use]
    pub const fn max(self) -> usize {
        self.max
    }

    /// The size that a history of `size` should have when a reader needs the last `window`
    /// records: unchanged while they fill no more than half of it, else enough for twice as many,
    /// within the limit.
    pub(super) fn for_window(self, size: usize, window: u64) -> usize {
        if window <= (size / 2) as u64 {
            return size;
        }
        let mut wanted = self.base;
        while wanted < self.max && (wanted as u64) < window.saturating_mul(2) {
            wanted *= 2;
        }
        wanted.max(size)
    }

    /// How many records a segment holds: a power of two, and a small part of the base, so that
    /// little more than the capacity is kept.
    pub(super) fn segment_len(self) -> usize {
        const PARTS: usize = if cfg!(tidegate_loom) { 1 } else { 16 };
        let most = (self.base / PARTS).clamp(1, LONGEST);
        1 << most.ilog2()
    }
}

impl Default for Capacity {
    /// PD's sizes where memory does not matter: 10,000 to 80,000 records.
    fn default() -> Self {
        Self::growing(Self::PD_BASE, Self::PD_MAX)
    }
}

/// How many segments of `segment_len` records hold at least `size` records, when the newest one
/// may hold a single record.
pub(super) fn segments(size: usize, segment_len: usize) -> usize {
    (size - 1).div_ceil(segment_len) + 1
}

/// When to shrink: after three checks in a row that found at most a quarter in use and nothing
/// retained.
#[derive(Debug, Default)]
pub(super) struct Shrinking {
    /// The largest window that was needed since the last check.
    peak: u64,
    low: u8,
}

impl Shrinking {
    const CHECKS: u8 = 3;

    /// A reader needs the last `window` records.
    pub(super) fn needed(&mut self, window: u64) {
        self.peak = self.peak.max(window);
    }

    /// A check of a history of `size` records; `true` if it is time to halve it.
    pub(super) fn check(&mut self, capacity: Capacity, size: usize, retained: bool) -> bool {
        let peak = std::mem::take(&mut self.peak);
        if retained || size <= capacity.base() || peak > (size / 4) as u64 {
            self.low = 0;
            return false;
        }
        self.low += 1;
        if self.low < Self::CHECKS {
            return false;
        }
        self.low = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_pd() {
        let max = |gib: u64| Capacity::for_memory(gib << 30).max();
        assert_eq!(
            [0, 1, 4, 5, 8, 9, 16, 17, 32, 512].map(max),
            [
                10_000, 10_000, 10_000, 20_000, 20_000, 40_000, 40_000, 80_000, 80_000, 80_000
            ]
        );
        assert_eq!(Capacity::for_memory(u64::MAX).max(), 80_000);
        assert_eq!(Capacity::default(), Capacity::growing(10_000, 80_000));
        assert_eq!(Capacity::growing(10_000, 79_999).max(), 40_000);
        assert_eq!(Capacity::growing(10_000, 5).max(), 10_000);
        assert_eq!(Capacity::growing(0, 0), Capacity::fixed(1));
        assert_eq!(Capacity::growing(3, usize::MAX).base(), 3);
    }

    #[test]
    fn more_than_half_doubles_what_is_needed() {
        let pd = Capacity::default();
        assert_eq!(pd.for_window(10_000, 0), 10_000);
        assert_eq!(pd.for_window(10_000, 5_000), 10_000);
        assert_eq!(pd.for_window(10_000, 5_001), 20_000);
        assert_eq!(pd.for_window(10_000, 10_001), 40_000);
        assert_eq!(pd.for_window(40_000, 5_001), 40_000, "never smaller");
        assert_eq!(pd.for_window(10_000, u64::MAX), 80_000);
        assert_eq!(Capacity::fixed(7).for_window(7, 100), 7);
    }

    #[test]
    fn segments_hold_the_capacity_and_little_more() {
        for size in [1, 2, 15, 16, 31, 32, 100, 1_000, 1_024, 10_000, 80_000] {
            let len = Capacity::fixed(size).segment_len();
            let kept = segments(size, len);
            assert!((kept - 1) * len + 1 >= size, "{size}");
            assert!(kept * len < size + 2 * len, "{size}");
            assert!(len == 1 || len <= size / 16, "{size}");
        }
    }
}
