//! The map's publication: readers beside writers, writers beside each other.
//!
//! Nodes hold four keys here and the pages of the id index two, so that a few
//! regions make a tree of several levels.
#![cfg(tidegate_loom)]

mod regions;

use loom::sync::Arc;
use loom::thread;
use tidegate_core::{Outcome, RegionMap};
use tidegate_loom_tests::model;

use regions::{STREAM, batch, region};

/// Defends the Release of the root's compare-and-swap and the Acquire of its
/// load: with either Relaxed, the reader meets a root, a node, a page or an
/// entry that is not filled in.
#[test]
fn a_published_root_is_seen_filled_in() {
    model("tree::a_published_root_is_seen_filled_in", || {
        let map = Arc::new(RegionMap::new());
        let reader = Arc::clone(&map);
        let thread = thread::spawn(move || {
            let snapshot = reader.pin();
            let by_key = snapshot.get(b"b").map(|entry| entry.id());
            let by_id = snapshot.by_id(5).map(|entry| entry.id());
            assert_eq!(by_key, by_id);
            assert_eq!(by_key.is_some(), !snapshot.is_empty());
        });
        assert!(!map.put(region(5, "a", "c", 1), STREAM).is_refused());
        thread.join().unwrap();
    });
}

/// Defends that a failed swap starts again from the root that won: a writer that
/// went on with its own would lose the other's region.
#[test]
fn m6_two_writers_both_succeed() {
    model("tree::m6_two_writers_both_succeed", || {
        let map = Arc::new(RegionMap::new());
        let other = Arc::clone(&map);
        let thread = thread::spawn(move || other.put(region(2, "m", "z", 1), STREAM));
        let ours = map.put(region(1, "a", "m", 1), STREAM);
        let theirs = thread.join().unwrap();
        assert_eq!(ours, Outcome::Inserted { displaced: 0 });
        assert_eq!(theirs, Outcome::Inserted { displaced: 0 });
        let snapshot = map.pin();
        snapshot.check_invariants().unwrap();
        assert_eq!(snapshot.len(), 2);
    });
}

/// Defends that the rules are applied to the root that is replaced, not to an
/// earlier one: of two writers that overlap, the newer region remains whichever
/// came first.
#[test]
fn m3_the_newer_of_two_overlapping_writers_remains() {
    model(
        "tree::m3_the_newer_of_two_overlapping_writers_remains",
        || {
            let map = Arc::new(RegionMap::new());
            let other = Arc::clone(&map);
            let thread = thread::spawn(move || other.put(region(2, "b", "z", 1), STREAM));
            let ours = map.put(region(1, "a", "m", 2), STREAM);
            let theirs = thread.join().unwrap();
            assert!(!ours.is_refused());
            let refused = theirs.is_refused();
            let displaced = ours == Outcome::Inserted { displaced: 1 };
            assert!(refused || displaced, "one of the two has lost");
            let snapshot = map.pin();
            snapshot.check_invariants().unwrap();
            let left: Vec<u64> = snapshot.iter().map(|entry| entry.id()).collect();
            assert_eq!(left, [1]);
        },
    );
}

/// Defends that a batch has one root: the reader finds the keys on both sides of
/// the split, the right ones' id, and the two agree.
#[test]
fn m2_a_split_is_seen_whole_or_not_at_all() {
    model("tree::m2_a_split_is_seen_whole_or_not_at_all", || {
        let map = Arc::new(RegionMap::new());
        let _ = map.put(region(1, "a", "z", 1), STREAM);
        let reader = Arc::clone(&map);
        let thread = thread::spawn(move || {
            let snapshot = reader.pin();
            let left = snapshot.get(b"b").expect("no hole on the left");
            let right = snapshot.get(b"p").expect("no hole on the right");
            assert_eq!(left.id(), 1);
            assert_eq!(left.epoch(), right.epoch(), "half a split");
            let split = right.id() == 2;
            assert_eq!(snapshot.by_id(2).is_some(), split);
            assert_eq!(&**left.end() == b"m", split);
        });
        let outcomes = map.apply(batch([region(1, "a", "m", 2), region(2, "m", "z", 2)]));
        assert!(outcomes.iter().all(|outcome| !outcome.is_refused()));
        thread.join().unwrap();
    });
}

/// Defends the guard: what a reader has found stays alive, node and entry, while
/// a writer replaces it and what replaced it. Retiring without the reclaimer
/// makes the reader meet freed memory.
#[test]
fn m7_what_is_retired_outlives_its_readers() {
    model("tree::m7_what_is_retired_outlives_its_readers", || {
        let map = Arc::new(RegionMap::new());
        let _ = map.put(region(1, "a", "z", 1), STREAM);
        let reader = Arc::clone(&map);
        let thread = thread::spawn(move || {
            let snapshot = reader.pin();
            let first = snapshot.get(b"b").expect("always covered");
            let version = first.epoch().version;
            let again = snapshot.by_id(1).expect("always there");
            assert_eq!(again.epoch().version, version, "one snapshot, one moment");
            assert_eq!(snapshot.iter().count(), 1);
        });
        let _ = map.put(region(1, "a", "z", 2), STREAM);
        let _ = map.put(region(1, "a", "z", 3), STREAM);
        thread.join().unwrap();
        let stats = map.stats();
        assert_eq!(stats.retired, stats.freed, "no guard is left");
    });
}

/// Defends that a node split is private until the swap: the reader walks over
/// four regions or five, in order.
#[test]
fn a_node_split_beside_a_scan() {
    model("tree::a_node_split_beside_a_scan", || {
        let map = Arc::new(RegionMap::new());
        let full = [
            region(1, "a", "b", 1),
            region(2, "c", "d", 1),
            region(3, "e", "f", 1),
            region(4, "g", "h", 1),
        ];
        let _ = map.apply(batch(full));
        let reader = Arc::clone(&map);
        let thread = thread::spawn(move || {
            let snapshot = reader.pin();
            let ids: Vec<u64> = snapshot.iter().map(|entry| entry.id()).collect();
            assert!(ids == [1, 2, 3, 4] || ids == [1, 2, 5, 3, 4], "{ids:?}");
            assert_eq!(snapshot.by_id(5).is_some(), ids.len() == 5);
        });
        let _ = map.put(region(5, "d", "e", 1), STREAM);
        thread.join().unwrap();
        map.pin().check_invariants().unwrap();
    });
}

/// Defends that the content and its generation are one root, and that the old
/// content outlives its readers.
#[test]
fn g4_a_generation_comes_with_its_content() {
    model("tree::g4_a_generation_comes_with_its_content", || {
        let map = Arc::new(RegionMap::with_generation(1));
        let _ = map.put(region(1, "a", "z", 1), STREAM);
        let reader = Arc::clone(&map);
        let thread = thread::spawn(move || {
            let snapshot = reader.pin();
            let found = snapshot.get(b"b").expect("both contents cover it");
            assert_eq!(found.id(), snapshot.generation());
        });
        let staged = RegionMap::new();
        let _ = staged.put(region(2, "a", "z", 1), STREAM);
        map.replace_with(staged, 2);
        // The next edit must not take the staged nodes for its own.
        let _ = map.put(region(2, "a", "z", 2), STREAM);
        thread.join().unwrap();
        map.pin().check_invariants().unwrap();
    });
}
