//! Reading: by key, on one thread and on two, by id, and whole ranges.

use std::hint::black_box;

use super::floor::Floor;
use super::{Effort, LONGEST};
use crate::contender::{Contender, LockedHashMap, Ours, Runs};
use crate::fixture::Fixture;
use crate::round::{
    Lane, Row, Subject, alternate, lead_in, timed, timed_as_done, together, within,
};
use crate::row_key::RowKey;

/// Regions of one scan.
pub const SCAN: usize = 64;

/// So many operations make one scan: enough of them that a map of 10,000 regions is read several
/// times over, and what is measured is not how it comes into the cache.
const SHARE: usize = 4;

/// Lookups between two glances at the clock.
const CHUNK: usize = 1_024;

/// `get`, and `get_2r` on two threads: the region that holds a key. Beside `get` runs its floor.
#[must_use]
pub fn get(fixture: &Fixture, contenders: &[Box<dyn Runs>], effort: Effort) -> Vec<Row> {
    let queries =
        |round: u64, thread: usize| fixture.queries(effort.operations, 2 * round + thread as u64);
    let sets: Vec<[Vec<RowKey>; 2]> = (0..=effort.rounds)
        .map(|round| [queries(round, 0), queries(round, 1)])
        .collect();

    let alone = contenders.iter().map(|contender| {
        Lane::new(contender.name(), |round| {
            let (first, keys) = lead_in(sets[round as usize][0].clone());
            black_box(contender.gets(&first));
            timed(keys.len(), || contender.gets(&keys))
        })
    });
    let floor = Floor::beside(fixture.len());
    let floor = Lane::new(Floor::NAME, move |round| {
        let (first, queries) = lead_in(floor.queries(effort.operations, round));
        black_box(floor.gets(&first));
        timed(queries.len(), || floor.gets(&queries))
    });
    let lanes = alone.chain([floor]).collect();
    let mut rows = alternate(subject("get", fixture, 1), effort.rounds, lanes);

    let in_twos = contenders.iter().map(|contender| {
        Lane::new(contender.name(), |round| {
            let keys = &sets[round as usize];
            let look_up = |keys: &[RowKey]| {
                black_box(contender.gets(keys));
                keys.len()
            };
            together(2, |thread| {
                let (first, keys) = lead_in(keys[thread].clone());
                look_up(&first);
                timed_as_done(|| within(LONGEST, keys.chunks(CHUNK), look_up))
            })
        })
    });
    rows.extend(alternate(
        subject("get_2r", fixture, 2),
        effort.rounds,
        in_twos.collect(),
    ));
    rows
}

/// `scan64`: a range of 64 regions, for a whole scan.
#[must_use]
pub fn scan(fixture: &Fixture, contenders: &[Box<dyn Runs>], effort: Effort) -> Vec<Row> {
    let scans = (effort.operations / SHARE).max(1);
    let lanes = contenders.iter().map(|contender| {
        Lane::new(contender.name(), move |round| {
            let (first, keys) = lead_in(fixture.queries(scans, round));
            black_box(contender.scans(&first, SCAN));
            timed(keys.len(), || contender.scans(&keys, SCAN))
        })
    });
    alternate(
        subject("scan64", fixture, 1),
        effort.rounds,
        lanes.collect(),
    )
}

/// `by_id`: the region with an id.
#[must_use]
pub fn by_id(fixture: &Fixture, effort: Effort) -> Vec<Row> {
    let ours = Ours::load(fixture.shuffled(1));
    let rival = LockedHashMap::load(fixture.shuffled(1));
    let ids = |round: u64| -> Vec<u64> {
        fixture
            .picks(effort.operations, round)
            .into_iter()
            .map(|index| fixture.id(index))
            .collect()
    };
    let sum = |ids: &[u64], read: &dyn Fn(u64) -> u64| {
        ids.iter().fold(0u64, |sum, &id| sum.wrapping_add(read(id)))
    };
    let lanes = vec![
        Lane::new(Ours::NAME, |round| {
            let (first, ids) = lead_in(ids(round));
            black_box(sum(&first, &|id| ours.by_id(id)));
            timed(ids.len(), || sum(&ids, &|id| ours.by_id(id)))
        }),
        Lane::new(LockedHashMap::NAME, |round| {
            let (first, ids) = lead_in(ids(round));
            black_box(sum(&first, &|id| rival.by_id(id)));
            timed(ids.len(), || sum(&ids, &|id| rival.by_id(id)))
        }),
    ];
    alternate(subject("by_id", fixture, 1), effort.rounds, lanes)
}

fn subject(op: &'static str, fixture: &Fixture, threads: usize) -> Subject {
    Subject {
        op,
        regions: fixture.len(),
        threads,
    }
}
