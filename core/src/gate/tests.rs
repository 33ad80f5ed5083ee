//! The gate's promises, each under its number.

use std::time::Duration;

use super::*;
use crate::clock::{Clock, ManualClock};

const GENERATION: u64 = 1;

/// A replica's side of one generation, on a clock that the test moves.
struct Replica {
    gate: Gate,
    clock: ManualClock,
    thresholds: Thresholds,
}

impl Replica {
    /// Nothing synced yet; the clock stands at 1,000 s.
    fn new() -> Self {
        let clock = ManualClock::new(Moment::from_nanos(1_000_000_000_000));
        Self {
            gate: Gate::new(),
            clock,
            thresholds: Thresholds::default(),
        }
    }

    /// Fully synced up to index 100, published and proven now.
    fn proven() -> Self {
        let replica = Self::new();
        replica.gate.begin(GENERATION);
        replica.receive_and_apply(100);
        replica.gate.publish(GENERATION);
        replica.probe(100);
        assert!(replica.decide().is_serve());
        replica
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn wait(&self, distance: Duration) {
        self.clock.advance(distance);
    }

    fn receive_and_apply(&self, next_index: u64) {
        self.gate.head_received(GENERATION, next_index);
        self.gate.apply_started(GENERATION, self.now());
        self.gate.apply_finished(GENERATION, next_index, self.now());
    }

    fn probe(&self, head: u64) {
        self.gate.probe_answered(GENERATION, self.now(), head);
    }

    fn decide(&self) -> Decision {
        self.gate
            .decide(GENERATION, self.now(), &self.thresholds.into())
    }

    fn reason(&self) -> Option<RefuseReason> {
        self.decide().refused()
    }

    fn age(&self) -> Option<Duration> {
        match self.decide() {
            Decision::Serve { age } => Some(age),
            Decision::Refuse(_) => None,
        }
    }
}

const NANO: Duration = Duration::from_nanos(1);

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn g1_the_head_is_known_on_receipt_and_before_the_apply() {
    let replica = Replica::proven();
    replica.gate.head_received(GENERATION, 20_101);
    assert_eq!(replica.gate.view().lag, Lag::Known(20_001));
    assert_eq!(replica.reason(), Some(RefuseReason::IndexLag));
    replica.gate.apply_finished(GENERATION, 101, replica.now());
    assert_eq!(
        replica.reason(),
        None,
        "20,000 records behind is the limit, not beyond it"
    );
}

#[test]
fn g1_an_older_head_does_not_lower_the_known_one() {
    let replica = Replica::proven();
    replica.gate.head_received(GENERATION, 150);
    replica.gate.head_received(GENERATION, 120);
    assert_eq!(replica.gate.view().head, 150);
    assert_eq!(replica.gate.view().lag, Lag::Known(50));
}

#[test]
fn g2_silence_counts_from_the_receipt_of_what_was_applied_last() {
    let mut replica = Replica::proven();
    replica.thresholds.max_age = Duration::MAX;
    let received = replica.now();
    replica.gate.head_received(GENERATION, 101);
    replica.wait(secs(8));
    replica.gate.apply_started(GENERATION, replica.now());
    replica.gate.apply_finished(GENERATION, 101, received);
    assert_eq!(
        replica.gate.view().last_sync,
        Some(received),
        "queued for 8 s, so 8 s old"
    );
    replica.wait(secs(22));
    assert_eq!(replica.reason(), None, "30 s is the limit, not beyond it");
    replica.wait(NANO);
    assert_eq!(replica.reason(), Some(RefuseReason::Silence));
}

#[test]
fn g2_a_message_received_and_not_applied_does_not_break_the_silence() {
    let mut replica = Replica::proven();
    replica.thresholds.max_age = Duration::MAX;
    replica.wait(secs(31));
    replica.gate.head_received(GENERATION, 101);
    assert_eq!(replica.reason(), Some(RefuseReason::Silence));
    replica.receive_and_apply(101);
    assert_eq!(replica.reason(), None);
}

#[test]
fn g2_a_wedged_apply_is_seen_although_the_lag_is_small() {
    let replica = Replica::proven();
    replica.gate.head_received(GENERATION, 101);
    replica.gate.apply_started(GENERATION, replica.now());
    replica.wait(secs(3));
    assert_eq!(replica.gate.view().lag, Lag::Known(1));
    assert_eq!(replica.reason(), None, "3 s is the limit, not beyond it");
    replica.wait(NANO);
    assert_eq!(replica.reason(), Some(RefuseReason::ApplyStall));
    replica.gate.apply_finished(GENERATION, 101, replica.now());
    assert_eq!(replica.reason(), None);
    assert_eq!(replica.gate.view().apply_since, None);
}

#[test]
fn g3_a_probe_proves_the_time_it_was_sent() {
    let replica = Replica::proven();
    let sent_at = replica.now();
    replica.wait(secs(2));
    replica.gate.probe_answered(GENERATION, sent_at, 100);
    assert_eq!(
        replica.age(),
        Some(secs(2)),
        "the answer's travel is part of the age"
    );
    replica.wait(secs(8));
    assert_eq!(
        replica.age(),
        Some(secs(10)),
        "10 s is the limit, not beyond it"
    );
    replica.wait(NANO);
    assert_eq!(replica.reason(), Some(RefuseReason::Age));
}

#[test]
fn g3_a_probe_proves_only_after_the_apply_reaches_its_head() {
    let replica = Replica::proven();
    replica.wait(secs(4));
    let sent_at = replica.now();
    replica.probe(103);
    assert_eq!(
        replica.gate.view().head,
        103,
        "a probe's head raises the known head"
    );
    assert_eq!(replica.age(), Some(secs(4)));
    replica.receive_and_apply(102);
    assert_eq!(replica.age(), Some(secs(4)));
    replica.wait(secs(1));
    replica.receive_and_apply(103);
    assert_eq!(replica.gate.view().proven_at, Some(sent_at));
    assert_eq!(replica.age(), Some(secs(1)));
}

#[test]
fn g3_nothing_but_a_proof_moves_the_age() {
    let replica = Replica::proven();
    for second in 1..=10 {
        replica.wait(secs(1));
        replica.receive_and_apply(100 + second);
        assert_eq!(replica.age(), Some(secs(second)));
    }
    replica.wait(NANO);
    replica.receive_and_apply(111);
    assert_eq!(
        replica.reason(),
        Some(RefuseReason::Age),
        "a busy stream proves nothing"
    );
}

#[test]
fn g3_an_older_probe_does_not_move_the_proof_back() {
    let replica = Replica::proven();
    let late = replica.now();
    replica.wait(secs(5));
    replica.probe(100);
    replica.gate.probe_answered(GENERATION, late, 100);
    assert_eq!(replica.age(), Some(Duration::ZERO));
}

#[test]
fn g3_a_probe_is_no_stream_message() {
    let mut replica = Replica::proven();
    replica.thresholds.time_threshold = secs(5);
    replica.wait(secs(6));
    replica.probe(100);
    assert_eq!(replica.reason(), Some(RefuseReason::Silence));
}

#[test]
fn g3_probes_beyond_the_room_for_them_are_dropped_and_later_ones_prove() {
    let mut replica = Replica::proven();
    replica.thresholds.max_age = Duration::MAX;
    let mut last_kept = replica.now();
    for probe in 0..crate::proof::CAPACITY as u64 + 4 {
        replica.wait(NANO);
        if probe < crate::proof::CAPACITY as u64 {
            last_kept = replica.now();
        }
        replica.probe(101 + probe);
    }
    replica.receive_and_apply(200);
    assert_eq!(replica.gate.view().proven_at, Some(last_kept));
    replica.wait(NANO);
    replica.probe(201);
    replica.receive_and_apply(201);
    assert_eq!(replica.age(), Some(Duration::ZERO));
}

#[test]
fn g4_lag_saturates_at_zero_and_unknown_is_not_zero() {
    let replica = Replica::new();
    replica.gate.begin(GENERATION);
    replica.gate.publish(GENERATION);
    assert_eq!(replica.gate.view().lag, Lag::Unknown);
    replica.gate.apply_finished(GENERATION, 50, replica.now());
    assert_eq!(replica.gate.view().lag, Lag::Unknown, "no head was told");
    replica.gate.head_received(GENERATION, 40);
    assert_eq!(
        replica.gate.view().lag,
        Lag::Known(0),
        "ahead of the known head is not behind"
    );
    replica.gate.head_received(GENERATION, 0);
    assert_eq!(replica.gate.view().head, 40);
}

#[test]
fn g4_a_history_that_starts_at_zero_is_known() {
    let replica = Replica::new();
    replica.gate.begin(GENERATION);
    replica.receive_and_apply(0);
    replica.gate.publish(GENERATION);
    replica.probe(0);
    assert_eq!(replica.gate.view().lag, Lag::Known(0));
    assert_eq!(replica.age(), Some(Duration::ZERO));
}

#[test]
fn g4_an_absurd_head_shuts_the_gate() {
    let replica = Replica::proven();
    replica.gate.head_received(GENERATION, u64::MAX);
    assert_eq!(replica.reason(), Some(RefuseReason::IndexLag));
}

#[test]
fn g4_root_and_word_must_be_of_one_generation() {
    let replica = Replica::proven();
    let now = replica.now();
    for other in [0, GENERATION + 1, GENERATION + 2] {
        let decision = replica.gate.decide(other, now, &replica.thresholds.into());
        assert_eq!(
            decision.refused(),
            Some(RefuseReason::NotProven),
            "map of {other}"
        );
    }
}

#[test]
fn g4_a_staged_generation_leaves_the_published_one_alone() {
    let replica = Replica::proven();
    replica.wait(secs(1));
    let staged = replica.gate.next_generation();
    replica.gate.begin(staged);
    replica.gate.head_received(staged, 1_000_000);
    replica.gate.gap(staged, true);
    replica.gate.apply_started(staged, Moment::from_nanos(1));
    assert_eq!(
        replica.age(),
        Some(secs(1)),
        "the old map answers as long as its proof lasts"
    );

    replica.gate.gap(staged, false);
    replica
        .gate
        .apply_finished(staged, 1_000_000, replica.now());
    replica
        .gate
        .probe_answered(staged, replica.now(), 1_000_000);
    replica.gate.publish(staged);
    assert_eq!(
        replica.reason(),
        Some(RefuseReason::NotProven),
        "the old map is out"
    );
    let decision = replica
        .gate
        .decide(staged, replica.now(), &replica.thresholds.into());
    assert_eq!(
        decision,
        Decision::Serve {
            age: Duration::ZERO
        },
        "proven before it was published"
    );
}

#[test]
fn g4_a_probe_of_an_older_generation_proves_nothing() {
    let replica = Replica::proven();
    let second = replica.gate.next_generation();
    replica.gate.begin(second);
    replica.gate.apply_finished(second, 7, replica.now());
    replica.gate.publish(second);
    // Late, from the generation before, and from one whose bank the present one has taken over.
    replica.gate.probe_answered(GENERATION, replica.now(), 7);
    replica.gate.probe_answered(0, replica.now(), 7);
    let third = replica.gate.next_generation();
    replica.gate.begin(third);
    replica.gate.apply_finished(third, 7, replica.now());
    replica.gate.publish(third);
    replica.gate.probe_answered(GENERATION, replica.now(), 7);
    replica.gate.probe_answered(second, replica.now(), 7);
    assert_eq!(
        third & 1,
        GENERATION & 1,
        "the third uses the first one's bank"
    );
    assert_eq!(replica.gate.view().proven_at, None);
    assert_eq!(
        replica.gate.view().lag,
        Lag::Unknown,
        "nor do their heads count"
    );
}

#[test]
fn g4_a_sync_that_was_given_up_leaves_nothing_behind() {
    let replica = Replica::proven();
    let given_up = replica.gate.next_generation();
    replica.gate.begin(given_up);
    replica.gate.apply_finished(given_up, 7, replica.now());
    replica.gate.probe_answered(given_up, replica.now(), 9);
    let retried = replica.gate.next_generation();
    assert_eq!(retried, given_up + 2, "the published bank is not touched");
    replica.gate.begin(retried);
    replica.gate.apply_finished(retried, 9, replica.now());
    replica.gate.publish(retried);
    assert_eq!(
        replica.gate.view().proven_at,
        None,
        "the pending probe was about another map"
    );
    assert_eq!(replica.gate.view().generation, retried);
}

#[test]
fn g5_nothing_synced_is_not_proven() {
    let replica = Replica::new();
    for map_generation in [0, 1] {
        let decision =
            replica
                .gate
                .decide(map_generation, replica.now(), &replica.thresholds.into());
        assert_eq!(decision.refused(), Some(RefuseReason::NotProven));
    }
}

#[test]
fn g5_a_restarted_follower_with_an_index_and_no_proof_is_not_proven() {
    let replica = Replica::new();
    replica.gate.begin(GENERATION);
    replica.receive_and_apply(5_000);
    replica.gate.publish(GENERATION);
    assert_eq!(replica.gate.view().lag, Lag::Known(0));
    assert_eq!(replica.reason(), Some(RefuseReason::NotProven));
}

#[test]
fn g5_a_proof_without_a_finished_apply_is_not_proven() {
    let replica = Replica::new();
    replica.gate.begin(GENERATION);
    replica.gate.publish(GENERATION);
    replica.probe(0);
    assert_eq!(replica.reason(), Some(RefuseReason::NotProven));
}

#[test]
fn g5_an_open_gap_refuses_until_it_is_closed() {
    let replica = Replica::proven();
    replica.gate.gap(GENERATION, true);
    assert_eq!(replica.reason(), Some(RefuseReason::Gap));
    replica.probe(100);
    assert_eq!(
        replica.reason(),
        Some(RefuseReason::Gap),
        "a proof does not close it"
    );
    replica.gate.gap(GENERATION, false);
    assert_eq!(replica.reason(), None);
}

#[test]
fn g5_the_first_reason_in_the_documented_order_is_named() {
    let replica = Replica::proven();
    replica.gate.gap(GENERATION, true);
    replica.gate.apply_started(GENERATION, replica.now());
    replica.gate.head_received(GENERATION, 1_000_000);
    replica.wait(secs(60));
    assert_eq!(replica.reason(), Some(RefuseReason::Gap));
    replica.gate.gap(GENERATION, false);
    assert_eq!(replica.reason(), Some(RefuseReason::ApplyStall));
    let received_long_ago = Moment::from_nanos(1_000_000_000_000);
    replica
        .gate
        .apply_finished(GENERATION, 101, received_long_ago);
    assert_eq!(replica.reason(), Some(RefuseReason::Silence));
    replica.gate.apply_finished(GENERATION, 102, replica.now());
    assert_eq!(replica.reason(), Some(RefuseReason::IndexLag));
    replica
        .gate
        .apply_finished(GENERATION, 1_000_000, replica.now());
    assert_eq!(replica.reason(), Some(RefuseReason::Age));
    let Decision::Refuse(refusal) = replica.decide() else {
        panic!("served")
    };
    assert_eq!((refusal.age, refusal.lag), (Some(secs(60)), Lag::Known(0)));
}

#[test]
fn g5_the_check_after_the_lookup_counts_the_age_on() {
    let replica = Replica::proven();
    replica.wait(secs(4));
    let at = replica.now();
    let age = replica.age().expect("served");
    let served = Served {
        generation: GENERATION,
        at,
        age,
    };
    let recheck = |generation| {
        replica.gate.recheck(
            &served,
            generation,
            replica.now(),
            &replica.thresholds.into(),
        )
    };
    replica.wait(secs(6));
    assert_eq!(recheck(GENERATION), Decision::Serve { age: secs(10) });
    // The thread was stopped; meanwhile the others caught up and proved a newer map.
    replica.wait(NANO);
    replica.receive_and_apply(200);
    replica.probe(200);
    assert_eq!(replica.age(), Some(Duration::ZERO));
    assert_eq!(
        recheck(GENERATION).refused(),
        Some(RefuseReason::Age),
        "the snapshot is old"
    );
    assert_eq!(
        recheck(GENERATION + 1).refused(),
        Some(RefuseReason::NotProven)
    );
}

#[test]
fn g5_a_gate_that_shut_during_the_lookup_refuses() {
    let replica = Replica::proven();
    let served = Served {
        generation: GENERATION,
        at: replica.now(),
        age: Duration::ZERO,
    };
    replica.gate.gap(GENERATION, true);
    let again = replica.gate.recheck(
        &served,
        GENERATION,
        replica.now(),
        &replica.thresholds.into(),
    );
    assert_eq!(again.refused(), Some(RefuseReason::Gap));
}

#[test]
fn g5_readings_that_cross_are_no_age() {
    let replica = Replica::proven();
    let earlier = Moment::from_nanos(replica.now().as_nanos() - 5);
    let decision = replica
        .gate
        .decide(GENERATION, earlier, &replica.thresholds.into());
    assert_eq!(
        decision,
        Decision::Serve {
            age: Duration::ZERO
        }
    );
}

#[test]
fn g5_every_reason_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = RefuseReason::ALL
        .iter()
        .map(|reason| reason.as_str())
        .collect();
    assert_eq!(names.len(), RefuseReason::ALL.len());
    assert!(
        names
            .iter()
            .all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
    );
}

#[test]
fn thresholds_scale_down_together() {
    let tenth = Thresholds::default().scaled(10);
    assert_eq!(tenth.max_age, secs(1));
    assert_eq!(tenth.time_threshold, secs(3));
    assert_eq!(tenth.index_threshold, 2_000);
    assert_eq!(tenth.stall_threshold, Duration::from_millis(300));
    assert_eq!(Thresholds::default().scaled(0), Thresholds::default());
}
