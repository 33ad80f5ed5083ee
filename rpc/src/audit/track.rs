//! Which differences are real, and for how long they have been.
//!
//! Two servers are never asked at the same instant, so a difference between two answers proves nothing by itself. Each
//! one is asked for again, the other side first and the leader after it:
//!
//! - *behind*: the leader had said it before the other side was asked, and the other side still says the older thing.
//!   What epochs do not order (who leads, which peers) takes the leader's word from both before and after;
//! - *ahead*: the leader, asked later, still does not know what the other side has said before.
//!
//! Only a difference that is seen twice counts. Its age runs from the receipt of the leader's answer that first had the
//! newer value to the sending of the last question that the other side answered with the older one: a lower bound, and
//! as exact as the questions are close to each other. They are asked again after an eighth of the age, so that it is
//! exact to about that part.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_core::{KeyRange, Region};
use tokio::time::Instant;

use super::compare::{Difference, Kind, differs, hull};

/// The first and shortest time between two looks at a difference.
const SOON: Duration = Duration::from_millis(50);
/// The longest.
const LATE: Duration = Duration::from_secs(10);
/// Values of the leader that are remembered of one region.
const REMEMBERED: usize = 16;

/// A difference that has been seen, and not yet been seen to be gone.
#[derive(Clone, Debug)]
pub struct Open {
    /// How the region differed when it was first seen to.
    pub kind: Kind,
    /// What the leader has said since, the oldest first; empty while it knows no such region.
    said: Vec<Region>,
    /// What the other side said when it was last asked.
    pub other: Option<Region>,
    /// Receipt of the leader's answer that had the newer value first.
    pub since: Instant,
    /// When the last question that was answered with the older value was sent; `None` while it has been seen once.
    pub behind: Option<Instant>,
    due: Instant,
}

/// A difference that is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settled {
    /// The region.
    pub id: u64,
    /// How it differed.
    pub kind: Kind,
    /// For how long at least; `None` when it was seen only once and therefore does not count.
    pub age: Option<Duration>,
}

/// What a second look at a difference shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shown {
    /// It is still there.
    Behind,
    /// It is gone, or has become another one.
    Gone,
    /// The leader's word has changed between the looks: nothing can be said.
    Moved,
}

/// The open differences, by region.
#[derive(Debug)]
pub struct Tracker {
    open: HashMap<u64, Open>,
    most: usize,
    overflow: u64,
}

impl Open {
    /// The leader's latest word.
    #[must_use]
    pub fn leader(&self) -> Option<&Region> {
        self.said.last()
    }

    /// The keys to ask about to see both sides of it.
    #[must_use]
    pub fn range(&self) -> KeyRange {
        match (self.said.last(), &self.other) {
            (Some(leader), Some(other)) => hull(leader.range(), other.range()),
            (Some(region), None) | (None, Some(region)) => region.range().clone(),
            (None, None) => KeyRange::all(),
        }
    }

    /// For how long it has been seen; `None` while it has been seen once.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.behind
            .map(|behind| behind.saturating_duration_since(self.since))
    }

    /// Reads a later look: the other side's word, and the leader's from after it.
    fn look(&mut self, other: Option<&Region>, leader: Option<&Region>) -> Shown {
        let steady = match (self.said.last(), leader) {
            (Some(before), Some(after)) => {
                differs(before, after).is_none() && before.leader() == after.leader()
            }
            (None, None) => true,
            _ => false,
        };
        let shown = match self.kind {
            Kind::OlderEpoch | Kind::Missing | Kind::Hole => match (self.said.first(), other) {
                (Some(first), Some(other)) if other.epoch().is_older_than(first.epoch()) => {
                    Shown::Behind
                }
                (_, Some(_)) => Shown::Gone,
                // Merged away since: the other side need never hear of it.
                (_, None) if leader.is_none() => Shown::Gone,
                (_, None) => Shown::Behind,
            },
            Kind::OtherLeader | Kind::PeersDiffer | Kind::RangeDiffers => match other {
                None => Shown::Gone,
                Some(other)
                    if self
                        .said
                        .iter()
                        .chain(leader)
                        .any(|said| differs(said, other).is_none()) =>
                {
                    Shown::Gone
                }
                Some(other)
                    if self
                        .said
                        .iter()
                        .any(|said| said.epoch().is_older_than(other.epoch())) =>
                {
                    Shown::Gone
                }
                Some(_) if steady => Shown::Behind,
                Some(_) => Shown::Moved,
            },
            Kind::UnknownRegion => match (other, leader) {
                (Some(_), None) => Shown::Behind,
                _ => Shown::Gone,
            },
            Kind::NewerEpoch => match (other, leader) {
                (Some(other), Some(leader)) if leader.epoch().is_older_than(other.epoch()) => {
                    Shown::Behind
                }
                _ => Shown::Gone,
            },
        };
        self.other = other.cloned();
        if let (false, Some(leader)) = (steady, leader)
            && self.said.len() < REMEMBERED
        {
            self.said.push(leader.clone());
        }
        shown
    }
}

impl Tracker {
    /// A tracker that follows up to `most` differences at a time; the others are counted.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            open: HashMap::new(),
            most,
            overflow: 0,
        }
    }

    /// Takes in what a comparison of two answers found; the leader's was received at `received`. What is followed
    /// already stays as it is.
    pub fn sight(&mut self, differences: Vec<Difference>, received: Instant) {
        for difference in differences {
            if self.open.contains_key(&difference.id) {
                continue;
            }
            if self.open.len() >= self.most {
                self.overflow += 1;
                continue;
            }
            self.open.insert(
                difference.id,
                Open {
                    kind: difference.kind,
                    said: difference.leader.into_iter().collect(),
                    other: difference.other,
                    since: received,
                    behind: None,
                    due: received + SOON,
                },
            );
        }
    }

    /// The regions to ask for again, at most `most`, the longest due first.
    #[must_use]
    pub fn due(&self, now: Instant, most: usize) -> Vec<u64> {
        let mut due: Vec<(Instant, u64)> = self
            .open
            .iter()
            .filter(|(_, open)| open.due <= now)
            .map(|(id, open)| (open.due, *id))
            .collect();
        due.sort_unstable();
        due.into_iter().take(most).map(|(_, id)| id).collect()
    }

    /// When the next region is to be asked for again.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.open.values().map(|open| open.due).min()
    }

    /// Takes in a later look at region `id`: the other side's word, asked for at `asked`, and the leader's from after
    /// it. Tells what is over.
    pub fn look(
        &mut self,
        id: u64,
        other: Option<&Region>,
        asked: Instant,
        leader: Option<&Region>,
    ) -> Option<Settled> {
        let open = self.open.get_mut(&id)?;
        match open.look(other, leader) {
            Shown::Behind => {
                open.behind = Some(asked);
                let age = asked.saturating_duration_since(open.since);
                open.due = asked + (age / 8).clamp(SOON, LATE);
                None
            }
            Shown::Moved => {
                open.due = asked + SOON;
                None
            }
            Shown::Gone => self.close(id),
        }
    }

    /// Gives region `id` up.
    pub fn close(&mut self, id: u64) -> Option<Settled> {
        let open = self.open.remove(&id)?;
        Some(Settled {
            id,
            kind: open.kind,
            age: open.age(),
        })
    }

    /// Those that are followed.
    pub fn open(&self) -> impl Iterator<Item = (u64, &Open)> {
        self.open.iter().map(|(id, open)| (*id, open))
    }

    /// How many are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// How many could not be followed.
    #[must_use]
    pub fn overflow(&self) -> u64 {
        self.overflow
    }
}

#[cfg(test)]
mod tests;
