//! One run: start everything, keep it going, take it down, report.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::clock::{BootClock, Clock};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::args::{Args, Output, WhenStale};
use super::churn::{Churn, STORES, initial_regions};
use super::faults::{Relay, Scenario, Stall};
use super::judge::{Bounds, Ledger};
use super::load::{LEADER, Load, Pace, Tally};
use super::report::{Report, ServerReport, millis};
use super::server::PdServer;
use super::view::{ReplicaScene, Scene, View};
use super::world::{RestartError, World};
use crate::config::ServeConfig;
use crate::leader::{EmbeddedLeader, LeaderConfig, LeaderError};
use crate::pd::Dialect;
use crate::proto::metapb::Store;
use crate::replica::{Replica, StartError};

/// By how much keepalives, probes and thresholds are shortened.
const SCALE: u32 = 10;
/// Of a round trip, over which data grows older while it is right to serve it.
const ALLOWANCE: Duration = Duration::from_millis(100);
/// How long what was superseded is remembered.
const RETENTION: Duration = Duration::from_secs(60);
/// How long the replicas may take to prove their first full sync, and a moment more a region.
const START_DEADLINE: Duration = Duration::from_secs(30);
const START_DEADLINE_A_REGION: Duration = Duration::from_micros(100);
/// Without a duration, a fault comes once in such a time.
const CYCLE: Duration = Duration::from_secs(20);
/// When a fault begins and ends, in hundredths of the duration.
const FAULT: (u32, u32) = (40, 65);
const STOP_DEADLINE: Duration = Duration::from_secs(1);
/// Where the second replica is among the servers, and the third.
const REPLICA_2: usize = 2;
const REPLICA_3: usize = 3;

mod fault;
mod introduction;
mod replicas;

/// Why a run could not start or go on. One line: what, and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaygroundError {
    /// The PD leader.
    #[error(transparent)]
    Leader(#[from] LeaderError),
    /// A replica.
    #[error(transparent)]
    Replica(#[from] StartError),
    /// Something of the system.
    #[error("cannot {what}: {source}; free ports and file descriptors and try again")]
    System {
        /// What for.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The PD leader did not come back.
    #[error(transparent)]
    Restart(#[from] RestartError),
    /// An address of our own that cannot be used.
    #[error("cannot use {url}: {reason}; this is a defect of the playground")]
    Address {
        /// The address.
        url: String,
        /// Why not.
        reason: String,
    },
    /// The replicas' full sync takes too long.
    #[error(
        "{name} has not proven its first full sync within {after:?} (gate: {gate}); give fewer --regions or a machine \
         with more room"
    )]
    NotProven {
        /// Which.
        name: String,
        /// Since its start.
        after: Duration,
        /// What its gate says.
        gate: String,
    },
    /// Stopped before it had begun.
    #[error("stopped before the replicas were proven; nothing was checked")]
    Interrupted,
}

/// Everything that runs.
#[derive(Debug)]
struct Playground {
    args: Args,
    world: Arc<World>,
    ledger: Arc<Mutex<Ledger>>,
    clock: Arc<dyn Clock>,
    relay: Relay,
    stall: Arc<Stall>,
    replicas: Vec<Replica>,
    bounds: Bounds,
    stop_churn: CancellationToken,
    tasks: JoinSet<()>,
}

/// Runs until the duration is over, or SIGINT or SIGTERM; prints the view and the report.
///
/// # Errors
///
/// [`PlaygroundError`]. A run that found stale answers is not an error: see [`Report::passed`].
pub async fn run(args: Args) -> Result<Report, PlaygroundError> {
    let failed = |source| PlaygroundError::System {
        what: "listen for signals",
        source,
    };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let stop = CancellationToken::new();
    let stopper = stop.clone();
    let signals = tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stopper.cancel();
    });
    let output = args.output;
    let mut view = View::new(output);
    let played = play(args, &mut view, stop).await;
    signals.abort();
    let report = played?;
    match output {
        Output::Text => view.say(&format!("\n{report}")),
        Output::Json => println!(
            "{}",
            serde_json::to_string_pretty(&report).unwrap_or_default()
        ),
    }
    Ok(report)
}

/// The same without signals and without the report's print: until the duration is over or `stop`.
///
/// # Errors
///
/// As [`run`].
pub async fn play(
    args: Args,
    view: &mut View,
    stop: CancellationToken,
) -> Result<Report, PlaygroundError> {
    let playground = Playground::start(args).await?;
    view.say(&playground.introduction());
    playground.until_proven(&stop).await?;
    let load = Arc::new(playground.load()?);
    let stop_load = CancellationToken::new();
    let asking = tokio::spawn(Arc::clone(&load).run(stop_load.clone()));
    let started = Instant::now();
    let gone = playground.keep_going(&load, view, started, &stop).await;
    stop_load.cancel();
    // Each client ends with the lookup that it has under way, which has a deadline.
    let _ = asking.await;
    gone?;
    let took = started.elapsed();
    let report = playground.report(&load, took);
    playground.take_down().await;
    Ok(report)
}

impl Playground {
    async fn start(args: Args) -> Result<Self, PlaygroundError> {
        let clock: Arc<dyn Clock> = Arc::new(BootClock);
        let regions = initial_regions(args.regions);
        let held = regions.iter().cloned().map(Arc::new);
        let ledger = Arc::new(Mutex::new(Ledger::new(held, clock.now(), RETENTION)));
        let leader = LeaderConfig {
            name: "leader".to_owned(),
            clock: Arc::clone(&clock),
            stop_grace: Duration::from_millis(300),
            ..LeaderConfig::default()
        };
        let leader = LeaderConfig {
            dialect: args.dialect,
            keepalive: leader.keepalive / SCALE,
            // On release 8.5 every stream waits for as long.
            send_timeout: match args.dialect {
                Dialect::Master => leader.send_timeout,
                Dialect::Release85 => leader.send_timeout / SCALE,
            },
            ..leader
        };
        let leader = match args.scenario {
            Scenario::RingOverflow => {
                let ring = fault::small_ring(&args);
                LeaderConfig {
                    ring_capacity: ring,
                    ring_limit: ring,
                    ..leader
                }
            }
            _ => leader,
        };
        let world = World::start(leader, regions, Arc::clone(&ledger), Arc::clone(&clock)).await?;
        let world = Arc::new(world);
        world.with_leader(|leader| {
            for id in STORES {
                let address = format!("127.0.0.1:{}", 20_160 + id);
                let store = Store {
                    id,
                    address,
                    version: "8.5.0".to_owned(),
                    ..Store::default()
                };
                if let Err(refused) = leader.put_store(store) {
                    tracing::error!(%refused, "the leader refused a store");
                }
            }
        });

        let relay = Relay::start(world.addr()).await;
        let relay = relay.map_err(|source| PlaygroundError::System {
            what: "relay the leader's bytes",
            source,
        })?;
        let stall = Arc::new(Stall::new());
        let mut serve = ServeConfig {
            when_stale: args.when_stale.into(),
            ..ServeConfig::default()
        };
        if let Some(set) = args.set {
            set.apply(&mut serve);
        }
        let serve = serve.scaled(SCALE);
        let bounds = Bounds {
            max_age: match args.dialect {
                Dialect::Master => serve.max_age,
                Dialect::Release85 => serve.broadcast_max_age(),
            },
            stall_threshold: serve.stall_threshold,
            allowance: ALLOWANCE,
        };
        let replicas = replicas::start(&args, &serve, &world.url(), &clock, &stall, &relay).await?;

        let stop_churn = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let churn = Churn::new(args.regions, 1);
        let (rate, changing, stop) = (args.churn, Arc::clone(&world), stop_churn.clone());
        tasks.spawn(async move { changing.keep_changing(churn, rate, stop).await });
        Ok(Self {
            args,
            world,
            ledger,
            clock,
            relay,
            stall,
            replicas,
            bounds,
            stop_churn,
            tasks,
        })
    }

    /// Waits until every replica has a proof.
    async fn until_proven(&self, stop: &CancellationToken) -> Result<(), PlaygroundError> {
        let started = Instant::now();
        let share = u32::try_from(self.args.regions).unwrap_or(u32::MAX);
        let patience = START_DEADLINE + START_DEADLINE_A_REGION * share;
        loop {
            let waiting = self
                .replicas
                .iter()
                .map(Replica::status)
                .find(|status| status.age_ms.is_none());
            let Some(status) = waiting else { return Ok(()) };
            if started.elapsed() > patience {
                return Err(PlaygroundError::NotProven {
                    name: status.name,
                    after: patience,
                    gate: status.gate.why,
                });
            }
            tokio::select! {
                () = sleep(Duration::from_millis(20)) => {}
                () = stop.cancelled() => return Err(PlaygroundError::Interrupted),
            }
        }
    }

    fn load(&self) -> Result<Load<PdServer>, PlaygroundError> {
        let urls = std::iter::once(self.world.url())
            .chain(self.replicas.iter().map(|r| r.url().to_owned()));
        let cluster_id = LeaderConfig::default().cluster_id;
        let servers = urls.map(|url| {
            PdServer::new(url.clone(), cluster_id).map_err(|error| PlaygroundError::Address {
                url,
                reason: error.to_string(),
            })
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let reads_through = self.args.when_stale == WhenStale::ReadThrough;
        let tally = Tally::new(self.bounds, servers.len()).tolerating_torn(reads_through);
        let pace = Pace {
            clients: usize::from(self.args.clients),
            ..Pace::default()
        };
        let span = Churn::new(self.args.regions, 1).span();
        Ok(Load::new(
            servers,
            Arc::clone(&self.ledger),
            tally,
            Arc::clone(&self.clock),
            pace,
            span,
        ))
    }

    /// Draws the view and makes the faults, until the end.
    async fn keep_going(
        &self,
        load: &Load<PdServer>,
        view: &mut View,
        started: Instant,
        stop: &CancellationToken,
    ) -> Result<(), RestartError> {
        let fault = Mutex::new(None);
        let cycle = self.args.duration.unwrap_or(CYCLE);
        let faults = async {
            let mut begin = started;
            loop {
                if let Err(gone) = self.fault(load, begin, cycle, &fault).await {
                    return gone;
                }
                begin += cycle;
                sleep_until(begin).await;
            }
        };
        let drawing = async {
            let mut ticks = interval(view.interval());
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                let fault = *fault.lock().unwrap_or_else(PoisonError::into_inner);
                view.draw(&self.scene(load, started.elapsed(), fault));
            }
        };
        let end = async {
            match self.args.duration {
                Some(duration) => sleep_until(started + duration).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = end => Ok(()),
            () = stop.cancelled() => Ok(()),
            gone = faults => Err(gone),
            () = drawing => Ok(()),
        }
    }

    fn scene(
        &self,
        load: &Load<PdServer>,
        elapsed: Duration,
        fault: Option<&'static str>,
    ) -> Scene {
        let (regions, changes) = {
            let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            (ledger.len(), ledger.latest().sequence)
        };
        let replicas = self.replicas.iter().map(|replica| {
            let status = replica.status();
            ReplicaScene {
                name: status.name,
                state: status.state.as_str(),
                open: status.gate.open,
                reason: status.gate.reason,
                age_ms: status.age_ms,
                lag: status.lag,
                served: status.lookups.answered(),
                refused: status.lookups.refused,
                missed: status.lookups.missed,
            }
        });
        let replicas = replicas.collect();
        let tally = load.tally();
        Scene {
            elapsed,
            fault,
            regions,
            changes,
            replicas,
            leader_lookups: tally.servers.first().map_or(0, |leader| leader.answered),
            checked: tally.checked,
            behind: tally.behind,
            stale: tally.stale,
            errors: tally.errors,
        }
    }

    fn report(&self, load: &Load<PdServer>, took: Duration) -> Report {
        let changes = self
            .ledger
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .latest()
            .sequence;
        let tally = load.tally();
        let own = tally.servers.get(LEADER).cloned().unwrap_or_default();
        let leader = ServerReport {
            name: "leader".to_owned(),
            role: "leader",
            served: own.answered,
            asked: 0,
            confirmed: 0,
            refused: 0,
            refused_by_reason: BTreeMap::new(),
            missed: 0,
            behind_served: own.behind,
            stale_served: own.stale,
            full_syncs: self
                .world
                .with_leader(EmbeddedLeader::full_syncs)
                .unwrap_or_default(),
        };
        let tallies = tally.servers.iter().skip(LEADER + 1);
        let replicas = self.replicas.iter().zip(tallies).map(|(replica, own)| {
            let status = replica.status();
            ServerReport {
                name: status.name,
                role: "replica",
                served: status.lookups.answered(),
                asked: status.lookups.asked,
                confirmed: status.lookups.confirmed,
                refused: status.lookups.refused,
                refused_by_reason: owned(status.lookups.refused_by_reason),
                missed: status.lookups.missed,
                behind_served: own.behind,
                stale_served: own.stale,
                full_syncs: status.sync.full_syncs_published,
            }
        });
        let struck: &[usize] = match self.args.scenario {
            Scenario::Steady => &[],
            Scenario::Throttle | Scenario::Stall | Scenario::RingOverflow => {
                &[REPLICA_2, REPLICA_3]
            }
            Scenario::LeaderRestart => &[1, REPLICA_2, REPLICA_3],
        };
        // The third one follows the second one, if it is there.
        let struck = &struck[..struck.len() - usize::from(!self.args.chain && !struck.is_empty())];
        let report = Report {
            verdict: String::new(),
            passed: false,
            scenario: self.args.scenario,
            dialect: self.args.dialect,
            gate: self.args.gate,
            when_stale: self.args.when_stale,
            regions: self.args.regions,
            changes,
            duration_s: took.as_secs_f64(),
            lookups: tally.lookups,
            checked: tally.checked,
            errors: tally.errors,
            unanswered: tally.unanswered,
            error_examples: tally.examples.clone(),
            behind_served: tally.behind,
            behind_served_max_age_ms: millis(tally.behind_max_age),
            stale_served: tally.stale,
            stale_served_max_age_ms: millis(tally.stale_max_age),
            stale_after_ms: millis(self.bounds.stale_after()),
            allowance_ms: millis(self.bounds.allowance),
            max_behind_changes: tally.max_behind_changes,
            torn: tally.torn,
            leader_share: tally.leader_share(),
            leader_asked_of: 1 + self.replicas.len() as u64,
            time_to_recover_ms: tally.time_to_recover(struck).map(millis),
            fault_too_short: self.is_fault_too_short(),
            servers: std::iter::once(leader).chain(replicas).collect(),
        };
        report.judged()
    }

    async fn take_down(mut self) {
        self.stop_churn.cancel();
        while self.tasks.join_next().await.is_some() {}
        let mut stops = JoinSet::new();
        for replica in self.replicas {
            stops.spawn(async move {
                replica.stop(STOP_DEADLINE).await;
            });
        }
        while stops.join_next().await.is_some() {}
        self.world.stop().await;
    }
}

fn owned(refused: BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    refused
        .into_iter()
        .map(|(reason, count)| (reason.to_owned(), count))
        .collect()
}

fn parse(url: &str) -> Result<Url, PlaygroundError> {
    Url::parse(url).map_err(|error| PlaygroundError::Address {
        url: url.to_owned(),
        reason: error.to_string(),
    })
}
