//! Writing in place: a region of the same range with another region leader and a newer epoch.

use super::Effort;
use crate::contender::Runs;
use crate::fixture::Fixture;
use crate::round::{Lane, Row, Subject, alternate, lead_in, timed};

/// `update`: one change, published at once. Regions are made before the clock starts.
#[must_use]
pub fn update(fixture: &Fixture, contenders: &[Box<dyn Runs>], effort: Effort) -> Vec<Row> {
    let lanes = contenders.iter().map(|contender| {
        Lane::new(contender.name(), move |round| {
            let picks = fixture.picks(effort.operations, round).into_iter();
            let regions = picks.map(|index| fixture.region(index, round + 1));
            let (first, regions) = lead_in(regions.collect());
            contender.updates(first);
            timed(regions.len(), || contender.updates(regions))
        })
    });
    let subject = Subject {
        op: "update",
        regions: fixture.len(),
        threads: 1,
    };
    alternate(subject, effort.rounds, lanes.collect())
}
