//! `tidegate-interop`: the built replica against a PD.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tidegate_interop::run::{Plan, run};

/// Starts a PD, feeds it regions, runs `tidegate serve` against it and compares every answer with PD's.
#[derive(Debug, Parser)]
#[command(name = "tidegate-interop")]
struct Args {
    /// Path of the built tidegate program
    #[arg(long)]
    tidegate: PathBuf,
    /// Path of a pd-server; without one the embedded leader takes its place
    #[arg(long)]
    pd_server: Option<PathBuf>,
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
    let plan = Plan {
        tidegate: args.tidegate,
        pd_server: args.pd_server,
        regions: args.regions,
        questions: args.questions,
        changing: Duration::from_secs(args.seconds),
        seed: args.seed,
        dir: dir.path().to_owned(),
    };
    match run(&plan).await {
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
