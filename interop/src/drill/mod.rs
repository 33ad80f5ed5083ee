//! Drills: a fault beside running changes and running clients, with one judge for all.
//!
//! ```text
//! stores (world) --heartbeats--> the leading member        <-- clients, where the replica does not answer
//!                                   |  (pd: fronts, relays)
//!                                   v
//!                                replica (built program)   <-- clients (4 unary, 1 stream of QueryRegion)
//! ```
//!
//! In each drill no answer may be stale or wrong and no client may end with an error; how long it takes until the
//! replica's map answers with something that changed after the fault is stated.

pub mod clients;
pub mod neighbour;
pub mod script;
pub mod stage;
pub mod tally;
pub mod world;

use std::time::Duration;

use tokio::time::{Instant, timeout};

use self::stage::{Conditions, Stage};
use self::tally::Figures;
use crate::error::InteropError;

/// For one drill, whatever happens in it.
const DRILL_LIMIT: Duration = Duration::from_secs(240);

/// The drills in the order in which they are run.
pub const DRILLS: [&str; 10] = [
    "churn",
    "frozen-neighbour",
    "there-and-back",
    "transfer",
    "killed-leader",
    "index-gone-back",
    "removed-members",
    "cut-off",
    "stopped-replica",
    "registration",
];

/// How a drill went.
#[derive(Debug)]
pub struct Report {
    what: String,
    recovery: Duration,
    figures: Figures,
}

impl Report {
    /// Ends the drill.
    async fn end(stage: Stage, recovery: Duration, what: String) -> Result<Self, InteropError> {
        Ok(Self {
            what,
            recovery,
            figures: stage.strike().await?,
        })
    }
}

/// Runs the named drills, or all; prints a line for each. An error names those that failed.
pub async fn run(conditions: &Conditions, only: &[String]) -> Result<(), InteropError> {
    let mut failed = Vec::new();
    for name in DRILLS {
        if !only.is_empty() && only.iter().all(|chosen| chosen != name) {
            continue;
        }
        let pd = match conditions.pd_server {
            Some(_) => "pd-server, ",
            None => "",
        };
        let label = format!(
            "{name} ({pd}{}, {})",
            conditions.dialect, conditions.when_stale
        );
        if let Some(obstacle) = script::obstacle(name, conditions) {
            println!("drill {label}: skipped: {obstacle}");
            continue;
        }
        let mut conditions = conditions.clone();
        conditions.dir = conditions.dir.join(name);
        std::fs::create_dir_all(&conditions.dir)
            .map_err(InteropError::system("make a directory for a drill"))?;
        let started = Instant::now();
        let outcome = timeout(DRILL_LIMIT, drill(name, &conditions))
            .await
            .unwrap_or(Err(InteropError::Timeout {
                what: "the end of the drill",
                limit: DRILL_LIMIT,
                detail: String::new(),
            }));
        match outcome {
            Ok(report) => {
                println!(
                    "drill {label}: {}; recovered in {} ms\n    {}",
                    report.what,
                    report.recovery.as_millis(),
                    report.figures
                );
                let figures = &report.figures;
                for fault in &figures.faults {
                    println!("    {fault}");
                }
                if figures.stale + figures.wrong + figures.errors > 0 || figures.map == 0 {
                    failed.push(label);
                }
            }
            Err(error) => {
                println!(
                    "drill {label}: failed after {:?}: {error}",
                    started.elapsed()
                );
                failed.push(label);
            }
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(InteropError::Verdict(format!(
            "these drills failed: {}",
            failed.join(", ")
        ))),
    }
}

async fn drill(name: &str, conditions: &Conditions) -> Result<Report, InteropError> {
    let stage = Stage::set(conditions, name == "killed-leader").await?;
    match name {
        "churn" => script::churn(stage).await,
        "frozen-neighbour" => neighbour::run(stage).await,
        "there-and-back" => script::there_and_back(stage).await,
        "transfer" => script::transfer(stage).await,
        "killed-leader" => script::killed_leader(stage).await,
        "index-gone-back" => script::index_gone_back(stage).await,
        "removed-members" => script::removed_members(stage).await,
        "cut-off" => script::cut_off(stage).await,
        "stopped-replica" => script::stopped_replica(stage).await,
        "registration" => script::registration(stage).await,
        other => Err(InteropError::Verdict(format!(
            "there is no drill '{other}'; there are {}",
            DRILLS.join(", ")
        ))),
    }
}
