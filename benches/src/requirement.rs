//! What the figures must satisfy, each as a ratio within one run.

use crate::contender::{Contender, Lock, Ours, ParkingLot, Std};
use crate::op::frames::BTREEMAP;
use crate::round::Row;

/// What single steps may take, in nanoseconds. They have no rival; their limits leave room for the
/// machine.
const LIMITS: [(&str, f64); 2] = [("mark", 12.0), ("renew", 3.0)];

/// A requirement and what was measured.
#[derive(Debug)]
pub struct Verdict {
    /// What was compared.
    pub subject: String,
    /// Rival's time, or the limit, over ours.
    pub ratio: f64,
    /// What the ratio must reach.
    pub at_least: f64,
}

impl Verdict {
    /// Whether the requirement is met.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.ratio >= self.at_least
    }
}

/// Every requirement on which `rows` have something to say. Lookups are judged at a million
/// regions, where the structure and not the cache decides.
#[must_use]
pub fn judge(rows: &[Row]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for ours in rows.iter().filter(|row| row.contender == Ours::NAME) {
        let limit = LIMITS.iter().find(|(op, _)| *op == ours.subject.op);
        if let Some((op, limit)) = limit {
            verdicts.push(Verdict {
                subject: format!("{op}, beside a limit of {limit} ns"),
                ratio: limit / ours.ns_per_op,
                at_least: 1.0,
            });
        }
        let against = |rivals: &[&str]| {
            let beside = rows.iter().filter(|row| {
                row.subject.op == ours.subject.op
                    && row.subject.regions == ours.subject.regions
                    && rivals.contains(&row.contender)
            });
            let fastest = beside.map(|row| row.ns_per_op).min_by(f64::total_cmp)?;
            Some(fastest / ours.ns_per_op)
        };
        let (what, rivals, at_least): (_, &[&str], _) = match ours.subject.op {
            "get_2r" if ours.subject.regions >= 1_000_000 => {
                let locks: &[&str] = &[Std::NAME, ParkingLot::NAME];
                (
                    "lookup on two threads beside the better RwLock<BTreeMap>",
                    locks,
                    2.0,
                )
            }
            "apply_frames" => (
                "frames applied beside inserts into a BTreeMap",
                &[BTREEMAP],
                0.5,
            ),
            _ => continue,
        };
        if let Some(ratio) = against(rivals) {
            let subject = format!("{what}, {} regions", ours.subject.regions);
            verdicts.push(Verdict {
                subject,
                ratio,
                at_least,
            });
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round::Subject;

    fn row(op: &'static str, contender: &'static str, ns_per_op: f64) -> Row {
        let subject = Subject {
            op,
            regions: 1_000_000,
            threads: 2,
        };
        Row {
            subject,
            contender,
            ns_per_op,
            spread: (ns_per_op, ns_per_op),
        }
    }

    #[test]
    fn a_lookup_is_judged_by_the_better_lock() {
        let rows = [
            row("get_2r", Ours::NAME, 100.0),
            row("get_2r", Std::NAME, 190.0),
            row("get_2r", ParkingLot::NAME, 900.0),
        ];
        let verdicts = judge(&rows);
        assert_eq!(verdicts.len(), 1);
        assert!(!verdicts[0].holds());
        assert_eq!(verdicts[0].ratio, 1.9);
    }

    #[test]
    fn frames_may_take_twice_as_long_and_no_longer() {
        let judged = |ns| {
            judge(&[
                row("apply_frames", Ours::NAME, ns),
                row("apply_frames", BTREEMAP, 10.0),
            ])
        };
        assert!(judged(20.0)[0].holds());
        assert!(!judged(20.1)[0].holds());
    }

    #[test]
    fn a_step_without_a_rival_has_a_limit() {
        let holds = |op, ns| judge(&[row(op, Ours::NAME, ns)])[0].holds();
        assert!(holds("mark", 12.0) && !holds("mark", 12.1));
        assert!(holds("renew", 3.0) && !holds("renew", 3.1));
    }

    #[test]
    fn without_a_rival_nothing_is_judged() {
        assert!(judge(&[row("get_2r", Ours::NAME, 1.0)]).is_empty());
    }
}
