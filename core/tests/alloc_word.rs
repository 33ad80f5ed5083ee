//! Marking, renewing and reloading an entry allocate nothing.
#![cfg(not(tidegate_loom))]

mod counting;

use std::time::Duration;

use counting::calls_during;
use tidegate_core::entry::{
    Confirmed, Flagged, Invalidated, Pinned, ReloadTicket, Renewed, Ripened, Ttl,
};
use tidegate_core::{
    Entry, InvalidReason, KeyRange, Moment, Provenance, Region, RegionEpoch, SharedEntry,
};

const TTL: Ttl = Ttl::new(Duration::from_millis(100), Duration::from_millis(10));

fn millis(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

fn entries() -> Vec<Entry> {
    let entry = |id| {
        let region = Region::builder(id, KeyRange::all(), RegionEpoch::new(1, 2));
        let asked_at = millis(1);
        let region = region.build().expect("an id");
        Entry::new(region, Provenance::Follower { asked_at })
    };
    (1..=1_000).map(entry).collect()
}

fn leased_entries() -> Vec<SharedEntry> {
    let lease = |entry: Entry| entry.with_deadline(millis(150)).into();
    entries().into_iter().map(lease).collect()
}

#[test]
fn marks_allocate_nothing() {
    let entries = entries();
    let calls = calls_during(|| {
        for entry in &entries {
            let word = entry.word();
            assert_eq!(word.confirm(millis(5)), Confirmed::Done);
            assert_eq!(word.pin_to_leader(), Pinned::Done);
            let reason = InvalidReason::NoLeader;
            assert_eq!(word.invalidate(reason), Invalidated::Done);
            let again = word.invalidate_and_pin(InvalidReason::Other);
            assert_eq!(again, Invalidated::Already(reason));
            assert!(!word.load().is_usable(millis(5)));
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn renewals_allocate_nothing() {
    let entries = leased_entries();
    let calls = calls_during(|| {
        for entry in &entries {
            let renew = |now| entry.word().renew(millis(now), TTL, || 7);
            assert_eq!(renew(50), Renewed::InBand);
            assert_eq!(renew(60), Renewed::Extended);
            assert_eq!(entry.word().expire_after_ttl(), Flagged::Done);
            assert_eq!(renew(100), Renewed::Fixed);
            assert_eq!(renew(999), Renewed::Expired);
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn reloads_allocate_nothing() {
    let entries = leased_entries();
    let calls = calls_during(|| {
        for entry in &entries {
            assert!(ReloadTicket::take(entry).is_none());
            assert_eq!(entry.word().delay_reload(), Flagged::Done);
            assert_eq!(entry.word().ripen_delayed_reload(), Ripened::Done);
            drop(ReloadTicket::take(entry));
            ReloadTicket::take(entry).expect("restored").done();
            assert_eq!(entry.word().reload_on_access(), Flagged::Done);
        }
    });
    assert_eq!(calls, 0);
}
