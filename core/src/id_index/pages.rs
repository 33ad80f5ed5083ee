//! Memory for pages, in a few sizes.

use std::array;
use std::ptr::NonNull;

use super::node::{layout_for, slots_of};
use crate::slab::{Global, Slab, Source};
use crate::spare::Spare;

/// How many slots a page of each class has room for: what fills one line, two, and a
/// whole page. PD gives a region and its three peers an id each, so that most pages
/// have up to sixteen regions, and fewer once peers have moved.
const CLASSES: [usize; 3] = [10, 26, 64];

/// Memory for pages of a class.
fn memory(class: usize) -> Source {
    static PAGES: [Global; CLASSES.len()] = [
        Global::new(|| Slab::in_arena(layout_for(CLASSES[0]))),
        Global::new(|| Slab::in_arena(layout_for(CLASSES[1]))),
        Global::new(|| Slab::in_arena(layout_for(CLASSES[2]))),
    ];
    Source::slab(&PAGES[class], layout_for(CLASSES[class]))
}

/// Free pages.
#[derive(Debug)]
pub(crate) struct SparePages {
    classes: [Spare; CLASSES.len()],
}

/// How many pages of each class there are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Census([usize; CLASSES.len()]);

impl Census {
    /// Pages of all classes.
    pub(super) fn pages(&self) -> usize {
        self.0.iter().sum()
    }

    /// Bytes of all pages.
    pub(super) fn bytes(&self) -> usize {
        let classes = self.0.iter().zip(CLASSES);
        classes
            .map(|(pages, slots)| pages * layout_for(slots).size())
            .sum()
    }

    /// Notes a page with this bitmap.
    pub(super) fn add(&mut self, bitmap: u64) {
        self.0[class_of(slots_of(bitmap))] += 1;
    }

    /// Notes that a page with this bitmap is gone.
    pub(super) fn remove(&mut self, bitmap: u64) {
        self.0[class_of(slots_of(bitmap))] -= 1;
    }
}

/// The class of a page with so many slots.
const fn class_of(slots: usize) -> usize {
    (slots > CLASSES[0]) as usize + (slots > CLASSES[1]) as usize
}

impl SparePages {
    pub(super) fn new() -> Self {
        Self {
            classes: array::from_fn(|class| Spare::new(memory(class))),
        }
    }

    /// Bytes of all pages.
    pub(super) fn bytes(&self) -> usize {
        self.classes.iter().map(Spare::bytes).sum()
    }

    /// Takes over the pages of `other`.
    pub(super) fn append(&mut self, other: Self) {
        for (own, others) in self.classes.iter_mut().zip(other.classes) {
            own.append(others);
        }
    }

    /// Gives all memory back to the allocator.
    pub(super) fn release(&mut self) {
        self.classes.iter_mut().for_each(Spare::release);
    }

    /// Memory for a page with so many slots.
    #[inline]
    pub(super) fn take(&mut self, slots: usize) -> NonNull<u8> {
        self.classes[class_of(slots)].take()
    }

    /// # Safety
    ///
    /// `page` came from [`SparePages::take`] for as many slots, or of the same class,
    /// nothing in it needs to be dropped, and it is no longer reachable for anyone.
    #[inline]
    pub(super) unsafe fn keep(&mut self, slots: usize, page: NonNull<u8>) {
        // SAFETY: by the caller's word.
        unsafe { self.classes[class_of(slots)].keep(page) };
    }

    /// Whether the memory of a page with this bitmap has room for another slot,
    /// and would be that of a page with one slot more.
    pub(super) fn has_room(bitmap: u64) -> bool {
        !CLASSES.contains(&slots_of(bitmap))
    }
}
