//! What the figures must satisfy, each as a ratio within one run.
//!
//! A requirement is *kept* or *owed*. One that is kept and missed fails the run. One that is owed
//! has not been reached so far; the run says so, and goes on.

use std::fmt;

use crate::contender::Handles;
use crate::contender::{
    Contender, Lock, LockedHashMap, Ours, ParkingLot, Persistent, Skip, Std, Tree,
};
use crate::op::floor::Floor;
use crate::op::frames::BTREEMAP;
use crate::op::ring::{MUTEX_PARKING_LOT, MUTEX_STD};
use crate::op::{batch, many, resident};
use crate::round::Row;

/// With how many regions a requirement holds.
const AT_1M: &[usize] = &[1_000_000];
const AT_10K: &[usize] = &[10_000];
const AT_BOTH: &[usize] = &[10_000, 1_000_000];
/// No map is involved.
const AT_NONE: &[usize] = &[0];

const LOCK: Beside = Beside::Rivals(
    "the better RwLock<BTreeMap>",
    &[Std::NAME, ParkingLot::NAME],
);
const OTHERS: Beside = Beside::Rivals(
    "all that have no lock",
    &[Skip::NAME, Tree::NAME, Handles::NAME, Persistent::NAME],
);
const TREE_INDEX: Beside = Beside::Rivals("tree_index", &[Tree::NAME]);
const SKIP_MAP: Beside = Beside::Rivals("skipmap", &[Skip::NAME]);
const FLOOR: Beside = Beside::Rivals("two dependent cache misses", &[Floor::NAME]);
const BATCH_ONE_BY_ONE: Beside = Beside::Rivals("the same one by one", &[batch::ONE_BY_ONE]);
const LEAN: Beside = Beside::Rivals("BTreeMap and HashMap that share", &[resident::LEAN]);
const ONE_BY_ONE: Beside = Beside::Rivals("the same one by one", &[many::ONE_BY_ONE]);
const DEQUE: Beside = Beside::Rivals("a mutexed VecDeque", &[MUTEX_STD, MUTEX_PARKING_LOT]);

/// What ours is compared with.
#[derive(Copy, Clone, Debug)]
enum Beside {
    /// The fastest of these, in the row of the same operation.
    Rivals(&'static str, &'static [&'static str]),
    /// Another operation of ours.
    Own(&'static str),
    /// Nanoseconds.
    Limit(f64),
}

/// One requirement.
#[derive(Copy, Clone, Debug)]
struct Must {
    op: &'static str,
    regions: &'static [usize],
    beside: Beside,
    /// What the other time over ours must reach.
    at_least: f64,
    is_owed: bool,
}

const fn must(op: &'static str, regions: &'static [usize], beside: Beside, at_least: f64) -> Must {
    Must {
        op,
        regions,
        beside,
        at_least,
        is_owed: false,
    }
}

const fn owed(must: Must) -> Must {
    Must {
        is_owed: true,
        ..must
    }
}

const MUSTS: &[Must] = &[
    must("get", AT_1M, LOCK, 2.0),
    must("get", AT_10K, LOCK, 1.9),
    owed(must("get", AT_1M, TREE_INDEX, 3.3)),
    must("get", AT_10K, TREE_INDEX, 3.3),
    must("get", AT_1M, SKIP_MAP, 5.0),
    owed(must("get", AT_10K, SKIP_MAP, 5.0)),
    must("get", AT_1M, FLOOR, 1.0 / 1.9),
    must("get_2r", AT_1M, LOCK, 2.3),
    must("get_2r", AT_10K, LOCK, 3.0),
    must("get_many16", AT_1M, ONE_BY_ONE, 3.0),
    must("get_many16", AT_10K, ONE_BY_ONE, 1.25),
    must("scan64", AT_1M, LOCK, 1.7),
    owed(must("scan64", AT_10K, LOCK, 2.0)),
    must("scan64", AT_1M, OTHERS, 3.0),
    owed(must("scan64", AT_10K, OTHERS, 3.0)),
    must("get_beside_writer", AT_1M, TREE_INDEX, 2.0),
    must("get_beside_writer", AT_10K, TREE_INDEX, 1.2),
    owed(must("get_beside_writer", AT_BOTH, LOCK, 20.0)),
    must("get_beside_writer", AT_1M, Beside::Own("get"), 1.0 / 1.8),
    must("get_beside_writer", AT_10K, Beside::Own("get"), 1.0 / 5.0),
    owed(must("mixed_2t", AT_1M, LOCK, 2.2)),
    must("mixed_2t", AT_10K, LOCK, 1.3),
    owed(must("update", AT_1M, LOCK, 0.85)),
    owed(must("update", AT_10K, LOCK, 0.4)),
    owed(must("update", AT_BOTH, OTHERS, 2.4)),
    owed(must("update_2w", AT_1M, LOCK, 1.05)),
    owed(must("split_merge", AT_1M, LOCK, 0.9)),
    owed(must("split_merge", AT_10K, LOCK, 0.75)),
    owed(must("split_merge", AT_BOTH, OTHERS, 2.5)),
    must("batch1000", AT_BOTH, BATCH_ONE_BY_ONE, 1.0 / 1.3),
    must("bulk_sorted", AT_1M, LOCK, 1.8),
    must("bulk_sorted", AT_10K, LOCK, 1.8),
    must("bulk_shuffled", AT_1M, LOCK, 1.8),
    must("bulk_shuffled", AT_10K, LOCK, 1.8),
    must(
        "by_id",
        AT_BOTH,
        Beside::Rivals("RwLock<HashMap>", &[LockedHashMap::NAME]),
        0.5,
    ),
    must("bytes_per_region", AT_1M, LOCK, 1.0 / 0.95),
    must("bytes_per_region", AT_1M, LEAN, 1.0 / 0.95),
    must(
        "apply_frames",
        AT_BOTH,
        Beside::Rivals("inserts into a BTreeMap", &[BTREEMAP]),
        0.5,
    ),
    must("mark", AT_10K, Beside::Limit(12.0), 1.0),
    must("renew", AT_10K, Beside::Limit(3.0), 1.0),
    // Without the reading of the clock that it needs, which is a row of its own.
    must("gate", AT_NONE, Beside::Limit(3.0), 1.0),
    must("ring_push", AT_NONE, Beside::Limit(20.0), 1.0),
    must("ring_push_1r", AT_NONE, Beside::Limit(30.0), 1.0),
    must("ring_push_1r", AT_NONE, DEQUE, 10.0),
];

/// A requirement and what was measured.
#[derive(Debug)]
pub struct Verdict {
    /// What was compared.
    pub subject: String,
    /// The other time, or the limit, over ours.
    pub ratio: f64,
    /// What the ratio must reach.
    pub at_least: f64,
    /// Whether the run may miss it.
    pub is_owed: bool,
}

impl Verdict {
    /// Whether the requirement is met.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.ratio >= self.at_least
    }

    /// Whether the run fails by it.
    #[must_use]
    pub fn fails(&self) -> bool {
        !self.holds() && !self.is_owed
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match (self.holds(), self.is_owed) {
            (true, false) => "holds",
            (true, true) => "holds, though owed so far",
            (false, true) => "OWED",
            (false, false) => "FAILS",
        };
        let (ratio, at_least) = (self.ratio, self.at_least);
        let subject = &self.subject;
        write!(
            f,
            "{word}: {subject}: {ratio:.2}x (at least {at_least:.2}x)"
        )
    }
}

/// Every requirement on which `rows` have something to say.
#[must_use]
pub fn judge(rows: &[Row]) -> Vec<Verdict> {
    judge_by(MUSTS, rows)
}

fn judge_by(musts: &[Must], rows: &[Row]) -> Vec<Verdict> {
    let time = |op: &str, regions: usize, contender: &str| {
        let mut rows = rows.iter();
        let row = rows.find(|row| {
            row.subject.op == op && row.subject.regions == regions && row.contender == contender
        })?;
        Some(row.ns_per_op)
    };
    let judge = |must: &Must, regions: usize| {
        let ours = time(must.op, regions, Ours::NAME)?;
        let (what, other) = match must.beside {
            Beside::Rivals(what, rivals) => {
                let times = rivals
                    .iter()
                    .filter_map(|name| time(must.op, regions, name));
                (what.to_owned(), times.min_by(f64::total_cmp)?)
            }
            Beside::Own(op) => (format!("own {op}"), time(op, regions, Ours::NAME)?),
            Beside::Limit(limit) => (format!("a limit of {limit} ns"), limit),
        };
        let regions = match regions {
            0 => String::new(),
            regions => format!(", {regions} regions"),
        };
        Some(Verdict {
            subject: format!("{} beside {what}{regions}", must.op),
            ratio: other / ours,
            at_least: must.at_least,
            is_owed: must.is_owed,
        })
    };
    let each = musts.iter().flat_map(|must| {
        let at = must.regions.iter();
        at.filter_map(|&regions| judge(must, regions))
            .collect::<Vec<_>>()
    });
    each.collect()
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
    fn rivals_are_judged_by_the_fastest_of_them() {
        let rows = [
            row("get_2r", Ours::NAME, 100.0),
            row("get_2r", Std::NAME, 190.0),
            row("get_2r", ParkingLot::NAME, 900.0),
        ];
        let verdicts = judge_by(&[must("get_2r", AT_1M, LOCK, 2.0)], &rows);
        assert_eq!(verdicts.len(), 1);
        assert_eq!(verdicts[0].ratio, 1.9);
        assert!(verdicts[0].fails());
        let owed = judge_by(&[owed(must("get_2r", AT_1M, LOCK, 2.0))], &rows);
        assert!(!owed[0].holds() && !owed[0].fails());
        assert!(owed[0].to_string().starts_with("OWED"), "{}", owed[0]);
    }

    #[test]
    fn an_operation_of_ours_may_be_the_measure() {
        let rows = [
            row("get", Ours::NAME, 100.0),
            row("get_beside_writer", Ours::NAME, 180.0),
        ];
        let at_most = |times: f64| {
            let beside = Beside::Own("get");
            judge_by(
                &[must("get_beside_writer", AT_1M, beside, 1.0 / times)],
                &rows,
            )
        };
        assert!(at_most(1.8)[0].holds());
        assert!(!at_most(1.7)[0].holds());
    }

    #[test]
    fn a_step_without_a_rival_has_a_limit() {
        let holds = |ns| {
            let mut row = row("gate", Ours::NAME, ns);
            row.subject.regions = 0;
            judge_by(&[must("gate", AT_NONE, Beside::Limit(3.0), 1.0)], &[row])[0].holds()
        };
        assert!(holds(3.0) && !holds(3.1));
    }

    #[test]
    fn nothing_is_judged_without_a_figure_on_both_sides() {
        assert!(judge(&[row("get_2r", Ours::NAME, 1.0)]).is_empty());
        assert!(judge(&[row("get_2r", Std::NAME, 1.0)]).is_empty());
    }
}
