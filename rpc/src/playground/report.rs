//! What a run came to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::args::{GateSwitch, WhenStale};
use super::faults::Scenario;
use super::judge::Bounds;
use crate::pd::Dialect;

/// The result of a run. Ages and times are in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `ok`, or `FAILED` and why, as in the last line for people.
    pub verdict: String,
    /// The same for programs; the exit code says it too.
    pub passed: bool,
    /// What went wrong on purpose.
    pub scenario: Scenario,
    /// How the leader served its sync streams.
    pub dialect: Dialect,
    /// Whether the replicas' gates could refuse.
    pub gate: GateSwitch,
    /// What the replicas did with lookups that their maps may not answer.
    pub when_stale: WhenStale,
    /// Regions at the start.
    pub regions: u64,
    /// Changes that the leader made.
    pub changes: u64,
    /// From the first lookup to the last.
    pub duration_s: f64,
    /// Lookups that ended, with an answer or without.
    pub lookups: u64,
    /// Items of answers that were judged: each region, and each absence.
    pub checked: u64,
    /// Lookups without an answer within their deadline, or with one that the leader's map never held.
    pub errors: u64,
    /// Of these, those without an answer.
    pub unanswered: u64,
    /// The first of the errors, in a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub error_examples: Vec<String>,
    /// Items that had been superseded when their request was sent.
    pub behind_served: u64,
    /// The greatest age of any of them.
    pub behind_served_max_age_ms: u64,
    /// Items older than `stale_after_ms`.
    pub stale_served: u64,
    /// The greatest age of any of them.
    pub stale_served_max_age_ms: u64,
    /// max-age (on release 8.5 broadcast-max-age), stall-threshold and the allowance together.
    pub stale_after_ms: u64,
    /// For one round trip.
    pub allowance_ms: u64,
    /// The largest number of the leader's changes that an item was behind by.
    pub max_behind_changes: u64,
    /// Answers whose items were each true, but never all at one moment. Read-through allows them, as PD's own
    /// QueryRegion does; without it they are errors.
    pub torn: u64,
    /// The share of lookups that the leader answered, in its turn or for a replica that did not.
    pub leader_share: f64,
    /// It is asked first for one lookup in so many.
    pub leader_asked_of: u64,
    /// From the end of the fault to the first answer, of each replica that it struck, that was not behind.
    /// None without a fault, and while one has not recovered.
    pub time_to_recover_ms: Option<u64>,
    /// The fault could not last long enough for anything to turn stale.
    pub fault_too_short: bool,
    /// The leader first.
    pub servers: Vec<ServerReport>,
}

/// One server's part.
#[derive(Clone, Debug, Serialize)]
pub struct ServerReport {
    /// Its name.
    pub name: String,
    /// leader or replica.
    pub role: &'static str,
    /// Lookups that it answered; a batch counts once.
    pub served: u64,
    /// Of these, those that it asked the leader for.
    pub asked: u64,
    /// Of these, those answered from what the leader had confirmed, behind a shut gate.
    pub confirmed: u64,
    /// Lookups that its gate refused.
    pub refused: u64,
    /// The same by the gate's reason.
    pub refused_by_reason: BTreeMap<String, u64>,
    /// Lookups that its map had no answer to.
    pub missed: u64,
    /// Its part of `behind_served`.
    pub behind_served: u64,
    /// Its part of `stale_served`.
    pub stale_served: u64,
    /// Full syncs: those that the leader began to send, or that a replica took over.
    pub full_syncs: u64,
}

impl Report {
    /// Whether every lookup was answered, truthfully, and with the gate on never with stale data.
    pub fn passed(&self) -> bool {
        self.failures().is_empty()
    }

    /// The same, with the verdict in words.
    pub(super) fn judged(mut self) -> Self {
        self.passed = self.passed();
        self.verdict = self.in_words();
        self
    }

    fn failures(&self) -> Vec<String> {
        let wrong = self.errors.saturating_sub(self.unanswered);
        let stale = match self.gate {
            GateSwitch::On => self.stale_served,
            GateSwitch::Off => 0,
        };
        let mut failures = Vec::new();
        for (count, what) in [
            (stale, "stale items"),
            (wrong, "answers never true"),
            (self.unanswered, "lookups without an answer"),
        ] {
            if count > 0 {
                failures.push(format!("{count} {what}"));
            }
        }
        if self.checked == 0 {
            failures.push("nothing was checked".to_owned());
        }
        failures
    }

    fn in_words(&self) -> String {
        let failures = self.failures();
        if !failures.is_empty() {
            return format!("FAILED: {}", failures.join(", "));
        }
        let struck = self.scenario != Scenario::Steady;
        if self.gate == GateSwitch::Off && self.stale_served > 0 {
            format!(
                "ok (with the gate off {} stale items were served: those it is for)",
                self.stale_served
            )
        } else if struck && self.fault_too_short {
            format!(
                "ok (but the fault was too short to make anything stale: give --duration {}s)",
                long_enough(Duration::from_millis(self.stale_after_ms))
            )
        } else if struck && self.time_to_recover_ms.is_none() {
            "ok (but no recovery from the fault was seen: give a longer --duration)".to_owned()
        } else {
            "ok".to_owned()
        }
    }
}

/// The bounds in words.
pub(super) fn explain(bounds: &Bounds, dialect: Dialect) -> String {
    let age = match dialect {
        Dialect::Master => "max-age",
        Dialect::Release85 => "broadcast-max-age",
    };
    format!(
        "stale is older than {} ms: {age} {}, stall-threshold {}, allowance {}",
        millis(bounds.stale_after()),
        millis(bounds.max_age),
        millis(bounds.stall_threshold),
        millis(bounds.allowance),
    )
}

/// The seconds of a run whose fault, a quarter of it, makes something stale; in fives, 10 at least.
pub(super) fn long_enough(stale_after: Duration) -> u64 {
    let needed = (stale_after * 4).as_secs() + 1;
    needed.next_multiple_of(5).max(10)
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reasons and counts on one line; a dash for none.
pub(super) fn reasons(refused: &BTreeMap<String, u64>) -> String {
    if refused.is_empty() {
        return "-".to_owned();
    }
    refused
        .iter()
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect::<Vec<_>>()
        .join(", ")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gate = if self.gate == GateSwitch::On {
            "on"
        } else {
            "off"
        };
        let when_stale = match self.when_stale {
            WhenStale::Refuse => "refuse",
            WhenStale::ReadThrough => "read-through",
        };
        writeln!(
            f,
            "scenario          {}, gate {gate}, {when_stale}, dialect {}",
            self.scenario, self.dialect
        )?;
        writeln!(
            f,
            "regions           {} at the start, {} changes",
            self.regions, self.changes
        )?;
        writeln!(f, "duration          {:.1} s", self.duration_s)?;
        writeln!(
            f,
            "lookups           {}, {:.1}% answered by the leader (asked first for 1 in {})",
            self.lookups,
            self.leader_share * 100.0,
            self.leader_asked_of
        )?;
        writeln!(f, "checked           {} items", self.checked)?;
        write!(f, "errors            {}", self.errors)?;
        match self.error_examples.len() as u64 {
            0 => writeln!(f)?,
            shown if shown < self.errors => writeln!(f, ", of which the first {shown}:")?,
            _ => writeln!(f, ":")?,
        }
        for example in &self.error_examples {
            writeln!(f, "  {example}")?;
        }
        match self.behind_served {
            0 => writeln!(f, "behind            no item")?,
            behind => writeln!(
                f,
                "behind            {behind} items; the oldest for {} ms, at most {} of the leader's changes back",
                self.behind_served_max_age_ms, self.max_behind_changes
            )?,
        }
        write!(
            f,
            "stale             {} (older than {} ms)",
            self.stale_served, self.stale_after_ms
        )?;
        if self.stale_served > 0 {
            write!(f, ", {} ms at most", self.stale_served_max_age_ms)?;
        }
        writeln!(f)?;
        if self.when_stale == WhenStale::ReadThrough {
            let asked: u64 = self.servers.iter().map(|server| server.asked).sum();
            let confirmed: u64 = self.servers.iter().map(|server| server.confirmed).sum();
            writeln!(
                f,
                "read through      {asked} asked of the leader, {confirmed} from what it had confirmed; {} torn",
                self.torn
            )?;
        }
        let untouched = self.behind_served == 0 && self.servers.iter().all(|s| s.refused == 0);
        match (self.time_to_recover_ms, self.scenario) {
            (Some(_), _) if untouched => {
                writeln!(f, "recovered         nothing was refused or behind")?;
            }
            (Some(time), _) => writeln!(f, "recovered         {time} ms after the fault")?,
            (None, Scenario::Steady) => {}
            (None, _) => writeln!(f, "recovered         not seen")?,
        }
        writeln!(
            f,
            "\n{:<12} {:<8} {:>8} {:>8} {:>7} {:>7} {:>6}  refused by reason",
            "server", "role", "served", "refused", "missed", "behind", "stale"
        )?;
        for server in &self.servers {
            writeln!(
                f,
                "{:<12} {:<8} {:>8} {:>8} {:>7} {:>7} {:>6}  {}",
                server.name,
                server.role,
                server.served,
                server.refused,
                server.missed,
                server.behind_served,
                server.stale_served,
                reasons(&server.refused_by_reason)
            )?;
        }
        let missed = match self.when_stale {
            WhenStale::Refuse => "the client asks the leader",
            WhenStale::ReadThrough => "the leader could not be asked",
        };
        if self.servers.iter().any(|server| server.missed > 0) {
            writeln!(
                f,
                "\nmissed: the gate was open and the map had no answer, as for a region that is gone or\n\
                 just made; {missed}"
            )?;
        }
        writeln!(f, "\n{}", self.in_words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Report {
        Report {
            verdict: String::new(),
            passed: true,
            unanswered: 0,
            fault_too_short: false,
            scenario: Scenario::Stall,
            dialect: Dialect::Master,
            gate: GateSwitch::On,
            when_stale: WhenStale::Refuse,
            regions: 7,
            changes: 9,
            duration_s: 2.5,
            lookups: 100,
            checked: 300,
            errors: 0,
            error_examples: Vec::new(),
            behind_served: 4,
            behind_served_max_age_ms: 700,
            stale_served: 0,
            stale_served_max_age_ms: 0,
            stale_after_ms: 1_400,
            allowance_ms: 100,
            max_behind_changes: 12,
            torn: 0,
            leader_share: 0.375,
            leader_asked_of: 3,
            time_to_recover_ms: Some(41),
            servers: vec![ServerReport {
                name: "replica-2".to_owned(),
                role: "replica",
                served: 30,
                asked: 0,
                confirmed: 0,
                refused: 5,
                refused_by_reason: BTreeMap::from([
                    ("age".to_owned(), 2),
                    ("apply_stall".to_owned(), 3),
                ]),
                missed: 1,
                behind_served: 4,
                stale_served: 0,
                full_syncs: 1,
            }],
        }
    }

    #[test]
    fn a_program_finds_every_field_under_its_name() {
        let report = serde_json::to_value(example()).expect("a report is JSON");
        for field in [
            "regions",
            "duration_s",
            "lookups",
            "checked",
            "errors",
            "behind_served",
            "stale_served",
            "stale_served_max_age_ms",
            "max_behind_changes",
            "leader_share",
            "time_to_recover_ms",
        ] {
            assert!(report[field].is_number(), "{field}");
        }
        assert_eq!(report["scenario"], "stall");
        let server = &report["servers"][0];
        assert_eq!(server["role"], "replica");
        assert_eq!(server["refused_by_reason"]["apply_stall"], 3);
        let quiet = serde_json::to_value(Report {
            time_to_recover_ms: None,
            ..example()
        })
        .expect("JSON");
        assert!(quiet["time_to_recover_ms"].is_null());
    }

    #[test]
    fn stale_answers_fail_a_run_only_behind_a_gate() {
        assert!(example().passed());
        let stale = Report {
            stale_served: 1,
            ..example()
        };
        assert!(!stale.passed());
        assert!(
            Report {
                gate: GateSwitch::Off,
                ..stale
            }
            .passed()
        );
        assert!(
            !Report {
                errors: 1,
                gate: GateSwitch::Off,
                ..example()
            }
            .passed()
        );
    }

    #[test]
    fn the_verdict_is_the_last_line_and_agrees_with_the_exit_code() {
        let verdict = |report: Report| {
            let report = report.judged();
            let text = report.to_string();
            let last = text.lines().last().expect("a line").to_owned();
            assert_eq!(last, report.verdict);
            assert_eq!(report.passed, last.starts_with("ok"), "{last}");
            assert!(last.len() <= 80, "{last}");
            last
        };
        assert_eq!(verdict(example()), "ok");
        let failed = Report {
            stale_served: 3,
            errors: 7,
            unanswered: 2,
            ..example()
        };
        assert_eq!(
            verdict(failed),
            "FAILED: 3 stale items, 5 answers never true, 2 lookups without an answer"
        );
        let nothing = Report {
            checked: 0,
            ..example()
        };
        assert_eq!(verdict(nothing), "FAILED: nothing was checked");
        let off = Report {
            gate: GateSwitch::Off,
            stale_served: 3,
            ..example()
        };
        assert!(verdict(off).contains("with the gate off 3 stale items"));
        let short = Report {
            fault_too_short: true,
            ..example()
        };
        assert!(
            verdict(short.clone())
                .contains("too short to make anything stale: give --duration 10s")
        );
        let release85 = Report {
            stale_after_ms: 3_400,
            ..short.clone()
        };
        assert!(verdict(release85).contains("give --duration 15s"));
        let steady = Report {
            scenario: Scenario::Steady,
            time_to_recover_ms: None,
            ..short
        };
        assert_eq!(verdict(steady), "ok");
        let down = Report {
            time_to_recover_ms: None,
            ..example()
        };
        assert!(verdict(down).contains("no recovery"));
    }

    #[test]
    fn errors_are_counted_and_the_first_are_shown() {
        let text = Report {
            errors: 9,
            error_examples: vec!["one".to_owned(), "two".to_owned()],
            ..example()
        }
        .to_string();
        assert!(
            text.contains("9, of which the first 2:\n  one\n  two\n"),
            "{text}"
        );
    }

    #[test]
    fn a_person_reads_the_same() {
        let text = example().to_string();
        for part in [
            "stall, gate on, refuse, dialect master",
            "37.5% answered by the leader (asked first for 1 in 3)",
            "behind            4 items; the oldest for 700 ms, at most 12 of the leader's changes back",
            "41 ms after the fault",
            "age 2, apply_stall 3",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            text.contains("just made; the client asks the leader\n"),
            "{text}"
        );
        let mut untouched = example();
        untouched.behind_served = 0;
        untouched.servers[0].missed = 0;
        let quiet = untouched.to_string();
        assert!(quiet.contains("41 ms after the fault"), "{quiet}");
        assert!(quiet.contains("behind            no item\n"), "{quiet}");
        assert!(!quiet.contains("missed: "), "{quiet}");
        let through = Report {
            when_stale: WhenStale::ReadThrough,
            ..example()
        };
        let text = through.to_string();
        assert!(text.contains("0 asked of the leader"), "{text}");
        untouched.servers[0].refused = 0;
        let text = untouched.to_string();
        assert!(text.contains("nothing was refused or behind"), "{text}");
    }
}
