//! What a replica holds in memory for a region: the built program, synced from an embedded leader.
//!
//! Measured twice, from outside: when the map is complete and proven, and after changes have run over all of it, which
//! is how a replica spends its life. What is resident counts whole, the program itself and what its allocator keeps
//! included.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde_json::Value;
use tidegate::leader::{EmbeddedLeader, LeaderConfig};
use tidegate_core::{KeyRange, Peer, PeerRole, Region, RegionEpoch};
use tidegate_interop::error::InteropError;
use tidegate_interop::keys::key_at;
use tidegate_interop::process::{Process, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// How long one answer of the status page may take.
const STATUS_LIMIT: Duration = Duration::from_secs(5);
/// Regions that the leader is told at once.
const GROUP: usize = 500;
/// Changes that may be on their way to the replica: half of what the leader keeps for a slow one.
const ON_THE_WAY: u64 = 5_000;

/// Starts an embedded leader and `tidegate serve`, and prints the replica's resident bytes per region.
#[derive(Debug, Parser)]
#[command(name = "memory")]
struct Args {
    /// Path of the built tidegate program
    #[arg(long)]
    tidegate: PathBuf,
    /// Regions to sync
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..1 << 31))]
    regions: u64,
    /// Changes to follow after that
    #[arg(long, default_value_t = 1_000_000)]
    changes: u64,
    /// Fail if a region takes this many bytes or more
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Seconds for the full sync, and again for the changes
    #[arg(long, default_value_t = 300)]
    deadline: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    match measure(&Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("memory: {error}");
            ExitCode::from(2)
        }
    }
}

async fn measure(args: &Args) -> Result<bool, InteropError> {
    let config = LeaderConfig {
        full_sync_rate: 0,
        ..LeaderConfig::default()
    };
    let leader = EmbeddedLeader::start(config)
        .await
        .map_err(|error| InteropError::Leader(error.to_string()))?;
    println!(
        "leader: {} regions of 3 peers, keys of {} bytes",
        args.regions,
        key_at(0).len()
    );
    for first in (0..args.regions).step_by(GROUP) {
        let group = first..(first + GROUP as u64).min(args.regions);
        report(
            &leader,
            group.map(|index| region(index, args.regions, 0)).collect(),
        )?;
    }

    let dir = tempfile::Builder::new()
        .prefix("tidegate-memory")
        .tempdir()
        .map_err(InteropError::system("make a temporary directory"))?;
    let mut replica = Replica::start(&args.tidegate, dir.path(), &leader.url())?;
    let limit = Duration::from_secs(args.deadline);

    replica
        .wait("the full sync", limit, |status| {
            status.open && status.regions == args.regions
        })
        .await?;
    let synced = replica.settled(args).await?;
    println!("after the full sync: {synced}");

    let mut reported = 0;
    let changes_end = Instant::now() + limit;
    while reported < args.changes {
        let group = reported..(reported + GROUP as u64).min(args.changes);
        reported = group.end;
        // One after the other over the whole map, far apart from one to the next.
        let moved = |n: u64| {
            region(
                n.wrapping_mul(7_919) % args.regions,
                args.regions,
                1 + n / args.regions,
            )
        };
        report(&leader, group.map(moved).collect())?;
        let seen = leader.next_index().saturating_sub(ON_THE_WAY);
        let left = changes_end.saturating_duration_since(Instant::now());
        replica
            .wait("the changes", left, |status| status.applied >= seen)
            .await?;
    }
    let all = leader.next_index();
    replica
        .wait("the last changes", limit, |status| {
            status.open && status.applied >= all
        })
        .await?;
    let changed = replica.settled(args).await?;
    println!("after {} leader moves: {changed}", args.changes);

    replica.process.stop().await?;
    leader.stop().await;
    let holds = [synced, changed]
        .iter()
        .all(|size| size.bytes_per_region < args.limit);
    let word = if holds { "holds" } else { "FAILS" };
    println!(
        "{word}: fewer than {} resident bytes per region",
        args.limit
    );
    Ok(holds)
}

/// The region at `index` of `count`, after `moves` moves of its leader.
fn region(index: u64, count: u64, moves: u64) -> Region {
    let width = u64::MAX / count;
    let key = |index: u64| {
        if index == 0 || index == count {
            Vec::new()
        } else {
            key_at(index * width)
        }
    };
    let id = 10 + 4 * index;
    let peers = [1, 2, 3].map(|store_id| Peer {
        id: id + store_id,
        store_id,
        role: PeerRole::Voter,
        is_witness: false,
    });
    let range = KeyRange::new(key(index), key(index + 1)).expect("positions ascend");
    Region::builder(
        id,
        range,
        RegionEpoch {
            conf_ver: 5,
            version: 60,
        },
    )
    .peers(peers)
    .leader(Some(peers[(moves % 3) as usize]))
    .build()
    .expect("ids begin above 0")
}

fn report(leader: &EmbeddedLeader, regions: Vec<Region>) -> Result<(), InteropError> {
    for outcome in leader.report_regions(regions) {
        outcome.map_err(|stale| InteropError::Leader(stale.to_string()))?;
    }
    Ok(())
}

/// What is resident, and what that is for one region.
#[derive(Clone, Copy, Debug)]
struct Size {
    resident_kib: u64,
    peak_kib: u64,
    bytes_per_region: u64,
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (resident, peak) = (self.resident_kib >> 10, self.peak_kib >> 10);
        write!(
            f,
            "{} bytes per region ({resident} MiB resident, {peak} MiB at the peak)",
            self.bytes_per_region
        )
    }
}

/// What the status page says that matters here.
#[derive(Debug)]
struct Status {
    open: bool,
    regions: u64,
    applied: u64,
}

/// The replica under measurement.
struct Replica {
    process: Process,
    port: u16,
}

impl Replica {
    fn start(program: &Path, dir: &Path, backend: &str) -> Result<Self, InteropError> {
        let port = free_port()?;
        let args = [
            "serve".to_owned(),
            format!("--backend-endpoints={backend}"),
            format!("--listen-addr=http://127.0.0.1:{port}"),
            "--when-stale=refuse".to_owned(),
        ];
        let process = Process::start(program, &args, dir.join("tidegate.out"))?;
        Ok(Self { process, port })
    }

    async fn wait(
        &mut self,
        what: &'static str,
        limit: Duration,
        reached: impl Fn(&Status) -> bool,
    ) -> Result<(), InteropError> {
        let end = Instant::now() + limit;
        let mut last = None;
        loop {
            let answer = timeout(STATUS_LIMIT, self.status()).await.ok().flatten();
            if answer.as_ref().is_some_and(&reached) {
                return Ok(());
            }
            last = answer.or(last);
            let ended = self.process.ended();
            if ended.is_some() || Instant::now() > end {
                let ended = ended.map_or_else(String::new, |how| format!("; it ended: {how}"));
                let detail = format!(
                    "{ended}; last status: {last:?}; its last lines:\n{}",
                    self.process.tail()
                );
                return Err(InteropError::Timeout {
                    what,
                    limit,
                    detail,
                });
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn status(&self) -> Option<Status> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let request = b"GET /status HTTP/1.1\r\nHost: replica\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let status: Value = serde_json::from_str(body).ok()?;
        Some(Status {
            open: status["gate"]["open"].as_bool()?,
            regions: status["regions"].as_u64()?,
            applied: status["applied"].as_u64()?,
        })
    }

    /// The size once it no longer shrinks or grows by more than a hundredth in a second.
    async fn settled(&self, args: &Args) -> Result<Size, InteropError> {
        let mut before = self.size(args)?;
        for _ in 0..30 {
            sleep(Duration::from_secs(1)).await;
            let now = self.size(args)?;
            if now.resident_kib.abs_diff(before.resident_kib) * 100 <= now.resident_kib {
                return Ok(now);
            }
            before = now;
        }
        Ok(before)
    }

    fn size(&self, args: &Args) -> Result<Size, InteropError> {
        let pid = self.process.pid().unwrap_or(0);
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(
            InteropError::system("read the replica's memory use from /proc"),
        )?;
        let kib = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let (resident_kib, peak_kib) = (kib("VmRSS:").unwrap_or(0), kib("VmHWM:").unwrap_or(0));
        Ok(Size {
            resident_kib,
            peak_kib,
            bytes_per_region: resident_kib * 1024 / args.regions,
        })
    }
}
