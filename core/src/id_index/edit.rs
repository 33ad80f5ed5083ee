//! Changing an index without changing what others read; see `tree/edit.rs`,
//! whose rules hold here too.

use super::node::{PagePtr, Slot, rank};
use super::pages::SparePages;
use super::{IdIndex, bit_of, greatest_id};
use crate::entry::EntryPtr;
use crate::tree::Tag;

/// An index under change.
pub(crate) struct Edit {
    tag: Tag,
    index: IdIndex,
    means: Means,
}

/// What an edit works with; used again by later ones.
#[derive(Debug)]
pub(crate) struct Means {
    /// Published pages that are no longer in the index.
    retired: Vec<PagePtr>,
    /// Memory for new pages.
    pub(super) spare: SparePages,
}

impl Edit {
    /// Starts from `index`, all of which stays alive while the edit lasts. No
    /// page of `index` may bear `tag`.
    pub(crate) fn new(index: IdIndex, tag: Tag, means: Means) -> Self {
        Self { tag, index, means }
    }

    /// The entry of a region.
    pub(crate) fn get(&self, id: u64) -> Option<EntryPtr> {
        // SAFETY: pages of this edit change through `&mut self` only; all others
        // are alive by the word of `new`'s caller.
        unsafe { self.index.get(id) }
    }

    /// Asks for the page that points to the entry of a region.
    pub(crate) fn prefetch(&self, id: u64) {
        // SAFETY: as in `get`.
        unsafe { self.index.prefetch(id) };
    }

    /// Sets the entry of a region.
    pub(crate) fn set(&mut self, id: u64, entry: EntryPtr) {
        while id > greatest_id(self.index.levels) {
            self.add_level();
        }
        let top = self.index.levels - 1;
        let root = match self.index.root {
            Some(root) => self.set_below(root, top, id, entry),
            None => self.new_branch(top, id, entry),
        };
        self.index.root = Some(root);
    }

    /// Removes a region, if it is there.
    pub(crate) fn remove(&mut self, id: u64) {
        if self.get(id).is_none() {
            return;
        }
        let Some(root) = self.index.root else {
            return;
        };
        self.index.root = self.remove_below(root, self.index.levels - 1, id);
        self.drop_empty_levels();
    }

    pub(super) fn set_root(&mut self, root: PagePtr) {
        self.index.root = Some(root);
    }

    /// The index as it is now, for a root record.
    pub(crate) fn index(&self) -> IdIndex {
        self.index
    }

    /// Ends the edit, whose index has been published. The means hold what it has
    /// replaced, to be freed by [`Means::free_retired`].
    pub(crate) fn publish(self) -> Means {
        self.means
    }

    /// Frees all that the edit has made; returns the means.
    pub(crate) fn abandon(mut self) -> Means {
        if let Some(root) = self.index.root {
            self.free_own(root, self.index.levels - 1);
        }
        self.means.retired.clear();
        self.means
    }

    fn free_own(&mut self, page: PagePtr, level: u32) {
        // SAFETY: in the index, hence alive.
        if unsafe { page.tag() } != self.tag {
            return;
        }
        if level > 0 {
            // SAFETY: in the index, hence alive; nothing changes it meanwhile.
            for slot in unsafe { page.slots() } {
                // SAFETY: above the lowest level slots are pages.
                self.free_own(unsafe { slot.page() }, level - 1);
            }
        }
        // SAFETY: made by this edit, seen by nobody else, visited once.
        unsafe { page.free(&mut self.means.spare) };
    }

    fn set_below(&mut self, page: PagePtr, level: u32, id: u64, entry: EntryPtr) -> PagePtr {
        let bit = bit_of(id, level);
        // SAFETY: in the index, hence alive.
        let old = unsafe { page.slot(bit) };
        let new = match old {
            _ if level == 0 => Slot::of_entry(entry),
            Some(old) => {
                // SAFETY: above the lowest level slots are pages.
                let below = unsafe { old.page() };
                let page = self.set_below(below, level - 1, id, entry);
                Slot::of_page(page)
            }
            None => {
                let page = self.new_branch(level - 1, id, entry);
                Slot::of_page(page)
            }
        };
        if old.is_some() {
            return self.point(page, bit, new);
        }
        // SAFETY: in the index, hence alive.
        let bitmap = unsafe { page.bitmap() };
        // SAFETY: as above.
        let is_own = unsafe { page.tag() } == self.tag;
        if is_own && SparePages::has_room(bitmap) {
            // SAFETY: the edit's own page, the bit is not set, and its memory has
            // room for another slot.
            unsafe { page.add_slot(bit, new) };
            return page;
        }
        self.replace_page(page, bitmap | 1 << bit, bit, Some(new))
    }

    fn remove_below(&mut self, page: PagePtr, level: u32, id: u64) -> Option<PagePtr> {
        let bit = bit_of(id, level);
        // SAFETY: in the index, hence alive.
        let old = unsafe { page.slot(bit) }?;
        if level > 0 {
            // SAFETY: above the lowest level slots are pages.
            let below = unsafe { old.page() };
            if let Some(page_below) = self.remove_below(below, level - 1, id) {
                return Some(self.point(page, bit, Slot::of_page(page_below)));
            }
        }
        // SAFETY: in the index, hence alive.
        let left = unsafe { page.bitmap() } & !(1 << bit);
        if left == 0 {
            self.drop_page(page);
            return None;
        }
        Some(self.replace_page(page, left, bit, None))
    }

    /// Changes the slot of a bit that is set: in place, or in a copy.
    fn point(&mut self, page: PagePtr, bit: u32, slot: Slot) -> PagePtr {
        let page = self.own_page(page);
        // SAFETY: the edit's own page, and the bit is set.
        unsafe { page.set_slot(bit, slot) };
        page
    }

    /// The page itself, or a copy that is the edit's own.
    pub(super) fn own_page(&mut self, page: PagePtr) -> PagePtr {
        // SAFETY: in the index, hence alive.
        if unsafe { page.tag() } == self.tag {
            return page;
        }
        // SAFETY: as above.
        let copy = unsafe { page.copy(self.tag, &mut self.means.spare) };
        self.means.retired.push(page);
        copy
    }

    /// A page with the bits of `bitmap` in the place of `page`: `slot` for `bit`,
    /// the slots of `page` for all others.
    fn replace_page(
        &mut self,
        page: PagePtr,
        bitmap: u64,
        bit: u32,
        slot: Option<Slot>,
    ) -> PagePtr {
        // SAFETY: in the index, hence alive; dropped only below.
        let old_bits = unsafe { page.bitmap() };
        // SAFETY: as above.
        let old_slots = unsafe { page.slots() };
        let below = rank(old_bits, bit);
        let above = below + usize::from(old_bits & 1 << bit != 0);
        let slots = [&old_slots[..below], slot.as_slice(), &old_slots[above..]];
        let replacement = PagePtr::alloc(self.tag, &mut self.means.spare, bitmap, slots);
        self.index.census.add(bitmap);
        self.drop_page(page);
        replacement
    }

    /// Pages from `level` down to the entry of `id`, and nothing else.
    fn new_branch(&mut self, level: u32, id: u64, entry: EntryPtr) -> PagePtr {
        let mut slot = Slot::of_entry(entry);
        let mut page = None;
        for level in 0..=level {
            let bitmap = 1 << bit_of(id, level);
            let made = PagePtr::alloc(self.tag, &mut self.means.spare, bitmap, [&[slot]]);
            self.index.census.add(bitmap);
            slot = Slot::of_page(made);
            page = Some(made);
        }
        match page {
            Some(page) => page,
            None => unreachable!("a branch has at least its lowest page"),
        }
    }

    fn add_level(&mut self) {
        self.index.levels += 1;
        if let Some(root) = self.index.root {
            let slot = Slot::of_page(root);
            self.index.root = Some(PagePtr::alloc(
                self.tag,
                &mut self.means.spare,
                1,
                [&[slot]],
            ));
            self.index.census.add(1);
        }
    }

    fn drop_empty_levels(&mut self) {
        let Some(mut root) = self.index.root else {
            self.index.levels = 0;
            return;
        };
        // SAFETY: in the index, hence alive.
        while self.index.levels > 1 && unsafe { root.bitmap() } == 1 {
            // SAFETY: as above.
            let Some(slot) = (unsafe { root.slot(0) }) else {
                return;
            };
            self.drop_page(root);
            // SAFETY: above the lowest level slots are pages.
            root = unsafe { slot.page() };
            self.index.root = Some(root);
            self.index.levels -= 1;
        }
    }

    fn drop_page(&mut self, page: PagePtr) {
        // SAFETY: it has just left the index, and is freed only below or later.
        self.index.census.remove(unsafe { page.bitmap() });
        // SAFETY: as above.
        if unsafe { page.tag() } == self.tag {
            // SAFETY: made by this edit, seen by nobody else, in one place only.
            unsafe { page.free(&mut self.means.spare) };
        } else {
            self.means.retired.push(page);
        }
    }
}

impl Means {
    /// None.
    pub(crate) fn new() -> Self {
        Self {
            retired: Vec::new(),
            spare: SparePages::new(),
        }
    }

    /// How many pages have been replaced.
    pub(crate) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Frees what has been replaced, into the free memory.
    ///
    /// # Safety
    ///
    /// The edit was published, and no reader of an earlier index is left.
    pub(crate) unsafe fn free_retired(&mut self) {
        for page in self.retired.drain(..) {
            // SAFETY: by the caller's word; each page was retired once.
            unsafe { page.free(&mut self.spare) };
        }
    }

    /// Bytes of the free memory.
    pub(crate) fn spare_bytes(&self) -> usize {
        self.spare.bytes()
    }

    /// Takes over the free memory of `other`.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.spare.append(other.spare);
    }

    /// Gives free memory back, and that of a list longer than `kept`.
    pub(crate) fn release(&mut self, kept: usize) {
        self.spare.release();
        self.retired.shrink_to(kept);
    }
}
