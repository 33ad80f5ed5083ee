//! Many keys at once.

use std::hint::black_box;

use super::Effort;
use crate::contender::{Contender, Ours};
use crate::fixture::Fixture;
use crate::round::{Lane, Row, Subject, alternate, lead_in, timed};
use crate::row_key::RowKey;

/// Keys that are looked up together.
pub const TOGETHER: usize = 16;

/// The same keys one by one, each under a guard of its own.
pub const ONE_BY_ONE: &str = "tidegate_get";

/// `get_many16`, for one key of sixteen that are looked up together.
#[must_use]
pub fn get_many(fixture: &Fixture, effort: Effort) -> Vec<Row> {
    let ours = Ours::load(fixture.shuffled(1));
    let queries = |round: u64| fixture.queries(effort.operations, round);
    let together = |keys: &[RowKey]| {
        keys.chunks(TOGETHER)
            .fold(0u64, |sum, keys| sum.wrapping_add(ours.get_many(keys)))
    };
    let one_by_one = |keys: &[RowKey]| {
        keys.iter()
            .fold(0u64, |sum, key| sum.wrapping_add(ours.get(key)))
    };
    let lanes = vec![
        Lane::new(Ours::NAME, |round| {
            let (first, keys) = lead_in(queries(round));
            black_box(together(&first));
            timed(keys.len(), || together(&keys))
        }),
        Lane::new(ONE_BY_ONE, |round| {
            let (first, keys) = lead_in(queries(round));
            black_box(one_by_one(&first));
            timed(keys.len(), || one_by_one(&keys))
        }),
    ];
    let subject = Subject {
        op: "get_many16",
        regions: fixture.len(),
        threads: 1,
    };
    alternate(subject, effort.rounds, lanes)
}
