//! What a lookup, a region and a start cost the replica, measured from outside.
//!
//! The load comes from this process and is not counted: processor time is the replica's own, from `/proc`. Answers are
//! checked for the region that covers the key, so that nothing is counted that was not answered.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate::leader::{EmbeddedLeader, LeaderConfig};
use tidegate::pd::Dialect;
use tidegate::proto::pdpb;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;

use crate::client::connect;
use crate::cluster::Cluster;
use crate::error::InteropError;
use crate::keys::key_at;
use crate::replica::{Replica, Setting};
use crate::seeding::report;
use crate::status::status;

const CLUSTER: u64 = 7;
/// For one full sync of a million regions and more.
const READY_LIMIT: Duration = Duration::from_secs(300);
/// Regions that are reported at once.
const GROUP: usize = 10_000;
/// Keys of a batch.
const BATCH: usize = 64;
/// Ticks of `/proc/PID/stat` in a second, on every Linux that Rust runs on.
const TICKS: f64 = 100.0;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Side {
    /// The replica's program.
    pub tidegate: PathBuf,
    /// Regions.
    pub regions: u64,
    /// Seconds of each load.
    pub seconds: u64,
    /// Connections that ask at once.
    pub connections: u64,
    /// For data and logs.
    pub dir: PathBuf,
}

/// Measures and prints; a PD is measured beside it only where its program is given.
pub async fn run(side: &Side) -> Result<(), InteropError> {
    println!(
        "side by side: Tidegate alone, for PD's own router and a PD follower need a pd-server; {} regions",
        side.regions
    );
    let leader = EmbeddedLeader::start(LeaderConfig {
        cluster_id: CLUSTER,
        ring_capacity: 1 << 14,
        dialect: Dialect::Master,
        ..LeaderConfig::default()
    })
    .await
    .map_err(|e| InteropError::Leader(e.to_string()))?;
    {
        let cluster = Cluster::new(side.regions, 1_000);
        for group in cluster.regions().chunks(GROUP) {
            report(&leader, group)?;
        }
    }
    let setting = Setting {
        name: "tidegate",
        when_stale: "refuse",
        config: format!(
            "register = false\naudit-pass = \"off\"\ndata-dir = \"{}\"\n",
            side.dir.join("data").display()
        ),
    };
    let url = leader.url();
    let start = || Replica::spawn(&side.tidegate, &side.dir, &url, &setting);

    let replica = start()?;
    ready(&replica, side.regions, "cold").await?;
    sleep(Duration::from_secs(3)).await;
    let (resident, peak) = memory(&replica)?;
    println!(
        "memory: {} bytes per region ({} MiB resident, {} MiB at the peak)",
        resident * 1024 / side.regions,
        resident >> 10,
        peak >> 10
    );
    load(side, &replica, Kind::Unary).await?;
    load(side, &replica, Kind::Batches).await?;
    // What is kept on disk is written in the background.
    sleep(Duration::from_secs(5)).await;
    replica.stop().await?;

    let replica = start()?;
    ready(&replica, side.regions, "warm").await?;
    replica.stop().await?;
    leader.stop().await;
    Ok(())
}

async fn ready(replica: &Replica, regions: u64, meant: &str) -> Result<(), InteropError> {
    let started = Instant::now();
    loop {
        let page = status(replica.url()).await.unwrap_or_default();
        if page["gate"]["open"] == true && page["regions"] == regions {
            println!(
                "start: {} ({meant} was meant), ready after {} ms",
                page["ready"]["start"], page["ready"]["after_ms"]
            );
            return Ok(());
        }
        if started.elapsed() > READY_LIMIT {
            return Err(InteropError::Timeout {
                what: "the replica's being ready",
                limit: READY_LIMIT,
                detail: format!(": {page}; its last lines:\n{}", replica.tail()),
            });
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Unary,
    Batches,
}

async fn load(side: &Side, replica: &Replica, kind: Kind) -> Result<(), InteropError> {
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for i in 0..side.connections {
        let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
        let url = replica.url().to_owned();
        clients.spawn(async move {
            match kind {
                Kind::Unary => unary(&url, i, &stop, &answered).await,
                Kind::Batches => batches(&url, i, &stop, &answered).await,
            }
        });
    }
    // The connections are made and the first answers given before it counts.
    sleep(Duration::from_secs(1)).await;
    let (begun, before) = (Instant::now(), processor_seconds(replica)?);
    // Relaxed here and below: a count of a report.
    let asked_before = answered.load(Ordering::Relaxed);
    sleep(Duration::from_secs(side.seconds)).await;
    let (took, used) = (begun.elapsed(), processor_seconds(replica)? - before);
    let asked = answered.load(Ordering::Relaxed) - asked_before;
    // Relaxed: a flag to end by; nothing is published with it.
    stop.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    while let Some(done) = clients.join_next().await {
        times.extend(done.map_err(|e| InteropError::Verdict(format!("a client died: {e}")))??);
    }
    times.sort_unstable();
    let at = |share: usize| {
        times
            .get(times.len() * share / 100)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "{}: {:.0} lookups per CPU second ({asked} in {:.1} s on {used:.2} s of processor), p50 {:?}, p99 {:?} {}",
        match kind {
            Kind::Unary => "GetRegion",
            Kind::Batches => "QueryRegion of 64",
        },
        asked as f64 / used.max(0.01),
        took.as_secs_f64(),
        at(50),
        at(99),
        match kind {
            Kind::Unary => "a lookup",
            Kind::Batches => "a batch",
        },
    );
    Ok(())
}

async fn unary(
    url: &str,
    seed: u64,
    stop: &AtomicBool,
    answered: &AtomicU64,
) -> Result<Vec<Duration>, InteropError> {
    let mut client = connect(url).await?;
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut times = Vec::new();
    // Relaxed: see `load`.
    while !stop.load(Ordering::Relaxed) {
        let mut request = Request::new(pdpb::GetRegionRequest {
            header: header(),
            region_key: key_at(rng.random_range(1..u64::MAX - 1)).into(),
            need_buckets: false,
        });
        request.metadata_mut().insert(
            "pd-allow-follower-handle",
            tonic::metadata::MetadataValue::from_static(""),
        );
        let begun = Instant::now();
        let answer = client.get_region(request).await;
        times.push(begun.elapsed());
        let answer = answer
            .map_err(InteropError::call("GetRegion"))?
            .into_inner();
        if answer.region.is_none() {
            return Err(missing());
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(times)
}

async fn batches(
    url: &str,
    seed: u64,
    stop: &AtomicBool,
    answered: &AtomicU64,
) -> Result<Vec<Duration>, InteropError> {
    let mut client = connect(url).await?;
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut times = Vec::new();
    let (questions, receiver) = mpsc::channel(1);
    let mut question = || pdpb::QueryRegionRequest {
        header: header(),
        keys: (0..BATCH)
            .map(|_| key_at(rng.random_range(1..u64::MAX - 1)).into())
            .collect(),
        ..Default::default()
    };
    let closed = |_| InteropError::Verdict("the stream of QueryRegion was closed".to_owned());
    questions.send(question()).await.map_err(closed)?;
    let answers = client.query_region(ReceiverStream::new(receiver)).await;
    let mut answers = answers
        .map_err(InteropError::call("QueryRegion"))?
        .into_inner();
    let mut begun = Instant::now();
    loop {
        let answer = answers
            .message()
            .await
            .map_err(InteropError::call("QueryRegion"))?;
        if answer
            .is_none_or(|answer| answer.key_id_map.len() != BATCH || answer.key_id_map.contains(&0))
        {
            return Err(missing());
        }
        times.push(begun.elapsed());
        answered.fetch_add(BATCH as u64, Ordering::Relaxed);
        // Relaxed: see `load`.
        if stop.load(Ordering::Relaxed) {
            return Ok(times);
        }
        let next = question();
        begun = Instant::now();
        questions.send(next).await.map_err(closed)?;
    }
}

fn missing() -> InteropError {
    InteropError::Verdict("a lookup under load was not answered".to_owned())
}

fn header() -> Option<pdpb::RequestHeader> {
    Some(pdpb::RequestHeader {
        cluster_id: CLUSTER,
        ..Default::default()
    })
}

/// Processor time that the replica has used, in seconds.
fn processor_seconds(replica: &Replica) -> Result<f64, InteropError> {
    let pid = replica.pid().unwrap_or(0);
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_err(InteropError::system("read the replica's processor time"))?;
    // Behind the name, which may have spaces: state is the first, utime the twelfth, stime the thirteenth.
    let fields: Vec<_> = text
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .collect();
    let ticks = |at: usize| fields.get(at).and_then(|n| n.parse::<f64>().ok());
    Ok((ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / TICKS)
}

/// Resident and peak memory of the replica, in KiB.
fn memory(replica: &Replica) -> Result<(u64, u64), InteropError> {
    let pid = replica.pid().unwrap_or(0);
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .map_err(InteropError::system("read the replica's memory use"))?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Ok((kib("VmRSS:").unwrap_or(0), kib("VmHWM:").unwrap_or(0)))
}
