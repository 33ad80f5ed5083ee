//! Following the PD leader: the loop that finds it, opens a session with it, and decides how the next one begins.
//!
//! ```text
//!             +--> resolve --> read term --> session --+
//!             |      (who leads)   (which reign)       |
//!             +------------- wait, if needed <---------+
//!                                                  its ending
//! ```
//!
//! A session starts at the own index when the term is the one in which that index was learned, and with a full sync
//! otherwise. A leader counts as one of release 8.5 until its stream has shown what only master sends; what is then done
//! is right for both. Within a session (`session.rs`):
//!
//! | the stream shows | then |
//! |---|---|
//! | skipped indexes | the gate hears of the gap; the session is opened again at the own index, then with a full sync |
//! | an earlier index | another index space: full sync |
//! | nothing wrong, but the map was found to differ from the leader's | full sync |
//! | an error frame, a closed stream, silence | wait, find the leader again, go on at the own index in the same term |
//! | a full sync that is not complete in time | as an error |
//! | another term | find the leader again, full sync |
//! | a region that cannot be used | as an error, and the index stays where it was |
//! | frames in an order that no leader sends | as an error, and full sync |
//! | release 8.5: no answer for the own index | the gate hears of the gap; full sync beside the same stream |
//! | more frames than the queue holds | as an error |
//!
//! A full sync is built aside and swapped in when it is complete (`follower.rs`); until then the old map answers for as long as its last proof lasts. If it still answers then, the new map is probed first, for one call's time at
//! most, and takes over with its proof. Nothing that happens here shuts the gate but a gap: a proof only stops
//! advancing.

mod apply;
mod begin;
mod config;
mod context;
mod decode;
mod displaced;
mod ears;
mod ending;
mod fetch;
mod follower;
pub mod frame;
mod gap;
mod leader_key;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
pub mod probe;
mod proof;
mod queue;
mod receive;
mod session;
mod spoken;
mod staging;
mod watch;
mod who;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::pd::{
    Backoff, ClusterProof, Dialect, DifferentClusters, Membership, PdTransport, ResolveError,
    ResolveLimits, Term, resolve, within,
};
use crate::proto::pdpb::Member;
use crate::replica::hooks::Hooks;
use crate::replica::persist::{OtherCluster, Reign};
use crate::replica::state::{LeaderView, PdView, Shared, StreamState};

use begin::start_index;
use context::{Context, Notes};
use ending::Ending;
use follower::Progress;
use session::{Ended, Plan};

pub use config::{SyncConfig, SyncConfigError, Upstream};
pub(super) use staging::Staged;

/// How long the other members may take once one has named the leader.
const SETTLE: Duration = Duration::from_millis(300);

/// Starts to follow the leader of the cluster that `config` names. Cancelling `stop` ends all tasks within moments: none
/// of them waits for the network when it is cancelled.
///
/// The task ends by itself only when the endpoints belong to different clusters, or to another one than what is on
/// disk, found before any of them was followed.
/// An endpoint that cannot be reached is asked again.
pub fn spawn<T: PdTransport>(
    shared: Arc<Shared>,
    transport: Arc<T>,
    config: SyncConfig,
    hooks: &Hooks,
    stop: CancellationToken,
) -> JoinHandle<Result<(), WrongCluster>> {
    let driver = Driver {
        backoff: Backoff::new(config.backoff),
        context: Arc::new(Context {
            shared,
            transport,
            config,
            layer: hooks.apply_layer.clone(),
            notes: Notes::default(),
            stop,
        }),
        cluster: None,
        learned: Vec::new(),
        attempt: 0,
        term: None,
        dialect: Dialect::Release85,
        upstream: Upstream::Pd,
        turn: 0,
        progress: Progress::default(),
        distrust: false,
        followed: false,
        last_term: None,
        rng: SmallRng::from_os_rng(),
    };
    tokio::spawn(driver.run())
}

/// A mistake in the settings that was found only when somebody answered. Nothing heals it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WrongCluster {
    /// The endpoints are of different clusters.
    #[error(transparent)]
    Endpoints(#[from] DifferentClusters),
    /// What is on disk is of another cluster.
    #[error(transparent)]
    DataDir(#[from] OtherCluster),
}

struct Driver<T> {
    context: Arc<Context<T>>,
    backoff: Backoff,
    cluster: Option<ClusterProof>,
    /// Addresses of members beyond those that were configured.
    learned: Vec<String>,
    attempt: usize,
    /// The term in which `progress` was made.
    term: Option<Term>,
    progress: Progress,
    /// What the PD leader has shown of its dialect, in the last term that was followed.
    dialect: Dialect,
    /// Whom this attempt follows.
    upstream: Upstream,
    /// Whose turn is next.
    turn: usize,
    /// The own index means nothing, whatever the term.
    distrust: bool,
    /// A leader has been followed.
    followed: bool,
    /// The last term that was followed, whatever came of it.
    last_term: Option<Term>,
    rng: SmallRng,
}

impl<T: PdTransport> Driver<T> {
    async fn run(mut self) -> Result<(), WrongCluster> {
        let stop = self.context.stop.clone();
        let mut reopened = false;
        while !stop.is_cancelled() {
            let begun = Instant::now();
            self.context.shared.counters.attempts.add(1);
            let ended = match self.plan().await? {
                Ok(plan) => session::run(&self.context, plan).await,
                Err(ending) => Ended {
                    ending,
                    progress: self.progress,
                    term: None,
                    dialect: self.dialect,
                    followed: false,
                },
            };
            self.context.shared.set_stream(StreamState::Connecting);
            if matches!(ended.ending, Ending::Stopped) {
                break;
            }
            self.note(&ended);
            // A session that got nowhere, or fell over at once, is no reason to hurry.
            if ended.progress.applied_any && begun.elapsed() >= self.context.config.backoff.longest
            {
                self.backoff.reset();
                reopened = false;
            }
            let at_once = ended.ending.reopens_at_once() && !reopened;
            reopened |= at_once;
            self.learn(&ended);
            if !at_once {
                let wait = self.backoff.next_wait(&mut self.rng);
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
        }
        self.context.shared.set_stream(StreamState::Connecting);
        Ok(())
    }

    /// Finds whom to follow, unless a stop comes first.
    async fn plan(&mut self) -> Result<Result<Plan, Ending>, WrongCluster> {
        let stop = self.context.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(Err(Ending::Stopped)),
            plan = self.find() => plan,
        }
    }

    /// Finds whom to follow. PD is asked in any case: who leads and which cluster it is are PD's to tell.
    async fn find(&mut self) -> Result<Result<Plan, Ending>, WrongCluster> {
        let upstreams = &self.context.config.upstreams;
        let next = upstreams.get(self.turn % upstreams.len().max(1));
        self.upstream = next.cloned().unwrap_or(Upstream::Pd);
        let found = self.find_pd().await?;
        let Upstream::Replica(url) = &self.upstream else {
            return Ok(found);
        };
        let Some(cluster_id) = self.context.shared.cluster_id() else {
            return Ok(found);
        };
        let resumes = self.term.is_some() && !self.distrust;
        Ok(Ok(Plan {
            url: url.clone(),
            cluster_id,
            leader: Member::default(),
            chained: true,
            term: self.term,
            start_index: if resumes { self.progress.next } else { 0 },
            dialect: Dialect::Master,
            progress: self.progress,
            again: self.followed,
            last_term: self.last_term,
        }))
    }

    /// Finds the PD leader and its term.
    async fn find_pd(&mut self) -> Result<Result<Plan, Ending>, WrongCluster> {
        let context = Arc::clone(&self.context);
        let (shared, config) = (&context.shared, &context.config);
        let limits = ResolveLimits {
            deadline: config.call_timeout,
            settle: SETTLE,
        };
        let endpoints = self.endpoints();
        let found = resolve(
            &context.transport,
            &endpoints,
            self.cluster.as_ref(),
            limits,
        )
        .await;
        let membership = match found {
            Ok(membership) => membership,
            Err(ResolveError::DifferentClusters(error)) if self.cluster.is_none() => {
                return Err(error.into());
            }
            Err(error) => {
                shared.note_outage(error.leaves_nobody_to_lead());
                shared.publish_no_leader();
                return Ok(Err(Ending::NoLeader(error)));
            }
        };
        shared.note_outage(false);
        let cluster_id = membership.cluster_id;
        shared.settle_cluster(cluster_id);
        if let Some(persist) = shared.persist() {
            persist.check_cluster(cluster_id)?;
        }
        self.settle(&membership);
        let url = membership.leader_url(self.attempt).to_owned();
        self.attempt = self.attempt.wrapping_add(1);
        let read = context.transport.leader_key(&url, cluster_id);
        let term = match within(config.call_timeout, &url, read).await {
            Ok(Some(key)) if key.is_held_by(&url) => Some(key.term),
            Ok(_) => {
                shared.publish_no_leader();
                return Ok(Err(Ending::NotLeading));
            }
            Err(error) => {
                debug!(%error, "the term could not be read");
                None
            }
        };
        let leader = membership.leader.clone();
        shared.publish_pd(PdView {
            cluster_id,
            members: membership.members,
            leader: Some(LeaderView {
                member: membership.leader,
                url: url.clone(),
                term,
            }),
        });
        if term.is_none() || term != self.last_term {
            self.dialect = Dialect::Release85;
        }
        self.load(term, &leader).await;
        let resumes = term.is_some() && term == self.term && !self.distrust;
        let start_index = start_index(resumes.then_some(self.progress.next), self.dialect);
        Ok(Ok(Plan {
            url,
            cluster_id,
            leader,
            chained: false,
            term,
            start_index,
            dialect: self.dialect,
            progress: self.progress,
            again: self.followed,
            last_term: self.last_term,
        }))
    }

    /// Takes over what an earlier process left on disk, if this is still the reign that it belongs to.
    async fn load(&mut self, term: Option<Term>, leader: &Member) {
        let (Some(persist), Some(term)) = (self.context.shared.persist(), term) else {
            return;
        };
        let reign = Reign::new(term, leader);
        if let Some(next) = persist.load(&self.context.shared, &reign).await {
            self.progress.next = next;
            self.term = Some(term);
        }
    }

    fn endpoints(&self) -> Vec<String> {
        let mut endpoints = self.context.config.endpoints().to_vec();
        for url in &self.learned {
            if !endpoints.contains(url) {
                endpoints.push(url.clone());
            }
        }
        endpoints
    }

    fn settle(&mut self, membership: &Membership) {
        self.cluster.get_or_insert_with(|| ClusterProof {
            url: membership.told_by.clone(),
            cluster_id: membership.cluster_id,
        });
        self.learned = membership
            .members
            .iter()
            .filter_map(|member| member.client_urls.first().cloned())
            .collect();
    }

    /// Takes over what the session achieved.
    fn learn(&mut self, ended: &Ended) {
        self.progress = Progress {
            published: false,
            applied_any: false,
            ..ended.progress
        };
        if ended.progress.published {
            self.term = ended.term;
            self.distrust = false;
        }
        self.followed |= ended.followed;
        if self.upstream == Upstream::Pd {
            self.dialect = ended.dialect;
        }
        if !ended.ending.reopens_at_once() {
            self.turn = self.turn.wrapping_add(1);
        }
        self.last_term = ended.term.or(self.last_term);
        self.distrust |= ended.ending.distrusts_index();
        if let Some(persist) = self.context.shared.persist().filter(|_| self.distrust) {
            persist.distrusted();
        }
    }

    fn note(&self, ended: &Ended) {
        let (shared, ending) = (&self.context.shared, &ended.ending);
        let counters = &shared.counters;
        if !ended.followed {
            counters.connect_failures.add(1);
        }
        match ending {
            Ending::Gap { .. } => counters.gaps.add(1),
            Ending::Regressed => counters.regressions.add(1),
            Ending::Silence(_) => counters.silences.add(1),
            _ => {}
        }
        let (reason, detail) = (ending.name(), ending.detail());
        let is_news = self.context.notes.is_news_or_due(reason);
        let then = match self.context.config.upstreams.len() {
            0 | 1 => "it is tried again",
            _ => "the next upstream is tried",
        };
        match &self.upstream {
            Upstream::Pd if is_news => {
                warn!(reason, detail, "not following the PD leader; retrying")
            }
            Upstream::Pd => debug!(
                reason,
                detail, "still not following the PD leader; retrying"
            ),
            Upstream::Replica(upstream) if is_news && ending.is_too_early() => {
                info!(
                    upstream,
                    reason, detail, "not following the replica yet; {then}"
                );
            }
            Upstream::Replica(upstream) if is_news => {
                warn!(
                    upstream,
                    reason, detail, "not following the replica; {then}"
                );
            }
            Upstream::Replica(upstream) => {
                debug!(
                    upstream,
                    reason, detail, "still not following a replica; {then}"
                );
            }
        }
        shared.note_broken(reason, detail);
    }
}
