//! `tidegate-interop`: the built replica against a PD.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tidegate::leader::EmbeddedLeader;
use tidegate::pd::Dialect;
use tidegate_interop::burst::Burst;
use tidegate_interop::drill::stage::Conditions;
use tidegate_interop::error::InteropError;
use tidegate_interop::pd::played::{Play, config};
use tidegate_interop::pd::server::version;
use tidegate_interop::run::{Plan, run};
use tidegate_interop::side::Side;
use tidegate_interop::{burst, drill, side, stock};

/// Runs `tidegate serve` against a PD: compares its answers, and puts it through drills.
#[derive(Debug, Parser)]
#[command(name = "tidegate-interop")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Feed a PD regions and compare every answer with PD's, at rest and in motion
    Compare(Compare),
    /// Put the replica through faults, with changes and clients all the time
    Drills(Drills),
    /// Let cold clients look up at a replica whose gate is shut, and count what reaches the leader
    Burst(BurstArgs),
    /// Look regions up with a program that is built on a stock client
    Stock(Stock),
    /// Measure what a lookup, a region and a start cost
    Side(SideArgs),
    /// Play the leader that a drill kills
    #[command(hide = true)]
    Lead(Lead),
}

impl Command {
    fn pd_server(&self) -> Option<&Path> {
        match self {
            Self::Compare(args) => args.pd_server.as_deref(),
            Self::Drills(args) => args.pd_server.as_deref(),
            Self::Burst(args) => args.pd_server.as_deref(),
            Self::Stock(args) => args.pd_server.as_deref(),
            Self::Side(args) => args.pd_server.as_deref(),
            Self::Lead(_) => None,
        }
    }
}

#[derive(Debug, clap::Args)]
struct Compare {
    /// Path of the built tidegate program
    #[arg(long)]
    tidegate: PathBuf,
    /// Path of a pd-server; without one the embedded leader takes its place
    #[arg(long)]
    pd_server: Option<PathBuf>,
    /// The dialect of the leader's sync streams
    #[arg(long, default_value_t = Dialect::Master)]
    dialect: Dialect,
    /// Regions to feed
    #[arg(long, default_value_t = 20_000)]
    regions: u64,
    /// Questions of each comparison at rest
    #[arg(long, default_value_t = 5_000)]
    questions: usize,
    /// Seconds for which regions change while both servers are asked
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, clap::Args)]
struct Drills {
    /// Path of the built tidegate program
    #[arg(long)]
    tidegate: PathBuf,
    /// Path of a pd-server; without one the embedded leader takes its place
    #[arg(long)]
    pd_server: Option<PathBuf>,
    /// Path of an etcd, to hold the leader key and registrations; without one the embedded leader's own does
    #[arg(long)]
    etcd: Option<PathBuf>,
    /// The dialect of the leader's sync streams
    #[arg(long, default_value_t = Dialect::Master)]
    dialect: Dialect,
    /// What the replica does when its gate is shut
    #[arg(long, default_value = "read-through", value_parser = ["read-through", "refuse"])]
    when_stale: String,
    /// Only these, by name; all without
    #[arg(long)]
    only: Vec<String>,
    /// Regions at the start
    #[arg(long, default_value_t = 3_000)]
    regions: u64,
    /// Seconds for which the replica is stopped or cut off
    #[arg(long, default_value_t = 6)]
    long: u64,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, clap::Args)]
struct BurstArgs {
    /// Path of the built tidegate program
    #[arg(long)]
    tidegate: PathBuf,
    /// Path of a pd-server; without one the embedded leader takes its place
    #[arg(long)]
    pd_server: Option<PathBuf>,
    /// The dialect of the leader's sync streams
    #[arg(long, default_value_t = Dialect::Master)]
    dialect: Dialect,
    /// Clients at once
    #[arg(long, default_value_t = 20)]
    clients: u64,
    /// Lookups of each client
    #[arg(long, default_value_t = 50_000)]
    lookups: u64,
    /// Regions that they are about
    #[arg(long, default_value_t = 20_000)]
    regions: u64,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, clap::Args)]
struct Stock {
    /// Path of the built tidegate program
    #[arg(long)]
    tidegate: PathBuf,
    /// Path of a pd-server; without one the embedded leader takes its place
    #[arg(long)]
    pd_server: Option<PathBuf>,
    /// The client: a program that takes -pd and -keys, as those of interop/go and interop/stock do
    #[arg(long)]
    client: PathBuf,
    /// What it is called in the report
    #[arg(long)]
    label: String,
    /// The dialect of the leader's sync streams
    #[arg(long, default_value_t = Dialect::Master)]
    dialect: Dialect,
}

#[derive(Debug, clap::Args)]
struct SideArgs {
    /// Path of the built tidegate program
    #[arg(long)]
    tidegate: PathBuf,
    /// Path of a pd-server; without one Tidegate is measured alone
    #[arg(long)]
    pd_server: Option<PathBuf>,
    /// The dialect of the leader's sync streams
    #[arg(long, default_value_t = Dialect::Master)]
    dialect: Dialect,
    /// Print what PD's router is beside Tidegate without judging it
    #[arg(long)]
    unjudged: bool,
    /// Regions
    #[arg(long, default_value_t = 1_000_000)]
    regions: u64,
    /// Seconds of each load
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Connections that ask at once
    #[arg(long, default_value_t = 8)]
    connections: u64,
}

#[derive(Debug, clap::Args)]
struct Lead {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    name: String,
    #[arg(long)]
    advertise: String,
    #[arg(long)]
    dialect: Dialect,
    #[arg(long)]
    cluster_id: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let dir = match tempfile::Builder::new()
        .prefix("tidegate-interop")
        .tempdir()
    {
        Ok(dir) => dir,
        Err(e) => {
            eprintln!("cannot make a temporary directory: {e}");
            return ExitCode::from(2);
        }
    };
    if let Some(program) = args.command.pd_server() {
        match version(program, dir.path()).await {
            Ok(version) => println!("against {version}, {}", program.display()),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::from(2);
            }
        }
    }
    let outcome = match args.command {
        Command::Compare(args) => compare(args, dir.path()).await,
        Command::Drills(args) => drills(args, dir.path()).await,
        Command::Burst(args) => {
            burst::run(&Burst {
                tidegate: args.tidegate,
                pd_server: args.pd_server,
                dialect: args.dialect,
                clients: args.clients,
                lookups: args.lookups,
                regions: args.regions,
                seed: args.seed,
                dir: dir.path().to_owned(),
            })
            .await
        }
        Command::Stock(args) => stock(args, dir.path()).await,
        Command::Side(args) => {
            side::run(&Side {
                tidegate: args.tidegate,
                pd_server: args.pd_server,
                dialect: args.dialect,
                unjudged: args.unjudged,
                regions: args.regions,
                seconds: args.seconds,
                connections: args.connections,
                dir: dir.path().to_owned(),
            })
            .await
        }
        Command::Lead(args) => lead(args, dir.path()).await,
    };
    match outcome {
        Ok(()) => {
            println!("interop: passed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("interop: failed: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn compare(args: Compare, dir: &Path) -> Result<(), InteropError> {
    run(&Plan {
        tidegate: args.tidegate,
        pd_server: args.pd_server,
        dialect: args.dialect,
        regions: args.regions,
        questions: args.questions,
        changing: Duration::from_secs(args.seconds),
        seed: args.seed,
        dir: dir.to_owned(),
    })
    .await
}

async fn drills(args: Drills, dir: &Path) -> Result<(), InteropError> {
    let own = std::env::current_exe().map_err(InteropError::system("find this program"))?;
    let conditions = Conditions {
        tidegate: args.tidegate,
        own,
        pd_server: args.pd_server,
        etcd: args.etcd,
        dialect: args.dialect,
        when_stale: if args.when_stale == "refuse" {
            "refuse"
        } else {
            "read-through"
        },
        regions: args.regions,
        long: Duration::from_secs(args.long),
        seed: args.seed,
        further: String::new(),
        dir: dir.to_owned(),
    };
    drill::run(&conditions, &args.only).await
}

async fn stock(args: Stock, dir: &Path) -> Result<(), InteropError> {
    let conditions = Conditions {
        tidegate: args.tidegate,
        own: PathBuf::new(),
        pd_server: args.pd_server,
        etcd: None,
        dialect: args.dialect,
        when_stale: "read-through",
        regions: 3_000,
        long: Duration::ZERO,
        seed: 1,
        further: String::new(),
        dir: dir.to_owned(),
    };
    stock::run(&conditions, &args.client, &args.label).await
}

/// Leads until it is killed, or until the program that started it is gone.
async fn lead(args: Lead, dir: &Path) -> Result<(), InteropError> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(
        |e| InteropError::System {
            what: "ask to end with the parent",
            source: e.into(),
        },
    )?;
    let play = Play {
        cluster_id: args.cluster_id,
        dialect: args.dialect,
        program: None,
        dir: dir.to_owned(),
    };
    let listen = SocketAddr::from(([127, 0, 0, 1], args.port));
    let _leader = EmbeddedLeader::start(config(&play, &args.name, listen, args.advertise))
        .await
        .map_err(|e| InteropError::Leader(e.to_string()))?;
    std::future::pending().await
}
