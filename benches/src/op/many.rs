//! Many keys at once.

use super::Effort;
use crate::contender::{Contender, Ours};
use crate::fixture::Fixture;
use crate::round::{Lane, Row, Subject, alternate, timed};

/// Keys that are looked up together.
pub const TOGETHER: usize = 16;

/// The same keys one by one, each under a guard of its own.
pub const ONE_BY_ONE: &str = "tidegate_get";

/// `get_many16`, for one key of sixteen that are looked up together.
#[must_use]
pub fn get_many(fixture: &Fixture, effort: Effort) -> Vec<Row> {
    let ours = Ours::load(fixture.shuffled(1));
    let queries = |round: u64| fixture.queries(effort.operations, round);
    let lanes = vec![
        Lane::new(Ours::NAME, |round| {
            let keys = queries(round);
            timed(keys.len(), || {
                keys.chunks(TOGETHER)
                    .fold(0u64, |sum, keys| sum.wrapping_add(ours.get_many(keys)))
            })
        }),
        Lane::new(ONE_BY_ONE, |round| {
            let keys = queries(round);
            timed(keys.len(), || {
                keys.iter()
                    .fold(0u64, |sum, key| sum.wrapping_add(ours.get(key)))
            })
        }),
    ];
    let subject = Subject {
        op: "get_many16",
        regions: fixture.len(),
        threads: 1,
    };
    alternate(subject, effort.rounds, lanes)
}
