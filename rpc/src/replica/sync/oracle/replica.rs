//! The replica: the pure part of a session, with what waits between its parts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Moment;
use tidegate_core::clock::{Clock, ManualClock};
use tidegate_core::gate::Thresholds;

use crate::pd::Dialect;
use crate::proto::metapb::Peer;
use crate::proto::pdpb::{Error, ResponseHeader, SyncRegionResponse};
use crate::replica::state::Shared;

use super::super::begin::{Asked, begin, start_index};
use super::super::ending::Ending;
use super::super::follower::{Fetched, Follower, Progress, Then, Want};
use super::super::frame::{Copied, Copying, Shape};
use super::super::queue::Received;
use super::super::receive::Reader;
use super::super::spoken::Spoken;
use super::Choices;
use super::leader::{BATCH, CLUSTER, Held, Leader, frame};

/// The leader's end of a connection.
#[derive(Debug, Default)]
struct Line {
    sent: VecDeque<SyncRegionResponse>,
    /// The index of the next record; `None` until the stream is bound to the broadcast.
    cursor: Option<u64>,
}

/// What is being fetched.
#[derive(Debug)]
enum Fetch {
    Copy {
        line: VecDeque<SyncRegionResponse>,
        copying: Copying,
    },
    Scan {
        /// `None` behind the last region.
        start: Option<Vec<u8>>,
    },
}

#[derive(Debug)]
struct Session {
    line: Line,
    asked: u64,
    spoken: Arc<Spoken>,
    following: Option<(Reader, Follower)>,
    queue: VecDeque<Received>,
    fetch: Option<Fetch>,
}

#[derive(Debug)]
pub(super) struct Replica {
    shared: Arc<Shared>,
    clock: Arc<ManualClock>,
    session: Option<Session>,
    progress: Progress,
    dialect: Dialect,
    trusts: bool,
}

impl Replica {
    pub(super) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Moment::from_nanos(1)));
        Self {
            shared: Arc::new(Shared::new(
                Arc::clone(&clock) as Arc<dyn Clock>,
                Thresholds::default(),
            )),
            clock,
            session: None,
            progress: Progress::default(),
            dialect: Dialect::Release85,
            trusts: false,
        }
    }

    pub(super) fn tick(&self) {
        self.clock.advance(Duration::from_millis(1));
    }

    /// Opens a session if there is none, and lets the leader answer.
    pub(super) fn connect(&mut self, leader: &Leader) {
        if self.session.is_some() {
            return;
        }
        let own = self.trusts.then_some(self.progress.next);
        let asked = start_index(own, self.dialect);
        self.session = Some(Session {
            line: answer(leader, asked),
            asked,
            spoken: Arc::new(Spoken::new(self.dialect)),
            following: None,
            queue: VecDeque::new(),
            fetch: None,
        });
    }

    /// The connection is lost; what was received is applied.
    pub(super) fn lose(&mut self) {
        self.end(None);
    }

    fn end(&mut self, ending: Option<&Ending>) {
        while let Some(true) = self.apply_one() {}
        let Some(session) = self.session.take() else {
            return;
        };
        self.dialect = session.spoken.dialect();
        if let Some((_, follower)) = session.following {
            let gap = &follower.gap;
            let mut progress = follower.progress;
            if gap.generation() == self.shared.gate.generation() {
                progress.gap_until = gap.until();
            }
            self.trusts |= progress.published;
            self.progress = Progress {
                published: false,
                applied_any: false,
                ..progress
            };
        } else if let Some(Ending::Gap { until, .. }) = ending {
            self.progress.gap_until = self.progress.gap_until.max(Some(*until));
        }
        if ending.is_some_and(Ending::distrusts_index) {
            self.trusts = false;
        }
    }

    /// The leader sends what is new, at most one frame of it.
    pub(super) fn send(&mut self, leader: &Leader, lag: u64) {
        let Some(session) = &mut self.session else {
            return;
        };
        let Some(cursor) = session.line.cursor else {
            // Release 8.5 binds after its answer, by then the head may be elsewhere.
            session.line.cursor = Some(leader.head());
            return;
        };
        let most = match leader.dialect {
            Dialect::Master => BATCH,
            Dialect::Release85 => BATCH + 1,
        };
        match leader.records(
            cursor,
            most.min(usize::try_from(lag).unwrap_or(most)).max(1),
        ) {
            Some([]) => {}
            Some(records) => {
                session.line.sent.push_back(frame(cursor, records));
                session.line.cursor = Some(cursor + records.len() as u64);
            }
            // Fallen out of the ring: dropped.
            None => self.end(None),
        }
    }

    /// The leader has nothing to say, if it has nothing.
    pub(super) fn keepalive(&mut self, leader: &Leader) {
        if let Some(session) = &mut self.session
            && session.line.cursor == Some(leader.head())
        {
            session.line.sent.push_back(frame(leader.head(), &[]));
        }
    }

    pub(super) fn receive(&mut self, leader: &Leader) {
        let Some(session) = &mut self.session else {
            return;
        };
        match session.line.sent.pop_front() {
            Some(frame) => self.take(frame),
            None => self.keepalive(leader),
        }
    }

    fn take(&mut self, frame: SyncRegionResponse) {
        let Some(session) = &mut self.session else {
            return;
        };
        let at = self.clock.now();
        let received = match &mut session.following {
            Some((reader, _)) => reader.take(frame, at).map_err(|last| {
                session.queue.extend(last.received);
                last.ending
            }),
            None => {
                let asked = Asked {
                    cluster_id: CLUSTER,
                    start_index: session.asked,
                    progress: self.progress,
                    spoken: Arc::clone(&session.spoken),
                    reign: None,
                    batch_limit: BATCH as u64,
                };
                begin(&self.shared, asked, frame, at).map(|begun| {
                    session.following = Some((begun.reader, begun.follower));
                    begun.first
                })
            }
        };
        match received {
            Ok(received) => session.queue.push_back(received),
            Err(ending) => self.end(Some(&ending)),
        }
    }

    pub(super) fn apply(&mut self) {
        self.apply_one();
    }

    /// Whether there was something, and it could be used.
    fn apply_one(&mut self) -> Option<bool> {
        let session = self.session.as_mut()?;
        let (_, follower) = session.following.as_mut()?;
        let received = session.queue.pop_front()?;
        let then = follower.take(&received);
        Some(self.act(then, Some(received.at)))
    }

    fn act<E>(&mut self, then: Result<Then, E>, at: Option<Moment>) -> bool {
        let Some(session) = &mut self.session else {
            return false;
        };
        let Some((_, follower)) = &mut session.following else {
            return false;
        };
        let Ok(then) = then else {
            session.queue.clear();
            self.end(None);
            return false;
        };
        match then {
            Then::Nothing | Then::Answering => {}
            Then::Complete => {
                follower.ready();
                follower.publish();
            }
            Then::Fetch(Want::Copy) => {
                session.fetch = Some(Fetch::Copy {
                    line: VecDeque::new(),
                    copying: Copying::default(),
                });
            }
            Then::Fetch(Want::Scan) => {
                session.fetch = Some(Fetch::Scan {
                    start: Some(Vec::new()),
                });
            }
            Then::Fetch(Want::Nothing) => {}
        }
        follower.finished(at);
        true
    }

    /// A step of what is fetched beside the stream.
    pub(super) fn fetch(&mut self, leader: &Leader) {
        let at = self.clock.now();
        let Some(session) = &mut self.session else {
            return;
        };
        let fetched = match session.fetch.take() {
            None => return,
            Some(Fetch::Copy {
                mut line,
                mut copying,
            }) => {
                if copying == Copying::default() {
                    line = answer(leader, 0).sent;
                }
                // Nothing more is a keepalive.
                let frame = line
                    .pop_front()
                    .unwrap_or_else(|| frame(leader.head(), &[]));
                match copying.take(Shape::of(&frame, CLUSTER), BATCH as u64) {
                    Copied::Part { last } => {
                        session.fetch = Some(if last {
                            Fetch::Copy {
                                line: VecDeque::from([super::leader::frame(0, &[])]),
                                copying,
                            }
                        } else {
                            Fetch::Copy { line, copying }
                        });
                        Fetched::Part {
                            frame,
                            asked_at: None,
                            at,
                        }
                    }
                    Copied::Ended => Fetched::End,
                    Copied::Error | Copied::Broken(_) => return self.end(None),
                }
            }
            Some(Fetch::Scan { start }) => {
                let page = start.map_or_else(Vec::new, |start| leader.scan(&start, 2));
                match page.last().map(|last| last.region.end_key.to_vec()) {
                    None => Fetched::End,
                    Some(end) => {
                        session.fetch = Some(Fetch::Scan {
                            start: Some(end).filter(|end| !end.is_empty()),
                        });
                        Fetched::Part {
                            frame: frame(0, &page),
                            asked_at: Some(at),
                            at,
                        }
                    }
                }
            }
        };
        let Some((_, follower)) = &mut session.following else {
            return;
        };
        let then = follower.add(&fetched);
        self.act(then, None);
    }

    /// A frame that no leader sends.
    pub(super) fn inject(&mut self, choices: &mut Choices<'_>) {
        let start = match choices.below(4) {
            0 => choices.below(5),
            1 => 100 + choices.below(20),
            2 => u64::MAX - choices.below(3),
            _ => self.progress.next,
        };
        let mut frame = frame(start, &[]);
        for _ in 0..choices.below(5) {
            let mut held = Leader::new(Dialect::Master, 0, 1).map()[0].clone();
            held.region.id = choices.below(4);
            held.region.start_key = vec![b'a' + choices.below(8) as u8].into();
            held.region.end_key = vec![b'a' + choices.below(8) as u8].into();
            if let Some(epoch) = &mut held.region.region_epoch {
                epoch.version = choices.below(4);
                epoch.conf_ver = choices.below(3);
            }
            frame.regions.push(held.region);
        }
        match choices.below(6) {
            0 => frame.region_leaders = vec![Peer::default(); 2],
            1 => {
                frame.header = Some(ResponseHeader {
                    cluster_id: CLUSTER + choices.below(2),
                    error: (choices.below(2) == 0).then(Error::default),
                });
            }
            2 => frame.header = None,
            _ => {}
        }
        self.take(frame);
    }

    /// Nothing older than the claim.
    pub(super) fn check(&self, leader: &Leader) {
        let view = self.shared.gate.view();
        if view.generation == 0 || view.gap {
            return;
        }
        assert!(view.applied <= leader.head(), "{view:?}");
        for held in self.held() {
            assert!(
                leader.held_since(view.applied, &held),
                "not since {}: {held:?}",
                view.applied
            );
        }
        if view.applied == leader.head() && leader.everything_is_recorded() {
            assert_eq!(self.held(), leader.map(), "at the head");
        }
    }

    /// What it claims, and what it is at.
    pub(super) fn stands(&self) -> String {
        let session = self.session.as_ref();
        let at = session.map(|session| (session.asked, session.line.cursor, &session.fetch));
        format!("{:?}; {at:?}", self.shared.gate.view())
    }

    pub(super) fn is_at_head(&self, leader: &Leader) -> bool {
        let view = self.shared.gate.view();
        view.generation != 0
            && !view.gap
            && view.applied == leader.head()
            && leader.everything_is_recorded()
            && self.held() == leader.map()
    }

    fn held(&self) -> Vec<Held> {
        let snapshot = self.shared.map.pin();
        let region = |entry: &tidegate_core::Entry| Held {
            region: crate::proto::convert::region_to_pb(entry.region()),
            leader: crate::proto::convert::leader_to_pb(entry.region()).unwrap_or_default(),
        };
        snapshot.iter().map(|entry| region(&entry)).collect()
    }
}

/// What a leader answers an index with, before it is followed.
fn answer(leader: &Leader, asked: u64) -> Line {
    let head = leader.head();
    let copy = || {
        let copy = leader.copy();
        let mut position = 0;
        let mut sent = VecDeque::new();
        for part in copy.chunks(BATCH) {
            sent.push_back(frame(position, part));
            position += part.len() as u64;
        }
        sent
    };
    let mut sent = VecDeque::new();
    match (leader.dialect, leader.records(asked, usize::MAX)) {
        (Dialect::Master, Some([])) if asked != 0 => sent.push_back(frame(asked, &[])),
        (Dialect::Master, Some(records)) if asked != 0 => {
            let mut index = asked;
            for part in records.chunks(BATCH) {
                sent.push_back(frame(index, part));
                index += part.len() as u64;
            }
        }
        (Dialect::Master, _) => {
            sent = copy();
            sent.push_back(frame(head, &[]));
        }
        (Dialect::Release85, Some(records)) => {
            sent.push_back(frame(asked, records));
            return Line { sent, cursor: None };
        }
        (Dialect::Release85, None) => {
            if asked == 0 {
                sent = copy();
            }
            return Line { sent, cursor: None };
        }
    }
    Line {
        sent,
        cursor: Some(head),
    }
}
