//! The state word: invalidating an entry, and confirming one.

use tidegate_core::{EntryRef, InvalidReason, Moment};

use super::Effort;
use crate::contender::{Contender, Ours};
use crate::fixture::Fixture;
use crate::round::{Lane, Row, Subject, Timing, alternate, timed};

/// `mark`: invalidating a valid entry; `confirm`: stamping one with the leader's word. Entries
/// are looked up before the clock starts, and each is marked once.
#[must_use]
pub fn mark(fixture: &Fixture, effort: Effort) -> Vec<Row> {
    let subject = |op| Subject {
        op,
        regions: fixture.len(),
        threads: 1,
    };
    let marks = Lane::new(Ours::NAME, |_| {
        on_fresh_entries(fixture, |entry| {
            let _ = entry.word().invalidate(InvalidReason::EpochNotMatch);
        })
    });
    let mut rows = alternate(subject("mark"), effort.rounds, vec![marks]);
    let confirms = Lane::new(Ours::NAME, |_| {
        on_fresh_entries(fixture, |entry| {
            let _ = entry.word().confirm(Moment::from_nanos(1_000_000));
        })
    });
    rows.extend(alternate(subject("confirm"), effort.rounds, vec![confirms]));
    rows
}

fn on_fresh_entries(fixture: &Fixture, change: impl Fn(EntryRef<'_>)) -> Timing {
    let ours = Ours::load(fixture.sorted());
    let snapshot = ours.map().pin();
    let entries: Vec<EntryRef<'_>> = snapshot.iter().collect();
    timed(entries.len(), || {
        entries.iter().for_each(|entry| change(*entry))
    })
}
