//! The gate against a change of the generation.
#![cfg(tidegate_loom)]

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use tidegate_core::clock::Moment;
use tidegate_core::gate::{Decision, Gate, RefuseReason, Thresholds};
use tidegate_loom_tests::model;

fn at(seconds: u64) -> Moment {
    Moment::from_nanos(seconds * 1_000_000_000)
}

const LIMITS: Thresholds = Thresholds {
    max_age: Duration::from_secs(1_000),
    time_threshold: Duration::from_secs(1_000),
    index_threshold: 10,
    stall_threshold: Duration::from_secs(1_000),
};

/// Fills the bank of `generation`: one message applied, proven for `proven`.
fn fill(gate: &Gate, generation: u64, proven: Moment) {
    gate.begin(generation);
    gate.apply_finished(generation, 1, proven);
    gate.probe_answered(generation, proven, 1);
}

/// The age that `decision` allows, if it does; the clock stands at 400 s.
fn proven_at(decision: Decision) -> Option<u64> {
    match decision {
        Decision::Serve { age } => Some(400 - age.as_secs()),
        Decision::Refuse(_) => None,
    }
}

/// Defends that root and word must be equal: a map never answers on the proof of another
/// generation, whichever of the two the reader loads first.
#[test]
fn a_map_never_answers_on_another_generations_proof() {
    for root_first in [true, false] {
        let order = if root_first {
            "root first"
        } else {
            "word first"
        };
        model(
            &format!("gate::a_map_never_answers_on_another_generations_proof, {order}"),
            move || {
                let gate = Arc::new(Gate::new());
                fill(&gate, 1, at(100));
                // Stands for the map's root, with a content that belongs to its generation.
                let root = Arc::new(AtomicU64::new(1));
                gate.publish(1);
                let writer = {
                    let (gate, root) = (Arc::clone(&gate), Arc::clone(&root));
                    thread::spawn(move || {
                        fill(&gate, 2, at(200));
                        root.store(2, Ordering::Release);
                        gate.publish(2);
                    })
                };
                let (map, decision) = if root_first {
                    let map = root.load(Ordering::Acquire);
                    (map, gate.decide(map, at(400), &LIMITS.into()))
                } else {
                    let word = gate.generation();
                    let decision = gate.decide(word, at(400), &LIMITS.into());
                    let map = root.load(Ordering::Acquire);
                    assert!(map >= word, "the word is published after the root");
                    (
                        map,
                        if map == word {
                            decision
                        } else {
                            gate.decide(map, at(400), &LIMITS.into())
                        },
                    )
                };
                if let Some(proven) = proven_at(decision) {
                    assert_eq!(proven, map * 100);
                }
                writer.join().unwrap();
                assert_eq!(
                    proven_at(gate.decide(2, at(400), &LIMITS.into())),
                    Some(200)
                );
                assert_eq!(proven_at(gate.decide(1, at(400), &LIMITS.into())), None);
            },
        );
    }
}

/// Defends the withdrawal of the bank's generation, that it is looked at after the counters, and
/// the Release of every store that empties the bank: a reader of generation 1 that is still in its
/// bank when generation 3 takes it over is never told the counters of 3 for those of 1. In each
/// run one counter of generation 1 keeps the gate shut.
#[test]
fn a_bank_that_is_used_again_is_noticed() {
    for shut_by in [
        RefuseReason::Gap,
        RefuseReason::ApplyStall,
        RefuseReason::IndexLag,
    ] {
        let name = format!(
            "gate::a_bank_that_is_used_again_is_noticed, {}",
            shut_by.as_str()
        );
        model(&name, move || {
            let gate = Arc::new(Gate::new());
            fill(&gate, 1, at(100));
            match shut_by {
                RefuseReason::Gap => gate.gap(1, true),
                RefuseReason::ApplyStall => gate.apply_started(1, at(100)),
                _ => gate.head_received(1, 1_000),
            }
            gate.publish(1);
            let writer = {
                let gate = Arc::clone(&gate);
                thread::spawn(move || {
                    gate.begin(2);
                    gate.publish(2);
                    gate.begin(3);
                    gate.apply_finished(3, 1, at(300));
                    gate.probe_answered(3, at(300), 1);
                })
            };
            let limits = Thresholds {
                stall_threshold: Duration::from_secs(10),
                ..LIMITS
            };
            let reason = gate.decide(1, at(400), &limits.into()).refused();
            assert!(
                reason == Some(shut_by) || reason == Some(RefuseReason::NotProven),
                "{reason:?} instead of {shut_by:?}"
            );
            writer.join().unwrap();
        });
    }
}

/// Defends the same for the status page: a view holds the counters of one generation, or none.
#[test]
fn a_view_is_of_one_generation() {
    model("gate::a_view_is_of_one_generation", || {
        let gate = Arc::new(Gate::new());
        fill(&gate, 1, at(100));
        gate.publish(1);
        let writer = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                gate.begin(2);
                gate.publish(2);
                gate.begin(3);
                gate.head_received(3, 7);
            })
        };
        let view = gate.view();
        let seen = (view.head, view.applied, view.proven_at, view.last_sync);
        let unknown = (0, 0, None, None);
        let first = (1, 1, Some(at(100)), Some(at(100)));
        assert!(
            seen == unknown || (view.generation == 1 && seen == first),
            "{view:?}"
        );
        writer.join().unwrap();
    });
}

/// Defends the Release and Acquire of the bank's generation towards the events: whoever finds the
/// bank open for generation 3 finds it empty, and no probe of generation 1 in it.
#[test]
fn events_of_a_new_generation_find_an_empty_bank() {
    model(
        "gate::events_of_a_new_generation_find_an_empty_bank",
        || {
            let gate = Arc::new(Gate::new());
            fill(&gate, 1, at(1));
            gate.probe_answered(1, at(100), 5);
            gate.begin(2);
            gate.publish(2);
            let prober = {
                let gate = Arc::clone(&gate);
                thread::spawn(move || gate.probe_answered(3, at(50), 9))
            };
            gate.begin(3);
            prober.join().unwrap();
            gate.apply_finished(3, 5, at(200));
            gate.publish(3);
            assert_eq!(
                gate.view().proven_at,
                None,
                "proven by a probe of generation 1"
            );
        },
    );
}

/// Defends the Release of `publish`: who sees the word of generation 3 does not find the proof
/// that generation 1 has left in the same bank.
#[test]
fn a_generation_inherits_no_proof_from_its_bank() {
    model("gate::a_generation_inherits_no_proof_from_its_bank", || {
        let gate = Arc::new(Gate::new());
        fill(&gate, 1, at(100));
        gate.publish(1);
        let writer = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                gate.begin(2);
                gate.publish(2);
                gate.begin(3);
                gate.publish(3);
            })
        };
        let decision = gate.decide(3, at(400), &LIMITS.into());
        assert_eq!(
            decision.refused(),
            Some(RefuseReason::NotProven),
            "{decision:?}"
        );
        writer.join().unwrap();
    });
}

/// Defends the Release of the applied index: a decision to serve on an applied index is followed
/// by a map that holds it.
#[test]
fn who_sees_the_applied_index_sees_the_map() {
    model("gate::who_sees_the_applied_index_sees_the_map", || {
        let gate = Arc::new(Gate::new());
        fill(&gate, 1, at(100));
        gate.publish(1);
        let map = Arc::new(AtomicU64::new(1));
        let applier = {
            let (gate, map) = (Arc::clone(&gate), Arc::clone(&map));
            thread::spawn(move || {
                map.store(2, Ordering::Relaxed);
                gate.apply_finished(1, 2, at(100));
            })
        };
        let applied = gate.applied();
        assert!(map.load(Ordering::Relaxed) >= applied);
        applier.join().unwrap();
    });
}
