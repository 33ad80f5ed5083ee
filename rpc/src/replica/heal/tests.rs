use std::sync::Arc;
use std::time::Duration;

use tidegate_core::clock::{Clock, ManualClock};
use tidegate_core::gate::Thresholds;
use tidegate_core::{Details, Peer, PeerRole, RegionEpoch, RegionStats};

use super::*;

/// A map of one replica, the clock standing still between the steps of a test.
struct Bench {
    shared: Shared,
    clock: ManualClock,
}

/// What a region is, short: id, range, version, and the store of its leader.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Is(u64, &'static str, &'static str, u64, u64);

fn region(Is(id, start, end, version, store_id): Is) -> Region {
    let leader = Peer {
        id: id * 100 + store_id,
        store_id,
        role: PeerRole::Voter,
        is_witness: false,
    };
    Region::builder(
        id,
        KeyRange::new(start, end).expect("a range"),
        RegionEpoch::new(1, version),
    )
    .peers([leader])
    .leader(Some(leader))
    .build()
    .expect("a region")
}

impl Bench {
    /// ["", d), [d, m), [m, "") by the stream, a second ago.
    fn new() -> Self {
        let clock = ManualClock::new(Moment::from_nanos(1_000_000_000));
        let shared = Shared::new(Arc::new(clock.clone()), Thresholds::default());
        let bench = Self { shared, clock };
        bench.stream(Is(1, "", "d", 5, 1));
        bench.stream(Is(2, "d", "m", 5, 1));
        bench.stream(Is(3, "m", "", 5, 1));
        bench.pass();
        bench
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn pass(&self) {
        self.clock.advance(Duration::from_secs(1));
    }

    /// A record of the stream that is received and applied now.
    fn stream(&self, is: Is) {
        self.record(is, self.now());
    }

    /// A record that was received earlier and is applied now.
    fn record(&self, is: Is, received_at: Moment) {
        let _ = self
            .shared
            .map
            .put(region(is), Provenance::Stream { received_at });
    }

    fn ask(&self, key: &str) -> Asked {
        let snapshot = self.shared.map.pin();
        Asked::about(&self.shared, &snapshot, snapshot.get(key.as_bytes()))
    }

    fn ask_all(&self) -> Asked {
        let snapshot = self.shared.map.pin();
        Asked::about(&self.shared, &snapshot, snapshot.iter())
    }

    fn hear(&self, asked: &Asked, regions: &[Is]) -> Healed {
        let said = Said {
            regions: regions.iter().copied().map(region).collect(),
            ..Said::default()
        };
        self.told(asked, said)
    }

    fn told(&self, asked: &Asked, said: Said) -> Healed {
        heal(&self.shared, asked, said, self.now())
    }

    /// What the map says of a key, and when the leader agreed, in seconds.
    fn holds(&self, key: &str) -> Option<(u64, u64, Option<u64>)> {
        let snapshot = self.shared.map.pin();
        let entry = snapshot.get(key.as_bytes())?;
        let store = entry.leader().map_or(0, |leader| leader.store_id);
        let confirmed = entry.confirmed_at().map(|at| at.as_nanos() / 1_000_000_000);
        Some((entry.id(), store, confirmed))
    }
}

/// The leader told every region of a range: none.
fn whole(start: &str, end: &str) -> Said {
    Said {
        whole: vec![KeyRange::new(start, end).expect("a range")],
        ..Said::default()
    }
}

fn only(kind: Kind) -> Healed {
    let mut healed = Healed::default();
    healed.add(kind);
    healed
}

fn held_back(ranges: &[(&str, &str)]) -> Healed {
    let mut healed = Healed::default();
    for (start, end) in ranges {
        healed.hold_back(&KeyRange::new(*start, *end).expect("a range"));
    }
    healed
}

#[test]
fn an_answer_that_says_the_same_confirms_the_entry_in_place_as_of_the_question() {
    let bench = Bench::new();
    let asked = bench.ask("a");
    let before = bench
        .shared
        .map
        .pin()
        .by_id(1)
        .map(|entry| entry.to_shared());
    bench.pass();
    assert_eq!(
        bench.hear(&asked, &[Is(1, "", "d", 5, 1)]),
        only(Kind::Confirmed)
    );
    assert_eq!(
        bench.holds("a"),
        Some((1, 1, Some(2))),
        "asked at 2, answered at 3"
    );
    let after = bench
        .shared
        .map
        .pin()
        .by_id(1)
        .map(|entry| entry.to_shared());
    let (before, after) = (before.expect("there"), after.expect("there"));
    assert!(std::ptr::eq::<Entry>(&*before, &*after));
    assert_eq!(bench.holds("e"), Some((2, 1, None)), "nobody spoke of it");
    assert_eq!(bench.shared.heals.get(Kind::Confirmed), 1);
}

#[test]
fn m3_an_answer_replaces_the_very_entry_that_was_there_when_the_question_was_sent() {
    let bench = Bench::new();
    let asked = bench.ask("a");
    bench.pass();
    assert_eq!(
        bench.hear(&asked, &[Is(1, "", "d", 5, 2)]),
        only(Kind::Replaced)
    );
    assert_eq!(bench.holds("a"), Some((1, 2, Some(2))));
}

#[test]
fn m3_a_record_that_was_received_after_the_question_stands_against_the_answer() {
    let bench = Bench::new();
    let asked = bench.ask("a");
    bench.pass();
    bench.stream(Is(1, "", "d", 5, 3));
    bench.pass();
    assert_eq!(
        bench.hear(&asked, &[Is(1, "", "d", 5, 2)]),
        only(Kind::Overtaken)
    );
    assert_eq!(bench.holds("a"), Some((1, 3, None)));
    // Not even one that says the same makes the answer speak of the new entry.
    assert_eq!(
        bench.hear(&asked, &[Is(1, "", "d", 5, 3)]),
        only(Kind::Overtaken)
    );
    assert_eq!(bench.holds("a"), Some((1, 3, None)));
}

#[test]
fn m3_a_record_that_was_received_before_the_question_does_not_undo_the_answer() {
    let bench = Bench::new();
    let queued_since = bench.now();
    bench.pass();
    let asked = bench.ask("a");
    bench.pass();
    assert_eq!(
        bench.hear(&asked, &[Is(1, "", "d", 5, 2)]),
        only(Kind::Replaced)
    );
    bench.record(Is(1, "", "d", 5, 3), queued_since);
    assert_eq!(
        bench.holds("a"),
        Some((1, 2, Some(3))),
        "the answer is at least as new"
    );
}

#[test]
fn m3_a_record_that_was_received_before_the_question_and_applied_before_the_answer_stands() {
    let bench = Bench::new();
    let queued_since = bench.now();
    bench.pass();
    let asked = bench.ask("a");
    bench.record(Is(1, "", "d", 5, 3), queued_since);
    assert_eq!(
        bench.hear(&asked, &[Is(1, "", "d", 5, 2)]),
        only(Kind::Overtaken)
    );
    assert_eq!(bench.holds("a"), Some((1, 3, None)));
}

#[test]
fn a_record_of_the_stream_takes_the_confirmation_away() {
    let bench = Bench::new();
    let _ = bench.hear(&bench.ask("a"), &[Is(1, "", "d", 5, 1)]);
    assert_eq!(bench.holds("a"), Some((1, 1, Some(2))));
    bench.pass();
    bench.stream(Is(1, "", "d", 5, 1));
    assert_eq!(bench.holds("a"), Some((1, 1, None)));
}

#[test]
fn of_two_answers_that_cross_the_one_to_the_later_question_stands() {
    for later_first in [false, true] {
        for earlier_says in [1, 3] {
            let bench = Bench::new();
            let earlier = bench.ask("a");
            bench.pass();
            let later = bench.ask("a");
            bench.pass();
            let mut answers = [(&earlier, earlier_says), (&later, 2)];
            if later_first {
                answers.reverse();
            }
            for (asked, store) in answers {
                let _ = bench.hear(asked, &[Is(1, "", "d", 5, store)]);
            }
            assert_eq!(
                bench.holds("a"),
                Some((1, 2, Some(3))),
                "{later_first} {earlier_says}"
            );
        }
    }
}

#[test]
fn two_answers_that_agree_confirm_as_of_the_later_question() {
    let bench = Bench::new();
    let earlier = bench.ask("a");
    bench.pass();
    let later = bench.ask("a");
    for asked in [&later, &earlier] {
        assert_eq!(
            bench.hear(asked, &[Is(1, "", "d", 5, 1)]),
            only(Kind::Confirmed)
        );
    }
    assert_eq!(bench.holds("a"), Some((1, 1, Some(3))));
}

#[test]
fn m3_an_answer_with_an_older_epoch_changes_nothing() {
    let bench = Bench::new();
    let asked = bench.ask("a");
    assert_eq!(
        bench.hear(&asked, &[Is(1, "", "d", 4, 2)]),
        only(Kind::Older)
    );
    assert_eq!(bench.holds("a"), Some((1, 1, None)));
}

#[test]
fn a_split_is_taken_in_whole_and_half_a_split_not_at_all() {
    let bench = Bench::new();
    let asked = bench.ask("e");
    // The old id keeps the right half, so that its entry is gone before its turn comes.
    let halves = [Is(9, "d", "g", 6, 2), Is(2, "g", "m", 6, 2)];
    for half in halves {
        assert_eq!(
            bench.hear(&asked, &[half]),
            held_back(&[("d", "m")]),
            "{half:?}"
        );
        assert_eq!(bench.holds("e"), Some((2, 1, None)));
    }
    let healed = bench.hear(&asked, &halves);
    assert_eq!(healed.of(Kind::Inserted), 2, "{healed:?}");
    assert_eq!(bench.holds("e"), Some((9, 2, Some(2))));
    assert_eq!(bench.holds("h"), Some((2, 2, Some(2))));
}

#[test]
fn a_merge_displaces_what_was_there_before_and_nothing_that_came_since() {
    let bench = Bench::new();
    let asked = bench.ask("a");
    let merged = Is(1, "", "m", 6, 2);
    bench.pass();
    bench.stream(Is(2, "d", "m", 5, 3));
    assert_eq!(bench.hear(&asked, &[merged]), only(Kind::Overtaken));
    assert_eq!(bench.hear(&bench.ask("a"), &[merged]), only(Kind::Inserted));
    assert_eq!(bench.holds("e"), Some((1, 2, Some(3))));
    assert_eq!(bench.shared.map.pin().len(), 2);
}

#[test]
fn a_region_that_the_leader_does_not_know_is_removed_only_where_the_answer_covers_it() {
    let bench = Bench::new();
    let asked = bench.ask_all();
    let said = Said {
        unknown_ids: vec![2],
        ..Said::default()
    };
    assert_eq!(bench.told(&asked, said), held_back(&[("d", "m")]));
    let said = Said {
        unknown_keys: vec![Key::from("e")],
        ..Said::default()
    };
    assert_eq!(bench.told(&asked, said), held_back(&[("d", "m")]));
    assert_eq!(bench.holds("e"), Some((2, 1, None)));

    let healed = bench.told(&asked, whole("e", "n"));
    assert_eq!(
        healed,
        held_back(&[("d", "m"), ("m", "")]),
        "neither is covered whole"
    );
    let healed = bench.told(&asked, whole("d", "m"));
    assert_eq!(healed, only(Kind::Removed));
    assert_eq!(bench.holds("e"), None);
    assert_eq!(bench.holds("n"), Some((3, 1, None)));
}

#[test]
fn a_region_that_came_after_the_question_is_not_removed() {
    let bench = Bench::new();
    let asked = bench.ask_all();
    bench.pass();
    bench.stream(Is(2, "d", "m", 5, 2));
    let said = whole("d", "m");
    assert_eq!(bench.told(&asked, said), only(Kind::Overtaken));
    assert_eq!(bench.holds("e"), Some((2, 2, None)));
}

#[test]
fn a_region_that_the_map_lacked_is_put_in_unless_the_stream_was_faster() {
    let bench = Bench::new();
    let said = whole("d", "m");
    let _ = bench.told(&bench.ask_all(), said);
    let asked = bench.ask("e");
    bench.pass();
    assert_eq!(
        bench.hear(&asked, &[Is(8, "d", "m", 5, 2)]),
        only(Kind::Inserted)
    );
    assert_eq!(bench.holds("e"), Some((8, 2, Some(2))));

    let bench = Bench::new();
    let said = whole("d", "m");
    let _ = bench.told(&bench.ask_all(), said);
    let asked = bench.ask("e");
    bench.pass();
    bench.stream(Is(8, "d", "m", 5, 3));
    assert_eq!(
        bench.hear(&asked, &[Is(8, "d", "m", 5, 2)]),
        only(Kind::Overtaken)
    );
    assert_eq!(bench.holds("e"), Some((8, 3, None)));
}

#[test]
fn an_answer_to_a_question_about_another_generation_changes_nothing() {
    let bench = Bench::new();
    let asked = bench.ask("a");
    let next = tidegate_core::RegionMap::new();
    let received_at = Moment::from_nanos(1);
    let _ = next.put(
        region(Is(1, "", "d", 5, 1)),
        Provenance::Stream { received_at },
    );
    bench.shared.map.replace_with(next, 1);
    assert_eq!(
        bench.hear(&asked, &[Is(1, "", "d", 5, 2)]),
        only(Kind::OtherGeneration)
    );
    assert_eq!(bench.holds("a"), Some((1, 1, None)));
}

#[test]
fn what_only_the_stream_tells_outlives_an_answer() {
    let bench = Bench::new();
    let stats = RegionStats {
        bytes_read: 7,
        ..RegionStats::default()
    };
    let known = region(Is(1, "", "d", 5, 1)).to_builder();
    let known = known
        .details(Details {
            stats,
            ..Details::default()
        })
        .build()
        .expect("a region");
    let received_at = bench.now();
    let _ = bench
        .shared
        .map
        .put(known, Provenance::Stream { received_at });
    assert_eq!(
        bench.hear(&bench.ask("a"), &[Is(1, "", "d", 5, 1)]),
        only(Kind::Confirmed)
    );
    assert_eq!(
        bench.hear(&bench.ask("a"), &[Is(1, "", "d", 5, 2)]),
        only(Kind::Replaced)
    );
    let snapshot = bench.shared.map.pin();
    let details = snapshot
        .by_id(1)
        .and_then(|entry| entry.region().details().cloned());
    assert_eq!(details.expect("kept").stats, stats);
}

#[test]
fn an_answer_longer_than_a_portion_is_taken_in_whole() {
    let clock = ManualClock::new(Moment::from_nanos(1_000_000_000));
    let shared = Shared::new(Arc::new(clock.clone()), Thresholds::default());
    let key = |n: usize| Key::from(format!("{n:06}").as_bytes());
    let part = |n: usize, id: u64, version| {
        let range = KeyRange::new(key(n), key(n + 1)).expect("a range");
        let region = Region::builder(id, range, RegionEpoch::new(1, version)).build();
        region.expect("a region")
    };
    let many = CHANGES_AT_ONCE * 2 + 1;
    let whole = KeyRange::new(key(0), key(many)).expect("a range");
    let received_at = clock.now();
    let before = Region::builder(9, whole.clone(), RegionEpoch::new(1, 1))
        .build()
        .expect("one");
    let _ = shared.map.put(before, Provenance::Stream { received_at });
    let snapshot = shared.map.pin();
    let asked = Asked::about(&shared, &snapshot, snapshot.iter());
    drop(snapshot);
    let said = Said {
        regions: (0..many).map(|n| part(n, 100 + n as u64, 2)).collect(),
        whole: vec![whole],
        ..Said::default()
    };
    let healed = heal(&shared, &asked, said, clock.now());
    assert_eq!(healed.of(Kind::Inserted), many as u64, "{healed:?}");
    assert_eq!(shared.map.pin().len(), many);

    let snapshot = shared.map.pin();
    let asked = Asked::about(&shared, &snapshot, snapshot.iter());
    drop(snapshot);
    let said = Said {
        regions: (0..many).map(|n| part(n, 100 + n as u64, 3)).collect(),
        ..Said::default()
    };
    let healed = heal(&shared, &asked, said, clock.now());
    assert_eq!(healed.of(Kind::Replaced), many as u64, "{healed:?}");
}
