//! What an audit came to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tidegate_core::Region;

use super::compare::Kind;
use super::tally::{Answers, Tally};
use super::track::Tracker;

/// How many differences are told one by one.
const EXAMPLES: usize = 5;

/// The result of an audit. Times are in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The PD leader.
    pub leader: String,
    /// Who was compared with it.
    pub against: String,
    /// What that was taken for.
    pub against_is: &'static str,
    /// The cluster of both.
    pub cluster_id: u64,
    /// From the first question to the last.
    pub duration_ms: u64,
    /// Whole passes over all keys.
    pub passes: u64,
    /// Regions of the leader that were compared, those of each pass anew.
    pub compared: u64,
    /// What it comes to.
    pub verdict: Verdict,
    /// The age from which on data counts as stale.
    pub max_age_ms: u64,
    /// Differences that were seen at least twice, in whatever kind.
    pub behind: u64,
    /// Those of them that were there at the end.
    pub still_behind: u64,
    /// How long they lasted, at least.
    pub age: Ages,
    /// The same by kind; kinds that were not seen are left out.
    pub kinds: BTreeMap<&'static str, KindReport>,
    /// Differences that were gone at the second look: changes on their way. They do not count.
    pub seen_once: u64,
    /// Differences beyond what can be followed at a time. They do not count.
    pub not_followed: u64,
    /// Holes between the leader's own regions, in all passes.
    pub leader_holes: u64,
    /// Neighbours in an answer of the other side that hold the same keys.
    pub overlaps: u64,
    /// Times that PD changed its leader.
    pub leader_changes: u64,
    /// The leader's answers.
    pub leader_answers: SideReport,
    /// The other side's.
    pub against_answers: SideReport,
    /// The oldest differences, without keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
    /// The last answer that did not come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// What an audit comes to.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing was behind by more than allowed.
    Fresh,
    /// Something was.
    Stale,
    /// Nothing could be compared.
    NothingCompared,
}

/// How old differences got.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Ages {
    /// Half of them no older.
    pub p50_ms: u64,
    /// All but one in a hundred no older.
    pub p99_ms: u64,
    /// The oldest.
    pub max_ms: u64,
}

/// Differences of one kind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct KindReport {
    /// How many were seen at least twice.
    pub count: u64,
    /// How many were there at the end.
    pub still: u64,
    /// How old they got.
    #[serde(flatten)]
    pub age: Ages,
}

/// The answers of one side.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SideReport {
    /// Questions that were answered.
    pub answered: u64,
    /// Questions that were not.
    pub failed: u64,
    /// Questions that it refused to answer.
    pub refused: u64,
    /// The mean time of an answer.
    pub mean_ms: f64,
}

/// One difference, without its keys.
#[derive(Clone, Debug, Serialize)]
pub struct Example {
    /// The region's id.
    pub region: u64,
    /// How it differs.
    pub kind: Kind,
    /// For how long it has been, at least.
    pub age_ms: u64,
    /// What the leader says.
    pub leader: Option<Told>,
    /// What the other side says.
    pub against: Option<Told>,
}

/// What is told about a region.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Told {
    /// Raised by each change of the members.
    pub conf_ver: u64,
    /// Raised by each change of the range.
    pub version: u64,
    /// The store of the peer that leads.
    pub leader_store: Option<u64>,
    /// How many peers it has.
    pub peers: usize,
}

/// What a report is about.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) leader: String,
    pub(super) against: String,
    pub(super) against_is: &'static str,
    pub(super) cluster_id: u64,
    pub(super) max_age: Duration,
}

impl Report {
    pub(super) fn new(
        subject: Subject,
        duration: Duration,
        tally: &Tally,
        tracker: &Tracker,
        last_error: Option<String>,
    ) -> Self {
        let mut kinds: BTreeMap<Kind, (Vec<Duration>, u64)> = BTreeMap::new();
        for (kind, ages) in &tally.ages {
            kinds.entry(*kind).or_default().0.extend(ages);
        }
        let still: Vec<_> = tracker
            .open()
            .filter_map(|(id, open)| Some((open.age()?, id, open)))
            .collect();
        for (age, _, open) in &still {
            let (ages, still) = kinds.entry(open.kind).or_default();
            ages.push(*age);
            *still += 1;
        }
        let all: Vec<Duration> = kinds.values().flat_map(|(ages, _)| ages).copied().collect();
        let oldest = all.iter().max().copied().unwrap_or_default();
        let verdict = match tally.compared {
            0 => Verdict::NothingCompared,
            _ if oldest > subject.max_age => Verdict::Stale,
            _ => Verdict::Fresh,
        };
        let mut examples = still.clone();
        examples.sort_by_key(|(age, id, _)| (std::cmp::Reverse(*age), *id));
        Self {
            leader: subject.leader,
            against: subject.against,
            against_is: subject.against_is,
            cluster_id: subject.cluster_id,
            duration_ms: millis(duration),
            passes: tally.passes,
            compared: tally.compared,
            verdict,
            max_age_ms: millis(subject.max_age),
            behind: all.len() as u64,
            still_behind: still.len() as u64,
            age: Ages::of(all),
            kinds: kinds
                .into_iter()
                .map(|(kind, (ages, still))| {
                    (
                        kind.as_str(),
                        KindReport {
                            count: ages.len() as u64,
                            still,
                            age: Ages::of(ages),
                        },
                    )
                })
                .collect(),
            seen_once: tally.once,
            not_followed: tracker.overflow(),
            leader_holes: tally.leader_holes,
            overlaps: tally.overlaps,
            leader_changes: tally.leader_changes,
            leader_answers: SideReport::of(&tally.leader),
            against_answers: SideReport::of(&tally.other),
            examples: examples
                .into_iter()
                .take(EXAMPLES)
                .map(|(age, region, open)| Example {
                    region,
                    kind: open.kind,
                    age_ms: millis(age),
                    leader: open.leader().map(Told::of),
                    against: open.other.as_ref().map(Told::of),
                })
                .collect(),
            last_error,
        }
    }
}

impl Ages {
    fn of(mut ages: Vec<Duration>) -> Self {
        ages.sort_unstable();
        let at = |share: f64| {
            let rank = (ages.len() as f64 * share).ceil() as usize;
            ages.get(rank.max(1) - 1).copied().map_or(0, millis)
        };
        Self {
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: ages.last().copied().map_or(0, millis),
        }
    }
}

impl SideReport {
    fn of(answers: &Answers) -> Self {
        let mean = answers.took.as_secs_f64() * 1e3 / answers.answered.max(1) as f64;
        Self {
            answered: answers.answered,
            failed: answers.failed,
            refused: answers.refused,
            mean_ms: (mean * 1e3).round() / 1e3,
        }
    }
}

impl Told {
    fn of(region: &Region) -> Self {
        Self {
            conf_ver: region.epoch().conf_ver,
            version: region.epoch().version,
            leader_store: region.leader().map(|peer| peer.store_id),
            peers: region.peers().len(),
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "version {} conf_ver {}, {} peers, ",
            self.version, self.conf_ver, self.peers
        )?;
        match self.leader_store {
            Some(store) => write!(f, "led from store {store}"),
            None => f.write_str("no leader known"),
        }
    }
}

impl fmt::Display for Ages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {} ms, p99 {} ms, max {} ms",
            self.p50_ms, self.p99_ms, self.max_ms
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.duration_ms as f64 / 1e3;
        writeln!(f, "leader      {}", self.leader)?;
        writeln!(
            f,
            "against     {} ({}), cluster {}",
            self.against, self.against_is, self.cluster_id
        )?;
        writeln!(
            f,
            "compared    {} regions in {seconds:.1} s, {} whole passes",
            self.compared, self.passes
        )?;
        match self.behind {
            0 => writeln!(f, "differ      0")?,
            _ => writeln!(
                f,
                "differ      {}, for at least: {}; {} still do",
                self.behind, self.age, self.still_behind
            )?,
        }
        for (kind, KindReport { count, still, age }) in &self.kinds {
            writeln!(f, "  {kind:<15} {count}: {age}; {still} still do")?;
        }
        writeln!(
            f,
            "in flight   {} differences, gone at the second look",
            self.seen_once
        )?;
        if self.not_followed > 0 {
            writeln!(
                f,
                "not followed {} differences, too many at a time",
                self.not_followed
            )?;
        }
        for (what, count) in [
            ("holes of the leader's own", self.leader_holes),
            ("regions that overlap in one answer", self.overlaps),
            ("changes of the PD leader", self.leader_changes),
        ] {
            if count > 0 {
                writeln!(f, "seen        {count} {what}")?;
            }
        }
        let told = |answers: &SideReport| {
            format!(
                "{}, {:.2} ms each, {} refused, {} failed",
                answers.answered, answers.mean_ms, answers.refused, answers.failed
            )
        };
        writeln!(
            f,
            "answers     leader {}; against {}",
            told(&self.leader_answers),
            told(&self.against_answers)
        )?;
        for example in &self.examples {
            let told = |told: &Option<Told>| {
                told.map_or_else(|| "no such region".to_owned(), |told| told.to_string())
            };
            writeln!(
                f,
                "example     region {}, {} for {} ms; leader: {}; against: {}",
                example.region,
                example.kind.as_str(),
                example.age_ms,
                told(&example.leader),
                told(&example.against),
            )?;
        }
        if let Some(error) = &self.last_error {
            writeln!(f, "last error  {error}")?;
        }
        let limit = self.max_age_ms;
        match self.verdict {
            Verdict::Fresh => writeln!(f, "fresh: nothing was behind by more than {limit} ms"),
            Verdict::Stale => writeln!(
                f,
                "STALE: behind by up to {} ms, more than {limit} ms",
                self.age.max_ms
            ),
            Verdict::NothingCompared => {
                writeln!(f, "NOTHING COMPARED: there was no answer to compare")
            }
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks() {
        assert_eq!(Ages::of(Vec::new()), Ages::default());
        let ages = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(
            Ages::of(ages),
            Ages {
                p50_ms: 100,
                p99_ms: 198,
                max_ms: 200
            }
        );
        assert_eq!(
            Ages::of(vec![Duration::from_millis(7)]),
            Ages {
                p50_ms: 7,
                p99_ms: 7,
                max_ms: 7
            }
        );
    }
}
