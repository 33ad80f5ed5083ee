//! Building a whole index from regions in the order of their ids, level by level.

use super::node::{PagePtr, Slot};
use super::pages::SparePages;
use super::{BITS, IdIndex, Means, bit_of};
use crate::entry::EntryPtr;
use crate::tree::Tag;

impl IdIndex {
    /// An index of the given entries, whose ids ascend.
    pub(crate) fn build(
        entries: impl Iterator<Item = (u64, EntryPtr)>,
        tag: Tag,
        means: &mut Means,
    ) -> Self {
        let spare = &mut means.spare;
        let slots = entries.map(|(id, entry)| (id, Slot::of_entry(entry)));
        let mut index = Self::default();
        let mut level = index.level_above(slots, tag, spare);
        loop {
            match level[..] {
                [] => return index,
                // A single page that begins with id 0 needs none above it.
                [(0, root)] => {
                    index.root = Some(root);
                    return index;
                }
                _ => {}
            }
            let slots = level
                .into_iter()
                .map(|(at, page)| (at, Slot::of_page(page)));
            level = index.level_above(slots, tag, spare);
        }
    }

    /// Adds a level: the pages that hold `slots`, which come in ascending order of
    /// their numbers on the level below. Returns these pages with their own.
    fn level_above(
        &mut self,
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
                self.census.add(bitmap);
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
        if !pages.is_empty() {
            self.levels += 1;
        }
        pages
    }
}
