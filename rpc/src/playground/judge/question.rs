//! Questions, answers, and the claims that an answer to a question makes.

use tidegate_core::{Key, KeyRange, Region};

use super::claim::Claim;

/// One lookup, as a client asks it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Question {
    /// GetRegion.
    Get(Key),
    /// GetPrevRegion.
    Previous(Key),
    /// GetRegionByID.
    ById(u64),
    /// ScanRegions.
    Scan {
        /// The keys asked for.
        range: KeyRange,
        /// At most so many regions; never 0.
        limit: usize,
    },
    /// BatchScanRegions over ascending ranges that neither overlap nor touch.
    BatchScan {
        /// The keys asked for.
        ranges: Vec<KeyRange>,
        /// At most so many regions; the last range may exceed it, as PD has it. Never 0.
        limit: usize,
    },
    /// QueryRegion.
    Query {
        /// Keys whose region is asked for.
        keys: Vec<Key>,
        /// Keys whose previous region is asked for.
        previous: Vec<Key>,
        /// Region ids.
        ids: Vec<u64>,
    },
}

/// What came back, in the question's order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// To a get, prev or by-id lookup.
    One(Option<Region>),
    /// To a scan or a batch of scans.
    Many(Vec<Region>),
    /// To a QueryRegion batch: one for each key, each previous key, each id.
    Query {
        /// For each key.
        keys: Vec<Option<Region>>,
        /// For each previous key.
        previous: Vec<Option<Region>>,
        /// For each id.
        ids: Vec<Option<Region>>,
    },
}

/// Why an answer cannot be one to its question, whatever the map held.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Misfit {
    /// The answer is of another kind, or has another number of items, than the question.
    #[error("the answer has another shape than the question")]
    Shape,
    /// A region that does not contain the key or has another id than was asked for.
    #[error("the answer is about another key or id than was asked for")]
    Subject,
    /// Regions out of order, overlapping, outside of the range, or more than the limit.
    #[error("the answer's regions are not a scan of the range that was asked for")]
    Order,
}

impl Question {
    /// What `answer` says about the leader's map.
    ///
    /// # Errors
    ///
    /// [`Misfit`] if it is no answer to this question.
    pub fn claims(&self, answer: Answer) -> Result<Vec<Claim>, Misfit> {
        match (self, answer) {
            (Self::Get(key), Answer::One(found)) => Ok(vec![get(key, found)?]),
            (Self::Previous(key), Answer::One(found)) => Ok(vec![previous(key, found)?]),
            (Self::ById(id), Answer::One(found)) => Ok(vec![by_id(*id, found)?]),
            (Self::Scan { range, limit }, Answer::Many(found)) => {
                let mut found = found.into_iter().peekable();
                let mut claims = Vec::new();
                let taken = scan(range, *limit, &mut found, false, &mut claims)?;
                if found.peek().is_some() || taken > *limit {
                    Err(Misfit::Order)
                } else {
                    Ok(claims)
                }
            }
            (Self::BatchScan { ranges, limit }, Answer::Many(found)) => {
                batch_scan(ranges, *limit, found)
            }
            (
                Self::Query {
                    keys,
                    previous: prev_keys,
                    ids,
                },
                Answer::Query {
                    keys: a,
                    previous: b,
                    ids: c,
                },
            ) => {
                if a.len() != keys.len() || b.len() != prev_keys.len() || c.len() != ids.len() {
                    return Err(Misfit::Shape);
                }
                let keys = keys.iter().zip(a).map(|(key, found)| get(key, found));
                let prev_keys = prev_keys
                    .iter()
                    .zip(b)
                    .map(|(key, found)| previous(key, found));
                let ids = ids.iter().zip(c).map(|(id, found)| by_id(*id, found));
                keys.chain(prev_keys).chain(ids).collect()
            }
            _ => Err(Misfit::Shape),
        }
    }
}

fn get(key: &Key, found: Option<Region>) -> Result<Claim, Misfit> {
    match found {
        None => Ok(Claim::Uncovered(key.clone())),
        Some(region) if region.range().contains(key) => Ok(Claim::Holds(region)),
        Some(_) => Err(Misfit::Subject),
    }
}

fn previous(key: &Key, found: Option<Region>) -> Result<Claim, Misfit> {
    match found {
        None => Ok(Claim::NoPrevious(key.clone())),
        Some(region) if region.range().ends_after(key) => Err(Misfit::Subject),
        Some(region) => Ok(Claim::Precedes {
            region,
            key: key.clone(),
        }),
    }
}

fn by_id(id: u64, found: Option<Region>) -> Result<Claim, Misfit> {
    match found {
        None => Ok(Claim::NoSuchId(id)),
        Some(region) if region.id() == id => Ok(Claim::Holds(region)),
        Some(_) => Err(Misfit::Subject),
    }
}

/// PD scans each range with the whole limit, repeats no region that the last range found already, and
/// looks at the total only before the next range: the last range may exceed the limit, while a cut at
/// the limit says nothing about what comes behind it.
fn batch_scan(ranges: &[KeyRange], limit: usize, found: Vec<Region>) -> Result<Vec<Claim>, Misfit> {
    let mut found = found.into_iter().peekable();
    let mut claims = Vec::new();
    let mut total = 0;
    for (range, following) in ranges.iter().zip((0..ranges.len()).rev()) {
        if total >= limit {
            break;
        }
        let last = claims.iter().rev().find_map(|claim| match claim {
            Claim::Holds(region) => Some(region.range().clone()),
            _ => None,
        });
        let reaches_in = last.filter(|last| last.overlaps(range));
        let rest = match &reaches_in {
            None => Some(range.clone()),
            // What is left of the range behind the region that covers its beginning.
            Some(last) if last.end().is_empty() => None,
            Some(last) => KeyRange::new(last.end().clone(), range.end().clone()).ok(),
        };
        let Some(rest) = rest else { continue };
        let repeated = reaches_in.is_some();
        let mut allowed = limit.saturating_sub(usize::from(repeated));
        if following > 0 {
            allowed = allowed.min(limit - total);
        }
        total += scan(&rest, allowed, &mut found, repeated, &mut claims)?;
    }
    if found.peek().is_some() {
        Err(Misfit::Order)
    } else {
        Ok(claims)
    }
}

/// Takes from `found` what belongs to `range`, with the holes that it passes over in silence.
/// `continued`: the range begins where the last region ends.
fn scan(
    range: &KeyRange,
    limit: usize,
    found: &mut std::iter::Peekable<std::vec::IntoIter<Region>>,
    continued: bool,
    claims: &mut Vec<Claim>,
) -> Result<usize, Misfit> {
    let mut reached = range.start().clone();
    let mut taken = 0;
    while taken < limit {
        let Some(region) = found.next_if(|region| region.range().overlaps(range)) else {
            claims.extend(
                KeyRange::new(reached, range.end().clone())
                    .ok()
                    .map(Claim::Hole),
            );
            return Ok(taken);
        };
        let first = taken == 0 && !continued;
        if region.start() < &reached && !first {
            return Err(Misfit::Order);
        }
        if region.start() > &reached {
            claims.extend(
                KeyRange::new(reached, region.start().clone())
                    .ok()
                    .map(Claim::Hole),
            );
        }
        reached = region.end().clone();
        taken += 1;
        let ends_the_range = region.range().end().is_empty()
            || (!range.end().is_empty() && region.end() >= range.end());
        claims.push(Claim::Holds(region));
        if ends_the_range {
            return Ok(taken);
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests;
