//! G5: a decision allocates nothing.
#![cfg(not(tidegate_loom))]

mod counting;

use std::time::Duration;

use counting::calls_during;
use tidegate_core::clock::{BootClock, Clock, Moment};
use tidegate_core::gate::{Decision, Gate, Limits, RefuseReason, Served, Thresholds};

#[test]
fn g5_a_decision_and_its_clock_reading_allocate_nothing() {
    let gate = Gate::new();
    let limits = Limits::from(Thresholds::default());
    let start = BootClock.now();
    gate.begin(1);
    gate.apply_finished(1, 5, start);
    gate.publish(1);
    let calls = calls_during(|| {
        assert_eq!(
            gate.decide(1, BootClock.now(), &limits).refused(),
            Some(RefuseReason::NotProven)
        );
        gate.probe_answered(1, start, 5);
        for _ in 0..1_000 {
            // Judged at a time of the test's own, so that a paused machine changes nothing.
            let _reading: Moment = BootClock.now();
            let at = start.saturating_add(Duration::from_secs(1));
            let Decision::Serve { age } = gate.decide(1, at, &limits) else {
                panic!("refused");
            };
            let served = Served {
                generation: 1,
                at,
                age,
            };
            assert!(gate.recheck(&served, 1, at, &limits).is_serve());
        }
        let late = start.saturating_add(Duration::from_secs(11));
        assert_eq!(
            gate.decide(1, late, &limits).refused(),
            Some(RefuseReason::Age)
        );
    });
    assert_eq!(calls, 0);
}
