//! The view of a run while it runs: a table that is redrawn on a terminal, a line a second elsewhere.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::args::Output;

/// Of a terminal that nobody has made wider.
const COLUMNS: usize = 80;

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
    /// The gate's reason why not.
    pub reason: Option<&'static str>,
    /// Of its data.
    pub age_ms: Option<u64>,
    /// Changes that it knows of and has not applied.
    pub lag: Option<u64>,
    /// Lookups answered.
    pub served: u64,
    /// Lookups refused.
    pub refused: u64,
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
    /// The fault in the last line.
    fault: Option<&'static str>,
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
            fault: None,
        }
    }

    /// Nowhere.
    pub const fn hidden() -> Self {
        Self {
            hidden: true,
            to_stdout: false,
            table: false,
            drawn_lines: 0,
            fault: None,
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
            let news = scene.news(self.fault);
            self.fault = scene.fault;
            self.write(&format!("{news}{}\n", scene.line()));
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
    /// What has begun or is over since the last line, if anything: a line by itself.
    fn news(&self, before: Option<&'static str>) -> String {
        let second = self.elapsed.as_secs();
        match (before, self.fault) {
            (_, Some(fault)) if before != self.fault => format!("{second:>3}s {fault}\n"),
            (Some(fault), None) => format!("{second:>3}s over: {fault}\n"),
            _ => String::new(),
        }
    }

    /// A line of at most 80 columns, which no terminal wraps; a second one where there are more than two replicas.
    fn line(&self) -> String {
        let mut parts = vec![format!("{:>3}s", self.elapsed.as_secs())];
        for replica in &self.replicas {
            let name = replica
                .name
                .strip_prefix("replica-")
                .unwrap_or(&replica.name);
            let gate = match replica.reason {
                Some(reason) if !replica.open => format!("SHUT {reason}"),
                _ => format!("open {:>5} ms", number(replica.age_ms)),
            };
            // As wide as the longest reason, so that the lines stand under each other.
            parts.push(format!("r{name} {gate:<16}"));
        }
        parts.push(format!(
            "behind {:>5} stale {:>4} errors {}",
            rounded(self.behind),
            rounded(self.stale),
            rounded(self.errors)
        ));
        let (mut text, mut column) = (String::new(), 0);
        for part in parts {
            if column + 1 + part.len() > COLUMNS {
                text.truncate(text.trim_end().len());
                text += "\n    ";
                column = 4;
            }
            if column > 0 {
                text.push(' ');
                column += 1;
            }
            column += part.len();
            text += &part;
        }
        text
    }

    fn table(&self) -> String {
        let mut table = format!(
            "{:.0} s, {} regions, {} changes{}\n\n",
            self.elapsed.as_secs_f64(),
            self.regions,
            self.changes,
            self.fault
                .map(|fault| format!("; {fault}"))
                .unwrap_or_default(),
        );
        let _ = writeln!(
            table,
            "{:<10} {:<10} {:<11} {:>6} {:>7} {:>8} {:>7} {:>7}",
            "replica", "state", "gate", "age ms", "behind", "served", "missed", "refused"
        );
        for replica in &self.replicas {
            let _ = writeln!(
                table,
                "{:<10} {:<10} {:<11} {:>6} {:>7} {:>8} {:>7} {:>7}",
                replica.name,
                replica.state,
                match replica.reason {
                    Some(reason) if !replica.open => reason,
                    _ => "open",
                },
                number(replica.age_ms),
                number(replica.lag),
                replica.served,
                replica.missed,
                replica.refused,
            );
        }
        let _ = writeln!(
            table,
            "\nPD leader answered {}; {} items checked,\n{} behind, {} stale, {} errors",
            self.leader_lookups, self.checked, self.behind, self.stale, self.errors
        );
        table
    }
}

/// In thousands, where there are many.
fn rounded(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        _ => format!("{}k", count / 1_000),
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
                    state: "connecting",
                    reason: Some("apply_stall"),
                    refused: 33,
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
    fn a_line_tells_what_matters_and_fits_under_the_one_before() {
        let mut scene = scene();
        assert_eq!(
            scene.line(),
            "  9s r1 open   120 ms    r2 SHUT apply_stall behind     0 stale    0 errors 0"
        );
        let both_open = Scene {
            elapsed: Duration::from_secs(10),
            replicas: vec![scene.replicas[0].clone(), scene.replicas[0].clone()],
            behind: 7,
            ..scene.clone()
        };
        assert_eq!(
            both_open.line(),
            " 10s r1 open   120 ms    r1 open   120 ms    behind     7 stale    0 errors 0"
        );
        scene.replicas[0] = ReplicaScene {
            name: "replica-1".to_owned(),
            ..scene.replicas[1].clone()
        };
        scene.elapsed = Duration::from_secs(9_999);
        (scene.behind, scene.stale, scene.errors) = (1_234_567, 1_234, 12);
        assert!(scene.line().len() <= 80, "{}", scene.line());
        let third = ReplicaScene {
            name: "replica-3".to_owned(),
            ..scene.replicas[1].clone()
        };
        scene.replicas.push(third);
        let text = scene.line();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(
            text.ends_with("behind 1234k stale 1234 errors 12"),
            "{text}"
        );
    }

    #[test]
    fn a_fault_is_told_when_it_begins_and_when_it_is_over() {
        let mut scene = scene();
        let fault = scene.fault;
        assert_eq!(
            scene.news(None),
            "  9s the apply of replica-2 stands still\n"
        );
        assert_eq!(scene.news(fault), "");
        scene.fault = None;
        assert_eq!(
            scene.news(fault),
            "  9s over: the apply of replica-2 stands still\n"
        );
        assert_eq!(scene.news(None), "");
    }

    #[test]
    fn a_table_has_everything_and_no_line_of_it_wraps() {
        let mut scene = scene();
        let text = scene.table();
        for part in [
            "replica-1",
            "apply_stall",
            "connecting",
            "120",
            "512",
            "33",
            "600",
            "stands still",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        (scene.regions, scene.changes) = (10_000_000, 1_234_567);
        scene.checked = 123_456_789;
        for line in scene.table().lines() {
            assert!(line.len() <= 80, "{line}");
        }
    }
}
