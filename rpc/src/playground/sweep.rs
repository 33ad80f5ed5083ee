//! What each value of a threshold costs and prevents: many short runs, one line each.
//!
//! A threshold is too low if it refuses where nothing is wrong: on a quiet cluster, where only keepalives and probes come,
//! or on a busy one, where frames are full. It is too high if it lets through what is older than one is willing to
//! serve, while something is wrong. So each value is tried in four situations, and the other thresholds stay as they
//! are. Values are those of a real server; everything runs at a tenth of them.

use std::fmt;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::args::Args;
use super::faults::Scenario;
use super::report::Report;
use super::run::{PlaygroundError, play};
use super::view::View;
use crate::config::ServeConfig;

/// A threshold of the gate.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Swept {
    /// How old an answer may be: 3s to 30s
    MaxAge,
    /// How long the stream may be silent: 5s to 60s
    TimeThreshold,
    /// How many changes may be known and not applied: 100 to 20,000
    IndexThreshold,
    /// How long one apply may take: 50ms to 10s
    StallThreshold,
}

/// A threshold and its value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Setting {
    /// `max-age`, and `broadcast-max-age` with it
    MaxAge(Duration),
    /// `time-threshold`
    TimeThreshold(Duration),
    /// `index-threshold`
    IndexThreshold(u64),
    /// `stall-threshold`
    StallThreshold(Duration),
}

/// Where a value is tried: a name, what goes wrong, changes a second, and for how long.
const SITUATIONS: [(&str, Scenario, u64, Duration); 4] = [
    ("quiet", Scenario::Steady, 0, Duration::from_secs(6)),
    ("busy", Scenario::Steady, 5_000, Duration::from_secs(6)),
    ("throttle", Scenario::Throttle, 600, Duration::from_secs(12)),
    ("stall", Scenario::Stall, 600, Duration::from_secs(12)),
];

impl Swept {
    fn settings(self) -> Vec<Setting> {
        let times = |millis: &[u64], of: fn(Duration) -> Setting| {
            let times = millis.iter().copied().map(Duration::from_millis);
            times.map(of).collect()
        };
        match self {
            Self::MaxAge => times(&[3_000, 5_000, 10_000, 20_000, 30_000], Setting::MaxAge),
            Self::TimeThreshold => times(
                &[5_000, 11_000, 20_000, 30_000, 60_000],
                Setting::TimeThreshold,
            ),
            Self::IndexThreshold => [100, 1_000, 11_000, 20_000]
                .map(Setting::IndexThreshold)
                .to_vec(),
            Self::StallThreshold => {
                times(&[50, 500, 1_000, 3_000, 10_000], Setting::StallThreshold)
            }
        }
    }
}

impl Setting {
    /// Sets it, in settings that have not been scaled yet. What is the age's bound on release 8.5 stays what it is there,
    /// unless the age itself is set.
    pub(super) fn apply(self, serve: &mut ServeConfig) {
        serve.broadcast_max_age = Some(match self {
            Self::MaxAge(time) => time,
            _ => serve.broadcast_max_age(),
        });
        match self {
            Self::MaxAge(time) => serve.max_age = time,
            Self::TimeThreshold(time) => serve.time_threshold = time,
            Self::IndexThreshold(changes) => serve.index_threshold = changes,
            Self::StallThreshold(time) => serve.stall_threshold = time,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxAge(time) => write!(f, "max-age {time:?}"),
            Self::TimeThreshold(time) => write!(f, "time-threshold {time:?}"),
            Self::IndexThreshold(changes) => write!(f, "index-threshold {changes}"),
            Self::StallThreshold(time) => write!(f, "stall-threshold {time:?}"),
        }
    }
}

/// What one run came to, on one line.
struct Line<'r> {
    setting: Setting,
    situation: &'static str,
    report: &'r Report,
}

impl Line<'_> {
    const HEAD: &'static str =
        "setting                  situation  refused  oldest ms  wrong  refused by reason";
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replicas = || self.report.servers.iter().skip(1);
        let refused: u64 = replicas().map(|server| server.refused).sum();
        let served: u64 = replicas().map(|server| server.served).sum();
        let share = refused as f64 / (refused + served).max(1) as f64 * 100.0;
        let mut reasons = std::collections::BTreeMap::<&str, u64>::new();
        for (reason, count) in replicas().flat_map(|server| &server.refused_by_reason) {
            *reasons.entry(reason).or_default() += count;
        }
        let reasons: Vec<_> = reasons
            .iter()
            .map(|(name, n)| format!("{name} {n}"))
            .collect();
        write!(
            f,
            "{:<24} {:<9} {share:>7.2}% {:>10} {:>6}  {}",
            self.setting.to_string(),
            self.situation,
            self.report.behind_served_max_age_ms,
            self.report.errors,
            if reasons.is_empty() {
                "-".to_owned()
            } else {
                reasons.join(", ")
            },
        )
    }
}

/// Makes the runs of a sweep, until `stop`, and prints a line for each as it ends. Whether all answers were true.
///
/// # Errors
/// As [`play`].
pub async fn sweep(
    args: &Args,
    threshold: Swept,
    stop: CancellationToken,
) -> Result<bool, PlaygroundError> {
    println!(
        "{threshold:?}, dialect {}, {} regions; everything runs at a tenth of the values that are shown.\n\
         refused: share of the replicas' lookups; oldest: age of the oldest answer given\n{}",
        args.dialect,
        args.regions,
        Line::HEAD
    );
    let mut true_all = true;
    for setting in threshold.settings() {
        for (situation, scenario, churn, duration) in SITUATIONS {
            let args = Args {
                scenario,
                churn,
                duration: Some(duration),
                set: Some(setting),
                sweep: None,
                ..args.clone()
            };
            let report = match play(args, &mut View::hidden(), stop.clone()).await {
                Ok(report) => report,
                Err(never @ PlaygroundError::NotProven { .. }) => {
                    println!(
                        "{:<24} {situation:<9} never ready: {never}",
                        setting.to_string()
                    );
                    continue;
                }
                Err(error) => return Err(error),
            };
            if stop.is_cancelled() {
                return Err(PlaygroundError::Interrupted);
            }
            true_all &= report.errors == 0;
            let line = Line {
                setting,
                situation,
                report: &report,
            };
            println!("{line}");
        }
    }
    println!(
        "\n{}",
        if true_all {
            "ok"
        } else {
            "FAILED: answers never true, or none; see wrong"
        }
    );
    Ok(true_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_threshold_is_tried_at_its_default_too() {
        let usual = ServeConfig::default();
        for threshold in [
            Swept::MaxAge,
            Swept::TimeThreshold,
            Swept::IndexThreshold,
            Swept::StallThreshold,
        ] {
            let settings = threshold.settings();
            let as_usual = settings.iter().filter(|setting| {
                let mut serve = usual.clone();
                setting.apply(&mut serve);
                serve.thresholds() == usual.thresholds()
            });
            assert_eq!(as_usual.count(), 1, "{threshold:?}");
            assert!(settings.len() >= 4);
        }
    }
}
