//! A burst: cold clients look up all they need at a replica that cannot prove its map.
//!
//! The same burst twice: against `refuse`, where each lookup ends at the leader, and against `read-through`, where equal
//! lookups are one and the others go in batches. The sync stream is kept from the replica, so that its gate stays shut.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate::pd::Dialect;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Answer, Asker, Question, connect};
use crate::cluster::{Cluster, ModelRegion};
use crate::error::InteropError;
use crate::keys::key_at;
use crate::pd::{Pd, Wanted};
use crate::replica::{Replica, Setting};
use crate::status::status;

/// How large the burst is.
#[derive(Clone, Debug)]
pub struct Burst {
    /// The replica's program.
    pub tidegate: PathBuf,
    /// A pd-server to lead; the embedded leader does without one.
    pub pd_server: Option<PathBuf>,
    /// How the leader serves its sync streams.
    pub dialect: Dialect,
    /// Clients at once.
    pub clients: u64,
    /// Lookups of each, one after the other.
    pub lookups: u64,
    /// Regions that they are about.
    pub regions: u64,
    /// Seed of every random choice.
    pub seed: u64,
    /// For logs and config files.
    pub dir: PathBuf,
}

/// What one burst has cost.
#[derive(Clone, Debug, Default)]
struct Cost {
    /// Calls and batches that the leader answered, from the replica and from clients.
    rpcs: u64,
    /// Keys that it was asked for.
    keys: u64,
    /// Lookups that came to nothing.
    errors: u64,
    p50: Duration,
    p99: Duration,
    slowest: Duration,
    took: Duration,
}

/// Runs both bursts and compares what they cost the leader.
pub async fn run(burst: &Burst) -> Result<(), InteropError> {
    println!(
        "burst ({}): {} clients, {} lookups each over {} regions, the gate shut",
        burst.dialect, burst.clients, burst.lookups, burst.regions
    );
    let refused = once(burst, "refuse").await?;
    let through = once(burst, "read-through").await?;
    let ratio = |a: u64, b: u64| a as f64 / b.max(1) as f64;
    let (rpcs, keys) = (
        ratio(refused.rpcs, through.rpcs),
        ratio(refused.keys, through.keys),
    );
    println!(
        "burst: read-through costs the leader 1/{rpcs:.1} of the calls and 1/{keys:.1} of the keys"
    );
    if rpcs < 10.0 || keys < 4.0 || refused.errors + through.errors > 0 {
        return Err(InteropError::Verdict(
            "the burst has to cost at most 1/10 of the calls and 1/4 of the keys, without errors"
                .to_owned(),
        ));
    }
    Ok(())
}

async fn once(burst: &Burst, when_stale: &'static str) -> Result<Cost, InteropError> {
    let dir = burst.dir.join(format!("burst-{when_stale}"));
    std::fs::create_dir_all(&dir).map_err(InteropError::system("make a directory"))?;
    let pd = Pd::start(&Wanted {
        pd_server: burst.pd_server.clone(),
        dialect: burst.dialect,
        player: None,
        etcd: None,
        dir: dir.clone(),
    })
    .await?;
    let cluster = Cluster::new(burst.regions, 1_000);
    let _reporting = pd.settle(cluster.regions()).await?;
    pd.withhold_sync(true);

    let setting = Setting {
        name: "tidegate",
        when_stale,
        config: "register = false\naudit-pass = \"off\"\n".to_owned(),
    };
    let endpoints = pd.endpoints();
    let replica = Replica::spawn(&burst.tidegate, &dir, &endpoints, &setting)?;
    replica.knows_leader().await?;

    let asked = pd.lookups();
    let regions: Arc<[ModelRegion]> = cluster.regions().into();
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for i in 0..burst.clients {
        let replica = Asker::new(connect(replica.url()).await?, pd.cluster_id());
        let leader = Asker::new(connect(&pd.leader_url()).await?, pd.cluster_id());
        let rng = SmallRng::seed_from_u64(burst.seed ^ (i + 1));
        clients.spawn(client(
            replica,
            leader,
            Arc::clone(&regions),
            rng,
            burst.lookups,
        ));
    }
    let (mut cost, mut times) = (Cost::default(), Vec::new());
    while let Some(done) = clients.join_next().await {
        let client = done.map_err(|e| InteropError::Verdict(format!("a client died: {e}")))?;
        cost.rpcs += client.at_leader;
        cost.errors += client.errors;
        times.extend(client.times);
    }
    cost.took = started.elapsed();
    let asks = asks(&replica).await;
    cost.keys = match (asked, pd.lookups()) {
        (Some(before), Some(after)) => after - before,
        // A pd-server does not count keys; the replica and the clients do.
        _ => cost.rpcs + asks.keys,
    };
    cost.rpcs += asks.calls;
    times.sort_unstable();
    let at = |share: f64| {
        let index = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
        times.get(index).copied().unwrap_or_default()
    };
    (cost.p50, cost.p99, cost.slowest) = (at(0.5), at(0.99), at(1.0));
    println!(
        "burst ({when_stale}): {} calls and {} keys at the leader, {} errors; p50 {:?}, p99 {:?}, slowest {:?}; {} lookups in {:.1} s",
        cost.rpcs,
        cost.keys,
        cost.errors,
        cost.p50,
        cost.p99,
        cost.slowest,
        times.len(),
        cost.took.as_secs_f64()
    );
    replica.stop().await?;
    pd.stop().await?;
    Ok(cost)
}

#[derive(Debug, Default)]
struct Seen {
    at_leader: u64,
    errors: u64,
    times: Vec<Duration>,
}

/// Looks up without a cache; where the replica refuses, the leader is asked.
async fn client(
    mut replica: Asker,
    mut leader: Asker,
    regions: Arc<[ModelRegion]>,
    mut rng: SmallRng,
    lookups: u64,
) -> Seen {
    let mut seen = Seen::default();
    for _ in 0..lookups {
        let region = &regions[rng.random_range(0..regions.len())];
        let question = Question::Key(key_at(region.lo.max(1)));
        let begun = Instant::now();
        let mut answer = replica.ask(&question).await;
        if !matches!(&answer, Ok(Answer::Regions(regions)) if !regions.is_empty()) {
            seen.at_leader += 1;
            answer = leader.ask(&question).await;
        }
        seen.times.push(begun.elapsed());
        let right = answer.is_ok_and(|answer| answer.region().is_some_and(|r| r.id == region.id));
        seen.errors += u64::from(!right);
    }
    seen
}

/// What the replica has asked the leader, by what it says itself.
#[derive(Clone, Copy, Debug, Default)]
struct Asks {
    calls: u64,
    keys: u64,
}

async fn asks(replica: &Replica) -> Asks {
    let page = status(replica.url()).await.unwrap_or_default();
    let sum = |names: &[&str]| {
        let count = |name: &&str| page["asks"][*name].as_u64();
        names.iter().filter_map(count).sum()
    };
    Asks {
        calls: sum(&["batches", "unary", "scans", "looks"]),
        keys: sum(&["batched", "unary"]),
    }
}
