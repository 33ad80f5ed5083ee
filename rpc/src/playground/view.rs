//! The view of a run while it runs: a table that is redrawn on a terminal, a line a second elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::args::Output;
use super::report::reasons;

/// What there is to see at one moment.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// Since the load started.
    pub elapsed: Duration,
    /// What is wrong on purpose, if anything is.
    pub fault: Option<&'static str>,
    /// Regions at the leader.
    pub regions: usize,
    /// Changes that it made.
    pub changes: u64,
    /// The replicas.
    pub replicas: Vec<ReplicaScene>,
    /// Lookups that the leader answered.
    pub leader_lookups: u64,
    /// Items judged.
    pub checked: u64,
    /// Items with any age.
    pub behind: u64,
    /// Items too old.
    pub stale: u64,
    /// Lookups without an answer, or with a wrong one.
    pub errors: u64,
}

/// One replica at one moment.
#[derive(Clone, Debug, Default)]
pub struct ReplicaScene {
    /// Its name.
    pub name: String,
    /// Of its sync stream.
    pub state: &'static str,
    /// Whether its gate is open.
    pub open: bool,
    /// Of its data.
    pub age_ms: Option<u64>,
    /// Changes that it knows of and has not applied.
    pub lag: Option<u64>,
    /// Lookups answered.
    pub served: u64,
    /// Lookups refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Lookups without an answer in its map.
    pub missed: u64,
}

/// Where the view goes.
#[derive(Debug)]
pub struct View {
    hidden: bool,
    to_stdout: bool,
    table: bool,
    drawn_lines: usize,
}

impl View {
    /// On stdout, or with JSON, which has stdout for itself, on stderr.
    pub fn new(output: Output) -> Self {
        let to_stdout = output == Output::Text;
        let table = if to_stdout {
            io::stdout().is_terminal()
        } else {
            io::stderr().is_terminal()
        };
        Self {
            hidden: false,
            to_stdout,
            table,
            drawn_lines: 0,
        }
    }

    /// Nowhere.
    pub const fn hidden() -> Self {
        Self {
            hidden: true,
            to_stdout: false,
            table: false,
            drawn_lines: 0,
        }
    }

    /// How often it is to be drawn.
    pub const fn interval(&self) -> Duration {
        if self.table {
            Duration::from_millis(250)
        } else {
            Duration::from_secs(1)
        }
    }

    /// Says something that stays.
    pub fn say(&mut self, text: &str) {
        self.drawn_lines = 0;
        self.write(&format!("{text}\n"));
    }

    /// Draws.
    pub fn draw(&mut self, scene: &Scene) {
        if !self.table {
            self.write(&format!("{}\n", scene.line()));
            return;
        }
        let table = scene.table();
        let mut frame = String::new();
        if self.drawn_lines > 0 {
            // Back to the first line of the last table.
            let _ = write!(frame, "\x1b[{}A", self.drawn_lines);
        }
        for line in table.lines() {
            // Each line replaces the rest of the one that was there.
            let _ = writeln!(frame, "{line}\x1b[K");
        }
        self.drawn_lines = table.lines().count();
        self.write(&frame);
    }

    fn write(&self, text: &str) {
        if self.hidden {
            return;
        }
        // A reader that has gone away is no reason to end the run.
        let _ = if self.to_stdout {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        } else {
            io::stderr().lock().write_all(text.as_bytes())
        };
    }
}

impl Scene {
    fn line(&self) -> String {
        let mut line = format!("{:>4.0}s", self.elapsed.as_secs_f64());
        for replica in &self.replicas {
            let gate = if replica.open { "open" } else { "SHUT" };
            let _ = write!(
                line,
                " | {} {} {gate} age {} ms known lag {} served {} refused {} missed {}",
                replica.name,
                replica.state,
                number(replica.age_ms),
                number(replica.lag),
                replica.served,
                reasons(&replica.refused),
                replica.missed,
            );
        }
        let _ = write!(
            line,
            " | leader {} | behind {} stale {} errors {}",
            self.leader_lookups, self.behind, self.stale, self.errors
        );
        if let Some(fault) = self.fault {
            let _ = write!(line, " | {fault}");
        }
        line
    }

    fn table(&self) -> String {
        let mut table = format!(
            "{:.0} s, {} regions, {} changes{}\n\n",
            self.elapsed.as_secs_f64(),
            self.regions,
            self.changes,
            self.fault
                .map(|fault| format!(", {fault}"))
                .unwrap_or_default(),
        );
        let _ = writeln!(
            table,
            "{:<11} {:<10} {:<4} {:>8} {:>9} {:>9} {:>7}  refused",
            "replica", "state", "gate", "age ms", "known lag", "served", "missed"
        );
        for replica in &self.replicas {
            let _ = writeln!(
                table,
                "{:<11} {:<10} {:<4} {:>8} {:>9} {:>9} {:>7}  {}",
                replica.name,
                replica.state,
                if replica.open { "open" } else { "SHUT" },
                number(replica.age_ms),
                number(replica.lag),
                replica.served,
                replica.missed,
                reasons(&replica.refused),
            );
        }
        let _ = writeln!(
            table,
            "\nPD leader lookups {}; {} items checked, {} behind, {} stale, {} errors",
            self.leader_lookups, self.checked, self.behind, self.stale, self.errors
        );
        table
    }
}

fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        Scene {
            elapsed: Duration::from_secs(9),
            fault: Some("the apply of replica-2 stands still"),
            replicas: vec![
                ReplicaScene {
                    name: "replica-1".to_owned(),
                    state: "live",
                    open: true,
                    age_ms: Some(120),
                    lag: Some(0),
                    served: 512,
                    ..ReplicaScene::default()
                },
                ReplicaScene {
                    name: "replica-2".to_owned(),
                    state: "live",
                    refused: BTreeMap::from([("apply_stall".to_owned(), 33)]),
                    missed: 2,
                    ..ReplicaScene::default()
                },
            ],
            leader_lookups: 600,
            stale: 0,
            ..Scene::default()
        }
    }

    #[test]
    fn a_line_and_a_table_tell_the_same() {
        let scene = scene();
        for text in [scene.line(), scene.table()] {
            for part in [
                "replica-1",
                "replica-2",
                "open",
                "SHUT",
                "120",
                "known lag",
                "512",
                "apply_stall 33",
                "600",
                "stands still",
            ] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        assert_eq!(scene.line().lines().count(), 1);
    }
}
