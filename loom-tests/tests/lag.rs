//! The counters of one generation: no mixture of loads looks fresher than any moment was.
#![cfg(tidegate_loom)]

use std::time::Duration;

use loom::sync::Arc;
use loom::thread;
use tidegate_core::clock::Moment;
use tidegate_core::gate::{Gate, Lag, Thresholds};
use tidegate_loom_tests::model;

fn at(seconds: u64) -> Moment {
    Moment::from_nanos(seconds * 1_000_000_000)
}

const LIMITS: Thresholds = Thresholds {
    max_age: Duration::from_secs(1_000),
    time_threshold: Duration::from_secs(50),
    index_threshold: 10,
    stall_threshold: Duration::from_secs(3),
};

/// A published generation 1, proven for 100 s, which serves.
fn gate() -> Arc<Gate> {
    let gate = Gate::new();
    gate.begin(1);
    gate.apply_finished(1, 1, at(100));
    gate.probe_answered(1, at(100), 1);
    gate.publish(1);
    Arc::new(gate)
}

/// Defends the Release of the gap flag and that the flag is loaded first: at every moment there is
/// a gap or a lag, so nobody may be served.
#[test]
fn a_closed_gap_shows_the_lag_that_it_left() {
    model("lag::a_closed_gap_shows_the_lag_that_it_left", || {
        let gate = gate();
        gate.gap(1, true);
        let writer = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                gate.head_received(1, 100);
                gate.gap(1, false);
            })
        };
        let decision = gate.decide(1, at(100), &LIMITS.into());
        assert!(!decision.is_serve(), "{decision:?} between gap and lag");
        writer.join().unwrap();
    });
}

/// Defends the Acquire of `apply_since` and its place before the indexes: at every moment the apply
/// is stalled or the lag is known.
#[test]
fn a_finished_stall_shows_the_lag_that_it_left() {
    model("lag::a_finished_stall_shows_the_lag_that_it_left", || {
        let gate = gate();
        gate.apply_started(1, at(90));
        let writer = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                gate.head_received(1, 100);
                gate.apply_finished(1, 2, at(90));
            })
        };
        let decision = gate.decide(1, at(100), &LIMITS.into());
        assert!(!decision.is_serve(), "{decision:?} between stall and lag");
        writer.join().unwrap();
    });
}

/// Defends G1's order and the Release of the applied index: a reader that sees it also sees the
/// head of the same frame.
#[test]
fn the_head_is_never_older_than_the_applied_index() {
    model(
        "lag::the_head_is_never_older_than_the_applied_index",
        || {
            let gate = gate();
            let writer = {
                let gate = Arc::clone(&gate);
                thread::spawn(move || {
                    gate.head_received(1, 5);
                    gate.apply_finished(1, 5, at(100));
                })
            };
            let view = gate.view();
            assert!(view.head >= view.applied, "{view:?}");
            writer.join().unwrap();
        },
    );
}

/// Defends the `fetch_max`: receiver and prober raise the known head at once, and the higher stays.
#[test]
fn the_higher_head_stays() {
    model("lag::the_higher_head_stays", || {
        let gate = gate();
        let prober = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.probe_answered(1, at(100), 9))
        };
        gate.head_received(1, 7);
        prober.join().unwrap();
        assert_eq!(gate.view().lag, Lag::Known(8));
    });
}
