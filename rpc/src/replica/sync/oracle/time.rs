//! When changes were made, and what is proven of that: a leader of release 8.5 whose one broadcaster is as slow as the
//! bytes say, and what a session makes of its broadcasts.
//!
//! The leader's changes have a time and, once the broadcaster takes them, an index. It takes what waits or says that
//! there is nothing new; the latter, when something waits, at most once in a row. What it sends reaches each stream that
//! is bound by then, in order, and each at its own time. Streams are opened, answered and bound in steps of their own.
//!
//! What must hold: when the gate says that a time is proven, every change that was made by then has an index below the
//! one that is applied. However long the bytes made it wait, a leader that goes on speaking is proven in the end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Moment;
use tidegate_core::clock::{Clock, ManualClock};
use tidegate_core::gate::Thresholds;

use crate::pd::Dialect;
use crate::proto::pdpb::SyncRegionResponse;
use crate::replica::state::Shared;

use super::super::frame::{Phase, Shape};
use super::super::gap::Gap;
use super::super::probe::{Shown, read_answer};
use super::super::proof::{Answer, Claims, Drained, Echo};
use super::super::receive::Reader;
use super::super::spoken::Spoken;
use super::Choices;
use super::leader::{BATCH, CLUSTER, Held, Leader, frame};

const GENERATION: u64 = 1;
/// The index of the first record.
const BASE: u64 = 1;
/// Streams of probes that are listened to.
const EARS: usize = 2;

/// The leader's end of a stream.
#[derive(Debug, Default)]
struct Line {
    asked: u64,
    answered: bool,
    bound: bool,
    /// Sent and not received.
    sent: VecDeque<SyncRegionResponse>,
}

impl Line {
    fn ask(index: u64) -> Self {
        Self {
            asked: index,
            ..Self::default()
        }
    }
}

#[derive(Debug)]
struct Ear {
    line: Line,
    opened_at: Moment,
    /// The answer has been received.
    listens: bool,
}

/// A leader's changes, of which nothing counts here but when they were made.
#[derive(Debug)]
struct Clockwork {
    record: Held,
    made: Vec<Moment>,
    recorded: usize,
    /// The last broadcast was made although something waited.
    overtook: bool,
}

impl Clockwork {
    fn head(&self) -> u64 {
        BASE + self.recorded as u64
    }

    fn waiting(&self) -> usize {
        self.made.len() - self.recorded
    }

    fn frame(&self, start: u64, len: usize) -> SyncRegionResponse {
        frame(start, &vec![self.record.clone(); len])
    }

    /// What the broadcaster sends next; `None` when it has nothing to send.
    fn compose(&mut self, ticks: bool) -> Option<SyncRegionResponse> {
        let waits = self.waiting() > 0;
        if ticks && !(waits && self.overtook) {
            self.overtook = waits;
            return Some(self.frame(self.head(), 0));
        }
        let taken = self.waiting().min(BATCH + 1);
        let start = self.head();
        self.recorded += taken;
        self.overtook = false;
        (taken > 0).then(|| self.frame(start, taken))
    }

    fn answer(&self, line: &mut Line) {
        if !line.answered {
            let missing = self.head().saturating_sub(line.asked);
            let missing = usize::try_from(missing).unwrap_or(usize::MAX);
            line.sent.push_back(self.frame(line.asked, missing));
            line.answered = true;
        }
    }
}

#[derive(Debug)]
struct World {
    clock: Arc<ManualClock>,
    shared: Arc<Shared>,
    leader: Clockwork,
    stream: Line,
    reader: Reader,
    claims: Claims,
    ears: VecDeque<Ear>,
    /// Received, and not applied: the index that follows.
    queue: VecDeque<u64>,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Moment::from_nanos(1)));
        let now = clock.now();
        let shared = Arc::new(Shared::new(
            Arc::clone(&clock) as Arc<dyn Clock>,
            Thresholds::default(),
        ));
        let generation = shared.gate.next_generation();
        assert_eq!(generation, GENERATION);
        shared.gate.begin(generation);
        shared.gate.head_received(generation, BASE);
        shared.gate.apply_finished(generation, BASE, now);
        shared.gate.publish(generation);
        Self {
            reader: reader(&shared, BASE),
            leader: Clockwork {
                record: Leader::new(Dialect::Release85, 0, 1).map()[0].clone(),
                made: Vec::new(),
                recorded: 0,
                overtook: false,
            },
            stream: Line::ask(BASE),
            claims: Claims::default(),
            ears: VecDeque::new(),
            queue: VecDeque::new(),
            clock,
            shared,
        }
    }

    /// A new session; what was received is applied.
    fn reconnect(&mut self) {
        while self.apply() {}
        let next = self.shared.gate.applied();
        self.stream = Line::ask(next);
        self.reader = reader(&self.shared, next);
        self.claims = Claims::default();
        self.ears.clear();
    }

    fn probe(&mut self) {
        self.ears.push_back(Ear {
            line: Line::ask(self.shared.gate.applied()),
            opened_at: self.clock.now(),
            listens: false,
        });
        if self.ears.len() > EARS {
            self.ears.pop_front();
        }
    }

    fn broadcast(&mut self, ticks: bool) {
        let Some(frame) = self.leader.compose(ticks) else {
            return;
        };
        let ears = self.ears.iter_mut().map(|ear| &mut ear.line);
        for line in ears.chain([&mut self.stream]).filter(|line| line.bound) {
            line.sent.push_back(frame.clone());
        }
    }

    fn line(&mut self, which: u64) -> Option<&mut Line> {
        match which {
            0 => Some(&mut self.stream),
            which => {
                let at = usize::try_from(which - 1).ok()?;
                self.ears.get_mut(at).map(|ear| &mut ear.line)
            }
        }
    }

    fn answer(&mut self, which: u64) {
        let Self {
            leader,
            stream,
            ears,
            ..
        } = self;
        let line = match which {
            0 => Some(stream),
            which => ears.get_mut(which as usize - 1).map(|ear| &mut ear.line),
        };
        if let Some(line) = line {
            leader.answer(line);
        }
    }

    fn bind(&mut self, which: u64) {
        if let Some(line) = self.line(which) {
            line.bound |= line.answered;
        }
    }

    fn receive(&mut self) {
        let Some(frame) = self.stream.sent.pop_front() else {
            return;
        };
        let end = frame.start_index + frame.regions.len() as u64;
        if self.reader.take(frame, self.clock.now()).is_err() {
            return self.reconnect();
        }
        self.queue.push_back(end);
        let drained = self.reader.drained;
        let proven: Vec<Answer> = self.claims.drained(drained).collect();
        for answer in proven {
            self.prove(answer);
        }
    }

    fn hear(&mut self, which: usize) {
        let Some(ear) = self.ears.get_mut(which) else {
            return;
        };
        let Some(frame) = ear.line.sent.pop_front() else {
            return;
        };
        let opened_at = ear.opened_at;
        let shape = Shape::of(&frame, CLUSTER);
        if ear.listens {
            self.ears.remove(which);
            if shape.len > 0 {
                return;
            }
            let proven = self.claims.echoed(Echo {
                generation: GENERATION,
                opened_at,
                heard_at: self.clock.now(),
                head: shape.start_index,
            });
            if let Some(answer) = proven {
                self.prove(answer);
            }
            return;
        }
        let asked = ear.line.asked;
        // A leader of release 8.5 answers with all that it has, however much.
        let Shown::Head(head) = read_answer(asked, shape, u64::MAX) else {
            return;
        };
        ear.listens = true;
        self.claims.answered(Answer {
            generation: GENERATION,
            sent_at: opened_at,
            head,
        });
        let drained = self.reader.drained;
        let proven: Vec<Answer> = self.claims.drained(drained).collect();
        for answer in proven {
            self.prove(answer);
        }
    }

    fn prove(&self, answer: Answer) {
        let Answer {
            generation,
            sent_at,
            head,
        } = answer;
        self.shared.gate.probe_answered(generation, sent_at, head);
    }

    fn apply(&mut self) -> bool {
        let Some(next) = self.queue.pop_front() else {
            return false;
        };
        let at = self.clock.now();
        self.shared.gate.apply_finished(GENERATION, next, at);
        true
    }

    fn check(&self) {
        let view = self.shared.gate.view();
        let Some(proven) = view.proven_at else { return };
        for (index, made) in (BASE..).zip(&self.leader.made) {
            assert!(
                *made > proven || index < view.applied,
                "{index}, made at {made:?}, is not among what is applied: {view:?}"
            );
        }
    }

    fn tick(&self) {
        self.clock.advance(Duration::from_nanos(1));
    }
}

fn reader(shared: &Arc<Shared>, next: u64) -> Reader {
    Reader {
        shared: Arc::clone(shared),
        cluster_id: CLUSTER,
        phase: Phase::Asked { index: next },
        generation: GENERATION,
        gap: Arc::new(Gap::new(GENERATION, None)),
        spoken: Arc::new(Spoken::new(Dialect::Release85)),
        batch_limit: BATCH as u64,
        drained: Drained::default(),
    }
}

/// Plays what `bytes` say.
///
/// # Panics
///
/// If something is proven that is not so, or never anything.
pub fn play(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let mut world = World::new();
    while let Some(choice) = choices.next() {
        match choice % 16 {
            0 | 1 => world.leader.made.push(world.clock.now()),
            2 => {
                for _ in 0..=choices.below(9) {
                    world.leader.made.push(world.clock.now());
                }
            }
            3 | 4 => world.broadcast(false),
            5 | 6 => world.broadcast(true),
            7 => world.probe(),
            8 => world.answer(choices.below(3)),
            9 => world.bind(choices.below(3)),
            10 | 11 => world.receive(),
            12 | 13 => world.hear(usize::from(choice >> 4) % EARS),
            14 => {
                world.apply();
            }
            _ if choice == u8::MAX => world.reconnect(),
            // As a probe goes when nothing is in its way.
            _ => {
                world.probe();
                let newest = world.ears.len() as u64;
                world.answer(newest);
                world.bind(newest);
                world.hear(world.ears.len() - 1);
            }
        }
        world.tick();
        world.check();
    }
    let since = world.clock.now();
    for _ in 0..64 {
        world.probe();
        world.tick();
        for which in 0..=EARS as u64 {
            world.answer(which);
            world.bind(which);
        }
        while world.leader.waiting() > 0 {
            world.broadcast(false);
        }
        world.broadcast(true);
        world.tick();
        while !world.stream.sent.is_empty() {
            world.receive();
        }
        while world.ears.iter().any(|ear| !ear.line.sent.is_empty()) {
            for which in 0..EARS {
                world.hear(which);
            }
        }
        while world.apply() {}
        world.tick();
        world.check();
        if world.shared.gate.view().proven_at > Some(since) {
            return;
        }
    }
    panic!("never proven: {world:?}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A change waits when a probe is answered; the record that shows that nothing waits any more is that very change,
    /// and it has been received and not applied.
    #[test]
    fn g3_what_shows_that_nothing_waits_has_to_be_applied_itself() {
        play(&[
            10, 48, 151, 136, 42, 201, 3, 40, 0, 5, 10, 167, 104, 29, 207, 19, 0, 0, 0, 3, 10, 170,
        ]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_048))]
        #[test]
        fn g3_what_is_proven_is_so_however_slow_the_broadcaster(
            bytes in proptest::collection::vec(any::<u8>(), 0..300)
        ) {
            play(&bytes);
        }
    }
}
