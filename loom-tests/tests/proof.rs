//! Proofs: a probe's answer against the apply that it waits for.
#![cfg(tidegate_loom)]

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use tidegate_core::clock::Moment;
use tidegate_core::gate::{Decision, Gate, Thresholds};
use tidegate_loom_tests::model;

fn at(seconds: u64) -> Moment {
    Moment::from_nanos(seconds * 1_000_000_000)
}

/// A published generation 1 in which everything before `applied` is applied and nothing proven.
fn gate(applied: u64) -> Arc<Gate> {
    let gate = Gate::new();
    gate.begin(1);
    gate.apply_finished(1, applied, at(1));
    gate.publish(1);
    Arc::new(gate)
}

/// Defends the two sequentially consistent fences: without either, prober and applier both look
/// before the other's word arrives, and the proof is lost.
#[test]
fn no_proof_is_lost_between_prober_and_applier() {
    model("proof::no_proof_is_lost_between_prober_and_applier", || {
        let gate = gate(4);
        let prober = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.probe_answered(1, at(9), 5))
        };
        gate.apply_finished(1, 5, at(8));
        prober.join().unwrap();
        assert_eq!(gate.view().proven_at, Some(at(9)));
    });
}

/// Defends the Release of `proven_at` and of the applied index: who is told that everything up to
/// the probe is in the map finds it there, also when the prober settles what the applier did.
#[test]
fn who_sees_the_proof_sees_the_map() {
    model("proof::who_sees_the_proof_sees_the_map", || {
        let gate = gate(4);
        gate.probe_answered(1, at(1), 4);
        let map = Arc::new(AtomicU64::new(4));
        let prober = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.probe_answered(1, at(100), 5))
        };
        let applier = {
            let (gate, map) = (Arc::clone(&gate), Arc::clone(&map));
            thread::spawn(move || {
                map.store(5, Ordering::Relaxed);
                gate.apply_finished(1, 5, at(100));
            })
        };
        let limits = Thresholds {
            time_threshold: Duration::MAX,
            ..Thresholds::default()
        };
        if let Decision::Serve { age } = gate.decide(1, at(101), &limits.into()) {
            assert_eq!(age, Duration::from_secs(1));
            assert_eq!(map.load(Ordering::Relaxed), 5, "proven, and not there");
        }
        prober.join().unwrap();
        applier.join().unwrap();
    });
}

/// Defends the Release and Acquire of the pending array's two ends, across a wrap: a place is read
/// whole and written again only when it has been read, so that no probe proves another's time.
#[test]
fn a_place_is_used_again_only_when_it_has_been_read() {
    model(
        "proof::a_place_is_used_again_only_when_it_has_been_read",
        || {
            let gate = gate(0);
            // Both places are taken.
            gate.probe_answered(1, at(1), 1);
            gate.probe_answered(1, at(2), 2);
            let prober = {
                let gate = Arc::clone(&gate);
                thread::spawn(move || {
                    gate.probe_answered(1, at(3), 3);
                    gate.probe_answered(1, at(4), 4);
                })
            };
            for index in 1..=3 {
                gate.apply_finished(1, index, at(1));
                let proven = gate.view().proven_at;
                assert!(proven >= Some(at(index.min(2))), "{proven:?} after {index}");
                assert!(proven <= Some(at(index)), "{proven:?} after {index}");
            }
            prober.join().unwrap();
            assert!(gate.view().proven_at <= Some(at(3)));
        },
    );
}
