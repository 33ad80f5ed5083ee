//! What a lookup cannot be faster than: two cache misses, the second of which depends on the first.

use std::hint::black_box;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// Bytes of leaves for each region: those nine lines of a leaf that a search reads, for 56 regions.
const LEAF_BYTES: usize = 12;
/// Bytes of an entry for each region, with its count.
const ENTRY_BYTES: usize = 192;

/// A cache line.
#[derive(Copy, Clone, Debug)]
#[repr(align(64))]
struct Line(u64);

/// Lines as large together as the leaves of a map, each of which leads to one among lines as large as
/// its entries.
#[derive(Debug)]
pub struct Floor {
    leaves: Vec<Line>,
    entries: Vec<Line>,
}

impl Floor {
    /// Name in the table.
    pub const NAME: &'static str = "two_miss_floor";

    /// The floor beside a map of so many regions.
    #[must_use]
    pub fn beside(regions: usize) -> Self {
        let lines = |bytes: usize| (regions * bytes).div_ceil(size_of::<Line>()).max(1);
        let (leaves, entries) = (lines(LEAF_BYTES), lines(ENTRY_BYTES));
        let mut random = SmallRng::seed_from_u64(regions as u64);
        let mut targets: Vec<u64> = (0..entries as u64).collect();
        targets.shuffle(&mut random);
        Self {
            leaves: targets.iter().copied().take(leaves).map(Line).collect(),
            entries: (0..entries)
                .map(|_| Line(random.random_range(0..1 << 32)))
                .collect(),
        }
    }

    /// Places to begin with.
    #[must_use]
    pub fn queries(&self, count: usize, seed: u64) -> Vec<usize> {
        let mut random = SmallRng::seed_from_u64(seed);
        (0..count)
            .map(|_| random.random_range(0..self.leaves.len()))
            .collect()
    }

    /// Follows every query over its two lines. Each waits for the one before, or the processor would
    /// have several under way, which the instructions of a lookup do not let it.
    #[must_use]
    pub fn gets(&self, queries: &[usize]) -> u64 {
        queries.iter().fold(0, |last, query| {
            // Always zero, which the processor cannot know.
            let waits = (black_box(last) >> 40) as usize;
            let target = self.leaves[query + waits].0 as usize;
            self.entries[target].0
        })
    }
}
