//! What a comparison has come to so far.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::{KeyRange, Region};

use super::compare::Kind;
use super::track::Settled;

/// Which of the two was asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The PD leader.
    Leader,
    /// Who is compared with it.
    Other,
}

/// Answers of one side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// Questions that were answered.
    pub answered: u64,
    /// Questions that were not.
    pub failed: u64,
    /// Questions that it refused to answer.
    pub refused: u64,
    /// The time of all answers together.
    pub took: Duration,
}

/// Sums over a comparison.
#[derive(Debug, Default)]
pub struct Tally {
    /// Whole passes over all keys.
    pub passes: u64,
    /// Regions of the leader that were compared, those of each pass anew.
    pub compared: u64,
    /// Holes between the leader's own regions.
    pub leader_holes: u64,
    /// Neighbours in an answer of the other side that hold the same keys.
    pub overlaps: u64,
    /// Times that another leader was found.
    pub leader_changes: u64,
    /// Differences that were gone at the second look.
    pub once: u64,
    /// The leader's answers.
    pub leader: Answers,
    /// The other side's.
    pub other: Answers,
    /// The ages of what is over, by kind.
    pub ages: BTreeMap<Kind, Vec<Duration>>,
}

impl Tally {
    pub(super) fn answers(&mut self, side: Side) -> &mut Answers {
        match side {
            Side::Leader => &mut self.leader,
            Side::Other => &mut self.other,
        }
    }

    pub(super) fn answered(&mut self, side: Side, questions: usize, took: Duration) {
        let answers = self.answers(side);
        answers.answered += questions as u64;
        answers.took += took;
    }

    pub(super) fn page(
        &mut self,
        within: &KeyRange,
        leader: &[Region],
        other: &[Region],
        compared: usize,
    ) {
        self.compared += compared as u64;
        let inside = |region: &&Region| region.range().overlaps(within);
        let mut reached = Some(within.start().clone());
        for region in leader.iter().filter(inside) {
            if reached
                .as_ref()
                .is_some_and(|reached| region.start() > reached)
            {
                self.leader_holes += 1;
            }
            reached = (!region.end().is_empty()).then(|| region.end().clone());
        }
        // An end short of the last key is a hole only where no page follows.
        if within.end().is_empty()
            && reached.is_some_and(|reached| !within.is_all() || !reached.is_empty())
        {
            self.leader_holes += 1;
        }
        let touching = |pair: &[Region]| pair[0].range().overlaps(pair[1].range());
        self.overlaps += other.windows(2).filter(|pair| touching(pair)).count() as u64;
    }

    pub(super) fn settle(&mut self, settled: Settled) {
        match settled.age {
            Some(age) => self.ages.entry(settled.kind).or_default().push(age),
            None => self.once += 1,
        }
    }
}
