//! The state word: invalidating, confirming and renewing an entry.

use std::hint::black_box;
use std::time::Duration;

use tidegate_core::entry::{Renewed, Ttl};
use tidegate_core::{Batch, Entry, EntryRef, Expect, InvalidReason, Moment, Provenance, RegionMap};

use super::Effort;
use crate::contender::{Contender, Ours};
use crate::fixture::Fixture;
use crate::round::{Lane, Row, Subject, Timing, alternate, timed};

const AT_HAND: usize = 64;
const LOADED_AT: Moment = Moment::from_nanos(1_000_000);

/// `mark`: invalidating a valid entry; `confirm`: stamping one with the leader's word. Entries
/// are looked up before the clock starts, and each is marked once.
#[must_use]
pub fn mark(fixture: &Fixture, effort: Effort) -> Vec<Row> {
    let subject = |op| subject(op, fixture);
    let marks = Lane::new(Ours::NAME, |_| {
        let ours = Ours::load(fixture.sorted());
        once_each(ours.map(), |entry| {
            let _ = entry.word().invalidate(InvalidReason::EpochNotMatch);
        })
    });
    let mut rows = alternate(subject("mark"), effort.rounds, vec![marks]);
    let confirms = Lane::new(Ours::NAME, |_| {
        let ours = Ours::load(fixture.sorted());
        once_each(ours.map(), |entry| {
            let _ = entry.word().confirm(Moment::from_nanos(1_000_000));
        })
    });
    rows.extend(alternate(subject("confirm"), effort.rounds, vec![confirms]));
    rows
}

/// `renew`: an access to an entry whose deadline is in its band, so that nothing is written: 64
/// entries at hand, over and over, as a lookup has just read them. `renew_due`: one that moves the
/// deadline on, once for each entry.
#[must_use]
pub fn renew(fixture: &Fixture, effort: Effort) -> Vec<Row> {
    let ttl = Ttl::DEFAULT;
    let renew = |entry: EntryRef<'_>, seconds: u64, expected: Renewed| {
        let now = LOADED_AT.saturating_add(Duration::from_secs(seconds));
        let renewed = entry.word().renew(black_box(now), ttl, || 0);
        assert!(renewed == expected, "{renewed:?}");
    };
    let in_band = Lane::new(Ours::NAME, |_| {
        let map = leased(fixture, ttl);
        let snapshot = map.pin();
        let entries: Vec<EntryRef<'_>> = snapshot.iter().take(AT_HAND).collect();
        let operations = effort.operations.next_multiple_of(AT_HAND);
        timed(operations, || {
            for _ in 0..operations / AT_HAND {
                for entry in &entries {
                    renew(*entry, 30, Renewed::InBand);
                }
            }
        })
    });
    let due = Lane::new(Ours::NAME, |_| {
        let map = leased(fixture, ttl);
        once_each(&map, |entry| renew(entry, 300, Renewed::Extended))
    });
    let mut rows = alternate(subject("renew", fixture), effort.rounds, vec![in_band]);
    let due_rows = alternate(subject("renew_due", fixture), effort.rounds, vec![due]);
    rows.extend(due_rows);
    rows
}

fn subject(op: &'static str, fixture: &Fixture) -> Subject {
    Subject {
        op,
        regions: fixture.len(),
        threads: 1,
    }
}

/// A client's map: its entries have deadlines.
fn leased(fixture: &Fixture, ttl: Ttl) -> RegionMap {
    let map = RegionMap::new();
    let mut batch = Batch::with_capacity(fixture.len());
    let provenance = Provenance::Follower {
        asked_at: LOADED_AT,
    };
    for region in fixture.sorted() {
        let entry = Entry::new(region, provenance);
        let entry = entry.with_deadline(ttl.deadline(LOADED_AT, 0));
        batch.put_entry(entry, Expect::Any);
    }
    let outcomes = map.apply(batch);
    assert!(!outcomes.iter().any(|outcome| outcome.is_refused()));
    map
}

/// Changes each entry once, a thousand at a time that have just been read: who marks an entry has
/// it at hand.
fn once_each(map: &RegionMap, change: impl Fn(EntryRef<'_>)) -> Timing {
    let snapshot = map.pin();
    let entries: Vec<EntryRef<'_>> = snapshot.iter().collect();
    let portions = entries.chunks(1_000).map(|portion| {
        for entry in portion {
            black_box(entry.word().load());
        }
        timed(portion.len(), || {
            portion.iter().for_each(|entry| change(*entry));
        })
    });
    portions.sum()
}
