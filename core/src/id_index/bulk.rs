//! Building a whole index from regions in the order of their ids, level by level.

use super::node::{PagePtr, Slot};
use super::pages::SparePages;
use super::{BITS, IdIndex, bit_of};
use crate::entry::EntryPtr;
use crate::tree::Tag;

impl IdIndex {
    /// An index of the given entries, whose ids ascend.
    pub(crate) fn build(
        entries: impl Iterator<Item = (u64, EntryPtr)>,
        tag: Tag,
        spare: &mut SparePages,
    ) -> Self {
        let slots = entries.map(|(id, entry)| (id, Slot { entry }));
        let mut level = level_above(slots, tag, spare);
        let (mut levels, mut pages) = (1, level.len());
        loop {
            match level[..] {
                [] => return Self::default(),
                // A single page that begins with id 0 needs none above it.
                [(0, root)] => {
                    return Self {
                        root: Some(root),
                        levels,
                        pages,
                    };
                }
                _ => {}
            }
            let slots = level.into_iter().map(|(at, page)| (at, Slot { page }));
            level = level_above(slots, tag, spare);
            levels += 1;
            pages += level.len();
        }
    }
}

/// The pages that hold `slots`, which come with their numbers on their level, in
/// ascending order; and the pages' own numbers.
fn level_above(
    slots: impl Iterator<Item = (u64, Slot)>,
    tag: Tag,
    spare: &mut SparePages,
) -> Vec<(u64, PagePtr)> {
    let mut pages = Vec::new();
    let mut page: Vec<Slot> = Vec::with_capacity(1 << BITS);
    let (mut number, mut bitmap) = (0, 0);
    let mut finish = |number, bitmap, page: &mut Vec<Slot>| {
        if bitmap != 0 {
            pages.push((number, PagePtr::alloc(tag, spare, bitmap, [page])));
            page.clear();
        }
    };
    for (at, slot) in slots {
        if at >> BITS != number {
            finish(number, bitmap, &mut page);
            (number, bitmap) = (at >> BITS, 0);
        }
        bitmap |= 1 << bit_of(at, 0);
        page.push(slot);
    }
    finish(number, bitmap, &mut page);
    pages
}
