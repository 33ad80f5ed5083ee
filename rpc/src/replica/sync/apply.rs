//! The apply task: what has been received becomes visible in the map, frame by frame.
//!
//! A frame is one batch, so a reader sees all of it or nothing. The next index advances by the frame's length, however
//! many of its regions the map refused as stale: the leader counts records, not effects.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Batch, Moment, Provenance, Region};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::proto::convert::Malformed;
use crate::replica::hooks::ApplyLayer;
use crate::replica::persist::Reign;
use crate::replica::state::{Shared, StreamState};

use super::decode;
use super::frame::Kind;
use super::gap::Gap;
use super::queue::{Queued, Received};
use super::staging::{Feed, Staged};

/// How far a session got.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Progress {
    /// The next index to apply in the map that answers; 0 when there is none.
    pub(super) next: u64,
    /// While a gap is open in that map: the index that closes it. As the session found it; its end brings it up to date.
    pub(super) gap_until: Option<u64>,
    /// A full sync was published.
    pub(super) published: bool,
    /// At least one frame was applied whole.
    pub(super) applied_any: bool,
}

pub(super) struct Applier {
    pub(super) shared: Arc<Shared>,
    pub(super) layer: Option<Arc<dyn ApplyLayer>>,
    pub(super) progress: Progress,
    /// What the stream's indexes belong to; `None` when its term could not be read.
    pub(super) reign: Option<Reign>,
    /// Present until the full sync of this session is published.
    pub(super) staged: Option<Staged>,
    /// The gap of the generation that this session feeds.
    pub(super) gap: Arc<Gap>,
    /// Told what this session feeds.
    pub(super) feed: watch::Sender<Feed>,
    /// Tells that a completed full sync has been probed, whatever came of it.
    pub(super) probed: watch::Receiver<bool>,
    /// How long a completed full sync waits for that.
    pub(super) probe_deadline: Duration,
    pub(super) batch_limit: u64,
}

impl Applier {
    /// Applies until the queue ends, something cannot be used, or the session is given up.
    pub(super) async fn run(
        mut self,
        mut queue: mpsc::Receiver<Queued>,
        give_up: CancellationToken,
    ) -> (Progress, Option<Malformed>) {
        let mut last = self.shared.gate.view().last_sync;
        loop {
            let queued = tokio::select! {
                biased;
                () = give_up.cancelled() => break,
                queued = queue.recv() => queued,
            };
            let Some(Queued { received, .. }) = &queued else {
                break;
            };
            self.started();
            if let Some(layer) = &self.layer {
                let passed = tokio::select! {
                    biased;
                    () = give_up.cancelled() => false,
                    () = layer.before_apply() => true,
                };
                if !passed {
                    self.finished(last);
                    break;
                }
            }
            if let Err(malformed) = self.apply(received).await {
                self.finished(last);
                return (self.progress, Some(malformed));
            }
            last = Some(received.at);
            self.finished(last);
        }
        (self.progress, None)
    }

    fn generation(&self) -> u64 {
        match &self.staged {
            Some(staged) => staged.generation(),
            None => self.shared.gate.generation(),
        }
    }

    fn started(&self) {
        let now = self.shared.clock.now();
        self.shared.gate.apply_started(self.generation(), now);
    }

    /// Ends an apply. A staged map has no index before it is complete, and a generation into which nothing was applied
    /// has no stamp.
    fn finished(&self, last: Option<Moment>) {
        if let (None, Some(at)) = (&self.staged, last) {
            self.shared
                .gate
                .apply_finished(self.generation(), self.progress.next, at);
            if let Some(persist) = self.shared.persist() {
                persist.reached(self.progress.next);
            }
        }
    }

    async fn apply(&mut self, received: &Received) -> Result<(), Malformed> {
        let frame = &received.frame;
        let (regions, fault) = decode::regions(frame);
        if fault.is_some() {
            self.shared.counters.malformed.add(1);
        }
        self.put(regions, received.at);
        if let Some(malformed) = fault {
            return Err(malformed);
        }
        let end = frame.start_index.saturating_add(frame.regions.len() as u64);
        match received.kind {
            Kind::Snapshot => self.shared.set_stream(StreamState::Snapshot),
            Kind::CatchUp => self.shared.set_stream(StreamState::CatchUp),
            Kind::Completion => self.complete(frame.start_index, received.at).await,
            Kind::Records => self.advance(end, frame.regions.len() as u64),
            Kind::InSync | Kind::Keepalive => self.live(),
            // The index waits for what is missing; the session has ended.
            Kind::Gap { .. }
            // The receiver ends the stream at these instead of queueing them.
            | Kind::Regressed | Kind::Broken(_) | Kind::Error => {}
        }
        self.progress.applied_any |= !matches!(received.kind, Kind::Gap { .. });
        Ok(())
    }

    fn put(&self, regions: Vec<Region>, received_at: Moment) {
        if regions.is_empty() {
            return;
        }
        let count = regions.len();
        let kept = self
            .shared
            .persist()
            .filter(|_| self.staged.is_none())
            .map(|persist| (persist, regions.iter().map(Region::id).collect::<Vec<_>>()));
        let mut batch = Batch::with_capacity(count);
        for region in regions {
            batch.put(region, Provenance::Stream { received_at });
        }
        let outcomes = match &self.staged {
            Some(staged) => staged.apply(batch),
            None => self.shared.map.apply(batch),
        };
        if let Some((persist, ids)) = kept {
            persist.changed(&ids);
        }
        let refused = outcomes
            .iter()
            .filter(|outcome| outcome.is_refused())
            .count();
        self.shared.counters.regions.add(count as u64);
        self.shared.counters.stale_skips.add(refused as u64);
    }

    fn advance(&mut self, next: u64, records: u64) {
        self.progress.next = next;
        self.gap.applied(&self.shared.gate, next);
        if records < self.batch_limit || self.shared.stream() == StreamState::Live {
            self.live();
        } else {
            self.shared.set_stream(StreamState::CatchUp);
            self.follow();
        }
    }

    async fn complete(&mut self, next: u64, received_at: Moment) {
        let Some(staged) = self.staged.take() else {
            return;
        };
        let (gate, generation) = (&self.shared.gate, staged.generation());
        gate.apply_finished(generation, next, received_at);
        if self.old_map_answers() {
            self.feed.send_replace(Feed::Complete {
                generation,
                index: next,
            });
            // Without an answer in time, or when the watch has gone away, the map goes without a proof.
            let _ = timeout(self.probe_deadline, self.probed.wait_for(|probed| *probed)).await;
        }
        staged.publish(&self.shared);
        if let Some(persist) = self.shared.persist() {
            persist.replaced(generation, self.reign.clone(), next);
        }
        self.progress = Progress {
            next,
            gap_until: None,
            published: true,
            applied_any: true,
        };
        self.shared.counters.full_syncs_published.add(1);
        self.live();
    }

    fn old_map_answers(&self) -> bool {
        let Shared {
            map,
            gate,
            clock,
            thresholds,
            ..
        } = &*self.shared;
        gate.decide(map.generation(), clock.now(), &thresholds.get())
            .is_serve()
    }

    fn live(&self) {
        self.shared.set_stream(StreamState::Live);
        self.follow();
    }

    fn follow(&self) {
        self.feed
            .send_if_modified(|feed| std::mem::replace(feed, Feed::Answering) != Feed::Answering);
    }
}
