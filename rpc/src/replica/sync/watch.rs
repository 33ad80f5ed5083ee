//! The watch beside a stream: every few seconds it probes the leader's head and looks whether the term still stands.
//!
//! The look comes after the probe's answer. A create-revision is new for each reign, so one look that finds the
//! session's own says that the leader has reigned without a break since the session began, and that the answer was
//! given in this reign.
//!
//! On master an answered probe is a proof of the time at which it was sent. On release 8.5 it is one once a broadcast has
//! shown that nothing waited; see `proof.rs`, which says why.
//!
//! A replica that is followed in place of PD tells its term with each answer, and how much older than the question its
//! own proof is: what it answers proves a time that much earlier. It answers within a second or so, whatever its own
//! leader does; where there are others to follow, one that does not is left at once, and one that refuses twice in a row.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Moment;
use tidegate_core::gate::Lag;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tracing::{debug, info};

use crate::pd::{CallError, FrameSource, Lane, PdTransport, Term, Told, within};

use super::context::{Context, of_term};
use super::ears::Ears;
use super::ending::Ending;
use super::frame::Shape;
use super::leader_key::leader_key;
use super::probe::{Circumstances, Held, ProbeBounds, Shown, may_probe, read_answer};
use super::proof::{Answer, Claims};
use super::receive::Heard;
use super::session::check_path;
use super::spoken::Spoken;
use super::staging::Feed;
use super::who;

/// A leader that chooses a full sync for a probe pays for it; after such an answer probes pause, for this many turns
/// at most.
const LONGEST_PAUSE: u32 = 4;

pub(super) struct Watch<T> {
    pub(super) context: Arc<Context<T>>,
    pub(super) url: String,
    pub(super) cluster_id: u64,
    /// `None` when it could not be read: the session then ends as soon as it can.
    pub(super) term: Option<Term>,
    /// A replica is followed, and not PD.
    pub(super) chained: bool,
    pub(super) spoken: Arc<Spoken>,
    pub(super) feed: watch::Receiver<Feed>,
    /// To be told when a completed full sync has been probed; dropped with the watch, the applier does not wait.
    pub(super) probed: watch::Sender<bool>,
    pub(super) heard: Arc<Heard>,
    /// Answers that are not proofs of their own time yet.
    pub(super) claims: Claims,
    pub(super) ears: Ears,
    /// Probes sent.
    pub(super) sent: usize,
}

/// A probe that was answered, before the term has been looked at again.
struct Answered<F> {
    /// What a replica told with its answer.
    told: Option<Told>,
    generation: u64,
    sent_at: Moment,
    shown: Shown,
    /// The stream, on which no more than the answer has been heard.
    frames: F,
}

#[derive(Default)]
struct Pause {
    length: u32,
    left: u32,
}

/// What became of a turn.
enum Turn<F> {
    Answered(Answered<F>),
    /// The stream has been silent since then, so no probe was sent.
    Silent(Moment),
    /// This is not to be followed.
    Turned(Ending),
    /// There was no answer to the probe.
    Unanswered(CallError),
    Nothing,
}

fn earlier(moment: Moment, by: Duration) -> Moment {
    let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    Moment::from_nanos(moment.as_nanos().saturating_sub(by))
}

impl<T: PdTransport> Watch<T> {
    /// Watches until the term ends or the session is given up; sends the reason to `endings`.
    pub(super) async fn run(mut self, endings: mpsc::Sender<Ending>, give_up: CancellationToken) {
        let who = who::ask(
            Arc::clone(&self.context),
            self.url.clone(),
            self.cluster_id,
            Arc::clone(&self.spoken),
            self.feed.clone(),
        );
        let ending = tokio::select! {
            biased;
            () = give_up.cancelled() => return,
            ending = self.watch() => ending,
            () = who => return,
        };
        // Only the first reason counts; there may be nobody left to hear a later one.
        let _ = endings.try_send(ending);
    }

    async fn watch(&mut self) -> Ending {
        let interval = self.context.config.probe_interval;
        let mut pause = Pause::default();
        let mut silent = None;
        let mut following = false;
        // The full sync was proven before it was swapped in.
        let mut proven_aside = false;
        let mut unanswered = 0;
        loop {
            if !following {
                self.await_feed(interval).await;
                // A look that was under way when the map took over has not kept its first probe from being due.
                following = self.is_following();
                if following && proven_aside {
                    self.pause(interval).await;
                }
            } else if let Some(since) = silent.take() {
                // A process that stood still finds the stream silent until it has read the frames that wait for it.
                let _ = timeout(interval, self.heard.since(since)).await;
            } else {
                self.pause(interval).await;
            }
            if following {
                let dialect = self.spoken.dialect();
                self.context.shared.thresholds.set_dialect(dialect);
            }
            let begun = self.context.shared.clock.now();
            let complete = matches!(*self.feed.borrow(), Feed::Complete { .. });
            let turn = if pause.left > 0 {
                pause.left -= 1;
                Turn::Nothing
            } else {
                self.probe(&mut pause).await
            };
            let answered = match turn {
                Turn::Answered(answered) => Some(answered),
                Turn::Silent(since) => {
                    silent = Some(since);
                    None
                }
                Turn::Turned(ending) => return ending,
                Turn::Unanswered(error) => {
                    unanswered += 1;
                    if let Some(ending) = self.give_up_on(&error, unanswered) {
                        return ending;
                    }
                    None
                }
                Turn::Nothing => None,
            };
            if answered.is_some() {
                unanswered = 0;
            }
            let proved = match self.look(answered, unanswered > 0).await {
                Ok(proved) => proved,
                Err(ending) => return ending,
            };
            if let Some(chain) = self.context.shared.chain() {
                chain.asking().turned(begun);
            }
            if complete {
                proven_aside = proved;
                self.probed.send_replace(true);
            }
        }
    }

    /// Rests, but no longer than until a follower of this replica asks.
    async fn pause(&mut self, time: Duration) {
        let Some(chain) = self.context.shared.chain().cloned() else {
            return self.rest(time).await;
        };
        tokio::select! {
            () = self.rest(time) => {}
            () = chain.asking().wanted(time / 20) => {}
        }
    }

    /// Waits for `time`, and lets what was answered count for as much as is broadcast meanwhile.
    async fn rest(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            self.credit();
            let waits_for = self.claims.waits_for();
            tokio::select! {
                biased;
                () = sleep_until(until) => return,
                echo = self.ears.heard() => {
                    if let Some(proven) = self.claims.echoed(echo) {
                        self.prove(proven);
                    }
                }
                () = self.heard.drained_from(waits_for.unwrap_or(u64::MAX)), if waits_for.is_some() => {}
                () = self.spoken.master(), if waits_for.is_some() => {}
            }
        }
    }

    /// Lets answers of this term be proofs, if the leader's dialect and what it has broadcast make them such. Whether
    /// none is left.
    fn credit(&mut self) -> bool {
        let proven: Vec<Answer> = if self.spoken.is_master() {
            self.ears.close();
            self.claims.all().collect()
        } else {
            self.claims.drained(self.heard.drained()).collect()
        };
        for answer in proven {
            self.prove(answer);
        }
        self.claims.waits_for().is_none()
    }

    fn prove(&self, answer: Answer) {
        let Answer {
            generation,
            sent_at,
            head,
        } = answer;
        let gate = &self.context.shared.gate;
        gate.probe_answered(generation, sent_at, head);
    }

    fn is_following(&self) -> bool {
        *self.feed.borrow() == Feed::Answering
    }

    /// Returns when there is something to probe that was not probed yet, so that the first probe follows at once, or
    /// after `interval`.
    async fn await_feed(&mut self, interval: Duration) {
        let probed = *self.probed.borrow();
        let fed = async {
            let is_due = |feed: &Feed| match feed {
                Feed::Aside => false,
                Feed::Complete { .. } => !probed,
                Feed::Answering => true,
            };
            self.feed.wait_for(is_due).await.is_ok()
        };
        match timeout(interval, fed).await {
            Ok(true) => {
                if self.is_following() && self.context.notes.is_news("following") {
                    if self.chained {
                        info!(upstream = %self.url, "following a replica in place of PD");
                    } else {
                        info!(leader = %self.url, "following the PD leader");
                    }
                }
            }
            // The applier is gone and the session about to end.
            Ok(false) => sleep(interval).await,
            Err(_) => {}
        }
    }

    async fn probe(&mut self, pause: &mut Pause) -> Turn<T::Frames> {
        let context = Arc::clone(&self.context);
        let Context { shared, config, .. } = &*context;
        let feed = *self.feed.borrow();
        let (generation, applied, lag) = match feed {
            _ if self.term.is_none() => return Turn::Nothing,
            Feed::Aside => return Turn::Nothing,
            // The frame that completes a full sync shows the head.
            Feed::Complete { generation, index } => (generation, index, Lag::Known(0)),
            Feed::Answering => {
                let view = shared.gate.view();
                (view.generation, view.applied, view.lag)
            }
        };
        let heard = self.heard.last();
        let circumstances = Circumstances {
            applied,
            lag,
            silent_for: shared.clock.now().saturating_since(heard),
        };
        let bounds = ProbeBounds {
            lag_below: config.smallest_ring / 2,
            heard_within: shared.thresholds.get().time_threshold / 2,
        };
        if let Err(held) = may_probe(circumstances, bounds) {
            shared.counters.probes_held.add(1);
            debug!(?held, "no probe now");
            return match held {
                Held::Silent => Turn::Silent(heard),
                Held::NoIndex | Held::Behind => Turn::Nothing,
            };
        }
        shared.counters.probes_sent.add(1);
        let sent_at = shared.clock.now();
        let patience = if self.chained {
            config.patience_with_replicas()
        } else {
            config.call_timeout
        };
        self.sent = self.sent.wrapping_add(1);
        let asked = within(patience, &self.url, self.ask(applied)).await;
        let (shown, told, frames) = match asked {
            Ok(answer) => answer,
            Err(CallError::Status { status, .. })
                if self.chained && status.code() == Code::FailedPrecondition =>
            {
                return Turn::Turned(Ending::Upstream(status.message().to_owned()));
            }
            Err(error) => {
                debug!(%error, "a probe was not answered");
                shared.counters.probes_failed.add(1);
                return Turn::Unanswered(error);
            }
        };
        // A replica's proof is of the time that the PD leader was asked.
        let sent_at = told
            .as_ref()
            .map_or(sent_at, |told| earlier(sent_at, told.behind));
        if shown == Shown::Nothing {
            pause.length = (pause.length * 2).clamp(1, LONGEST_PAUSE);
            pause.left = pause.length;
        } else {
            pause.length = 0;
        }
        Turn::Answered(Answered {
            told,
            generation,
            sent_at,
            shown,
            frames,
        })
    }

    /// Whether a replica that has left so many probes in a row unanswered, the last one with this error, is left for the
    /// next upstream. One that stands still is, at once: what is here grows older with each second. One that says
    /// something else may be about to recover.
    fn give_up_on(&self, error: &CallError, unanswered: u32) -> Option<Ending> {
        let there_are_others = self.context.config.upstreams.len() > 1;
        let stands_still = matches!(error, CallError::Deadline { .. });
        (self.chained && there_are_others && (stands_still || unanswered > 1))
            .then(|| Ending::Upstream(format!("it answers no probes: {error}")))
    }

    /// One stream of its own, up to its first frame.
    async fn ask(&self, index: u64) -> Result<(Shown, Option<Told>, T::Frames), CallError> {
        let config = &self.context.config;
        // A replica is not listened to, and knows probes by their name.
        let number = if self.chained { 0 } else { self.sent };
        let name = config.probe_name(number);
        let mut request = self.context.request(name, self.cluster_id, index);
        if self.chained {
            request = of_term(request, self.term);
        }
        let transport = &self.context.transport;
        let mut frames = transport
            .sync_regions(&self.url, Lane::Calls, request)
            .await?;
        let told = frames.told().cloned();
        let shown = match frames.next_frame().await? {
            Some(frame) => read_answer(
                index,
                Shape::of(&frame, self.cluster_id),
                config.batch_limit,
            ),
            None => Shown::Nothing,
        };
        Ok((shown, told, frames))
    }

    /// Looks at the term, and lets a probe's answer count if it still stands. Whether it shows the head.
    async fn look(
        &mut self,
        answered: Option<Answered<T::Frames>>,
        unanswered: bool,
    ) -> Result<bool, Ending> {
        let context = Arc::clone(&self.context);
        let Context { shared, .. } = &*context;
        let stands = if self.chained {
            match answered
                .as_ref()
                .and_then(|answered| answered.told.as_ref())
            {
                Some(told) => {
                    check_path(context.config.id(), told)?;
                    if Some(told.term) != self.term {
                        return Err(Ending::TermChanged);
                    }
                    if let Some(chain) = shared.chain() {
                        chain.comes_from(Some(told));
                    }
                    true
                }
                None => false,
            }
        } else {
            let key = leader_key(&context, &self.url, self.cluster_id, unanswered).await;
            match (self.term, key) {
                (Some(term), Ok(Some(key))) if key.term == term && key.is_held_by(&self.url) => {
                    true
                }
                (_, Ok(_)) => return Err(Ending::TermChanged),
                (_, Err(error)) => {
                    debug!(%error, "the term could not be read");
                    false
                }
            }
        };
        let Some(answered) = answered else {
            return Ok(false);
        };
        match answered.shown {
            Shown::Head(head) if stands => {
                let Answered {
                    generation,
                    sent_at,
                    frames,
                    ..
                } = answered;
                self.claims.answered(Answer {
                    generation,
                    sent_at,
                    head,
                });
                let proves = self.credit();
                if !proves {
                    shared.gate.head_received(generation, head);
                    let clock = Arc::clone(&shared.clock);
                    self.ears
                        .listen(frames, self.cluster_id, clock, generation, sent_at);
                }
                shared.counters.probes_proved.add(1);
                return Ok(proves);
            }
            Shown::AtLeast(head) if stands => {
                shared.gate.head_received(answered.generation, head);
            }
            _ => {}
        }
        shared.counters.probes_failed.add(1);
        Ok(false)
    }
}
