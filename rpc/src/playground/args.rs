//! What `tidegate playground` is started with.

use std::time::Duration;

use super::faults::Scenario;
use crate::config::parse_duration;

/// A PD leader under churn, two replicas and a load that checks every answer, in this process.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Regions at the start, over three stores
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub regions: u64,
    /// Clients, each with one lookup at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub clients: u16,
    /// How long to run, as 20s or 2m [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// What goes wrong, from 40% to 65% of the duration
    #[arg(long, value_enum, default_value_t)]
    pub scenario: Scenario,
    /// off: serve whatever the map holds, which shows that the check can fail
    #[arg(long, value_enum, default_value_t)]
    pub gate: GateSwitch,
    /// The report's form; with json, all else goes to stderr
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// Changes of regions a second
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub churn: u64,
}

/// Whether the replicas' gates may refuse.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GateSwitch {
    /// They do what they are for
    #[default]
    On,
    /// They are ignored
    Off,
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

impl Default for Args {
    fn default() -> Self {
        Self {
            regions: 100_000,
            clients: 8,
            duration: None,
            scenario: Scenario::default(),
            gate: GateSwitch::default(),
            output: Output::default(),
            churn: 600,
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
            "--gate",
            "off",
        ];
        let args = Line::try_parse_from(line).expect("well formed").args;
        assert_eq!(args.duration, Some(Duration::from_secs(20)));
        assert_eq!(
            (args.scenario, args.gate),
            (Scenario::LeaderRestart, GateSwitch::Off)
        );
        for bad in [
            ["--regions", "0"],
            ["--clients", "0"],
            ["--duration", "20"],
            ["--scenario", "rain"],
        ] {
            assert!(
                Line::try_parse_from([&["playground"][..], &bad].concat()).is_err(),
                "{bad:?}"
            );
        }
    }
}
