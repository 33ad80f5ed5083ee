//! BatchScanRegions: several ranges at once, from one snapshot.
//!
//! 1. Every range has to start where the one before it ends or later, and must not end before it
//!    starts.
//! 2. A range that starts with the very bytes with which the one before it ends is joined to it;
//!    that takes an end at infinity and a start at the first key for the same place.
//! 3. Each range is scanned with the whole limit. A region that the last range found already is
//!    not repeated. The total is looked at, and cut, only before the next range: the last range
//!    scanned may exceed the limit, by less than the limit.
//! 4. Where holes are forbidden, a hole between two regions of one range is an error, as is one
//!    before the first region, unless the range starts at the first key, and one behind the last,
//!    unless the range has no end or the limit stopped the scan.
//!
//! Two differences from PD, for requests that only ask for the same again and again:
//!
//! - Behind a range without end nothing may follow that is not joined to it; PD's error for ranges
//!   that overlap says so. PD compares with the empty end as with any key, finds that nothing lies
//!   before it, and scans to the end of the map once more for each such range: the answer would be
//!   ranges times regions large. With the rule every region is found once, and one twice if the
//!   last range, after a join with a start at the first key, ends before it starts.
//! - There may be no more than [`MOST_RANGES`] ranges.

use tidegate_core::{EntryRef, Snapshot};

use super::error::{LookupError, Span};
use super::hole::has_hole;
use super::reach::Reach;
use super::scan::{as_scanned, limit, span};
use super::scanned;
use crate::proto::pdpb::{BatchScanRegionsRequest, BatchScanRegionsResponse, KeyRange};
use crate::proto::wire::put_told;
use crate::proto::written::Written;

/// The most ranges of one request: far more than stock clients put into one.
pub(super) const MOST_RANGES: usize = 100_000;

pub(super) fn batch_scan(
    snapshot: &Snapshot<'_>,
    request: &BatchScanRegionsRequest,
    reach: &mut Reach<'_>,
) -> Result<BatchScanRegionsResponse, LookupError> {
    let found = find(snapshot, request, reach)?;
    let mut regions = Vec::with_capacity(found.len());
    for entry in &found {
        let region = scanned(entry, request.need_buckets);
        reach.take(&region, 1)?;
        regions.push(region);
    }
    Ok(BatchScanRegionsResponse {
        header: None,
        regions,
    })
}

/// The same answer, written.
pub(super) fn batch_scan_written(
    snapshot: &Snapshot<'_>,
    request: &BatchScanRegionsRequest,
    reach: &mut Reach<'_>,
) -> Result<Written<BatchScanRegionsResponse>, LookupError> {
    let found = find(snapshot, request, reach)?;
    let mut len = 0;
    for entry in &found {
        let bytes = as_scanned(entry, request.need_buckets).len();
        reach.take_len(|| bytes, 1)?;
        len += bytes + FRAME;
    }
    let mut bytes = Vec::with_capacity(len);
    for entry in &found {
        put_told(2, &as_scanned(entry, request.need_buckets), &mut bytes);
    }
    let ranges = request.ranges.iter();
    let ranges: Vec<_> = ranges
        .map(|range| (&range.start_key[..], &range.end_key[..]))
        .collect();
    let has_hole = has_hole(&ranges, found.iter().map(span), limit(request.limit));
    let a_region = found.first().map_or(0, |entry| entry.region().id());
    let mut written = Written::bytes(bytes, a_region);
    written.has_hole = has_hole;
    Ok(written)
}

/// The tag and the length in front of a region, at most.
const FRAME: usize = 6;

fn find<'s>(
    snapshot: &'s Snapshot<'_>,
    request: &BatchScanRegionsRequest,
    reach: &mut Reach<'_>,
) -> Result<Vec<EntryRef<'s>>, LookupError> {
    check(&request.ranges)?;
    let limit = limit(request.limit);
    let mut found: Vec<EntryRef<'_>> = Vec::new();
    for (start, end) in joined(&request.ranges) {
        if found.len() >= limit {
            found.truncate(limit);
            break;
        }
        let from = found.len();
        scan_range(
            snapshot,
            (start, end),
            limit,
            request.contain_all_key_range,
            reach,
            &mut found,
        )?;
        let repeated = from > 0
            && found
                .get(from)
                .is_some_and(|first| first.region().id() == found[from - 1].region().id());
        if repeated {
            found.remove(from);
        }
    }
    Ok(found)
}

fn check(ranges: &[KeyRange]) -> Result<(), LookupError> {
    if ranges.len() > MOST_RANGES {
        return Err(LookupError::TooManyRanges(ranges.len()));
    }
    let mut before: Option<&KeyRange> = None;
    let mut endless = false;
    for range in ranges {
        if let Some(before) = before {
            endless |= before.end_key.is_empty();
            let is_joined = range.start_key == before.end_key;
            if range.start_key < before.end_key || (endless && !is_joined) {
                return Err(LookupError::RangesOverlap);
            }
        }
        if !range.end_key.is_empty() && range.start_key > range.end_key {
            return Err(LookupError::RangeInverted);
        }
        before = Some(range);
    }
    Ok(())
}

/// The ranges with those joined that touch.
fn joined(ranges: &[KeyRange]) -> Vec<(&[u8], &[u8])> {
    let mut joined: Vec<(&[u8], &[u8])> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some((_, end)) if *end == &range.start_key[..] => *end = &range.end_key,
            _ => joined.push((&range.start_key, &range.end_key)),
        }
    }
    joined
}

/// Appends what one range holds to `found`.
fn scan_range<'s>(
    snapshot: &'s Snapshot<'_>,
    (start, end): (&[u8], &[u8]),
    limit: usize,
    contain_all: bool,
    reach: &mut Reach<'_>,
    found: &mut Vec<EntryRef<'s>>,
) -> Result<(), LookupError> {
    let from = found.len();
    // A range without a region costs a search.
    reach.step()?;
    // The last region seen; at first a nameless one that ends where the range starts.
    let mut last: (&[u8], &[u8]) = (&[], start);
    for entry in snapshot.scan(start, end).take(limit) {
        let region = entry.as_entry().region();
        if contain_all && !last.1.is_empty() && region.start().as_bytes() > last.1 {
            return Err(LookupError::Hole {
                range: Span::new(start, end),
                before: Span::new(last.0, last.1),
                behind: Span::new(region.start(), region.end()),
            });
        }
        last = (region.start(), region.end());
        found.push(entry);
        reach.step()?;
        // One may be a repetition, and be dropped.
        reach.found(found.len() - 1)?;
    }
    let stopped = found.len() - from >= limit;
    if contain_all && !stopped && !end.is_empty() && !last.1.is_empty() && last.1 < end {
        return Err(LookupError::HoleAtTheEnd {
            range: Span::new(start, end),
            last: Span::new(last.0, last.1),
        });
    }
    Ok(())
}
