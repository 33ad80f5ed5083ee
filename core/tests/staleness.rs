//! G3 and G5 against the truth: a leader whose every record has a time, a replica that follows it
//! with arbitrary delays, and a gate that must not promise more than is so.
#![cfg(not(tidegate_loom))]

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::clock::{Clock, ManualClock, Moment};
use tidegate_core::gate::{Decision, Gate, Lag, RefuseReason, Thresholds};

const THRESHOLDS: Thresholds = Thresholds {
    max_age: Duration::from_secs(10),
    time_threshold: Duration::from_secs(30),
    index_threshold: 50,
    stall_threshold: Duration::from_secs(3),
};

#[derive(Clone, Debug)]
enum Event {
    /// Time passes, in milliseconds.
    Wait(u64),
    /// The leader records this many changes.
    Record(usize),
    /// A frame with what the leader has recorded since the last one is received.
    Receive,
    /// The apply of the oldest received frame begins, or ends if it has begun.
    Apply,
    /// A probe is sent.
    Probe,
    /// The oldest unanswered probe reaches the leader.
    Arrive,
    /// The oldest answer reaches the replica.
    Answer,
    /// A full sync: everything that the leader has now, under the next generation.
    FullSync,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..4_000_u64).prop_map(Event::Wait),
        3 => (1..30_usize).prop_map(Event::Record),
        5 => Just(Event::Receive),
        8 => Just(Event::Apply),
        4 => Just(Event::Probe),
        4 => Just(Event::Arrive),
        4 => Just(Event::Answer),
        1 => Just(Event::FullSync),
    ]
}

/// The leader, the replica and what is on its way between them.
struct World {
    clock: ManualClock,
    gate: Gate,
    generation: u64,
    /// When the leader recorded each change; the index is the position.
    recorded: Vec<Moment>,
    received: u64,
    applied: u64,
    /// Received and not applied: the index after the frame, and its receipt time.
    frames: VecDeque<(u64, Moment)>,
    applying_since: Option<Moment>,
    last_sync: Moment,
    /// Sent: when. Then at the leader: its head at that time.
    probes: VecDeque<Moment>,
    answers: VecDeque<(Moment, u64)>,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new(Moment::from_nanos(1_000_000_000));
        let start = clock.now();
        let mut world = Self {
            clock,
            gate: Gate::new(),
            generation: 0,
            recorded: Vec::new(),
            received: 0,
            applied: 0,
            frames: VecDeque::new(),
            applying_since: None,
            last_sync: start,
            probes: VecDeque::new(),
            answers: VecDeque::new(),
        };
        world.full_sync();
        world
    }

    fn head(&self) -> u64 {
        self.recorded.len() as u64
    }

    fn full_sync(&mut self) {
        let now = self.clock.now();
        self.generation = self.gate.next_generation();
        self.gate.begin(self.generation);
        self.gate.head_received(self.generation, self.head());
        (self.received, self.applied) = (self.head(), self.head());
        self.frames.clear();
        self.applying_since = None;
        self.last_sync = now;
        self.gate.apply_finished(self.generation, self.applied, now);
        self.gate.publish(self.generation);
        // The session's probes end with it.
        self.probes.clear();
        self.answers.clear();
    }

    fn step(&mut self, event: &Event) {
        let now = self.clock.now();
        match event {
            Event::Wait(millis) => self.clock.advance(Duration::from_millis(*millis)),
            Event::Record(count) => self.recorded.resize(self.recorded.len() + count, now),
            Event::Receive => {
                // Also a keepalive, when there is nothing new.
                self.received = self.head();
                self.gate.head_received(self.generation, self.received);
                self.frames.push_back((self.received, now));
            }
            Event::Apply => match self.applying_since.take() {
                None if self.frames.is_empty() => {}
                None => {
                    self.gate.apply_started(self.generation, now);
                    self.applying_since = Some(now);
                }
                Some(_) => {
                    let (next, at) = self.frames.pop_front().expect("an apply has a frame");
                    (self.applied, self.last_sync) = (next, at);
                    self.gate.apply_finished(self.generation, next, at);
                }
            },
            Event::Probe => self.probes.push_back(now),
            Event::Arrive => {
                let head = self.head();
                self.answers
                    .extend(self.probes.pop_front().map(|sent| (sent, head)));
            }
            Event::Answer => {
                if let Some((sent, head)) = self.answers.pop_front() {
                    self.gate.probe_answered(self.generation, sent, head);
                }
            }
            Event::FullSync => self.full_sync(),
        }
    }

    /// How long the map has been lacking something that the leader had recorded.
    fn staleness(&self) -> Duration {
        self.recorded
            .get(self.applied as usize)
            .map_or(Duration::ZERO, |since| {
                self.clock.now().saturating_since(*since)
            })
    }

    fn check(&self) -> Result<Option<RefuseReason>, TestCaseError> {
        let now = self.clock.now();
        let lag = self.gate.view().lag;
        if let Lag::Known(records) = lag {
            prop_assert!(
                records <= self.head() - self.applied,
                "the known head is a real one"
            );
        }
        match self.gate.decide(self.generation, now, &THRESHOLDS.into()) {
            Decision::Serve { age } => {
                prop_assert!(age <= THRESHOLDS.max_age);
                prop_assert!(
                    self.staleness() <= age,
                    "{:?} stale, age {age:?}",
                    self.staleness()
                );
                prop_assert!(now.saturating_since(self.last_sync) <= THRESHOLDS.time_threshold);
                let stalled = self
                    .applying_since
                    .is_some_and(|since| now.saturating_since(since) > THRESHOLDS.stall_threshold);
                prop_assert!(!stalled);
                prop_assert!(
                    matches!(lag, Lag::Known(records) if records <= THRESHOLDS.index_threshold)
                );
                Ok(None)
            }
            Decision::Refuse(refusal) => Ok(Some(refusal.reason)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn g3_the_age_is_never_less_than_the_real_staleness(
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut world = World::new();
        for event in &events {
            world.step(event);
            world.check()?;
        }
        // A replica that hears everything and has a fresh proof serves again, whatever came before.
        if world.applying_since.is_none() {
            world.step(&Event::Receive);
            world.step(&Event::Apply);
        }
        while world.applying_since.is_some() || !world.frames.is_empty() {
            world.step(&Event::Apply);
        }
        world.step(&Event::Receive);
        world.step(&Event::Apply);
        world.step(&Event::Apply);
        world.probes.clear();
        world.answers.clear();
        world.step(&Event::Probe);
        world.step(&Event::Arrive);
        world.step(&Event::Answer);
        prop_assert_eq!(world.check()?, None);
    }
}
