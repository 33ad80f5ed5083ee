//! The state word of an entry: marks, confirmations and the hand-over of a pin.
#![cfg(tidegate_loom)]

mod regions;

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use tidegate_core::entry::{
    Confirmed, Flagged, Invalidated, Pinned, Reload, ReloadTicket, Renewed, Ripened, Taken, Ttl,
};
use tidegate_core::{
    Batch, Entry, Expect, InvalidReason, Moment, Outcome, Provenance, RegionMap, SharedEntry,
};
use tidegate_loom_tests::model;

use regions::{STREAM, region};

const FOLLOWER: Provenance = Provenance::Follower {
    asked_at: Moment::from_nanos(1),
};

fn millis(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

fn entry() -> Arc<Entry> {
    Arc::new(Entry::new(region(1, "a", "z", 1), STREAM))
}

/// At 150 ms an access moves a deadline of 200 ms on.
const TTL: Ttl = Ttl::new(Duration::from_millis(100), Duration::from_millis(10));

fn leased_entry() -> Entry {
    Entry::new(region(1, "a", "z", 1), FOLLOWER).with_deadline(millis(200))
}

fn renew(entry: &Entry) -> Renewed {
    entry.word().renew(millis(150), TTL, || 0)
}

/// A map with region 1 in it, and its entry.
fn map_of(entry: Entry) -> (Arc<RegionMap>, SharedEntry) {
    let map = RegionMap::new();
    let mut batch = Batch::new();
    batch.put_entry(entry, Expect::Any);
    assert!(!map.apply(batch)[0].is_refused());
    let entry = live(&map);
    (Arc::new(map), entry)
}

fn live(map: &RegionMap) -> SharedEntry {
    map.pin().by_id(1).expect("still there").to_shared()
}

/// The same epoch again, and the PD leader did not say it.
fn replace(map: &RegionMap) {
    let outcome = map.put(region(1, "a", "z", 1), FOLLOWER);
    assert!(!outcome.is_refused());
}

/// Pins `entry`, or what has taken its place; returns whether it was the former.
fn pin(map: &RegionMap, entry: &Entry) -> bool {
    match entry.word().pin_to_leader() {
        Pinned::Superseded => {
            let new = live(map);
            assert!(!std::ptr::eq(&*new, entry), "the old entry again");
            assert_ne!(new.word().pin_to_leader(), Pinned::Superseded);
            false
        }
        pinned => {
            assert_eq!(pinned, Pinned::Done);
            true
        }
    }
}

/// Defends that marking is one compare-and-swap: exactly one marker is the
/// first, and its reason is what everyone sees.
#[test]
fn e1_the_first_reason_wins() {
    model("word::e1_the_first_reason_wins", || {
        let entry = entry();
        let other = Arc::clone(&entry);
        let thread = thread::spawn(move || other.word().invalidate(InvalidReason::NoLeader));
        let ours = entry
            .word()
            .invalidate_and_pin(InvalidReason::EpochNotMatch);
        let theirs = thread.join().unwrap();
        let first = entry.word().reason().expect("marked");
        match first {
            InvalidReason::NoLeader => {
                assert_eq!(theirs, Invalidated::Done);
                assert_eq!(ours, Invalidated::Already(first));
            }
            _ => {
                assert_eq!(ours, Invalidated::Done);
                assert_eq!(theirs, Invalidated::Already(first));
            }
        }
        assert!(entry.word().is_pinned(), "a pin is set whoever was first");
    });
}

/// Defends that the reason and the time share one word: a confirmation that
/// loses against a mark leaves no trace, and one that wins does not undo it.
#[test]
fn e2_a_confirmation_never_revives() {
    model("word::e2_a_confirmation_never_revives", || {
        let entry = entry();
        let other = Arc::clone(&entry);
        let thread = thread::spawn(move || other.word().confirm(millis(7)));
        let marked = entry.word().invalidate(InvalidReason::NoLeader);
        let confirmed = thread.join().unwrap();
        assert_eq!(marked, Invalidated::Done);
        let state = entry.word().load();
        assert_eq!(state.reason(), Some(InvalidReason::NoLeader), "revived");
        let at = match confirmed {
            Confirmed::Done => Some(millis(7)),
            _ => None,
        };
        assert_eq!(state.confirmed_at(), at);
    });
}

/// Defends the Release of a mark and the Acquire of `load`.
#[test]
fn a_mark_carries_what_its_marker_did() {
    model("word::a_mark_carries_what_its_marker_did", || {
        let entry = entry();
        let done = Arc::new(AtomicBool::new(false));
        let (seen, seen_done) = (Arc::clone(&entry), Arc::clone(&done));
        let thread = thread::spawn(move || {
            if seen.word().reason().is_some() {
                assert!(
                    seen_done.load(Ordering::Relaxed),
                    "a mark without its cause"
                );
            }
        });
        done.store(true, Ordering::Relaxed);
        let marked = entry.word().invalidate(InvalidReason::StoreNotFound);
        assert_eq!(marked, Invalidated::Done);
        thread.join().unwrap();
    });
}

/// Defends the Release of `supersede` and the Acquire of a marker: whichever of
/// the two comes first, the entry that remains is pinned. Without either, a
/// marker that is told to look again finds the old entry.
#[test]
fn e3_a_pin_meets_the_replacement_or_is_handed_to_it() {
    model(
        "word::e3_a_pin_meets_the_replacement_or_is_handed_to_it",
        || {
            let map = Arc::new(RegionMap::new());
            let _ = map.put(region(1, "a", "z", 1), FOLLOWER);
            let old = map.pin().by_id(1).expect("just put").to_shared();
            let (marked, marker_map) = (old.clone(), Arc::clone(&map));
            let marker = thread::spawn(move || match marked.word().pin_to_leader() {
                Pinned::Superseded => {
                    let snapshot = marker_map.pin();
                    let new = snapshot.by_id(1).expect("replaced, not removed");
                    assert!(
                        !std::ptr::eq(new.as_entry(), &*marked),
                        "the old entry again"
                    );
                    assert_eq!(new.word().pin_to_leader(), Pinned::Done);
                }
                pinned => assert_eq!(pinned, Pinned::Done),
            });
            // The same epoch again, and the PD leader did not say it.
            let outcome = map.put(region(1, "a", "z", 1), FOLLOWER);
            assert!(!outcome.is_refused());
            marker.join().unwrap();
            let live = map.pin().by_id(1).expect("still there").to_shared();
            assert!(!SharedEntry::ptr_eq(&live, &old));
            assert!(live.word().is_pinned(), "the pin was lost");
        },
    );
}

/// Defends the writer's look at the pin before it publishes: whoever sees the
/// replacement of a pinned entry sees it pinned.
#[test]
fn e3_a_replacement_is_pinned_from_the_first() {
    model("word::e3_a_replacement_is_pinned_from_the_first", || {
        let (map, old) = map_of(Entry::new(region(1, "a", "z", 1), FOLLOWER));
        assert_eq!(old.word().pin_to_leader(), Pinned::Done);
        let writer_map = Arc::clone(&map);
        let writer = thread::spawn(move || replace(&writer_map));
        assert!(live(&map).word().is_pinned(), "asks a follower again");
        writer.join().unwrap();
    });
}

/// Defends that an inheritance ends with the attempt to publish that it was made
/// for: who puts a region that is not there any more inherits nothing.
#[test]
fn e3_an_inheritance_ends_with_its_attempt() {
    model("word::e3_an_inheritance_ends_with_its_attempt", || {
        let (map, old) = map_of(Entry::new(region(1, "a", "z", 1), FOLLOWER));
        assert_eq!(old.word().pin_to_leader(), Pinned::Done);
        let remover_map = Arc::clone(&map);
        let remover = thread::spawn(move || {
            let mut batch = Batch::new();
            batch.remove(1, Expect::Any);
            remover_map.apply(batch)
        });
        let outcome = map.put(region(1, "a", "z", 1), FOLLOWER);
        let _ = remover.join().unwrap();
        if matches!(outcome, Outcome::Inserted { .. }) {
            assert!(!live(&map).word().is_pinned(), "pinned by nobody");
        } else {
            assert_eq!(outcome, Outcome::Replaced);
        }
    });
}

/// Defends the loop of a hand-over, and the Acquire of an heir: a pin that comes
/// down on an entry which has been replaced itself goes on to what is live.
#[test]
fn e3_a_pin_outlives_a_second_replacement() {
    model("word::e3_a_pin_outlives_a_second_replacement", || {
        let (map, old) = map_of(Entry::new(region(1, "a", "z", 1), FOLLOWER));
        let (marker_map, writer_map) = (Arc::clone(&map), Arc::clone(&map));
        let marker = thread::spawn(move || {
            // The second writer's turn has come or not: either replacement may be
            // the one that is found.
            if old.word().pin_to_leader() == Pinned::Superseded {
                while live(&marker_map).word().pin_to_leader() == Pinned::Superseded {
                    thread::yield_now();
                }
            }
        });
        let writer = thread::spawn(move || replace(&writer_map));
        replace(&map);
        marker.join().unwrap();
        writer.join().unwrap();
        assert!(live(&map).word().is_pinned(), "the pin was lost");
    });
}

/// Defends the Acquire of `supersede` and the Release of `inherit_pin`.
#[test]
fn an_inherited_pin_carries_what_its_marker_did() {
    model("word::an_inherited_pin_carries_what_its_marker_did", || {
        let (map, old) = map_of(Entry::new(region(1, "a", "z", 1), FOLLOWER));
        let cause = Arc::new(AtomicBool::new(false));
        let (marked, marker_cause) = (old.clone(), Arc::clone(&cause));
        let marker = thread::spawn(move || {
            marker_cause.store(true, Ordering::Relaxed);
            marked.word().pin_to_leader()
        });
        let writer_map = Arc::clone(&map);
        let writer = thread::spawn(move || replace(&writer_map));
        let found = live(&map);
        if !SharedEntry::ptr_eq(&found, &old) && found.word().is_pinned() {
            assert!(cause.load(Ordering::Relaxed), "a pin without its cause");
        }
        let _ = marker.join().unwrap();
        writer.join().unwrap();
    });
}

/// Defends that a renewal is one compare-and-swap with the reason in it: one that
/// loses against a mark leaves no trace, and one that wins does not undo it.
#[test]
fn e2_a_renewal_never_revives() {
    model("word::e2_a_renewal_never_revives", || {
        let entry = Arc::new(leased_entry());
        let other = Arc::clone(&entry);
        let thread = thread::spawn(move || renew(&other));
        let marked = entry.word().invalidate_and_pin(InvalidReason::NoLeader);
        assert_eq!(marked, Invalidated::Done);
        let renewed = thread.join().unwrap();
        let state = entry.word().load();
        assert_eq!(state.reason(), Some(InvalidReason::NoLeader), "revived");
        assert!(state.is_pinned());
        let deadline = match renewed {
            Renewed::Extended => TTL.deadline(millis(150), 0),
            other => {
                assert_eq!(other, Renewed::Invalid(InvalidReason::NoLeader));
                millis(200)
            }
        };
        assert_eq!(state.deadline(), Some(deadline));
    });
}

/// Defends that a renewal which was overtaken looks again before it writes.
#[test]
fn of_many_renewals_in_a_band_one_writes() {
    model("word::of_many_renewals_in_a_band_one_writes", || {
        let entry = Arc::new(leased_entry());
        let renewals = [(); 2].map(|()| {
            let entry = Arc::clone(&entry);
            thread::spawn(move || renew(&entry))
        });
        let mut told = vec![renew(&entry)];
        told.extend(renewals.map(|renewal| renewal.join().unwrap()));
        let written = told.iter().filter(|told| **told == Renewed::Extended);
        assert_eq!(written.count(), 1);
        assert!(told.iter().all(|told| told.is_good()));
    });
}

/// Defends that renewal, pin and supersession share one word: a renewal never
/// wipes out a pin, and after a replacement nothing moves on the old entry.
#[test]
fn e3_a_renewal_beside_a_replacement_loses_no_pin() {
    model(
        "word::e3_a_renewal_beside_a_replacement_loses_no_pin",
        || {
            let (map, old) = map_of(leased_entry());
            let (pinned, pinner_map) = (old.clone(), Arc::clone(&map));
            let pinner = thread::spawn(move || pin(&pinner_map, &pinned));
            let renewed = old.clone();
            let renewer = thread::spawn(move || renew(&renewed));
            replace(&map);
            let on_old = pinner.join().unwrap();
            let renewed = renewer.join().unwrap();
            assert!(live(&map).word().is_pinned(), "the pin was lost");
            let state = old.word().load();
            assert!(state.is_superseded());
            assert_eq!(state.is_pinned(), on_old);
            let moved = state.deadline() != Some(millis(200));
            match renewed {
                Renewed::Extended => assert!(moved),
                other => {
                    assert_eq!(other, Renewed::Superseded);
                    assert!(!moved);
                }
            }
        },
    );
}

/// Defends that invalidating with a pin is one step: whoever replaces the entry
/// hands the pin down, or the marker is told to look again.
#[test]
fn e3_a_mark_beside_a_replacement_loses_no_pin() {
    model("word::e3_a_mark_beside_a_replacement_loses_no_pin", || {
        let (map, old) = map_of(leased_entry());
        let (marked, marker_map) = (old.clone(), Arc::clone(&map));
        let marker = thread::spawn(move || {
            let reason = InvalidReason::EpochNotMatch;
            let told = marked.word().invalidate_and_pin(reason);
            if told == Invalidated::Superseded {
                assert_ne!(live(&marker_map).word().pin_to_leader(), Pinned::Superseded);
            }
            told
        });
        let renewed = old.clone();
        let renewer = thread::spawn(move || renew(&renewed));
        replace(&map);
        let told = marker.join().unwrap();
        let _ = renewer.join().unwrap();
        assert!(live(&map).word().is_pinned(), "the pin was lost");
        let reason = (told == Invalidated::Done).then_some(InvalidReason::EpochNotMatch);
        assert_eq!(old.word().reason(), reason);
        assert_eq!(live(&map).word().reason(), None, "a new entry is valid");
    });
}

/// Defends that taking a reload is one compare-and-swap: one of two takes it, and
/// a flag that is set meanwhile is either part of what was taken or still there.
#[test]
fn a_reload_is_taken_once_and_none_is_lost() {
    model("word::a_reload_is_taken_once_and_none_is_lost", || {
        let entry = entry();
        assert_eq!(entry.word().reload_on_access(), Flagged::Done);
        let takers = [(); 2].map(|()| {
            let entry = Arc::clone(&entry);
            thread::spawn(move || entry.word().take_reload())
        });
        let asked = entry.word().reload_on_access();
        let told = takers.map(|taker| taker.join().unwrap());
        let taken = told
            .iter()
            .filter(|told| **told == Taken::Reload(Reload::OnAccess))
            .count();
        let left = usize::from(entry.word().load().reload().is_some());
        let set = match asked {
            Flagged::Done => 2,
            other => {
                assert_eq!(other, Flagged::Already);
                1
            }
        };
        assert_eq!(taken + left, set);
    });
}

/// Defends that a reload which failed is restored beside whatever else happens to
/// the flags: in the end somebody will reload.
#[test]
fn a_failed_reload_is_asked_for_again() {
    model("word::a_failed_reload_is_asked_for_again", || {
        let entry = SharedEntry::new(Entry::new(region(1, "a", "z", 1), STREAM));
        assert_eq!(entry.word().delay_reload(), Flagged::Done);
        let (swept, reloaded) = (entry.clone(), entry.clone());
        let sweeper = thread::spawn(move || swept.word().ripen_delayed_reload());
        let reloader = thread::spawn(move || drop(ReloadTicket::take(&reloaded)));
        let asked = entry.word().reload_on_access();
        reloader.join().unwrap();
        assert_eq!(asked, Flagged::Done);
        assert_eq!(sweeper.join().unwrap(), Ripened::Done);
        // Whichever of the two was taken and restored, the other was set.
        let state = entry.word().load();
        assert!(state.reload().is_some(), "nobody will reload");
        assert!(!state.is_reload_pending());
    });
}

/// Defends the Acquire of a successful compare-and-swap: the flag that was loaded
/// may have been taken and set again before it is taken, for another reason.
#[test]
fn a_taken_reload_carries_why_it_was_asked_for() {
    model("word::a_taken_reload_carries_why_it_was_asked_for", || {
        let entry = entry();
        let cause = Arc::new(AtomicBool::new(false));
        assert_eq!(entry.word().reload_on_access(), Flagged::Done);
        let (other, other_cause) = (Arc::clone(&entry), Arc::clone(&cause));
        let thread = thread::spawn(move || {
            let first = other.word().take_reload();
            other_cause.store(true, Ordering::Relaxed);
            let _ = other.word().reload_on_access();
            first
        });
        let second = entry.word().take_reload();
        let seen = cause.load(Ordering::Relaxed);
        let first = thread.join().unwrap();
        if first != Taken::Nothing && second != Taken::Nothing {
            assert!(seen, "taken, but not seen why");
        }
    });
}
