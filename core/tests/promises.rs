//! The map's promises, one by one.

mod support;

use tidegate_core::entry::Pinned;
use tidegate_core::map::{Refusal, RefusalReason, Winner};
use tidegate_core::sync::reclaim;
use tidegate_core::{
    Batch, EntryRef, Expect, InvalidReason, KeyRange, Moment, Outcome, Provenance, Region,
    RegionEpoch, RegionMap, SharedEntry,
};

use support::{follower, leader, region, stream};

fn range(start: &str, end: &str) -> KeyRange {
    KeyRange::new(start, end).expect("start before end")
}

fn with_epoch(id: u64, range: KeyRange, conf_ver: u64, version: u64) -> Region {
    let epoch = RegionEpoch::new(conf_ver, version);
    Region::builder(id, range, epoch).build().expect("an id")
}

fn ids(map: &RegionMap) -> Vec<u64> {
    let snapshot = map.pin();
    snapshot.check_invariants().expect("sound");
    snapshot.iter().map(|entry| entry.id()).collect()
}

/// A map with 1: [b, d), 2: [d, f) and 3: [h, ) under version 5.
fn three() -> RegionMap {
    let map = RegionMap::new();
    let mut batch = Batch::new();
    batch.put(with_epoch(1, range("b", "d"), 5, 5), stream(10));
    batch.put(with_epoch(2, range("d", "f"), 5, 5), stream(10));
    batch.put(with_epoch(3, range("h", ""), 5, 5), stream(10));
    assert!(map.apply(batch).iter().all(|outcome| !outcome.is_refused()));
    map
}

fn refused(reason: RefusalReason, id: u64) -> Outcome {
    Outcome::Refused(Refusal {
        reason,
        lost_to: Some(Winner {
            id,
            epoch: RegionEpoch::new(5, 5),
        }),
    })
}

#[test]
fn m1_a_newcomer_is_compared_with_what_it_overlaps_on_its_left_too() {
    let map = three();
    // Starts inside region 1, whose start is to its left.
    let newcomer = |version| with_epoch(9, range("c", "cc"), 5, version);
    assert_eq!(
        map.put(newcomer(4), stream(20)),
        refused(RefusalReason::OverlapsNewer, 1)
    );
    assert_eq!(ids(&map), [1, 2, 3], "a refused insert changes nothing");
    assert_eq!(
        map.put(newcomer(5), stream(20)),
        Outcome::Inserted { displaced: 1 }
    );
    assert_eq!(ids(&map), [9, 2, 3]);
    assert!(
        map.pin().get(b"b").is_none(),
        "what it displaced is gone whole"
    );
    assert!(map.pin().by_id(1).is_none());
}

#[test]
fn m1_a_newcomer_displaces_all_that_it_overlaps() {
    let map = three();
    let outcome = map.put(with_epoch(9, range("c", "i"), 5, 6), stream(20));
    assert_eq!(outcome, Outcome::Inserted { displaced: 3 });
    assert_eq!(ids(&map), [9]);
}

#[test]
fn m1_an_id_that_moves_leaves_its_old_range() {
    let map = three();
    let outcome = map.put(with_epoch(1, range("f", "g"), 5, 6), stream(20));
    assert_eq!(outcome, Outcome::Inserted { displaced: 1 });
    assert_eq!(ids(&map), [2, 1, 3]);
    assert!(map.pin().get(b"c").is_none());
}

#[test]
fn m3_an_older_epoch_of_the_region_is_refused() {
    let map = three();
    for (conf_ver, version) in [(4, 5), (5, 4), (4, 9), (9, 4)] {
        let outcome = map.put(
            with_epoch(2, range("d", "f"), conf_ver, version),
            stream(20),
        );
        assert_eq!(
            outcome,
            refused(RefusalReason::OlderEpoch, 2),
            "{conf_ver} {version}"
        );
    }
    let outcome = map.put(with_epoch(2, range("d", "f"), 6, 5), stream(20));
    assert_eq!(outcome, Outcome::Replaced);
}

#[test]
fn m3_of_others_only_the_version_counts_and_equal_gives_way() {
    let map = three();
    let outcome = map.put(with_epoch(9, range("a", "e"), 1, 4), stream(20));
    assert_eq!(outcome, refused(RefusalReason::OverlapsNewer, 1));
    let outcome = map.put(with_epoch(9, range("a", "e"), 1, 5), stream(20));
    assert_eq!(outcome, Outcome::Inserted { displaced: 2 });
}

#[test]
fn m3_a_recreated_region_displaces_anything_unless_it_is_the_first_of_a_cluster() {
    let map = three();
    let whole = with_epoch(2, KeyRange::all(), 1, 1);
    assert_eq!(
        map.put(whole, stream(20)),
        refused(RefusalReason::OlderEpoch, 2)
    );
    let whole = with_epoch(9, KeyRange::all(), 1, 1);
    assert_eq!(
        map.put(whole, stream(20)),
        refused(RefusalReason::OverlapsNewer, 1)
    );
    let same_id = with_epoch(2, range("c", "f"), 1, 1);
    assert_eq!(
        map.put(same_id, stream(20)),
        Outcome::Inserted { displaced: 2 }
    );
    let other_id = with_epoch(9, range("g", ""), 1, 1);
    assert_eq!(
        map.put(other_id, stream(20)),
        Outcome::Inserted { displaced: 1 }
    );
    assert_eq!(ids(&map), [2, 9]);
}

#[test]
fn m3_equal_epochs_follow_their_provenance() {
    let map = three();
    let put = |provenance| map.put(with_epoch(2, range("d", "f"), 5, 5), provenance);
    assert_eq!(
        put(leader(9)),
        refused(RefusalReason::OlderTruth, 2),
        "asked before"
    );
    assert_eq!(put(leader(30)), Outcome::Replaced);
    assert_eq!(put(follower(50)), refused(RefusalReason::OlderTruth, 2));
    assert_eq!(
        put(stream(29)),
        refused(RefusalReason::OlderTruth, 2),
        "received before"
    );
    assert_eq!(put(stream(31)), Outcome::Replaced);
}

#[test]
fn m3_an_answer_replaces_only_the_entry_that_was_there() {
    let map = three();
    let asked = map.pin().get(b"e").expect("region 2").to_shared();
    let answer = |expect| {
        let mut batch = Batch::new();
        batch.put_if(with_epoch(2, range("d", "f"), 5, 5), leader(30), expect);
        map.apply(batch).remove(0)
    };
    // The stream was faster.
    assert_eq!(
        map.put(with_epoch(2, range("d", "f"), 5, 5), stream(20)),
        Outcome::Replaced
    );
    let outcome = answer(Expect::Entry(asked));
    assert_eq!(outcome, refused(RefusalReason::Unexpected, 2));
    assert_eq!(
        answer(Expect::Absent),
        refused(RefusalReason::Unexpected, 2)
    );
    let asked = map.pin().get(b"e").expect("region 2").to_shared();
    assert_eq!(answer(Expect::Entry(asked)), Outcome::Replaced);

    let asked = map.pin().get(b"e").expect("region 2").to_shared();
    let mut batch = Batch::new();
    batch.remove(2, Expect::Entry(asked.clone()));
    batch.remove(2, Expect::Any);
    batch.put_if(
        with_epoch(8, range("d", "e"), 5, 6),
        leader(31),
        Expect::Entry(asked),
    );
    batch.put_if(
        with_epoch(2, range("d", "f"), 5, 5),
        leader(31),
        Expect::Absent,
    );
    let gone = |reason| {
        Outcome::Refused(Refusal {
            reason,
            lost_to: None,
        })
    };
    assert_eq!(
        map.apply(batch),
        [
            Outcome::Removed,
            gone(RefusalReason::UnknownId),
            gone(RefusalReason::Unexpected),
            Outcome::Inserted { displaced: 0 },
        ]
    );
}

#[test]
fn m4_lookups_agree_about_neighbours_and_holes() {
    let map = three();
    let snapshot = map.pin();
    let id = |entry: Option<EntryRef<'_>>| entry.map(|entry| entry.id());
    assert_eq!(
        id(snapshot.get(b"d")),
        Some(2),
        "a start belongs to its region"
    );
    assert_eq!(id(snapshot.prev(b"d")), Some(1));
    assert_eq!(id(snapshot.prev(b"b")), None, "nothing before the first");
    assert_eq!(id(snapshot.get(b"g")), None, "a hole");
    assert_eq!(
        id(snapshot.prev(b"g")),
        None,
        "a hole has no previous region"
    );
    assert_eq!(id(snapshot.prev(b"i")), None, "a hole lies before region 3");
    assert_eq!(
        id(snapshot.get(b"zz")),
        Some(3),
        "an empty end is plus infinity"
    );
    assert_eq!(id(snapshot.by_id(0)), None);

    let scan = |start: &str, end: &str| -> Vec<u64> {
        let scan = snapshot.scan(start.as_bytes(), end.as_bytes());
        scan.map(|entry| entry.id()).collect()
    };
    assert_eq!(scan("", ""), [1, 2, 3]);
    assert_eq!(scan("c", "d"), [1], "the end is exclusive");
    assert_eq!(scan("c", "dd"), [1, 2]);
    assert_eq!(scan("f", ""), [3], "a start in a hole");
    assert_eq!(scan("f", "h"), [0; 0]);
    assert_eq!(
        scan("e", "d"),
        [0; 0],
        "inverted: region 2 does not start before d"
    );
    assert_eq!(scan("e", "dd"), [2], "inverted: region 2 starts before dd");
}

#[test]
fn m7_garbage_of_a_stalled_guard_is_counted_and_goes_when_it_ends() {
    const CHANGES: u64 = 500;
    let map = three();
    let stalled = map.pin();
    let before = map.stats();
    for change in 0..CHANGES {
        let outcome = map.put(with_epoch(2, range("d", "f"), 5, 6 + change), stream(20));
        assert_eq!(outcome, Outcome::Replaced);
    }
    let stats = map.stats();
    // Each change retires a root, an entry, a leaf and at least one page.
    assert!(stats.retired - before.retired >= 4 * CHANGES);
    assert!(
        stats.retired - stats.freed >= 4 * CHANGES,
        "freed under a guard: {stats:?}"
    );
    assert_eq!(stalled.by_id(2).expect("as it was").epoch().version, 5);
    drop(stalled);
    settle(|| map.stats().freed == stats.retired);
    assert_eq!(map.stats().nodes, 1, "one leaf for three regions");
}

#[test]
fn m7_a_replaced_map_is_freed_by_whoever_reads() {
    let map = RegionMap::new();
    let shape = support::Shape::Record;
    let mut batch = Batch::new();
    for number in 0..5000u32 {
        let range = shape.range(number, Some(number + 1));
        batch.put(region(u64::from(number) + 1, range, 1), stream(1));
    }
    let _ = map.apply(batch);
    map.replace_with(RegionMap::new(), 2);
    let retired = map.stats().retired;
    assert!(retired > 5000, "entries and nodes are counted: {retired}");
    // Nobody writes any more, and readers do not flush.
    for _ in 0..100_000_000u64 {
        drop(map.pin());
        if map.stats().freed == retired {
            return;
        }
    }
    panic!("the old content waits: {:?}", map.stats());
}

#[test]
fn m7_nodes_stay_filled_when_regions_go() {
    const REGIONS: u32 = 20_000;
    let map = RegionMap::new();
    let shape = support::Shape::Record;
    let mut batch = Batch::new();
    for number in 0..REGIONS {
        let range = shape.range(number, Some(number + 1));
        batch.put(region(u64::from(number) + 1, range, 1), stream(1));
    }
    let _ = map.apply(batch);
    let full = map.stats();
    assert!(
        full.nodes <= full.regions / 60,
        "in order, leaves are filled up: {full:?}"
    );

    // One in fifty stays: less than two a leaf, if leaves were not merged.
    let mut batch = Batch::new();
    for number in (0..REGIONS).filter(|number| number % 50 != 0) {
        batch.remove(u64::from(number) + 1, Expect::Any);
    }
    let _ = map.apply(batch);
    map.pin().check_invariants().expect("sound");
    let thin = map.stats();
    assert_eq!(thin.regions, 400);
    assert!(
        thin.nodes <= thin.regions / 10,
        "leaves were merged: {thin:?}"
    );
}

/// Helps the reclaimer along until `done`; other tests of this process pin for
/// moments only, so the epoch moves on.
fn settle(mut done: impl FnMut() -> bool) {
    for _ in 0..1_000_000 {
        if done() {
            return;
        }
        reclaim::pin().flush();
        std::thread::yield_now();
    }
    panic!("garbage is never freed");
}

#[test]
fn every_entry_is_dropped_once_and_only_when_nobody_shares_it() {
    let map = RegionMap::new();
    let mut entries: Vec<SharedEntry> = Vec::new();
    let note = |map: &RegionMap, entries: &mut Vec<SharedEntry>| {
        let snapshot = map.pin();
        entries.extend(snapshot.iter().map(EntryRef::to_shared));
    };
    let shape = support::Shape::Record;
    for version in 1..4u64 {
        let mut batch = Batch::new();
        for number in 0..400u32 {
            let range = shape.range(number, Some(number + 1));
            batch.put(region(u64::from(number) + 1, range, version), stream(1));
        }
        // Refused ones and ones that are displaced within the batch.
        batch.put(
            region(1, shape.range(0, Some(1)), version.saturating_sub(1)),
            stream(1),
        );
        batch.put(region(900, shape.range(10, Some(60)), version), stream(1));
        batch.put(
            region(901, shape.range(20, Some(30)), version + 1),
            stream(1),
        );
        let _ = map.apply(batch);
        note(&map, &mut entries);
    }
    let staged = RegionMap::new();
    for number in 0..200u32 {
        let range = shape.range(number, Some(number + 1));
        let _ = staged.put(region(u64::from(number) + 1, range, 9), stream(1));
    }
    map.replace_with(staged, 2);
    note(&map, &mut entries);

    assert!(
        map.pin()
            .iter()
            .all(|entry| SharedEntry::owners(&entry.to_shared()) == 3)
    );
    let kept = map.pin().by_id(7).expect("region 7").to_shared();
    drop(map);
    // What is still owned by others than `entries` and `kept` has not been freed; what
    // has been freed twice is owned by nobody.
    let all_owners = |entries: &[SharedEntry]| entries.iter().map(SharedEntry::owners).sum();
    settle(|| entries.len() + 1 == all_owners(&entries));
    drop(entries);
    assert_eq!(SharedEntry::owners(&kept), 1);
    assert_eq!(kept.id(), 7);
}

#[test]
fn g4_a_generation_is_swapped_with_its_content() {
    let map = three();
    assert_eq!(map.generation(), 0);
    let old = map.pin();
    let staged = RegionMap::with_generation(77);
    let _ = staged.put(with_epoch(4, range("a", "z"), 1, 2), stream(1));
    map.replace_with(staged, 3);
    assert_eq!(
        (old.generation(), old.len()),
        (0, 3),
        "a snapshot does not change"
    );
    assert_eq!(map.generation(), 3);
    assert_eq!(ids(&map), [4]);
}

#[test]
fn g4_edits_do_not_take_the_nodes_of_a_staged_map_for_their_own() {
    const LEAF: u32 = 64;
    const LEAVES: u32 = 30;
    let shape = support::Shape::Record;
    let part = |number: u32, version| {
        let range = shape.range(number, Some(number + 1));
        region(u64::from(number) + 1, range, version)
    };
    // A longer history than that of the map which takes it over.
    let staged = RegionMap::new();
    for version in 1..10 {
        let _ = staged.put(part(0, version), stream(1));
    }
    let mut batch = Batch::new();
    for number in 1..LEAVES * LEAF {
        batch.put(part(number, 1), stream(1));
    }
    let _ = staged.apply(batch);
    let map = three();
    map.replace_with(staged, 1);
    // Each edit goes to a leaf that none has touched yet.
    for number in (1..LEAVES).map(|leaf| leaf * LEAF) {
        let before = map.pin();
        let _ = map.put(part(number, 2), stream(1));
        let still = before.get(&shape.key(number)).expect("covered").epoch();
        assert_eq!(still.version, 1, "a published node was changed in place");
    }
}

fn put_over(map: &RegionMap, version: u64, provenance: Provenance) -> SharedEntry {
    let outcome = map.put(with_epoch(2, range("d", "f"), 5, version), provenance);
    assert_eq!(outcome, Outcome::Replaced);
    map.pin().by_id(2).expect("region 2").to_shared()
}

#[test]
fn e3_an_equal_epoch_from_anyone_but_the_leader_inherits_the_pin() {
    let map = three();
    let first = map.pin().by_id(2).expect("region 2").to_shared();
    assert_eq!(first.word().pin_to_leader(), Pinned::Done);
    let second = put_over(&map, 5, stream(20));
    assert!(
        second.word().is_pinned(),
        "inherited before it could be seen"
    );
    assert_eq!(first.word().pin_to_leader(), Pinned::Superseded);
    let third = put_over(&map, 5, leader(30));
    assert!(!third.word().is_pinned(), "the leader's word drops the pin");
}

#[test]
fn e3_a_newer_epoch_starts_without_a_pin() {
    let map = three();
    let first = map.pin().by_id(2).expect("region 2").to_shared();
    let marked = first
        .word()
        .invalidate_and_pin(InvalidReason::EpochNotMatch);
    assert_eq!(marked, tidegate_core::entry::Invalidated::Done);
    let second = put_over(&map, 6, stream(20));
    assert!(!second.word().is_pinned());
    assert_eq!(
        second.word().reason(),
        None,
        "a revalidated region is a new entry"
    );
}

#[test]
fn e3_a_pin_is_passed_on_within_a_batch() {
    let map = three();
    let first = map.pin().by_id(2).expect("region 2").to_shared();
    assert_eq!(first.word().pin_to_leader(), Pinned::Done);
    let mut batch = Batch::new();
    batch.put(with_epoch(2, range("d", "f"), 5, 5), stream(20));
    batch.put(with_epoch(2, range("d", "f"), 5, 5), stream(21));
    let _ = map.apply(batch);
    assert!(map.pin().by_id(2).expect("region 2").word().is_pinned());
}

#[test]
fn a_stream_record_takes_the_confirmation_of_the_entry_that_it_replaces() {
    let map = three();
    let asked_at = Moment::from_nanos(30_000_000);
    let confirmed = Provenance::Leader {
        asked_at,
        answered_at: asked_at,
    };
    assert_eq!(put_over(&map, 5, confirmed).confirmed_at(), Some(asked_at));
    let received_at = Moment::from_nanos(31_000_000);
    let record = Provenance::Stream { received_at };
    assert_eq!(put_over(&map, 5, record).confirmed_at(), None);
}
