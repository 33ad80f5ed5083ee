//! Building a whole tree from regions in order, level by level.
//!
//! Each node is filled once and never split. Nodes of a level hold the same number
//! of keys, give or take one, and leave an eighth of their room for what comes
//! later.

use super::edit::{Means, separator};
use super::node::{Inner, Leaf, NodePtr, Tag};
use super::size::Size;
use super::{CAPACITY, Tree};
use crate::entry::{Entry, EntryPtr};
use crate::key::Key;
use crate::spare::Spare;

/// Keys of a node; an inner node has one child more.
const FILLED: usize = CAPACITY - CAPACITY / 8;

/// Entries are asked for so many places before they are read.
const AHEAD: usize = 12;

/// A node of a level, and what separates it from the one before.
type Child = (Key, NodePtr);

impl Tree {
    /// A tree of `entries`, which are alive, ascend and do not overlap.
    pub(crate) fn build(entries: &[EntryPtr], tag: Tag, means: &mut Means) -> Self {
        let spare = &mut means.spare;
        let mut size = Size::default();
        let mut level = leaves(entries, tag, spare, &mut size);
        while level.len() > 1 {
            level = inner_nodes(level, tag, spare, &mut size);
        }
        Self {
            root: level.pop().map(|(_, node)| node),
            len: entries.len(),
            size,
        }
    }
}

fn leaves(entries: &[EntryPtr], tag: Tag, spare: &mut Spare, size: &mut Size) -> Vec<Child> {
    let mut level = Vec::with_capacity(entries.len().div_ceil(FILLED));
    let mut last: Option<&Entry> = None;
    let mut done = 0;
    for count in shares(entries.len(), FILLED) {
        let mut pointer = Leaf::alloc(tag, spare);
        // SAFETY: just allocated, nobody else knows it.
        let leaf = unsafe { pointer.as_mut() };
        let mut lower = Key::EMPTY;
        for place in 0..count {
            if let Some(ahead) = entries.get(done + place + AHEAD) {
                ahead.prefetch_whole();
            }
            let entry = entries[done + place];
            // SAFETY: alive by the caller's word.
            let region: &Entry = unsafe { entry.as_ref() };
            if let (0, Some(last)) = (place, last) {
                lower = separator(last, region);
            }
            leaf.insert(place, region.start(), entry);
            last = Some(region);
        }
        leaf.sharpen();
        size.leaves += 1;
        done += count;
        level.push((lower, NodePtr::leaf(pointer)));
    }
    level
}

fn inner_nodes(below: Vec<Child>, tag: Tag, spare: &mut Spare, size: &mut Size) -> Vec<Child> {
    let mut level = Vec::with_capacity(below.len().div_ceil(FILLED + 1));
    let count = below.len();
    let mut children = below.into_iter();
    for count in shares(count, FILLED + 1) {
        let Some((lower, first)) = children.next() else {
            break;
        };
        let mut pointer = Inner::alloc(tag, spare, first);
        // SAFETY: just allocated, nobody else knows it.
        let inner = unsafe { pointer.as_mut() };
        for (place, (separator, child)) in children.by_ref().take(count - 1).enumerate() {
            size.add_separator(&separator);
            inner.insert(place, separator, child);
        }
        size.inners += 1;
        level.push((lower, NodePtr::inner(pointer)));
    }
    level
}

/// `total` in as few shares of at most `most` as will do, which differ by one at
/// most.
fn shares(total: usize, most: usize) -> impl Iterator<Item = usize> {
    let count = total.div_ceil(most);
    (0..count).map(move |share| total / count + usize::from(share < total % count))
}

#[cfg(all(test, not(tidegate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_complete() {
        for total in 0..300 {
            let all: Vec<usize> = shares(total, 56).collect();
            assert_eq!(all.iter().sum::<usize>(), total);
            assert_eq!(all.len(), total.div_ceil(56));
            assert!(all.iter().all(|&share| share <= 56 && share + 1 >= all[0]));
        }
    }
}
