//! What every drill has: three members of PD, stores that report to the leader, the replica, and clients.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate::pd::Dialect;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::cluster::ModelRegion;
use crate::drill::clients::{Asker, Clients, Scene};
use crate::drill::tally::{Figures, Source, Tally};
use crate::drill::world::World;
use crate::error::InteropError;
use crate::feeder::Stores;
use crate::judge::About;
use crate::pd::{Pd, Wanted};
use crate::replica::{PROBE_INTERVAL, Replica, Setting, max_age, tight};
use crate::status::status;

/// For the replica's map to answer with what changed after a fault.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
/// Between two changes.
const CHURN_PAUSE: Duration = Duration::from_millis(8);

/// How drills are run.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The replica's program.
    pub tidegate: PathBuf,
    /// This program, to play a leader that can be killed.
    pub own: PathBuf,
    /// A pd-server to run; the members are played without one.
    pub pd_server: Option<PathBuf>,
    /// A real etcd for terms and registration.
    pub etcd: Option<PathBuf>,
    /// How the leader serves its sync streams.
    pub dialect: Dialect,
    /// What the replica does when its gate is shut.
    pub when_stale: &'static str,
    /// Regions at the start.
    pub regions: u64,
    /// How long the replica is stopped, and how long it is cut off.
    pub long: Duration,
    /// Seed of every random choice.
    pub seed: u64,
    /// Further lines of the replica's config file.
    pub further: String,
    /// Directory for data and logs.
    pub dir: PathBuf,
}

impl Conditions {
    /// The PD of a drill.
    pub fn wanted(&self, killable: bool) -> Wanted {
        Wanted {
            pd_server: self.pd_server.clone(),
            dialect: self.dialect,
            player: killable.then(|| self.own.clone()),
            etcd: self.etcd.clone(),
            dir: self.dir.clone(),
        }
    }

    /// What an answer may be behind.
    pub fn bound(&self) -> Duration {
        max_age(self.dialect)
    }
}

/// Everything of a running drill.
#[derive(Debug)]
pub struct Stage {
    /// PD.
    pub pd: Pd,
    /// The replica.
    pub replica: Replica,
    /// The regions and the judge.
    pub world: Arc<World>,
    /// What clients share.
    pub scene: Arc<Scene>,
    conditions: Conditions,
    stores: Arc<Mutex<Option<Stores>>>,
    churn: JoinSet<()>,
    clients: Clients,
}

impl Stage {
    /// Sets it up; the clients ask and regions change from then on. With `killable` the leader has its own process.
    pub async fn set(conditions: &Conditions, killable: bool) -> Result<Self, InteropError> {
        let pd = Pd::start(&conditions.wanted(killable)).await?;
        let world = Arc::new(World::new(conditions.regions, conditions.seed));
        let regions = world.regions();
        let stores = pd.settle(&regions).await?;
        world.confirm(regions.iter().map(|region| region.id), Instant::now());
        // From the beginning: behind a quiet leader of release 8.5, with PD's own pauses between two keepalives, no map
        // is proven within these bounds.
        let stores = Arc::new(Mutex::new(Some(stores)));
        let mut tasks = JoinSet::new();
        tasks.spawn(churn(Arc::clone(&world), Arc::clone(&stores)));

        let setting = Setting {
            name: "tidegate",
            when_stale: conditions.when_stale,
            config: tight(&format!(
                "time-threshold = \"4s\"\nbackend-timeout = \"1s\"\nmax-backoff = \"1s\"\n{}",
                conditions.further
            )),
        };
        let replica = Replica::start(
            &conditions.tidegate,
            &conditions.dir,
            &pd.endpoints(),
            pd.cluster_id(),
            &setting,
        )
        .await?;
        let scene = Arc::new(Scene::new(
            Arc::clone(&world),
            Tally::new(conditions.bound()),
            replica.url().to_owned(),
            pd.leader_url(),
            pd.cluster_id(),
        ));
        let clients = Clients::start(&scene)?;
        let mut stage = Self {
            pd,
            replica,
            world,
            scene,
            conditions: conditions.clone(),
            stores,
            churn: tasks,
            clients,
        };
        stage.recovery().await?;
        stage.dialect_shown().await?;
        // What the start cost is not the drill's.
        stage.scene.tally.begin();
        Ok(stage)
    }

    /// Waits until the replica knows master's dialect where that is spoken: until then the bounds of release 8.5 are
    /// the ones that hold.
    async fn dialect_shown(&self) -> Result<(), InteropError> {
        if self.conditions.dialect != Dialect::Master {
            return Ok(());
        }
        let since = Instant::now();
        loop {
            let page = status(self.replica.url()).await.unwrap_or_default();
            if page["dialect"]["name"] == "master" {
                // It takes effect with the next probe.
                sleep(PROBE_INTERVAL * 2).await;
                return Ok(());
            }
            if since.elapsed() > RECOVERY_LIMIT {
                return Err(InteropError::Timeout {
                    what: "the replica's knowing the leader's dialect",
                    limit: RECOVERY_LIMIT,
                    detail: format!(": {page}"),
                });
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// How the drill is run.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Lets the stores fall silent; what was under way has been taken by the leader, or lost.
    pub async fn hush(&self) {
        if let Some(stores) = self.stores.lock().await.take() {
            stores.close();
        }
    }

    /// The stores and the clients turn to the leader of now. A real one is told everything, as TiKV does: it may have
    /// missed what its predecessor was told last.
    pub async fn turn_to_leader(&self) -> Result<(), InteropError> {
        let url = self.pd.leader_url();
        let mut stores = Stores::open(&url, self.pd.cluster_id()).await?;
        self.scene.moved(url);
        if self.pd.is_real() {
            let regions = self.world.regions();
            stores.tell(&regions).await?;
            self.confirm(&regions);
        }
        *self.stores.lock().await = Some(stores);
        Ok(())
    }

    fn confirm(&self, regions: &[ModelRegion]) {
        self.world
            .confirm(regions.iter().map(|region| region.id), Instant::now());
    }

    /// Another member leads after a kill, and has or will be told all that the stores know.
    pub async fn succeed(&mut self) -> Result<(), InteropError> {
        let regions = self.world.regions();
        self.pd.succeed(&regions).await?;
        self.turn_to_leader().await?;
        self.confirm(&regions);
        Ok(())
    }

    /// Changes regions, and returns what changed once the leader has it.
    pub async fn change(
        &self,
        change: impl FnOnce(&World) -> Vec<ModelRegion>,
    ) -> Result<Vec<ModelRegion>, InteropError> {
        // Nothing else changes while the lock is held, so that what is confirmed is what was told.
        match &mut *self.stores.lock().await {
            Some(stores) => {
                let changed = change(&self.world);
                stores.tell(&changed).await?;
                self.confirm(&changed);
                Ok(changed)
            }
            None => Err(InteropError::Leader("the stores are silent".to_owned())),
        }
    }

    /// Changes one region and waits until the replica's map answers with it; returns how long that took.
    pub async fn recovery(&mut self) -> Result<Duration, InteropError> {
        let changed = self.change(World::move_one).await?;
        let since = Instant::now();
        let mut asker = Asker::new(&self.scene)?;
        let id = changed[0].id;
        loop {
            // It may have changed again meanwhile; then the answer has to have that, too.
            let meant = self.world.last(id);
            let answer = asker.ask_replica(&About::Id(id)).await;
            if let Some((found, Source::Map { .. })) = answer
                && Some(found) == meant
            {
                return Ok(since.elapsed());
            }
            if since.elapsed() > RECOVERY_LIMIT {
                return Err(InteropError::Timeout {
                    what: "the map's answering with what changed after the fault",
                    limit: RECOVERY_LIMIT,
                    detail: format!("; the replica's last lines:\n{}", self.replica.tail()),
                });
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ends it all in order and returns what the clients saw.
    pub async fn strike(self) -> Result<Figures, InteropError> {
        self.hush().await;
        self.clients.stop().await?;
        drop(self.churn);
        self.replica.stop().await?;
        self.pd.stop().await?;
        Ok(self.scene.tally.figures())
    }
}

/// Changes regions, one after the other, for as long as the stores speak.
async fn churn(world: Arc<World>, stores: Arc<Mutex<Option<Stores>>>) {
    loop {
        {
            let mut stores = stores.lock().await;
            if let Some(speaking) = &mut *stores {
                let changed = world.change();
                if speaking.tell(&changed).await.is_ok() {
                    world.confirm(changed.iter().map(|region| region.id), Instant::now());
                } else {
                    // The leader has gone; its successor is told everything.
                    *stores = None;
                }
            }
        }
        sleep(CHURN_PAUSE).await;
    }
}
