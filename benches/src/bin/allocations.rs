//! Counts what the operations that must not allocate do allocate.

use std::hint::black_box;
use std::process::ExitCode;

use allocation_counter::measure;
use tidegate_benches::contender::{Contender, Ours, digest};
use tidegate_benches::fixture::Fixture;
use tidegate_benches::op::decision::{decide, open_gate};
use tidegate_core::clock::{BootClock, Clock};
use tidegate_core::entry::Ttl;
use tidegate_core::gate::Thresholds;
use tidegate_core::{Entry, InvalidReason, Moment, Provenance};

const REGIONS: usize = 10_000;
const TIMES: usize = 10_000;
const RECEIVED: Provenance = Provenance::Stream {
    received_at: Moment::from_nanos(1),
};

fn main() -> ExitCode {
    let fixture = Fixture::new(REGIONS);
    let ours = Ours::load(fixture.shuffled(1));
    let map = ours.map();
    let keys = fixture.queries(TIMES, 1);
    let limits = Thresholds::default().into();
    let gate = open_gate();
    let leased: Vec<Entry> = (0..TIMES)
        .map(|index| Entry::new(fixture.region(index % REGIONS, 0), RECEIVED))
        .map(|entry| entry.with_deadline(Moment::from_nanos(1_000_000_000_000)))
        .collect();
    // The first guard of a thread registers it with the reclaimer.
    drop(map.pin());

    let check = |op: &str, run: &dyn Fn()| {
        let count = measure(run).count_total;
        println!("{op:<10} {count} allocations in {TIMES} operations");
        count == 0
    };
    let results = [
        check("get", &|| {
            keys.iter().for_each(|key| {
                black_box(ours.get(key));
            })
        }),
        check("prev", &|| {
            for key in &keys {
                black_box(map.pin().prev(key).map(|entry| digest(entry.region())));
            }
        }),
        check("get_many16", &|| {
            for keys in keys.chunks(16) {
                black_box(ours.get_many(keys));
            }
        }),
        check("scan64", &|| {
            for key in keys.iter().step_by(64) {
                black_box(ours.scan(key, 64));
                black_box(map.pin().scan(&[], key).rev().take(64).count());
            }
        }),
        check("by_id", &|| {
            for index in 0..TIMES {
                black_box(ours.by_id(fixture.id(index % REGIONS)));
            }
        }),
        check("confirm", &|| {
            for key in &keys {
                if let Some(entry) = map.pin().get(key) {
                    let _ = entry.word().confirm(Moment::from_nanos(1_000_000));
                }
            }
        }),
        check("renew", &|| {
            for (seconds, entry) in (0..).zip(&leased) {
                let now = Moment::from_nanos(seconds * 1_000_000_000);
                let _ = black_box(entry.word().renew(now, Ttl::DEFAULT, || 7));
            }
        }),
        check("mark", &|| {
            for key in &keys {
                if let Some(entry) = map.pin().get(key) {
                    let _ = entry.word().invalidate(InvalidReason::EpochNotMatch);
                }
            }
        }),
        check("gate", &|| {
            for _ in 0..TIMES {
                black_box(BootClock.now());
                black_box(decide(&gate, &limits));
            }
        }),
    ];
    if results.into_iter().all(|none| none) {
        println!("holds: nothing is allocated");
        ExitCode::SUCCESS
    } else {
        println!("FAILS: something is allocated");
        ExitCode::FAILURE
    }
}
