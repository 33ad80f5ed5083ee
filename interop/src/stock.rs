//! Stock clients: a program that is built on one looks regions up through a replica that presents itself as PD, while
//! regions change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::authority::put_stores;
use crate::client::connect;
use crate::drill::stage::{Conditions, Stage};
use crate::drill::world::World;
use crate::error::InteropError;
use crate::keys::key_at;
use crate::pd::Pd;
use crate::process::Process;
use crate::replica::{Replica, Setting};
use crate::store::Stores;

/// Lookups under changes.
const LOOKUPS: usize = 10_000;
/// Lookups where each may cost seconds.
const FEW: usize = 5;
/// For the pauses of one lookup, where the client takes such a bound: client-go's own.
const BUDGET: Duration = Duration::from_secs(40);
/// The same where nothing but pauses is to be expected.
const SHORT_BUDGET: Duration = Duration::from_secs(4);
/// For one run of the client.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs `program`, which speaks as `interop/go` and `interop/stock` do, against the replica.
pub async fn run(conditions: &Conditions, program: &Path, label: &str) -> Result<(), InteropError> {
    for bounded in [true, false] {
        let mut conditions = conditions.clone();
        conditions.dir = conditions.dir.join(format!("stock-{label}-{bounded}"));
        std::fs::create_dir_all(&conditions.dir)
            .map_err(InteropError::system("make a directory"))?;
        conditions.further =
            format!("present-as = \"self\"\nallow-bounded-staleness = {bounded}\n");
        under_changes(&conditions, program, label, bounded).await?;
    }
    for (present_as, when_stale, bounded) in [
        ("self", "refuse", true),
        ("self", "refuse", false),
        ("self", "read-through", true),
        ("backend", "refuse", false),
    ] {
        let how = Shut {
            present_as,
            when_stale,
            bounded,
        };
        at_shut_gate(conditions, program, label, &how).await?;
    }
    Ok(())
}

async fn under_changes(
    conditions: &Conditions,
    program: &Path,
    label: &str,
    bounded: bool,
) -> Result<(), InteropError> {
    let stage = Stage::set(conditions, false).await?;
    let stores = Stores::start(&stage.world).await?;
    put_stores(
        &mut connect(&stage.pd.leader_url()).await?,
        stage.pd.cluster_id(),
        stores.meta(),
    )
    .await?;
    let client = look_up(
        program,
        stage.replica.url(),
        &conditions.dir,
        LOOKUPS,
        BUDGET,
    )
    .await?;
    let (reads, outdated, outside) = stores.counts();
    let answers = if bounded {
        "the map"
    } else {
        "the leader, through the replica"
    };
    println!(
        "stock {label} ({}), answers of {answers}: {client}",
        conditions.dialect
    );
    if reads > 0 {
        println!("    {reads} reads at the stores, {outdated} with an outdated region");
    }
    let figures = stage.strike().await?;
    println!("    beside it {figures}");
    let none = |name: &str| client[name].as_u64() == Some(0);
    let backoffs = client["backoffs"]
        .as_object()
        .is_none_or(|kinds| !kinds.is_empty());
    if client["lookups"].as_u64() != Some(LOOKUPS as u64)
        || !none("errors")
        || !none("wrong")
        || backoffs
        || outside > 0
        || figures.stale + figures.wrong + figures.errors > 0
    {
        return Err(InteropError::Verdict(format!(
            "{label}: a lookup went wrong or had to be repeated"
        )));
    }
    Ok(())
}

/// How a replica with a shut gate meets a client.
#[derive(Debug)]
struct Shut {
    present_as: &'static str,
    when_stale: &'static str,
    bounded: bool,
}

impl std::fmt::Display for Shut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bounded = if self.bounded { "-bounded" } else { "" };
        write!(f, "{}{bounded}-{}", self.present_as, self.when_stale)
    }
}

/// What a lookup costs the client while the gate is shut; stated, not judged.
async fn at_shut_gate(
    conditions: &Conditions,
    program: &Path,
    label: &str,
    how: &Shut,
) -> Result<(), InteropError> {
    let dir: PathBuf = conditions.dir.join(format!("shut-{label}-{how}"));
    std::fs::create_dir_all(&dir).map_err(InteropError::system("make a directory"))?;
    let mut wanted = conditions.wanted(false);
    wanted.dir.clone_from(&dir);
    let pd = Pd::start(&wanted).await?;
    let world = Arc::new(World::new(100, conditions.seed));
    let _reporting = pd.settle(&world.regions()).await?;
    let stores = Stores::start(&world).await?;
    put_stores(
        &mut connect(&pd.leader_url()).await?,
        pd.cluster_id(),
        stores.meta(),
    )
    .await?;
    pd.withhold_sync(true);
    let setting = Setting {
        name: "tidegate",
        when_stale: how.when_stale,
        config: format!(
            "register = false\npresent-as = \"{}\"\nallow-bounded-staleness = {}\n",
            how.present_as, how.bounded
        ),
    };
    let endpoints = pd.endpoints();
    let replica = Replica::spawn(&conditions.tidegate, &dir, &endpoints, &setting)?;
    replica.knows_leader().await?;
    let client = look_up(program, replica.url(), &dir, FEW, SHORT_BUDGET).await;
    match client {
        Ok(client) => println!("stock {label}, gate shut, {how}: {client}"),
        Err(error) => println!("stock {label}, gate shut, {how}: {error}"),
    }
    replica.stop().await?;
    pd.stop().await
}

async fn look_up(
    program: &Path,
    url: &str,
    dir: &Path,
    count: usize,
    budget: Duration,
) -> Result<Value, InteropError> {
    let path = dir.join("keys");
    let mut rng = SmallRng::seed_from_u64(count as u64);
    let lines: String = (0..count)
        .map(|_| {
            let key = key_at(rng.random_range(1..u64::MAX - 1));
            let mut line: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            line.push('\n');
            line
        })
        .collect();
    std::fs::write(&path, lines).map_err(InteropError::system("write the keys"))?;
    let endpoint = url.strip_prefix("http://").unwrap_or(url);
    let args = [
        "-pd".to_owned(),
        endpoint.to_owned(),
        "-keys".to_owned(),
        path.display().to_string(),
        "-budget".to_owned(),
        budget.as_millis().to_string(),
    ];
    let client = Process::start(program, &args, dir.join("client.out"))?;
    let (status, text) = client.finish(LIMIT).await?;
    let line = text.lines().rev().find(|line| line.starts_with('{'));
    match line.and_then(|line| serde_json::from_str(line).ok()) {
        Some(told) if status.success() => Ok(told),
        _ => Err(InteropError::Verdict(format!(
            "the client ended with {status}: {}",
            text.lines()
                .find(|line| line.starts_with("panic"))
                .or(text.lines().last())
                .unwrap_or_default()
        ))),
    }
}
