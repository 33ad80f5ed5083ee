//! The way of one id through an index, remembered for a change at its end; see
//! `tree/trail.rs`.

use super::edit::Edit;
use super::node::{PagePtr, Slot};
use super::{BITS, bit_of, greatest_id};
use crate::entry::EntryPtr;

/// Levels of the highest index.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;

/// The way to the page that points to the entry of a region. Valid for the index in
/// which it was found.
pub(crate) struct Trail {
    /// From the root down, with which slot was taken.
    pages: [Option<PagePtr>; LEVELS],
    places: [u8; LEVELS],
    depth: usize,
    id: u64,
}

impl Edit {
    /// Walks to the lowest page of a region, and asks for it. `None` if there is no
    /// such page.
    pub(crate) fn trail(&self, id: u64) -> Option<Trail> {
        let index = self.index();
        if id > greatest_id(index.levels) {
            return None;
        }
        let mut page = index.root?;
        let mut trail = Trail {
            pages: [None; LEVELS],
            places: [0; LEVELS],
            depth: 0,
            id,
        };
        for level in (1..index.levels).rev() {
            // SAFETY: in the index, hence alive; nothing changes it meanwhile.
            let place = unsafe { page.place(bit_of(id, level)) }?;
            trail.push(page, place);
            // SAFETY: as above, and the page has this place.
            let slot = unsafe { page.slot_at(place) };
            // SAFETY: above the lowest level slots are pages, alive like this one.
            page = unsafe { slot.page() };
        }
        page.prefetch();
        trail.push(page, 0);
        Some(trail)
    }

    /// The entry at the end of a trail, which was found in this index as it is now.
    pub(crate) fn entry_at(&self, trail: &mut Trail) -> Option<EntryPtr> {
        let last = trail.depth - 1;
        let page = trail.pages[last]?;
        // SAFETY: in the index, hence alive; nothing changes it meanwhile.
        let place = unsafe { page.place(bit_of(trail.id, 0)) }?;
        trail.places[last] = place as u8;
        // SAFETY: as above, and the page has this place.
        let slot = unsafe { page.slot_at(place) };
        // SAFETY: on the lowest level slots are entries, alive like the page.
        Some(unsafe { slot.entry() })
    }

    /// Sets the entry at the end of a trail, which was found in this index as it is now,
    /// and at which there is one.
    pub(crate) fn replace_along(&mut self, trail: &Trail, entry: EntryPtr) {
        let mut above: Option<(PagePtr, usize)> = None;
        let steps = trail.pages.iter().zip(trail.places).take(trail.depth);
        for (page, place) in steps {
            let Some(page) = *page else {
                return;
            };
            let page = self.own_page(page);
            match above {
                // SAFETY: the edit's own page, which has this place.
                Some((above, at)) => unsafe { above.set_slot_at(at, Slot::of_page(page)) },
                None => self.set_root(page),
            }
            above = Some((page, usize::from(place)));
        }
        if let Some((lowest, at)) = above {
            // SAFETY: as above.
            unsafe { lowest.set_slot_at(at, Slot::of_entry(entry)) };
        }
    }
}

impl Trail {
    fn push(&mut self, page: PagePtr, place: usize) {
        self.pages[self.depth] = Some(page);
        // Pages have 64 slots.
        self.places[self.depth] = place as u8;
        self.depth += 1;
    }
}
