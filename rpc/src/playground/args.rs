//! What `tidegate playground` is started with.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use super::faults::Scenario;
use super::sweep::{Setting, Swept};
use crate::config::{self, parse_duration};
use crate::pd::Dialect;

/// What the words of the view and the report mean.
const WORDS: &str = "\
Of the leader and the replicas each is asked as many of the lookups; what replicas do not answer, the leader is asked.
  checked   items of answers, each region and each absence, compared with what the leader had
  behind    items superseded when they were asked for, for less than 1 ms (0 ms) or longer; allowed, within the bounds
            of staleness
  stale     items behind for longer than max-age, stall-threshold and one round trip: the gate is to prevent them
  refused   lookups that a shut gate did not answer, by reason
  missed    lookups that an open gate let through and that the map had no answer to: of regions that are gone, or of
            new ones that have not come yet; the leader is asked then, and finds nothing either or what is new
With --when-stale read-through neither is left to the client: the replica asks the leader. The regions of one answer need
not have been true at one moment then (torn); each is judged by its own age.
With --dialect release-8.5 broadcast-max-age takes the place of max-age, 3s here for 1s: such a leader can prove a quiet
time no sooner.
With --chain a third replica follows the second one, and is struck by whatever strikes that. Its ages are counted from the
leader's own answer, and its gate is as strict.
Without --duration the fault comes again every 20s. Data turns stale once a fault lasts longer than those bounds,
1.4s here, 3.4s with release-8.5: keep --duration at 10s or more, there at 15s.
The last line is the verdict, ok or FAILED with what failed; with --output json it is in the report (verdict, passed).
Exit code: 0 ok; 1 FAILED: stale or wrong answers (with --gate off only wrong ones), lookups without an answer, or
nothing checked; 2 it could not start.";

/// The shortest run that checks anything.
const SHORTEST: Duration = Duration::from_secs(2);

/// A PD leader under churn, two replicas and a load that checks every answer, in this process.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = WORDS)]
pub struct Args {
    /// Regions at the start, over three stores
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 100_000, value_parser = |text: &str| whole(text, 10_000_000_u64))]
    pub regions: u64,
    /// Clients, each with one lookup at a time
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 8, value_parser = |text: &str| whole(text, u16::MAX))]
    pub clients: u16,
    /// How long to run, as 20s or 2m [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = long_enough)]
    pub duration: Option<Duration>,
    /// What goes wrong, from 40% to 65% of the duration, or of each 20s without one
    #[arg(long, value_enum, default_value_t)]
    pub scenario: Scenario,
    /// Which PD the leader speaks like on its sync streams
    #[arg(long, value_enum, default_value_t)]
    pub dialect: Dialect,
    /// Whether replicas refuse what may be stale; off shows what the gate is for
    #[arg(long, value_enum, default_value_t)]
    pub gate: GateSwitch,
    /// What replicas do with a lookup that their maps may not answer; serve's default is read-through
    #[arg(long, value_enum, default_value_t)]
    pub when_stale: WhenStale,
    /// The report's form; with json, all else goes to stderr
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// Changes of regions a second
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 600, value_parser = |text: &str| whole(text, 100_000_u64))]
    pub churn: u64,
    /// Adds a third replica, which follows the second one in place of PD
    #[arg(long)]
    pub chain: bool,
    /// Instead of one run makes many short ones, each with another value of this threshold, and prints what the value
    /// refuses and what it lets through
    #[arg(long, value_enum, value_name = "THRESHOLD", conflicts_with_all = ["duration", "scenario", "churn", "gate", "output"])]
    pub sweep: Option<Swept>,
    /// A threshold that a sweep sets.
    #[arg(skip)]
    pub set: Option<Setting>,
}

/// Whether the replicas' gates may refuse.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GateSwitch {
    /// Replicas refuse what they cannot prove to be fresh
    #[default]
    On,
    /// Replicas answer whatever they hold; stale answers are counted and do not fail the run
    Off,
}

/// What replicas do with a lookup that their maps may not answer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenStale {
    /// They refuse, and the client asks the leader
    #[default]
    Refuse,
    /// They ask the leader themselves
    ReadThrough,
}

impl From<WhenStale> for config::WhenStale {
    fn from(when_stale: WhenStale) -> Self {
        match when_stale {
            WhenStale::Refuse => Self::Refuse,
            WhenStale::ReadThrough => Self::ReadThrough,
        }
    }
}

/// The report's form.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Reads how long to run.
fn long_enough(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(duration) if duration < SHORTEST => Err(format!(
            "too short to check anything; give {SHORTEST:?} or more, and 10s to see a fault"
        )),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a whole number from 1 to `most`.
fn whole<N: FromStr + PartialOrd + From<u8> + Display>(text: &str, most: N) -> Result<N, String> {
    match text.parse::<N>() {
        Ok(number) if number >= N::from(1) && number <= most => Ok(number),
        _ => Err(format!("give a whole number from 1 to {most}")),
    }
}

impl Default for Args {
    fn default() -> Self {
        Self {
            regions: 100_000,
            clients: 8,
            duration: None,
            scenario: Scenario::default(),
            dialect: Dialect::default(),
            gate: GateSwitch::default(),
            when_stale: WhenStale::default(),
            output: Output::default(),
            churn: 600,
            chain: false,
            sweep: None,
            set: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn what_is_not_said_has_the_documented_default() {
        let args = Line::try_parse_from(["playground"])
            .expect("nothing is required")
            .args;
        assert_eq!(format!("{args:?}"), format!("{:?}", Args::default()));
        assert!(args.churn >= 500);
    }

    #[test]
    fn flags_are_read_and_bad_ones_refused() {
        let line = [
            "playground",
            "--duration",
            "20s",
            "--scenario",
            "leader-restart",
            "--dialect",
            "release-8.5",
            "--gate",
            "off",
        ];
        let args = Line::try_parse_from(line).expect("well formed").args;
        assert_eq!(args.duration, Some(Duration::from_secs(20)));
        assert_eq!(
            (args.scenario, args.gate),
            (Scenario::LeaderRestart, GateSwitch::Off)
        );
        assert_eq!(args.dialect, Dialect::Release85);
        for bad in [
            ["--dialect", "8"],
            ["--regions", "0"],
            ["--clients", "0"],
            ["--duration", "20"],
            ["--duration", "1ns"],
            ["--scenario", "rain"],
        ] {
            assert!(
                Line::try_parse_from([&["playground"][..], &bad].concat()).is_err(),
                "{bad:?}"
            );
        }
    }
}
