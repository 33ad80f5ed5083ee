//! The apply task: what has been received becomes visible in the map, frame by frame.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::proto::convert::Malformed;
use crate::replica::hooks::ApplyLayer;
use crate::replica::state::Shared;

use super::follower::{Fetched, Follower, Progress, Then, Want};
use super::queue::Queued;
use super::staging::Feed;

pub(super) struct Applier {
    pub(super) follower: Follower,
    pub(super) layer: Option<Arc<dyn ApplyLayer>>,
    /// Told what this session feeds.
    pub(super) feed: watch::Sender<Feed>,
    /// Tells that a completed full sync has been probed, whatever came of it.
    pub(super) probed: watch::Receiver<bool>,
    /// How long a completed full sync waits for that.
    pub(super) probe_deadline: Duration,
    /// Told what to fetch beside the stream.
    pub(super) want: watch::Sender<Want>,
    /// What was fetched.
    pub(super) fetched: mpsc::Receiver<Fetched>,
}

/// What is to be applied.
enum Item {
    Frame(Queued),
    Fetched(Fetched),
}

impl Applier {
    /// Applies until the queue ends, something cannot be used, or the session is given up.
    pub(super) async fn run(
        mut self,
        mut queue: mpsc::Receiver<Queued>,
        give_up: CancellationToken,
    ) -> (Progress, Option<Malformed>) {
        let mut last = self.shared().gate.view().last_sync;
        let mut fetching = true;
        loop {
            // In no order of preference: neither the stream nor what is fetched beside it holds up the other.
            let item = tokio::select! {
                () = give_up.cancelled() => break,
                queued = queue.recv() => match queued {
                    Some(queued) => Item::Frame(queued),
                    None => break,
                },
                fetched = self.fetched.recv(), if fetching => match fetched {
                    Some(fetched) => Item::Fetched(fetched),
                    None => {
                        fetching = false;
                        continue;
                    }
                },
            };
            self.started();
            if let Some(layer) = &self.layer {
                let passed = tokio::select! {
                    biased;
                    () = give_up.cancelled() => false,
                    () = layer.before_apply() => true,
                };
                if !passed {
                    self.follower.finished(last);
                    break;
                }
            }
            let applied = match &item {
                Item::Frame(queued) => self.follower.take(&queued.received),
                Item::Fetched(fetched) => self.follower.add(fetched),
            };
            match applied {
                Ok(then) => self.act(then).await,
                Err(malformed) => {
                    self.follower.finished(last);
                    return (self.follower.progress, Some(malformed));
                }
            }
            if let Item::Frame(queued) = &item {
                last = Some(queued.received.at);
            }
            self.follower.finished(last);
        }
        (self.follower.progress, None)
    }

    fn shared(&self) -> &Shared {
        &self.follower.shared
    }

    fn started(&self) {
        let now = self.shared().clock.now();
        let generation = self.follower.generation();
        self.shared().gate.apply_started(generation, now);
    }

    async fn act(&mut self, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Answering => self.answering(),
            Then::Fetch(want) => {
                self.want.send_replace(want);
            }
            Then::Complete => {
                self.complete().await;
            }
        }
    }

    async fn complete(&mut self) {
        let Some((generation, index)) = self.follower.ready() else {
            return;
        };
        if self.old_map_answers() {
            self.feed.send_replace(Feed::Complete { generation, index });
            // Without an answer in time, or when the watch has gone away, the map goes without a proof.
            let _ = timeout(self.probe_deadline, self.probed.wait_for(|probed| *probed)).await;
        }
        if self.follower.publish() == Then::Answering {
            self.answering();
        }
    }

    fn old_map_answers(&self) -> bool {
        let Shared {
            map,
            gate,
            clock,
            thresholds,
            ..
        } = self.shared();
        gate.decide(map.generation(), clock.now(), &thresholds.get().into())
            .is_serve()
    }

    fn answering(&self) {
        self.feed
            .send_if_modified(|feed| std::mem::replace(feed, Feed::Answering) != Feed::Answering);
    }
}
