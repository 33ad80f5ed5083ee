//! Many changes at once.

use std::cell::Cell;

use tidegate_core::Region;

use super::Effort;
use crate::contender::{Contender, Ours};
use crate::fixture::Fixture;
use crate::round::{Lane, Row, Subject, alternate, timed};

/// Changes of one batch.
pub const BATCH: usize = 1_000;

/// The same changes one by one, each published by itself.
pub const ONE_BY_ONE: &str = "tidegate_update";

/// `batch1000`, for one change of a thousand that become visible together: regions drawn at
/// random, each of the same range with a new leader and epoch.
#[must_use]
pub fn batch(fixture: &Fixture, effort: Effort) -> Vec<Row> {
    let ours = Ours::load(fixture.shuffled(1));
    // Whichever lane begins, later changes have higher epochs.
    let change = Cell::new(0);
    let regions = || -> Vec<Region> {
        change.set(change.get() + 1);
        let picks = fixture.picks(effort.operations, change.get()).into_iter();
        picks
            .map(|index| fixture.region(index, change.get()))
            .collect()
    };
    let lanes = vec![
        Lane::new(Ours::NAME, |_| {
            let mut regions = regions().into_iter();
            let count = regions.len();
            let mut batches = Vec::with_capacity(count.div_ceil(BATCH));
            while regions.len() > 0 {
                batches.push(regions.by_ref().take(BATCH).collect::<Vec<_>>());
            }
            timed(count, || {
                batches.into_iter().for_each(|batch| ours.apply(batch))
            })
        }),
        Lane::new(ONE_BY_ONE, |_| {
            let regions = regions();
            timed(regions.len(), || {
                regions.into_iter().for_each(|region| ours.update(region))
            })
        }),
    ];
    let subject = Subject {
        op: "batch1000",
        regions: fixture.len(),
        threads: 1,
    };
    alternate(subject, effort.rounds, lanes)
}
