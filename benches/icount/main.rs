//! Instructions of a hundred operations each, as callgrind counts them.
#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    reason = "the macros' code is not written by this project's rules"
)]

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group, main};
use tidegate_benches::contender::{Contender, Ours, Runs, Split};
use tidegate_benches::fixture::Fixture;
use tidegate_benches::op::decision::{decide, open_gate};
use tidegate_benches::row_key::RowKey;
use tidegate_core::entry::Ttl;
use tidegate_core::gate::{Gate, Thresholds};
use tidegate_core::history::{Appender, History, history};
use tidegate_core::{Entry, InvalidReason, Moment, Provenance, Region};

const REGIONS: usize = 10_000;
const TIMES: usize = 100;

fn loaded() -> (Ours, Vec<RowKey>) {
    let fixture = Fixture::new(REGIONS);
    let ours = Ours::load(fixture.shuffled(1));
    let keys = fixture.queries(TIMES, 1);
    // The first guard of a thread registers it with the reclaimer.
    black_box(ours.get(&keys[0]));
    (ours, keys)
}

fn with_ids() -> (Ours, Vec<u64>) {
    let fixture = Fixture::new(REGIONS);
    let ids = fixture
        .picks(TIMES, 1)
        .into_iter()
        .map(|index| fixture.id(index))
        .collect();
    (loaded().0, ids)
}

fn with_changes() -> (Ours, Vec<Region>) {
    let fixture = Fixture::new(REGIONS);
    let picks = fixture.picks(TIMES, 1).into_iter();
    (
        loaded().0,
        picks.map(|index| fixture.region(index, 1)).collect(),
    )
}

fn with_splits() -> (Ours, Vec<Split>) {
    let fixture = Fixture::new(REGIONS);
    let picks = fixture.picks(TIMES / 2, 1).into_iter();
    // Each is two operations.
    (
        loaded().0,
        picks.map(|index| fixture.split(index, 1)).collect(),
    )
}

// What a benchmark was given it gives back: dropping it is not what is counted.

#[library_benchmark]
#[bench::regions_10k(loaded())]
fn get((ours, keys): (Ours, Vec<RowKey>)) -> (Ours, u64) {
    let sum = keys
        .iter()
        .fold(0u64, |sum, key| sum.wrapping_add(ours.get(key)));
    (ours, black_box(sum))
}

#[library_benchmark]
#[bench::regions_10k(loaded())]
fn prev((ours, keys): (Ours, Vec<RowKey>)) -> (Ours, u64) {
    let prev = |key: &RowKey| ours.map().pin().prev(key).map_or(0, |entry| entry.id());
    let sum = keys
        .iter()
        .fold(0u64, |sum, key| sum.wrapping_add(prev(key)));
    (ours, black_box(sum))
}

#[library_benchmark]
#[bench::regions_10k(loaded())]
fn get_many16((ours, keys): (Ours, Vec<RowKey>)) -> (Ours, u64) {
    let sums = keys.chunks(16).map(|keys| ours.get_many(keys));
    let sum = sums.fold(0u64, u64::wrapping_add);
    (ours, black_box(sum))
}

#[library_benchmark]
#[bench::regions_10k(with_ids())]
fn by_id((ours, ids): (Ours, Vec<u64>)) -> (Ours, u64) {
    let sum = ids
        .iter()
        .fold(0u64, |sum, &id| sum.wrapping_add(ours.by_id(id)));
    (ours, black_box(sum))
}

#[library_benchmark]
#[bench::regions_10k(loaded())]
fn scan64((ours, keys): (Ours, Vec<RowKey>)) -> (Ours, u64) {
    let sum = keys
        .iter()
        .fold(0u64, |sum, key| sum.wrapping_add(ours.scan(key, 64)));
    (ours, black_box(sum))
}

#[library_benchmark]
#[bench::regions_10k(with_changes())]
fn update((ours, regions): (Ours, Vec<Region>)) -> Ours {
    for region in regions {
        ours.update(region);
    }
    ours
}

#[library_benchmark]
#[bench::regions_10k(with_splits())]
fn split_merge((ours, splits): (Ours, Vec<Split>)) -> Ours {
    ours.splits(splits);
    ours
}

#[library_benchmark]
#[bench::regions_10k(with_changes())]
fn apply_frame((ours, regions): (Ours, Vec<Region>)) -> Ours {
    ours.apply(regions);
    ours
}

#[library_benchmark]
#[bench::open(open_gate())]
fn gate(gate: Gate) -> (Gate, bool) {
    let limits = Thresholds::default().into();
    let served = (0..TIMES).all(|_| decide(black_box(&gate), &limits));
    (gate, black_box(served))
}

#[library_benchmark]
#[bench::capacity_1k(history::<[u64; 8]>(1_000, 1))]
fn ring_push(
    (mut appender, reader): (Appender<[u64; 8]>, History<[u64; 8]>),
) -> (Appender<[u64; 8]>, History<[u64; 8]>) {
    for n in 0..TIMES as u64 {
        appender.append(black_box([n; 8]));
    }
    (appender, reader)
}

/// Entries with deadlines.
fn entries() -> Vec<Entry> {
    let fixture = Fixture::new(TIMES);
    let asked_at = Moment::from_nanos(1);
    let provenance = Provenance::Follower { asked_at };
    (0..TIMES)
        .map(|index| Entry::new(fixture.region(index, 0), provenance))
        .map(|entry| entry.with_deadline(Ttl::DEFAULT.deadline(asked_at, 0)))
        .collect()
}

#[library_benchmark]
#[bench::valid(entries())]
fn mark(entries: Vec<Entry>) -> Vec<Entry> {
    for entry in &entries {
        let _ = black_box(entry.word().invalidate(InvalidReason::EpochNotMatch));
    }
    entries
}

#[library_benchmark]
#[bench::in_band(entries(), 30)]
#[bench::due(entries(), 300)]
fn renew(entries: Vec<Entry>, seconds: u64) -> Vec<Entry> {
    let now = Moment::from_nanos(seconds * 1_000_000_000);
    for entry in &entries {
        let _ = black_box(entry.word().renew(black_box(now), Ttl::DEFAULT, || 0));
    }
    entries
}

library_benchmark_group!(
    name = operations,
    benchmarks = [
        get,
        get_many16,
        prev,
        by_id,
        scan64,
        update,
        split_merge,
        apply_frame,
        gate,
        ring_push,
        mark,
        renew
    ]
);
main!(library_benchmark_groups = operations);
