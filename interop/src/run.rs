//! One run: feed, compare at rest, change while comparing, compare at rest again.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate::pd::Dialect;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::authority::{Authority, bootstrap};
use crate::changing::{Tally, watch};
use crate::client::{Asker, connect};
use crate::cluster::Cluster;
use crate::error::InteropError;
use crate::feeder::Feeder;
use crate::quiet::{compare, wait_until_settled};
use crate::replica::{Replica, Setting, max_age, tight_at_rest};

/// What to run.
#[derive(Debug)]
pub struct Plan {
    /// The replica's program.
    pub tidegate: PathBuf,
    /// A pd-server; the embedded leader without one.
    pub pd_server: Option<PathBuf>,
    /// The dialect of the embedded leader.
    pub dialect: Dialect,
    /// Regions to feed.
    pub regions: u64,
    /// Questions of each comparison at rest.
    pub questions: usize,
    /// How long regions change while both are asked.
    pub changing: Duration,
    /// Seed of every random choice.
    pub seed: u64,
    /// Directory for data and logs.
    pub dir: PathBuf,
}

/// Tasks that ask while regions change.
const WATCHERS: u64 = 4;
/// Pause between two rounds of changes.
const ROUND: Duration = Duration::from_millis(10);

/// Runs the plan and prints what was compared. An error is a wrong answer, or a run that came to no verdict.
pub async fn run(plan: &Plan) -> Result<(), InteropError> {
    let authority = match &plan.pd_server {
        Some(program) => Authority::real(program, &plan.dir).await?,
        None => Authority::embedded(plan.dialect).await?,
    };
    println!(
        "authority: {} ({}) at {}, seed {}",
        authority.describe(),
        plan.dialect,
        authority.url(),
        plan.seed
    );
    let mut rng = SmallRng::seed_from_u64(plan.seed);
    let cluster_id = authority.cluster_id();
    let mut client = connect(authority.url()).await?;
    bootstrap(&mut client, cluster_id).await?;

    let cluster = Arc::new(Mutex::new(Cluster::new(plan.regions, 1_000)));
    let feeder = Feeder::open(&client, cluster_id).await?;
    let started = Instant::now();
    feeder.report(cluster.lock().await.regions()).await?;
    let mut pd = Asker::new(client, cluster_id);
    wait_until_settled(
        &mut pd,
        &*cluster.lock().await,
        "PD's knowledge of every region",
    )
    .await?;
    println!("fed: {} regions in {:?}", plan.regions, started.elapsed());

    let started = Instant::now();
    let setting = Setting {
        name: "tidegate",
        when_stale: "refuse",
        config: tight_at_rest(),
    };
    let replica = Replica::start(
        &plan.tidegate,
        &plan.dir,
        authority.url(),
        cluster_id,
        &setting,
    )
    .await?;
    println!(
        "replica: ready at {} after {:?}",
        replica.url(),
        started.elapsed()
    );
    let mut asker = Asker::new(connect(replica.url()).await?, cluster_id);
    let mut failures = at_rest(&mut pd, &mut asker, &cluster, &mut rng, plan.questions).await?;

    let tally = Arc::new(Tally::default());
    change(plan, &feeder, (&pd, &asker), &cluster, &tally, &mut rng).await?;
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "in motion: {} answers compared, {} behind within bounds (longest {} ms), {} refused or missed, {} newer than PD, {} stale",
        read(&tally.compared),
        read(&tally.behind),
        read(&tally.longest_ms),
        read(&tally.refused),
        read(&tally.newer),
        read(&tally.stale),
    );
    failures += read(&tally.newer) as usize + read(&tally.stale) as usize;
    if read(&tally.compared) == 0 {
        return Err(InteropError::Verdict(
            "nothing was compared while regions changed".to_owned(),
        ));
    }
    failures += at_rest(&mut pd, &mut asker, &cluster, &mut rng, plan.questions).await?;

    feeder.close();
    replica.stop().await?;
    authority.stop().await?;
    match failures {
        0 => Ok(()),
        n => Err(InteropError::Verdict(format!("{n} answers were wrong"))),
    }
}

async fn at_rest(
    pd: &mut Asker,
    replica: &mut Asker,
    cluster: &Mutex<Cluster>,
    rng: &mut SmallRng,
    questions: usize,
) -> Result<usize, InteropError> {
    let cluster = cluster.lock().await;
    wait_until_settled(pd, &cluster, "PD's knowledge of every change").await?;
    wait_until_settled(replica, &cluster, "the replica's catching up").await?;
    let different = compare(pd, replica, &cluster, rng, questions).await?;
    println!(
        "at rest: {} regions, {questions} questions, {different} answered differently",
        cluster.len()
    );
    Ok(different)
}

async fn change(
    plan: &Plan,
    feeder: &Feeder,
    (pd, replica): (&Asker, &Asker),
    cluster: &Arc<Mutex<Cluster>>,
    tally: &Arc<Tally>,
    rng: &mut SmallRng,
) -> Result<(), InteropError> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut watchers = JoinSet::new();
    for i in 0..WATCHERS {
        let (cluster, tally, stop) = (cluster.clone(), tally.clone(), stop.clone());
        watchers.spawn(watch(
            pd.clone(),
            replica.clone(),
            cluster,
            tally,
            stop,
            (plan.seed ^ (i + 1), max_age(plan.dialect)),
        ));
    }
    let (started, mut changes) = (Instant::now(), 0);
    while started.elapsed() < plan.changing && watchers.len() == WATCHERS as usize {
        for _ in 0..5 {
            let changed = {
                let mut cluster = cluster.lock().await;
                match rng.random_range(0..10) {
                    0..4 => cluster.split(rng),
                    4..8 => cluster.move_leader(rng),
                    _ => cluster.change_peer(rng),
                }
            };
            changes += changed.len();
            feeder.report(&changed).await?;
        }
        tokio::time::sleep(ROUND).await;
    }
    // Relaxed: a flag to end by; nothing is published with it.
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = watchers.join_next().await {
        ended.map_err(|e| InteropError::Verdict(format!("a watcher died: {e}")))??;
    }
    println!("changed: {changes} heartbeats in {:?}", started.elapsed());
    Ok(())
}
