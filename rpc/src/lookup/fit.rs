//! Whether what somebody else answered can be the answer to what was asked.
//!
//! A member that has just begun to lead, a proxy between the two or a mistake on either side may answer another question
//! than the one that was put. Such an answer is not passed on, and heals nothing.
//!
//! | lookup | an answer fits if |
//! |---|---|
//! | get | its region holds the key |
//! | prev | its region ends at the key or before |
//! | by id | its region has the id |
//! | scan, batch scan | its regions are in order and do not overlap, each has keys of a range that was asked for, and there are no more than the limit allows |
//! | query | there is an element for each key, and each names a region of the answer that fits as above |
//!
//! A scan may begin behind its start and pass over holes, as PD's does, so that only what is there can be looked at. And
//! a region has an id, and ends behind its start.
//!
//! PD resolves a large query in chunks, each from a state of its own. A region that is split in between is in the answer
//! once, as one of the two states has it, and need not hold all keys for which it is named: those few do not fit.

use std::fmt;

use crate::proto::metapb;
use crate::proto::pdpb::{
    BatchScanRegionsRequest, BatchScanRegionsResponse, QueryRegionRequest, QueryRegionResponse,
    RegionResponse, ScanRegionsRequest, ScanRegionsResponse,
};

/// Why an answer does not fit. Says nothing of keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Misfit {
    /// The region at fault, or 0.
    pub(crate) region_id: u64,
    pub(crate) fault: &'static str,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.region_id {
            0 => f.write_str(self.fault),
            id => write!(f, "region {id} {}", self.fault),
        }
    }
}

/// Two keys; an empty end is none.
type Span<'a> = (&'a [u8], &'a [u8]);

fn span(region: &metapb::Region) -> Span<'_> {
    (&region.start_key, &region.end_key)
}

/// Whether a key lies before the end of a range.
fn is_before(key: &[u8], end: &[u8]) -> bool {
    end.is_empty() || key < end
}

fn ensure(fits: bool, region_id: u64, fault: &'static str) -> Result<(), Misfit> {
    if fits {
        Ok(())
    } else {
        Err(Misfit { region_id, fault })
    }
}

/// Whether it can be a region at all.
fn is_region(region: &metapb::Region) -> Result<(), Misfit> {
    ensure(region.id != 0, 0, "a region has no id")?;
    let (start, end) = span(region);
    ensure(is_before(start, end), region.id, "ends before it starts")
}

/// GetRegion.
pub(crate) fn holds(region: &metapb::Region, key: &[u8]) -> Result<(), Misfit> {
    is_region(region)?;
    let (start, end) = span(region);
    let holds = start <= key && is_before(key, end);
    ensure(holds, region.id, "does not hold the key")
}

/// GetPrevRegion.
pub(crate) fn precedes(region: &metapb::Region, key: &[u8]) -> Result<(), Misfit> {
    is_region(region)?;
    let (_, end) = span(region);
    let precedes = !end.is_empty() && end <= key;
    ensure(precedes, region.id, "is not before the key")
}

/// GetRegionByID.
pub(crate) fn has_id(region: &metapb::Region, id: u64) -> Result<(), Misfit> {
    is_region(region)?;
    ensure(region.id == id, region.id, "has another id than was asked")
}

/// Regions of a scan of one range or of several in ascending order; `most` of them at most.
pub(crate) fn in_order<'a>(
    regions: impl IntoIterator<Item = (u64, Span<'a>)>,
    ranges: &[Span<'_>],
    most: Option<usize>,
) -> Result<(), Misfit> {
    // Of ranges behind one without end PD finds everything again.
    let again = ranges
        .split_last()
        .is_some_and(|(_, before)| before.iter().any(|(_, end)| end.is_empty()));
    let mut last: Option<&[u8]> = None;
    // Where the ranges begin that can have keys of this region and of those behind it.
    let mut from = 0;
    for (count, (id, (start, end))) in regions.into_iter().enumerate() {
        ensure(most.is_none_or(|most| count < most), 0, "too many regions")?;
        ensure(id != 0, 0, "a region has no id")?;
        ensure(is_before(start, end), id, "ends before it starts")?;
        let follows = last.is_none_or(|last| !last.is_empty() && last <= start);
        ensure(follows || again, id, "does not follow the one before it")?;
        last = Some(end);
        if again {
            from = 0;
        }
        while ranges
            .get(from)
            .is_some_and(|&(_, behind)| !is_before(start, behind))
        {
            from += 1;
        }
        let is_within = ranges
            .get(from)
            .is_some_and(|&(before, _)| is_before(before, end));
        ensure(is_within, id, "is in none of the ranges")?;
    }
    Ok(())
}

/// A positive limit, as PD reads it.
fn most(limit: i32) -> Option<usize> {
    usize::try_from(limit).ok().filter(|most| *most > 0)
}

/// ScanRegions. Releases that fill only the older pair of lists are taken by that.
pub(crate) fn scan(
    request: &ScanRegionsRequest,
    response: &ScanRegionsResponse,
) -> Result<(), Misfit> {
    let range = [(&request.start_key[..], &request.end_key[..])];
    let older = &response.region_metas;
    in_order(
        older.iter().map(|region| (region.id, span(region))),
        &range,
        most(request.limit),
    )?;
    if response.regions.is_empty() {
        return Ok(());
    }
    let mut regions = Vec::with_capacity(response.regions.len());
    for found in &response.regions {
        let region = found.region.as_ref().ok_or(NO_REGION)?;
        regions.push((region.id, span(region)));
    }
    let ids = older.iter().map(|region| region.id);
    let agree = older.is_empty() || ids.eq(regions.iter().map(|(id, _)| *id));
    ensure(agree, 0, "its two lists are of different regions")?;
    in_order(regions, &range, most(request.limit))
}

const NO_REGION: Misfit = Misfit {
    region_id: 0,
    fault: "an element has no region",
};

/// BatchScanRegions.
pub(crate) fn batch_scan(
    request: &BatchScanRegionsRequest,
    response: &BatchScanRegionsResponse,
) -> Result<(), Misfit> {
    let mut regions = Vec::with_capacity(response.regions.len());
    for found in &response.regions {
        let region = found.region.as_ref().ok_or(NO_REGION)?;
        regions.push((region.id, span(region)));
    }
    let ranges: Vec<Span<'_>> = request
        .ranges
        .iter()
        .map(|range| (&range.start_key[..], &range.end_key[..]))
        .collect();
    // The last range is scanned with the whole limit.
    let most = most(request.limit).map(|limit| limit.saturating_mul(2) - 1);
    in_order(regions, &ranges, most)
}

/// What a query's answer has for one of its items; nothing is an answer.
pub(crate) type Item<'a> = Result<Option<&'a RegionResponse>, Misfit>;

/// The items of a query's answer, in the order of the question.
#[derive(Debug)]
pub(crate) struct Items<'a> {
    pub(crate) keys: Vec<Item<'a>>,
    pub(crate) prev_keys: Vec<Item<'a>>,
    pub(crate) ids: Vec<Item<'a>>,
}

impl<'a> Items<'a> {
    /// All items.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Item<'a>> {
        self.keys.iter().chain(&self.prev_keys).chain(&self.ids)
    }

    /// The first that does not fit.
    pub(crate) fn misfit(&self) -> Option<Misfit> {
        self.each().find_map(|item| item.as_ref().err().copied())
    }
}

/// QueryRegion. An error if no item of the answer can be told from another.
pub(crate) fn query<'a>(
    request: &QueryRegionRequest,
    response: &'a QueryRegionResponse,
) -> Result<Items<'a>, Misfit> {
    let (keys, prev_keys) = (&response.key_id_map, &response.prev_key_id_map);
    let as_many = keys.len() == request.keys.len() && prev_keys.len() == request.prev_keys.len();
    ensure(as_many, 0, "there is not an element for each key")?;
    let found = |id: u64| response.regions_by_id.get(&id);
    let region = |id: u64| {
        let found = found(id).and_then(|found| Some((found, found.region.as_ref()?)));
        found.ok_or(Misfit {
            region_id: id,
            fault: "is named and not there",
        })
    };
    let item = |id: u64, key: &[u8], fits: fn(&metapb::Region, &[u8]) -> Result<(), Misfit>| {
        if id == 0 {
            return Ok(None);
        }
        let (found, region) = region(id)?;
        has_id(region, id)?;
        fits(region, key)?;
        Ok(Some(found))
    };
    let by_id = |id: u64| match found(id).filter(|found| found.region.is_some() && id != 0) {
        None => Ok(None),
        Some(_) => {
            let (found, region) = region(id)?;
            has_id(region, id)?;
            Ok(Some(found))
        }
    };
    let (asked, asked_prev) = (request.keys.iter(), request.prev_keys.iter());
    Ok(Items {
        keys: asked
            .zip(keys)
            .map(|(key, id)| item(*id, key, holds))
            .collect(),
        prev_keys: asked_prev
            .zip(prev_keys)
            .map(|(key, id)| item(*id, key, precedes))
            .collect(),
        ids: request.ids.iter().map(|id| by_id(*id)).collect(),
    })
}

#[cfg(test)]
mod tests;
