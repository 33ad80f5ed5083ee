//! The order in which a batch is applied.
//!
//! The changes of a batch are applied in the order given, as far as that can be
//! told. Regions in the order of their keys share the way down the tree, and the
//! nodes that the copy of a way needs; so what does not depend on the order is
//! taken out and applied first, sorted.
//!
//! A change is *apart* if it puts a region whose id and range no other change of
//! the batch touches, and the batch names no other entries (each change is a put
//! that expects nothing). Such a change is *settled* if moreover the map does not
//! know the region and nothing there overlaps it, or the map knows it with the
//! same range. What a settled change reads and writes is its id, its range, and
//! the entry that is live there. No other change does anything to these: to
//! displace that entry takes its id or a range that overlaps it. Nor do the other
//! changes read them, for the same reason. So it may be applied before all others
//! and beside other settled ones in any order: every outcome is the same, and so
//! is the map in the end. Whether a change is settled is found out on the way
//! (`transaction.rs`); all others follow in the order given.

use super::batch::{Change, Expect};
use crate::entry::{Entry, EntryPtr, SharedEntry};
use crate::range::KeyRange;

/// Fewer changes than that are not worth sorting.
const FEWEST: usize = 8;

/// The changes of a batch that are apart, by their indices.
pub(super) struct Order {
    /// In the order of their starts.
    pub(super) by_start: Vec<u32>,
    /// In the order of their ids, which come with them.
    pub(super) by_id: Vec<(u64, u32)>,
}

/// A start key to sort by.
struct Start {
    /// Its sixteen bytes after what all starts have in common.
    head: u128,
    index: u32,
}

impl Order {
    /// `None` if the batch is too small, or has changes of other kinds.
    pub(super) fn of(changes: &[Change]) -> Option<Self> {
        if changes.len() < FEWEST || u32::try_from(changes.len()).is_err() {
            return None;
        }
        let mut by_id = Vec::with_capacity(changes.len());
        for (change, index) in changes.iter().zip(0..) {
            by_id.push((plain_put(change)?.id(), index));
        }
        by_id.sort_unstable_by_key(|&(id, _)| id);
        let start_of = |index: usize| {
            plain_put(&changes[index]).map_or(&[][..], |entry| entry.start().as_bytes())
        };
        let mut by_start = sorted_by_start(changes.len(), start_of);

        let mut apart = vec![true; changes.len()];
        for pair in by_id.windows(2) {
            if pair[0].0 == pair[1].0 {
                apart[pair[0].1 as usize] = false;
                apart[pair[1].1 as usize] = false;
            }
        }
        let ranges = by_start
            .iter()
            .filter_map(|&index| Some((index, plain_put(&changes[index as usize])?)))
            .map(|(index, entry)| (index, entry.region().range()));
        for_each_meeting(ranges, |index| apart[index as usize] = false);

        by_start.retain(|&index| apart[index as usize]);
        by_id.retain(|&(_, index)| apart[index as usize]);
        Some(Self { by_start, by_id })
    }
}

/// The entry of a change that puts it and expects nothing.
fn plain_put(change: &Change) -> Option<&Entry> {
    match change {
        Change::Put {
            entry,
            expect: Expect::Any,
        } => Some(entry),
        _ => None,
    }
}

/// The entry of a change that is apart, and a pointer to it.
pub(super) fn newcomer(change: &Change) -> Option<(&SharedEntry, EntryPtr)> {
    match change {
        Change::Put { entry, .. } => Some((entry, EntryPtr::of(entry))),
        Change::Remove { .. } => None,
    }
}

/// Calls `visit` with every range that overlaps another one, at least once. The
/// ranges come in the order of their starts, each with an index.
pub(super) fn for_each_meeting<'r>(
    ranges: impl Iterator<Item = (u32, &'r KeyRange)>,
    mut visit: impl FnMut(u32),
) {
    // The one of those so far that ends last.
    let mut reaching: Option<(u32, &KeyRange)> = None;
    for (index, range) in ranges {
        if let Some((reaching, before)) = reaching
            && before.ends_after(range.start())
        {
            visit(reaching);
            visit(index);
            if !range.ends_after(before.end()) || before.end().is_empty() {
                continue;
            }
        }
        reaching = Some((index, range));
    }
}

/// The indices below `len`, in the order of the starts that `start_of` gives.
pub(super) fn sorted_by_start<'k>(len: usize, start_of: impl Fn(usize) -> &'k [u8]) -> Vec<u32> {
    // The empty key comes first whatever it has in common with others.
    let mut starts = (0..len).map(&start_of).filter(|key| !key.is_empty());
    let sample = starts.next().unwrap_or(&[]);
    let common = starts.fold(sample.len(), |common, key| {
        if key.get(..common) == sample.get(..common) {
            common
        } else {
            let alike = |(left, right): &(&u8, &u8)| left == right;
            sample.iter().zip(key).take_while(alike).count()
        }
    });
    let mut sorted: Vec<Start> = (0..len as u32)
        .map(|index| Start {
            head: head_of(start_of(index as usize).get(common..).unwrap_or(&[])),
            index,
        })
        .collect();
    // By number first, without a look at the keys; those that are equal so far
    // are few unless the keys differ late.
    sorted.sort_unstable_by_key(|start| start.head);
    for alike in sorted.chunk_by_mut(|left, right| left.head == right.head) {
        if alike.len() > 1 {
            alike.sort_unstable_by_key(|start| start_of(start.index as usize));
        }
    }
    sorted.into_iter().map(|start| start.index).collect()
}

/// The first sixteen bytes of `key`, as a number; missing bytes are zeros.
fn head_of(key: &[u8]) -> u128 {
    if let Some(head) = key.first_chunk() {
        return u128::from_be_bytes(*head);
    }
    let mut head = [0; 16];
    head[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(head)
}
