//! Filling an empty map with all regions at once, with its index by id.

use tidegate_core::Region;

use crate::contender::{Contender, Lock, Locked, Ours, ParkingLot, Std};
use crate::fixture::Fixture;
use crate::round::{Lane, Row, Subject, Timing, alternate, timed};

/// `bulk_sorted` and `bulk_shuffled`, for one region: in the order of their keys, and in none.
/// The rivals insert one by one before they are locked.
#[must_use]
pub fn load(fixture: &Fixture, rounds: u64) -> Vec<Row> {
    let mut rows = measure("bulk_sorted", fixture, rounds, &|_| fixture.sorted());
    rows.extend(measure("bulk_shuffled", fixture, rounds, &|round| {
        fixture.shuffled(round)
    }));
    rows
}

fn measure(
    op: &'static str,
    fixture: &Fixture,
    rounds: u64,
    regions: &dyn Fn(u64) -> Vec<Region>,
) -> Vec<Row> {
    let lanes = vec![
        Lane::new(Ours::NAME, |round| one(regions(round), Ours::load_at_once)),
        Lane::new(Std::NAME, |round| one(regions(round), Locked::<Std>::load)),
        Lane::new(ParkingLot::NAME, |round| {
            one(regions(round), Locked::<ParkingLot>::load)
        }),
    ];
    let subject = Subject {
        op,
        regions: fixture.len(),
        threads: 1,
    };
    alternate(subject, rounds, lanes)
}

/// The map is dropped after the clock has stopped.
fn one<M>(regions: Vec<Region>, load: impl Fn(Vec<Region>) -> M) -> Timing {
    let mut loaded = None;
    timed(regions.len(), || loaded = Some(load(regions)))
}
