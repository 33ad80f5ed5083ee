//! The receive task: takes frames off the wire, says at once what they show, and queues them.
//!
//! It never applies anything and never waits for what does, so the leader's sends are not held up by the map. What a
//! frame tells about time and head is recorded here, on receipt: the head goes to the gate before the frame is queued
//! (G1), and the time of receipt travels with the frame (G2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_core::Moment;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::pd::FrameSource;
use crate::proto::pdpb::SyncRegionResponse;
use crate::replica::state::Shared;

use super::ending::Ending;
use super::frame::{Kind, OLD_BATCH, Phase, Shape, classify};
use super::gap::Gap;
use super::proof::Drained;
use super::queue::{Intake, NotQueued, Received};
use super::spoken::Spoken;
use crate::pd::Dialect;

/// When the stream was last heard of.
#[derive(Debug)]
pub(super) struct Heard {
    last: AtomicU64,
    drained: watch::Sender<Drained>,
    again: Notify,
}

impl Heard {
    pub(super) fn at(moment: Moment, drained: Drained) -> Self {
        Self {
            last: AtomicU64::new(moment.as_nanos()),
            drained: watch::Sender::new(drained),
            again: Notify::new(),
        }
    }

    /// The last broadcast that held all that waited.
    pub(super) fn drained(&self) -> Drained {
        *self.drained.borrow()
    }

    /// Returns when all that waited has been broadcast, from `index` on.
    pub(super) async fn drained_from(&self, index: u64) {
        let mut drained = self.drained.subscribe();
        // The sender is here.
        let _ = drained.wait_for(|drained| drained.start >= index).await;
    }

    pub(super) fn last(&self) -> Moment {
        // Relaxed: one value by itself; whoever reads it reads nothing else on the strength of it.
        Moment::from_nanos(self.last.load(Relaxed))
    }

    fn note(&self, at: Moment) {
        // Relaxed: see `last`.
        self.last.store(at.as_nanos(), Relaxed);
        self.again.notify_waiters();
    }

    fn note_drained(&self, drained: Drained) {
        self.drained
            .send_if_modified(|last| std::mem::replace(last, drained) != drained);
    }

    /// Returns when the stream has been heard of since `moment`.
    pub(super) async fn since(&self, moment: Moment) {
        loop {
            // Made before the look, so that what is heard in between wakes it.
            let again = self.again.notified();
            if self.last() > moment {
                return;
            }
            again.await;
        }
    }
}

/// A frame that ends the stream: why, and the frame if its regions are to be applied all the same.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) ending: Ending,
    pub(super) received: Option<Received>,
}

/// Gives frames their meaning and tells the gate what they show.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) shared: Arc<Shared>,
    pub(super) cluster_id: u64,
    pub(super) phase: Phase,
    /// The generation that the stream feeds: the one that answers, or the one of the full sync.
    pub(super) generation: u64,
    /// The gap of that generation.
    pub(super) gap: Arc<Gap>,
    /// What the leader has shown of its dialect.
    pub(super) spoken: Arc<Spoken>,
    pub(super) batch_limit: u64,
    /// The last broadcast that held all that waited.
    pub(super) drained: Drained,
}

impl Reader {
    /// The meaning of the first frame, before it counts for anything: the term is confirmed in between.
    pub(super) fn peek(&self, frame: &SyncRegionResponse) -> Kind {
        let shape = Shape::of(frame, self.cluster_id);
        classify(self.phase, shape, self.spoken.dialect()).0
    }

    /// Takes a frame that was received at `at`.
    pub(super) fn take(
        &mut self,
        frame: SyncRegionResponse,
        at: Moment,
    ) -> Result<Received, Box<Last>> {
        let shape = Shape::of(&frame, self.cluster_id);
        let at_once = matches!(self.phase, Phase::Asked { .. });
        let (kind, next) = classify(self.phase, shape, self.spoken.dialect());
        if kind.shows_master(self.phase, shape) {
            self.spoken.shown_master();
            self.shared.note_dialect(Dialect::Master);
        }
        if kind == Kind::Joined {
            self.spoken.shown_release85();
        }
        let records = matches!(kind, Kind::Joined | Kind::Records) && shape.len > 0;
        if records && self.holds_all_that_waited(shape) {
            self.drained = Drained {
                start: shape.start_index,
                end: shape.start_index.saturating_add(shape.len),
            };
        }
        self.phase = next;
        if let Some(head) = kind.head(shape) {
            self.shared.gate.head_received(self.generation, head);
        }
        let last = |ending, received| Err(Box::new(Last { ending, received }));
        match kind {
            Kind::Error => {
                self.shared.counters.error_frames.add(1);
                let error = frame.header.and_then(|header| header.error);
                let message = error.map_or_else(String::new, |error| error.message);
                last(Ending::LeaderError(message), None)
            }
            Kind::Broken(what) => {
                self.shared.counters.malformed.add(1);
                last(Ending::Broken(what), None)
            }
            Kind::Regressed => last(Ending::Regressed, None),
            Kind::Gap { missing } => {
                // Before anything beyond the gap is applied.
                let until = shape.start_index.saturating_add(shape.len);
                self.gap.open(&self.shared.gate, until);
                let received = Received { kind, frame, at };
                last(
                    Ending::Gap {
                        missing,
                        until,
                        at_once,
                    },
                    Some(received),
                )
            }
            Kind::Snapshot
            | Kind::CatchUp
            | Kind::Completion
            | Kind::Records
            | Kind::InSync
            | Kind::Keepalive
            | Kind::Joined => Ok(Received { kind, frame, at }),
        }
    }

    /// Whether records were broadcast by release 8.5's broadcaster with nothing left behind: not in answer to the
    /// request, which it has no part in, and not the full frame that it sends when more waits.
    fn holds_all_that_waited(&self, frame: Shape) -> bool {
        let answers = matches!(self.phase, Phase::Asked { index } if index == frame.start_index);
        !answers && frame.len <= self.batch_limit && frame.len != OLD_BATCH + 1
    }
}

/// Receives until the stream ends, falls silent, or is given up; sends the reason to `endings`.
pub(super) async fn receive<F: FrameSource>(
    mut reader: Reader,
    mut frames: F,
    intake: Intake,
    heard: Arc<Heard>,
    endings: mpsc::Sender<Ending>,
    give_up: CancellationToken,
) {
    let work = async {
        let silence = reader.shared.thresholds.get().time_threshold;
        loop {
            let frame = match timeout(silence, frames.next_frame()).await {
                Err(_) => return Some(Ending::Silence(silence)),
                Ok(Err(error)) => return Some(Ending::Call(error)),
                Ok(Ok(None)) => return Some(Ending::Closed),
                Ok(Ok(Some(frame))) => frame,
            };
            let at = reader.shared.clock.now();
            heard.note(at);
            reader.shared.counters.frames.add(1);
            match reader.take(frame, at) {
                Ok(received) => {
                    heard.note_drained(reader.drained);
                    let queued = match received.kind {
                        // Sent to nobody else, and no faster than they are taken.
                        Kind::Snapshot | Kind::CatchUp | Kind::Completion => {
                            intake.put(received).await.map_err(|_| NotQueued::Gone)
                        }
                        _ => intake.offer(received),
                    };
                    match queued {
                        Ok(()) => {}
                        Err(NotQueued::Full) => return Some(Ending::Backlog),
                        // The applier has said why.
                        Err(NotQueued::Gone) => return None,
                    }
                }
                Err(last) => {
                    // Beyond a gap nothing is lost that is not asked for again.
                    if let Some(received) = last.received {
                        let _ = intake.offer(received);
                    }
                    return Some(last.ending);
                }
            }
        }
    };
    let ending = tokio::select! {
        biased;
        () = give_up.cancelled() => None,
        ending = work => ending,
    };
    if let Some(ending) = ending {
        // Only the first reason counts; there may be nobody left to hear a later one.
        let _ = endings.try_send(ending);
    }
}
