//! What an answer says about the leader's map, and since when that is no longer so.
//!
//! An answer is a set of claims that were true together at one moment: every lookup is answered from
//! one snapshot. A claim's standing is the latest time at which it was true; a state that comes back
//! (a leader that moves away and returns) counts by its latest stay, since an answer cannot be told
//! from a fresh one then.

use tidegate_core::{Key, KeyRange, Region};

use super::ledger::{Change, Ledger, Period, Stamp};
use super::past::Past;

/// One thing that an answer says about the leader's map.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Claim {
    /// The map holds this region, exactly as described.
    Holds(Region),
    /// The map holds this region, and the one that contains the key starts where it ends.
    Precedes {
        /// What was answered as the previous region.
        region: Region,
        /// The key that was asked for.
        key: Key,
    },
    /// No region contains the key.
    Uncovered(Key),
    /// The key is in a hole, or a hole or nothing at all comes before its region.
    NoPrevious(Key),
    /// No region has the id.
    NoSuchId(u64),
    /// No region covers any key of the range.
    Hole(KeyRange),
}

/// How a claim stands against the leader's map.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// True now.
    Current,
    /// True until this change.
    Superseded(Stamp),
    /// Not true since at least this change, or earlier than the ledger remembers.
    Forgotten(Stamp),
    /// Never true.
    Never,
}

/// A stretch of changes within which a claim was true: from the first, before the second.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: u64,
    until: u64,
}

impl Claim {
    /// How the claim stands. O(log n) if it is current or about a region by itself; otherwise it costs
    /// a walk over the changes since it was true.
    pub fn standing(&self, ledger: &Ledger) -> Standing {
        match self {
            Self::Holds(region) => match latest_stay(ledger, region) {
                Some(Period { until: None, .. }) => Standing::Current,
                Some(Period {
                    until: Some(until), ..
                }) => Standing::Superseded(*until),
                None => match ledger.forgotten {
                    Some(forgotten) if forgotten.may_include(region) => {
                        Standing::Forgotten(forgotten.last)
                    }
                    _ => Standing::Never,
                },
            },
            _ => self.walk_back(ledger),
        }
    }

    fn walk_back(&self, ledger: &Ledger) -> Standing {
        let mut past = Past::present(ledger);
        if self.is_true(&past) {
            return Standing::Current;
        }
        for change in ledger
            .log
            .iter()
            .rev()
            .filter(|change| self.touched_by(change))
        {
            past.undo(change);
            if self.is_true(&past) {
                return Standing::Superseded(change.stamp);
            }
        }
        ledger.forgotten.map_or(Standing::Never, |forgotten| {
            Standing::Forgotten(forgotten.last)
        })
    }

    fn is_true(&self, map: &Past<'_>) -> bool {
        match self {
            Self::Holds(region) => map.containing(region.start()) == Some(region),
            Self::Precedes { region, key } => {
                let follows = |own: &Region| region.range().is_followed_by(own.range());
                map.containing(key).is_some_and(follows)
                    && map.containing(region.start()) == Some(region)
            }
            Self::Uncovered(key) => map.containing(key).is_none(),
            Self::NoPrevious(key) => map.previous(key).is_none(),
            Self::NoSuchId(id) => map.by_id(*id).is_none(),
            Self::Hole(range) => map.is_hole(range),
        }
    }

    /// Whether the change can have altered the claim's truth.
    fn touched_by(&self, change: &Change) -> bool {
        let covers = |key: &[u8]| {
            change.added.range().contains(key)
                || change.removed.iter().any(|old| old.range().contains(key))
        };
        match self {
            Self::Holds(region) => change.touches(region.range()),
            Self::Precedes { region, key } => change.touches(region.range()) || covers(key),
            Self::Uncovered(key) => covers(key),
            // The region that mattered can have started anywhere before the key.
            Self::NoPrevious(_) => true,
            Self::NoSuchId(id) => {
                change.added.id() == *id || change.removed.iter().any(|old| old.id() == *id)
            }
            Self::Hole(range) => change.touches(range),
        }
    }

    /// A stretch in which the claim was true, not always the whole of it.
    fn known_stretch(&self, ledger: &Ledger, standing: Standing) -> Option<Stretch> {
        let until = match standing {
            Standing::Current => u64::MAX,
            Standing::Superseded(stamp) => stamp.sequence,
            Standing::Forgotten(_) | Standing::Never => return None,
        };
        let from = match self {
            Self::Holds(region) => latest_stay(ledger, region)?.from.sequence,
            _ if standing == Standing::Current => ledger.latest().sequence,
            _ => until.saturating_sub(1),
        };
        Some(Stretch { from, until })
    }
}

/// Whether the claims, which stand as given, were ever true at one moment. Where the ledger has
/// forgotten too much to tell, they count as having been.
pub fn were_true_together(ledger: &Ledger, claims: &[(Claim, Standing)]) -> bool {
    if claims.len() < 2
        || claims
            .iter()
            .all(|(_, standing)| *standing == Standing::Current)
    {
        return true;
    }
    let stretches: Option<Vec<Stretch>> = claims
        .iter()
        .map(|(claim, standing)| claim.known_stretch(ledger, *standing))
        .collect();
    let Some(stretches) = stretches else {
        return true;
    };
    let from = stretches.iter().map(|stretch| stretch.from).max();
    let until = stretches.iter().map(|stretch| stretch.until).min();
    if from < until {
        return true;
    }
    let mut past = Past::present(ledger);
    for change in ledger
        .log
        .iter()
        .rev()
        .filter(|change| claims.iter().any(|(claim, _)| claim.touched_by(change)))
    {
        past.undo(change);
        if claims.iter().all(|(claim, _)| claim.is_true(&past)) {
            return true;
        }
    }
    ledger.forgotten.is_some()
}

fn latest_stay<'l>(ledger: &'l Ledger, region: &Region) -> Option<&'l Period> {
    ledger
        .by_id
        .get(&region.id())?
        .iter()
        .rev()
        .find(|period| *period.region == *region)
}
