//! The state word of an entry: marks, confirmations and the hand-over of a pin.
#![cfg(tidegate_loom)]

mod regions;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use tidegate_core::entry::{Confirmed, Invalidated, Pinned};
use tidegate_core::{Entry, InvalidReason, Moment, Provenance, RegionMap};
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
            let (marked, marker_map) = (std::sync::Arc::clone(&old), Arc::clone(&map));
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
            assert!(!std::sync::Arc::ptr_eq(&live, &old));
            assert!(live.word().is_pinned(), "the pin was lost");
        },
    );
}
