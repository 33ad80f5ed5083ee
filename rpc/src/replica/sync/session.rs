//! One session: one stream, from its request to its end.
//!
//! The term is read before the request (by the driver) and again after the first frame; nothing of the stream counts
//! before both are equal. Then three tasks run: receive, apply and watch. The first to find a reason ends the session.
//! What has been received is still applied, for a bounded time, so that the next session can start further on.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::pd::{FrameSource, Lane, PdTransport, Term, within};
use crate::proto::pdpb::Member;
use crate::replica::persist::Reign;

use super::apply::{Applier, Progress};
use super::context::Context;
use super::ending::Ending;
use super::frame::{Kind, Phase};
use super::gap::Gap;
use super::queue::{Received, queue};
use super::receive::{Heard, Reader, receive};
use super::staging::{Feed, Staged};
use super::watch::Watch;

/// What a session sets out with.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Where the leader is.
    pub(super) url: String,
    pub(super) cluster_id: u64,
    /// Who leads.
    pub(super) leader: Member,
    /// The term as it was before the request; `None` when it could not be read.
    pub(super) term: Option<Term>,
    /// The index to ask for; 0 for a full sync.
    pub(super) start_index: u64,
    pub(super) progress: Progress,
    /// Whether a leader has been followed before.
    pub(super) again: bool,
    /// The last term that was followed.
    pub(super) last_term: Option<Term>,
}

/// How a session ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) ending: Ending,
    pub(super) progress: Progress,
    /// The term that was confirmed for the stream.
    pub(super) term: Option<Term>,
    /// Whether a leader was followed: a stream opened in one term.
    pub(super) followed: bool,
}

/// A stream whose first frame counts.
struct Opened<F> {
    frames: F,
    first: Received,
    reader: Reader,
    staged: Option<Staged>,
    term: Option<Term>,
}

/// Follows the leader until something ends it.
pub(super) async fn run<T: PdTransport>(context: &Arc<Context<T>>, plan: Plan) -> Ended {
    let opened = tokio::select! {
        biased;
        () = context.stop.cancelled() => Err(Ending::Stopped),
        opened = open(context, &plan) => opened,
    };
    match opened {
        Ok(opened) => {
            count(context, &plan, opened.term);
            follow(context, plan, opened).await
        }
        Err(ending) => {
            let mut progress = plan.progress;
            if let Ending::Gap { until, .. } = ending {
                progress.gap_until = progress.gap_until.max(Some(until));
            }
            Ended {
                ending,
                progress,
                term: None,
                followed: false,
            }
        }
    }
}

/// Counts that following has begun.
fn count<T>(context: &Context<T>, plan: &Plan, term: Option<Term>) {
    let counters = &context.shared.counters;
    if plan.again {
        counters.reconnects.add(1);
    }
    if plan.last_term.is_some() && term.is_some() && term != plan.last_term {
        counters.term_changes.add(1);
    }
}

async fn open<T: PdTransport>(
    context: &Arc<Context<T>>,
    plan: &Plan,
) -> Result<Opened<T::Frames>, Ending> {
    let Context { shared, config, .. } = &**context;
    let name = config.stream_name().to_owned();
    let request = context.request(name, plan.cluster_id, plan.start_index);
    let call = context
        .transport
        .sync_regions(&plan.url, Lane::Stream, request);
    let silence = shared.thresholds.get().time_threshold;
    let first = async {
        let mut frames = call.await?;
        Ok((frames.next_frame().await?, frames))
    };
    let (frame, frames) = within(silence, &plan.url, first)
        .await
        .map_err(Ending::Call)?;
    let at = shared.clock.now();
    let frame = frame.ok_or(Ending::Closed)?;
    shared.counters.frames.add(1);
    let term = confirm(context, plan).await?;

    let generation = shared.gate.generation();
    let mut reader = Reader {
        shared: Arc::clone(shared),
        cluster_id: plan.cluster_id,
        phase: Phase::Asked {
            index: plan.start_index,
        },
        generation,
        gap: Arc::new(Gap::new(generation, plan.progress.gap_until)),
    };
    let kind = reader.peek(&frame);
    // The leader cannot be at an index below one that it has shown in this term.
    if kind == Kind::InSync && shared.gate.view().head > plan.start_index {
        return Err(Ending::Regressed);
    }
    let staged = if kind.is_full_sync() {
        let staged = Staged::begin(shared);
        shared.counters.full_syncs.add(1);
        reader.generation = staged.generation();
        reader.gap = Arc::new(Gap::new(staged.generation(), None));
        Some(staged)
    } else {
        None
    };
    let first = reader.take(frame, at).map_err(|last| last.ending)?;
    Ok(Opened {
        frames,
        first,
        reader,
        staged,
        term,
    })
}

/// The term after the first frame. It must be the one from before the request; one that could not be read then and
/// can now is a reason to begin anew, and one that cannot be read goes with a full sync only.
async fn confirm<T: PdTransport>(
    context: &Context<T>,
    plan: &Plan,
) -> Result<Option<Term>, Ending> {
    let read = context.transport.leader_key(&plan.url, plan.cluster_id);
    match within(context.config.call_timeout, &plan.url, read).await {
        Ok(Some(key)) if plan.term == Some(key.term) && key.is_held_by(&plan.url) => {
            Ok(Some(key.term))
        }
        Ok(_) => Err(Ending::TermChanged),
        Err(_) if plan.start_index == 0 => Ok(None),
        Err(error) => Err(Ending::Call(error)),
    }
}

async fn follow<T: PdTransport>(
    context: &Arc<Context<T>>,
    plan: Plan,
    opened: Opened<T::Frames>,
) -> Ended {
    let Context {
        shared,
        config,
        layer,
        stop,
        ..
    } = &**context;
    let (intake, queued) = queue(config.queue_frames, config.queue_bytes);
    let (endings, mut ended) = mpsc::channel(4);
    let (feed, fed) = watch::channel(Feed::Aside);
    let (probed, was_probed) = watch::channel(false);
    let heard = Arc::new(Heard::at(opened.first.at));
    let overdue = overdue(
        opened.staged.is_some().then(|| fed.clone()),
        config.full_sync_deadline,
    );
    let gap = Arc::clone(&opened.reader.gap);
    let distrusted = shared.distrusted(opened.reader.generation);
    let leave = CancellationToken::new();
    let abandon = CancellationToken::new();
    // The queue is empty and holds at least one frame of any size.
    let queued_first = intake.put(opened.first).await.is_ok();
    debug_assert!(queued_first, "the queue's other end is held here");

    let applier = Applier {
        shared: Arc::clone(shared),
        layer: layer.clone(),
        progress: plan.progress,
        reign: opened.term.map(|term| Reign::new(term, &plan.leader)),
        staged: opened.staged,
        gap: Arc::clone(&gap),
        feed,
        probed: was_probed,
        probe_deadline: config.call_timeout,
        batch_limit: config.batch_limit,
    };
    let apply_endings = endings.clone();
    let apply_abandon = abandon.clone();
    let mut apply = tokio::spawn(async move {
        let (progress, fault) = applier.run(queued, apply_abandon).await;
        if let Some(fault) = fault {
            let _ = apply_endings.try_send(Ending::Malformed(fault));
        }
        progress
    });
    let watcher = Watch {
        context: Arc::clone(context),
        url: plan.url.clone(),
        cluster_id: plan.cluster_id,
        term: opened.term,
        feed: fed,
        probed,
        heard: Arc::clone(&heard),
    };
    let watching = tokio::spawn(watcher.run(endings.clone(), leave.clone()));
    let receiving = tokio::spawn(receive(
        opened.reader,
        opened.frames,
        intake,
        heard,
        endings,
        leave.clone(),
    ));

    let ending = tokio::select! {
        biased;
        () = stop.cancelled() => Ending::Stopped,
        ending = ended.recv() => ending.unwrap_or(Ending::Closed),
        ending = overdue => ending,
        () = distrusted => Ending::Distrusted,
    };
    leave.cancel();
    // Both leave at their next wait; a panic in one of them must not hide the reason that was given.
    let _ = receiving.await;
    let _ = watching.await;
    if matches!(ending, Ending::Stopped) {
        abandon.cancel();
    }
    let drained = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        drained = timeout(config.call_timeout, &mut apply) => drained.ok(),
    };
    let applied = match drained {
        Some(applied) => applied,
        None => {
            abandon.cancel();
            apply.await
        }
    };
    match applied {
        Ok(mut progress) => {
            // Whatever the ending is. The gap of a full sync that was not published went with its map.
            if gap.generation() == shared.gate.generation() {
                progress.gap_until = gap.until();
            }
            Ended {
                ending: first_fault(ending, &mut ended),
                progress,
                term: opened.term,
                followed: true,
            }
        }
        // Nobody knows what has been applied.
        Err(_) => Ended {
            ending: Ending::Broken("the apply task failed"),
            progress: Progress::default(),
            term: None,
            followed: true,
        },
    }
}

/// Gives a full sync up that is not published by its deadline; `feed` tells. Never ends otherwise.
async fn overdue(feed: Option<watch::Receiver<Feed>>, deadline: Duration) -> Ending {
    if let Some(mut feed) = feed
        && timeout(deadline, feed.wait_for(|feed| *feed == Feed::Answering))
            .await
            .is_err()
    {
        return Ending::Endless(deadline);
    }
    // Published; or the applier has gone away and given its reason.
    pending().await
}

/// A malformed region that was found while draining matters more than the reason that ended the stream.
fn first_fault(ending: Ending, later: &mut mpsc::Receiver<Ending>) -> Ending {
    while let Ok(other) = later.try_recv() {
        if matches!(other, Ending::Malformed(_)) {
            return other;
        }
    }
    ending
}
