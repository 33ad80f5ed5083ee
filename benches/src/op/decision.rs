//! The gate's decision, and the clock that it is given a reading of.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;

use tidegate_core::Moment;
use tidegate_core::clock::{BootClock, Clock};
use tidegate_core::gate::{Decision, Gate, Limits, Thresholds};

use super::Effort;
use crate::round::{Lane, Row, Subject, Timing, alternate, timed};

const GENERATION: u64 = 1;
const HEAD: u64 = 1_000;
const PROVEN: Moment = Moment::from_nanos(1_000_000_000);
const NOW: Moment = Moment::from_nanos(2_000_000_000);

/// A gate that serves at the fixed moment of these benches.
///
/// # Panics
/// If it does not.
#[must_use]
pub fn open_gate() -> Gate {
    let gate = Gate::new();
    gate.begin(GENERATION);
    gate.head_received(GENERATION, HEAD);
    gate.apply_started(GENERATION, PROVEN);
    gate.apply_finished(GENERATION, HEAD, PROVEN);
    gate.publish(GENERATION);
    gate.probe_answered(GENERATION, PROVEN, HEAD);
    assert!(
        decide(&gate, &Thresholds::default().into()),
        "a proven gate serves"
    );
    gate
}

/// One decision; whether it is to serve.
#[must_use]
pub fn decide(gate: &Gate, limits: &Limits) -> bool {
    matches!(
        gate.decide(GENERATION, black_box(NOW), limits),
        Decision::Serve { .. }
    )
}

/// The same counters behind a mutex.
#[derive(Debug)]
struct Counters {
    generation: u64,
    head: u64,
    applied: u64,
    proven_at: Option<Moment>,
    last_sync: Option<Moment>,
    apply_since: Option<Moment>,
    gap: bool,
}

impl Counters {
    fn serves(&self, generation: u64, now: Moment, t: &Thresholds) -> bool {
        let within = |since: Option<Moment>, limit: Duration| {
            since.is_some_and(|since| now.saturating_since(since) <= limit)
        };
        self.generation == generation
            && within(self.proven_at, t.max_age)
            && !self.gap
            && self.head.saturating_sub(self.applied) <= t.index_threshold
            && within(self.last_sync, t.time_threshold)
            && self
                .apply_since
                .is_none_or(|since| within(Some(since), t.stall_threshold))
    }
}

/// So many decisions for each operation that is asked for: they take a few nanoseconds, of which a
/// processor that was busy with something else needs many to come into step.
const DECISIONS: usize = 16;

/// Times so many decisions, after an eighth of them.
fn repeat(count: usize, decide: impl Fn() -> bool) -> Timing {
    black_box((0..count / 8).all(|_| decide()));
    timed(count, || (0..count).all(|_| decide()))
}

/// `gate`: a decision at a given time; `clock`: a reading of that time.
#[must_use]
pub fn gate(effort: Effort) -> Vec<Row> {
    let thresholds = Thresholds::default();
    let limits = thresholds.into();
    let gate = open_gate();
    let counters = Mutex::new(Counters {
        generation: GENERATION,
        head: HEAD,
        applied: HEAD,
        proven_at: Some(PROVEN),
        last_sync: Some(PROVEN),
        apply_since: None,
        gap: false,
    });
    let count = effort.operations * DECISIONS;
    let lanes = vec![
        Lane::new("tidegate", |_| {
            repeat(count, || decide(black_box(&gate), black_box(&limits)))
        }),
        Lane::new("mutex_struct", |_| {
            repeat(count, || {
                let counters = black_box(&counters).lock().expect("no holder panics");
                counters.serves(GENERATION, black_box(NOW), black_box(&thresholds))
            })
        }),
    ];
    let subject = |op| Subject {
        op,
        regions: 0,
        threads: 1,
    };
    let mut rows = alternate(subject("gate"), effort.rounds, lanes);

    let clock = Lane::new("tidegate", |_| {
        timed(count, || {
            for _ in 0..count {
                black_box(BootClock.now());
            }
        })
    });
    rows.extend(alternate(subject("clock"), effort.rounds, vec![clock]));
    rows
}
