//! The PD leader under churn, and its ledger, kept in step.
//!
//! The churn is the only one who reports regions. A report and its entry in the ledger are made under
//! the ledger's lock, so that an answer is judged before or after both.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::Region;
use tidegate_core::clock::Clock;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::churn::Churn;
use super::judge::Ledger;
use crate::leader::{EmbeddedLeader, LeaderConfig, LeaderError, LeaderState, StaleRegion};

/// How often the churn looks whether a change is due.
const TICK: Duration = Duration::from_millis(5);
/// After a pause, no more than this is made up for at once.
const MOST_AT_ONCE: u64 = 250;

/// Where the leader is.
enum Place {
    Up(EmbeddedLeader),
    /// Stopped; what changes meanwhile, it will know when it starts.
    Down(LeaderState),
    /// Stopping or starting: nothing can be reported.
    Moving,
}

/// A leader whose every change is in a ledger.
pub struct World {
    place: Mutex<Place>,
    ledger: Arc<Mutex<Ledger>>,
    clock: Arc<dyn Clock>,
    config: LeaderConfig,
}

/// The leader's restart went wrong; there is no leader any more.
#[derive(Debug, thiserror::Error)]
pub enum RestartError {
    /// It was not running.
    #[error("the PD leader was not running when it was to be restarted")]
    NotRunning,
    /// Its address could not be taken again.
    #[error(transparent)]
    Start(#[from] LeaderError),
}

impl World {
    /// Starts a leader that holds `regions`, each of which is in `ledger` already.
    ///
    /// # Errors
    ///
    /// As [`EmbeddedLeader::start`].
    pub async fn start(
        config: LeaderConfig,
        regions: Vec<Region>,
        ledger: Arc<Mutex<Ledger>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LeaderError> {
        let leader = EmbeddedLeader::start(config.clone()).await?;
        for refused in leader
            .report_regions(regions)
            .into_iter()
            .filter_map(Result::err)
        {
            tracing::error!(%refused, "the leader refused one of its first regions");
        }
        let config = LeaderConfig {
            listen: leader.addr(),
            ..config
        };
        Ok(Self {
            place: Mutex::new(Place::Up(leader)),
            ledger,
            clock,
            config,
        })
    }

    /// The leader's address; it keeps it through restarts.
    pub fn url(&self) -> String {
        format!("http://{}", self.config.listen)
    }

    /// The same as a socket address.
    pub const fn addr(&self) -> SocketAddr {
        self.config.listen
    }

    /// What to know of the leader while it is up.
    pub fn with_leader<R>(&self, read: impl FnOnce(&EmbeddedLeader) -> R) -> Option<R> {
        match &*self.place.lock().unwrap_or_else(PoisonError::into_inner) {
            Place::Up(leader) => Some(read(leader)),
            Place::Down(_) | Place::Moving => None,
        }
    }

    /// Makes the next change. False if the leader can take none just now.
    fn step(&self, churn: &mut Churn) -> bool {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*place, Place::Moving) {
            return false;
        }
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(region) = churn.next(&ledger) else {
            return true;
        };
        let reported = match &mut *place {
            Place::Up(leader) => leader.report_region(region.clone()).map(|_| ()),
            Place::Down(state) => state.report_region(region.clone()),
            Place::Moving => return false,
        };
        match reported {
            Ok(()) => {
                ledger.record(Arc::new(region), self.clock.now());
            }
            Err(StaleRegion { .. }) => tracing::error!(?region, "the leader refused a change"),
        }
        true
    }

    /// Makes `rate` changes a second until `stop`.
    pub async fn keep_changing(&self, mut churn: Churn, rate: u64, stop: CancellationToken) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut since = Instant::now();
        let mut made = 0;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.cancelled() => return,
            }
            let due = (since.elapsed().as_secs_f64() * rate as f64) as u64;
            if due.saturating_sub(made) > MOST_AT_ONCE {
                (since, made) = (Instant::now(), 0);
                continue;
            }
            while made < due && self.step(&mut churn) {
                made += 1;
            }
        }
    }

    /// Stops the leader, and starts the next one of the same address `outage` later: under a new term,
    /// with its index `back` records back, and with what changed meanwhile.
    ///
    /// # Errors
    ///
    /// [`RestartError`]; the leader stays away then.
    pub async fn restart(&self, outage: Duration, back: u64) -> Result<(), RestartError> {
        let Place::Up(leader) = self.replace(Place::Moving) else {
            return Err(RestartError::NotRunning);
        };
        let mut state = leader.stop().await;
        state.rewind_index(back);
        self.replace(Place::Down(state));
        tokio::time::sleep(outage).await;
        let Place::Down(state) = self.replace(Place::Moving) else {
            return Err(RestartError::NotRunning);
        };
        let leader = EmbeddedLeader::start_with(self.config.clone(), state).await?;
        self.replace(Place::Up(leader));
        Ok(())
    }

    /// Ends the leader, if it is up.
    pub async fn stop(&self) {
        if let Place::Up(leader) = self.replace(Place::Moving) {
            leader.stop().await;
        }
    }

    fn replace(&self, place: Place) -> Place {
        std::mem::replace(
            &mut *self.place.lock().unwrap_or_else(PoisonError::into_inner),
            place,
        )
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::Moment;
    use tidegate_core::clock::ManualClock;
    use tokio::time::sleep;

    use super::*;
    use crate::playground::churn::initial_regions;

    const REGIONS: u64 = 50;

    async fn world() -> (Arc<World>, Arc<Mutex<Ledger>>) {
        let clock = Arc::new(ManualClock::new(Moment::from_nanos(1)));
        let regions = initial_regions(REGIONS);
        let held = regions.iter().cloned().map(Arc::new);
        let ledger = Ledger::new(held, clock.now(), Duration::from_secs(60));
        let ledger = Arc::new(Mutex::new(ledger));
        let config = LeaderConfig::default();
        let world = World::start(config, regions, Arc::clone(&ledger), clock).await;
        (Arc::new(world.expect("a free port")), ledger)
    }

    fn assert_in_step(world: &World, ledger: &Mutex<Ledger>) {
        let ledger = ledger.lock().expect("a ledger");
        let same = world.with_leader(|leader| {
            let snapshot = leader.regions().pin();
            let held = |region: &Region| ledger.by_id(region.id()).map(Arc::as_ref) == Some(region);
            snapshot.len() == ledger.len() && snapshot.iter().all(|entry| held(entry.region()))
        });
        assert_eq!(same, Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn the_churn_keeps_its_rate_and_the_ledger_keeps_step() {
        let (world, ledger) = world().await;
        let stop = CancellationToken::new();
        let changing = world.keep_changing(Churn::new(REGIONS, 1), 500, stop.clone());
        let ending = async {
            sleep(Duration::from_secs(4)).await;
            stop.cancel();
        };
        tokio::join!(changing, ending);
        let changes = ledger.lock().expect("a ledger").latest().sequence;
        assert!((1_990..=2_000).contains(&changes), "{changes}");
        assert_in_step(&world, &ledger);
    }

    #[tokio::test(start_paused = true)]
    async fn a_restarted_leader_has_a_new_term_an_older_index_and_what_changed_meanwhile() {
        let (world, ledger) = world().await;
        let before = world.with_leader(|leader| (leader.term(), leader.url()));
        let (term, url) = before.expect("up");
        let stop = CancellationToken::new();
        let changing = world.keep_changing(Churn::new(REGIONS, 1), 500, stop.clone());
        let restarting = async {
            sleep(Duration::from_secs(1)).await;
            let head = world.with_leader(EmbeddedLeader::next_index).expect("up");
            let changes = ledger.lock().expect("a ledger").latest().sequence;
            world
                .restart(Duration::from_secs(1), 37)
                .await
                .expect("the address is free");
            let meanwhile = ledger.lock().expect("a ledger").latest().sequence - changes;
            stop.cancel();
            (head, meanwhile)
        };
        let ((), (head, meanwhile)) = tokio::join!(changing, restarting);
        assert!(meanwhile >= 400, "{meanwhile}");
        let after = world.with_leader(|leader| (leader.term(), leader.url(), leader.next_index()));
        let (new_term, new_url, index) = after.expect("up");
        assert!(
            new_term > term && new_url == url && index < head,
            "{new_term} {new_url} {index}"
        );
        assert_in_step(&world, &ledger);
    }
}
