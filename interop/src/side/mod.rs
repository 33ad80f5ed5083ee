//! What a lookup, a region and a start cost the replica, measured from outside; with a pd-server, PD's own router and a
//! PD follower beside it, behind the same leader.
//!
//! The load comes from this process and is not counted: processor time is the subject's own, from `/proc`. Answers are
//! checked for the region that covers the key, so that nothing is counted that was not answered. Subjects are loaded
//! one after the other, while the others have nothing to do but to follow.

mod load;
mod subject;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate::leader::{EmbeddedLeader, LeaderConfig};
use tidegate::pd::Dialect;
use tokio::time::{Instant, sleep};

use self::load::{Kind, load};
use self::subject::{Service, Subject};
use crate::authority::bootstrap;
use crate::client::connect;
use crate::cluster::Cluster;
use crate::error::InteropError;
use crate::feeder::Stores;
use crate::pd::server::{Server, kill_all, leading};
use crate::process::{Process, free_port};
use crate::replica::{QUIET_MAX_AGE, Replica, Setting};
use crate::seeding::report;

/// Identifies the embedded leader's cluster.
const CLUSTER: u64 = 7;
/// Regions that are reported at once.
const GROUP: usize = 10_000;
/// For what has just been synced to be laid to rest.
const REST: Duration = Duration::from_secs(3);
/// For what is kept on disk to be written, in the background.
const WRITTEN: Duration = Duration::from_secs(5);
/// Members of a real PD: one leads, one follows under load, one lets the others go on while that one is started anew.
const MEMBERS: usize = 3;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Side {
    /// The replica's program.
    pub tidegate: PathBuf,
    /// A pd-server to lead, to follow, and to be a router; the embedded leader and nobody beside it without one.
    pub pd_server: Option<PathBuf>,
    /// How the leader serves its sync streams.
    pub dialect: Dialect,
    /// Prints what PD's router is beside Tidegate, and does not judge it: what takes its place may be none.
    pub unjudged: bool,
    /// Regions.
    pub regions: u64,
    /// Seconds of each load.
    pub seconds: u64,
    /// Connections that ask at once.
    pub connections: u64,
    /// For data and logs.
    pub dir: PathBuf,
}

/// What a subject has cost.
#[derive(Clone, Debug)]
struct Cost {
    label: &'static str,
    /// Lookups per second of processor, one by one and in batches; `None` where it does not offer them.
    unary: f64,
    batches: Option<f64>,
    bytes_per_region: u64,
    ready: Duration,
}

/// Measures and prints. An error is a subject that does not answer, or a Tidegate that PD's router comes too close to.
pub async fn run(side: &Side) -> Result<(), InteropError> {
    match side.pd_server.clone() {
        Some(program) => beside(side, &program).await,
        None => alone(side).await,
    }
}

async fn alone(side: &Side) -> Result<(), InteropError> {
    println!(
        "side by side ({}): Tidegate alone, for PD's own router and a PD follower need a pd-server; {} regions",
        side.dialect, side.regions
    );
    let leader = EmbeddedLeader::start(LeaderConfig {
        cluster_id: CLUSTER,
        ring_capacity: 1 << 14,
        dialect: side.dialect,
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
    tidegate(side, &leader.url(), CLUSTER).await?;
    leader.stop().await;
    Ok(())
}

async fn beside(side: &Side, program: &Path) -> Result<(), InteropError> {
    println!("side by side ({}): {} regions", side.dialect, side.regions);
    let mut servers = Server::cluster(program, &side.dir, MEMBERS)?;
    let (leader, cluster_id) = leading(&mut servers, false).await?;
    let url = servers[leader].url().to_owned();
    bootstrap(&mut connect(&url).await?, cluster_id).await?;
    let fed = Instant::now();
    let mut stores = Stores::open(&url, cluster_id).await?;
    {
        let cluster = Cluster::new(side.regions, 1_000);
        for group in cluster.regions().chunks(GROUP) {
            stores.tell(group).await?;
        }
    }
    println!("fed: {:.1} s", fed.elapsed().as_secs_f64());

    // A follower has been there from the beginning; what a start costs it is seen when it starts again.
    let at = (leader + 1) % MEMBERS;
    servers[at].stop().await?;
    servers[at].start()?;
    let follower = Subject {
        label: "PD follower",
        url: servers[at].url().to_owned(),
        pid: servers[at].pid().unwrap_or(0),
        service: Service::Pd,
        cluster_id,
    };
    let follower = measure(side, &follower, Instant::now()).await?;
    let router = router(side, program, &url, cluster_id).await?;
    let own = tidegate(side, &url, cluster_id).await?;
    stores.close();
    kill_all(&mut servers).await?;

    println!("{}", own.beside(&follower));
    match router {
        Some(router) => {
            println!("{}", own.beside(&router));
            match own.judge(&router) {
                Err(short) if !side.unjudged => Err(InteropError::Verdict(short)),
                _ => Ok(()),
            }
        }
        None => Ok(()),
    }
}

/// PD's own router. Release 8.5 has none: then there is nothing to measure.
async fn router(
    side: &Side,
    program: &Path,
    backend: &str,
    cluster_id: u64,
) -> Result<Option<Cost>, InteropError> {
    if side.dialect == Dialect::Release85 {
        println!("PD router: skipped: release 8.5 has none");
        return Ok(None);
    }
    let url = format!("http://127.0.0.1:{}", free_port()?);
    let args = [
        "services".to_owned(),
        "router".to_owned(),
        "--name=router".to_owned(),
        format!("--backend-endpoints={backend}"),
        format!("--listen-addr={url}"),
        format!("--advertise-listen-addr={url}"),
        format!("--log-file={}", side.dir.join("router.log").display()),
    ];
    let started = Instant::now();
    let mut process = Process::start(program, &args, side.dir.join("router.out"))?;
    let subject = Subject {
        label: "PD router",
        url,
        pid: process.pid().unwrap_or(0),
        service: Service::Router,
        cluster_id,
    };
    let measured = measure(side, &subject, started).await;
    if let Some(status) = process.ended() {
        return Err(InteropError::Pd(format!(
            "its router ended with {status}; its last lines:\n{}",
            process.tail()
        )));
    }
    process.stop().await?;
    measured.map(Some)
}

/// The replica, from nothing and then from what it left on disk.
async fn tidegate(side: &Side, backend: &str, cluster_id: u64) -> Result<Cost, InteropError> {
    let setting = Setting {
        name: "tidegate",
        when_stale: "refuse",
        // A leader of release 8.5 that has nothing to say proves late what has been copied.
        config: format!(
            "broadcast-max-age = \"{}s\"\nregister = false\naudit-pass = \"off\"\ndata-dir = \"{}\"\n",
            QUIET_MAX_AGE.as_secs(),
            side.dir.join("data").display()
        ),
    };
    let start = || {
        let started = Instant::now();
        let replica = Replica::spawn(&side.tidegate, &side.dir, backend, &setting)?;
        let subject = Subject {
            label: "Tidegate",
            url: replica.url().to_owned(),
            pid: replica.pid().unwrap_or(0),
            service: Service::Pd,
            cluster_id,
        };
        Ok::<_, InteropError>((replica, subject, started))
    };
    let (replica, subject, started) = start()?;
    let cost = measure(side, &subject, started).await?;
    subject.states_ready(side.regions).await?;
    sleep(WRITTEN).await;
    replica.stop().await?;

    let (replica, subject, _) = start()?;
    subject.states_ready(side.regions).await?;
    replica.stop().await?;
    Ok(cost)
}

/// Waits until it answers and loads it.
async fn measure(side: &Side, subject: &Subject, started: Instant) -> Result<Cost, InteropError> {
    let ready = subject.answers(started).await?;
    sleep(REST).await;
    let (resident, peak) = subject.memory()?;
    let bytes_per_region = resident * 1024 / side.regions;
    println!(
        "{}: answers {} ms after its start; {bytes_per_region} bytes per region ({} MiB resident, {} MiB at the peak)",
        subject.label,
        ready.as_millis(),
        resident >> 10,
        peak >> 10
    );
    let unary = load(side, subject, Kind::Unary).await?;
    let batches = match subject.has_batches().await? {
        true => Some(load(side, subject, Kind::Batches).await?),
        false => {
            println!("{}: QueryRegion is not offered", subject.label);
            None
        }
    };
    Ok(Cost {
        label: subject.label,
        unary,
        batches,
        bytes_per_region,
        ready,
    })
}

impl Cost {
    /// How many times better than `other`, on one line.
    fn beside(&self, other: &Self) -> String {
        let batches = match (self.batches, other.batches) {
            (Some(own), Some(other)) => format!("{:.1}x", own / other),
            _ => "nothing to compare".to_owned(),
        };
        format!(
            "{} beside {}: GetRegion {:.1}x, QueryRegion of 64 {batches}, memory {:.2}x, ready after {:.2}x the time",
            self.label,
            other.label,
            self.unary / other.unary,
            self.bytes_per_region as f64 / other.bytes_per_region.max(1) as f64,
            self.ready.as_secs_f64() / other.ready.as_secs_f64().max(0.001)
        )
    }

    /// What a replica has to be, beside PD's router: the lookups twice as cheap one by one and four times in batches,
    /// half of the memory, and ready sooner.
    fn judge(&self, router: &Self) -> Result<(), String> {
        let batches = match (self.batches, router.batches) {
            (Some(own), Some(other)) => own >= 4.0 * other,
            _ => true,
        };
        let short: Vec<_> = [
            ("GetRegion", self.unary >= 2.0 * router.unary),
            ("QueryRegion", batches),
            (
                "memory",
                self.bytes_per_region * 2 <= router.bytes_per_region,
            ),
            ("the time to be ready", self.ready <= router.ready),
        ]
        .into_iter()
        .filter_map(|(what, met)| (!met).then_some(what))
        .collect();
        match &short[..] {
            [] => Ok(()),
            short => Err(format!(
                "beside PD's router, too little in: {}",
                short.join(", ")
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_that_comes_too_close_is_named_for_what_it_is_good_at() {
        let own = Cost {
            label: "Tidegate",
            unary: 40_000.0,
            batches: Some(600_000.0),
            bytes_per_region: 400,
            ready: Duration::from_secs(4),
        };
        let router = Cost {
            label: "PD router",
            unary: 20_000.0,
            batches: Some(150_000.0),
            bytes_per_region: 800,
            ready: Duration::from_secs(5),
        };
        assert_eq!(own.judge(&router), Ok(()));
        assert!(
            own.beside(&router)
                .contains("GetRegion 2.0x, QueryRegion of 64 4.0x, memory 0.50x")
        );
        let without = Cost {
            batches: None,
            ..router
        };
        assert_eq!(own.judge(&without), Ok(()));
        let close = Cost {
            batches: Some(151_000.0),
            ready: Duration::from_secs(3),
            ..router
        };
        let told = own.judge(&close).expect_err("too close");
        assert!(
            told.ends_with("QueryRegion, the time to be ready"),
            "{told}"
        );
    }
}
