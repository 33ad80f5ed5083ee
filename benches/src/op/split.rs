//! Splitting and merging.

use super::Effort;
use crate::contender::Runs;
use crate::fixture::Fixture;
use crate::round::{Lane, Row, Subject, alternate, lead_in, timed};

/// `split_merge`: one of a split of a region drawn at random and the merge that follows, each of them
/// published at once by the map and behind a lock. The rivals without a lock make two changes of each,
/// and one more of their index by id. Regions are made before the clock starts.
#[must_use]
pub fn split_merge(fixture: &Fixture, contenders: &[Box<dyn Runs>], effort: Effort) -> Vec<Row> {
    let count = (effort.operations / 2).max(1);
    let lanes = contenders.iter().map(|contender| {
        Lane::new(contender.name(), move |round| {
            let picks = fixture.picks(count, round);
            let splits = picks.into_iter().enumerate();
            // Each above those before it, of the same region or not.
            let first = 1 + round * count as u64;
            let splits = splits.map(|(at, index)| fixture.split(index, first + at as u64));
            let (first, splits) = lead_in(splits.collect());
            contender.splits(first);
            timed(2 * splits.len(), || contender.splits(splits))
        })
    });
    let subject = Subject {
        op: "split_merge",
        regions: fixture.len(),
        threads: 1,
    };
    alternate(subject, effort.rounds, lanes.collect())
}
