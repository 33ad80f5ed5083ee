//! One session: one stream, from its request to its end.
//!
//! The term is read before the request (by the driver) and again after the first frame; nothing of the stream counts
//! before both are equal. Then three tasks run: receive, apply and watch, and a fourth for what release 8.5 does not send
//! by itself. The first to find a reason ends the session. What has been received is still applied, for a bounded time,
//! so that the next session can start further on.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Moment;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::pd::told::LONGEST_PATH;
use crate::pd::{Dialect, FrameSource, Lane, PdTransport, Term, Told, within};
use crate::proto::pdpb::Member;
use crate::replica::persist::Reign;

use super::apply::Applier;
use super::begin::{Asked, Begun, asks_for_everything, begin};
use super::context::{Context, of_term};
use super::ears::Ears;
use super::ending::Ending;
use super::fetch::Fetcher;
use super::follower::{Progress, Want};
use super::frame::Kind;
use super::proof::{Claims, Echo};
use super::queue::queue;
use super::receive::{Heard, receive};
use super::spoken::Spoken;
use super::staging::Feed;
use super::watch::Watch;

/// Frames of what is fetched beside the stream that may wait to be applied.
const FETCHED_FRAMES: usize = 4;

/// What a session sets out with.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Where the leader is.
    pub(super) url: String,
    pub(super) cluster_id: u64,
    /// Who leads, as PD tells; a replica tells for itself.
    pub(super) leader: Member,
    /// A replica is followed, and not PD.
    pub(super) chained: bool,
    /// The term as it was before the request; `None` when it could not be read.
    pub(super) term: Option<Term>,
    /// The index to ask for.
    pub(super) start_index: u64,
    /// What the leader has shown of its dialect in this term.
    pub(super) dialect: Dialect,
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
    /// What the leader has shown of its dialect by then.
    pub(super) dialect: Dialect,
    /// Whether a leader was followed: a stream opened in one term.
    pub(super) followed: bool,
}

/// A stream whose first frame counts.
struct Opened<F> {
    frames: F,
    begun: Begun,
    term: Option<Term>,
    /// Before the request was sent.
    opened_at: Moment,
}

/// Follows the leader until something ends it.
pub(super) async fn run<T: PdTransport>(context: &Arc<Context<T>>, plan: Plan) -> Ended {
    let spoken = Arc::new(Spoken::new(plan.dialect));
    let opened = tokio::select! {
        biased;
        () = context.stop.cancelled() => Err(Ending::Stopped),
        opened = open(context, &plan, &spoken) => opened,
    };
    match opened {
        Ok(opened) => {
            count(context, &plan, opened.term);
            context.shared.note_dialect(spoken.dialect());
            follow(context, plan, opened, spoken).await
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
                dialect: plan.dialect,
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
    spoken: &Arc<Spoken>,
) -> Result<Opened<T::Frames>, Ending> {
    let Context { shared, config, .. } = &**context;
    let name = config.stream_name().to_owned();
    let mut request = context.request(name, plan.cluster_id, plan.start_index);
    if plan.chained {
        request = of_term(request, plan.term);
    }
    let opened_at = shared.clock.now();
    let lane = if plan.chained {
        Lane::Chain
    } else {
        Lane::Stream
    };
    let call = context.transport.sync_regions(&plan.url, lane, request);
    let silence = shared.thresholds.get().time_threshold;
    let first = async {
        let mut frames = if plan.chained {
            // A replica says at once whether it may be followed; only the first frame of a full sync may take longer.
            within(config.patience_with_replicas(), &plan.url, call).await?
        } else {
            call.await?
        };
        Ok((frames.next_frame().await?, frames))
    };
    let (frame, frames) = within(silence, &plan.url, first)
        .await
        .map_err(Ending::Call)?;
    let at = shared.clock.now();
    let frame = frame.ok_or(Ending::Closed)?;
    shared.counters.frames.add(1);
    let told = frames.told();
    let (reign, start_index) = match (plan.chained, told) {
        (true, Some(told)) => {
            check_path(config.id(), told)?;
            let reign = Reign {
                term: told.term,
                member_id: told.leader_id,
                member_name: String::new(),
            };
            // An index of another term is answered like none.
            let same = plan.term == Some(told.term);
            (Some(reign), if same { plan.start_index } else { 0 })
        }
        (true, None) => {
            let what = format!(
                "{} is no replica; name one with --upstream, or pd",
                plan.url
            );
            return Err(Ending::Upstream(what));
        }
        (false, Some(_)) => {
            let what = format!(
                "{} is a replica and no PD; name it with --upstream",
                plan.url
            );
            return Err(Ending::Upstream(what));
        }
        (false, None) => {
            let term = confirm(context, plan).await?;
            let reign = term.map(|term| Reign::new(term, &plan.leader));
            (reign, plan.start_index)
        }
    };
    if let Some(chain) = shared.chain() {
        chain.comes_from(told);
    }
    let term = reign.as_ref().map(|reign| reign.term);
    let asked = Asked {
        cluster_id: plan.cluster_id,
        start_index,
        progress: plan.progress,
        spoken: Arc::clone(spoken),
        reign,
        batch_limit: config.batch_limit,
    };
    let begun = begin(shared, asked, frame, at)?;
    Ok(Opened {
        frames,
        begun,
        term,
        opened_at,
    })
}

/// Whether the data of a replica comes to it by a way that this one may lengthen.
pub(super) fn check_path(id: &str, told: &Told) -> Result<(), Ending> {
    if told.path.iter().any(|on| on == id) {
        let what = "replicas follow each other in a circle; let one of them follow PD";
        return Err(Ending::Upstream(what.to_owned()));
    }
    if told.path.len() > LONGEST_PATH {
        let what = "too many replicas are between it and PD; follow one that is nearer";
        return Err(Ending::Upstream(what.to_owned()));
    }
    Ok(())
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
        Err(_) if asks_for_everything(plan.start_index) => Ok(None),
        Err(error) => Err(Ending::Call(error)),
    }
}

async fn follow<T: PdTransport>(
    context: &Arc<Context<T>>,
    plan: Plan,
    opened: Opened<T::Frames>,
    spoken: Arc<Spoken>,
) -> Ended {
    let Context {
        shared,
        config,
        layer,
        stop,
        ..
    } = &**context;
    let Opened {
        frames,
        begun: Begun {
            reader,
            follower,
            first,
        },
        term,
        opened_at,
    } = opened;
    let (intake, queued) = queue(config.queue_frames, config.queue_bytes);
    let (endings, mut ended) = mpsc::channel(4);
    let (feed, fed) = watch::channel(Feed::Aside);
    let (probed, was_probed) = watch::channel(false);
    let (want, wanted) = watch::channel(Want::Nothing);
    let (fetches, fetched) = mpsc::channel(FETCHED_FRAMES);
    let mut claims = Claims::default();
    if first.kind == Kind::Joined && first.frame.regions.is_empty() {
        // The first broadcast on this stream.
        claims.echoed(Echo {
            generation: reader.generation,
            opened_at,
            heard_at: first.at,
            head: first.frame.start_index,
        });
    }
    let heard = Arc::new(Heard::at(first.at, reader.drained));
    let is_full_sync = follower.staged.is_some();
    let overdue = overdue(is_full_sync.then(|| fed.clone()), config.full_sync_deadline);
    let gap = Arc::clone(&reader.gap);
    let distrusted = shared.distrusted(reader.generation);
    let leave = CancellationToken::new();
    let abandon = CancellationToken::new();
    // The queue is empty and holds at least one frame of any size.
    let queued_first = intake.put(first).await.is_ok();
    debug_assert!(queued_first, "the queue's other end is held here");

    let applier = Applier {
        follower,
        layer: layer.clone(),
        feed,
        probed: was_probed,
        probe_deadline: config.call_timeout,
        want,
        fetched,
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
        term,
        chained: plan.chained,
        spoken: Arc::clone(&spoken),
        feed: fed,
        probed,
        heard: Arc::clone(&heard),
        claims,
        ears: Ears::default(),
        sent: 0,
    };
    let watching = tokio::spawn(watcher.run(endings.clone(), leave.clone()));
    let fetching = is_full_sync.then(|| {
        let fetcher = Fetcher {
            context: Arc::clone(context),
            url: plan.url.clone(),
            cluster_id: plan.cluster_id,
            want: wanted,
            fetched: fetches,
        };
        tokio::spawn(fetcher.run(endings.clone(), leave.clone()))
    });
    let receiving = tokio::spawn(receive(
        reader,
        frames,
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
    // They leave at their next wait; a panic in one of them must not hide the reason that was given.
    let _ = receiving.await;
    let _ = watching.await;
    if let Some(fetching) = fetching {
        let _ = fetching.await;
    }
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
                term,
                dialect: spoken.dialect(),
                followed: true,
            }
        }
        // Nobody knows what has been applied.
        Err(_) => Ended {
            ending: Ending::Broken("the apply task failed"),
            progress: Progress::default(),
            term: None,
            dialect: spoken.dialect(),
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
