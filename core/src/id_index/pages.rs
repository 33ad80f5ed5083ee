//! Memory for pages, in two sizes.

use std::alloc::Layout;
use std::ptr::NonNull;

use super::node::{layout_for, slots_of};
use crate::slab::Source;
use crate::spare::Spare;

/// Most pages have about sixteen slots; see `node.rs`.
const SMALL: usize = 24;
const LARGE: usize = 64;

/// Free pages.
#[derive(Debug)]
pub(super) struct SparePages {
    small: Spare,
    large: Spare,
}

/// Bytes of so many pages of either size.
pub(super) fn bytes(small_pages: usize, large_pages: usize) -> usize {
    small_pages * small().size() + large_pages * large().size()
}

fn small() -> Layout {
    layout_for(SMALL)
}

fn large() -> Layout {
    layout_for(LARGE)
}

impl SparePages {
    pub(super) fn new() -> Self {
        Self {
            small: Spare::new(Source::heap(small())),
            large: Spare::new(Source::heap(large())),
        }
    }

    /// Bytes of all pages.
    pub(super) fn bytes(&self) -> usize {
        self.small.bytes() + self.large.bytes()
    }

    /// Takes over the pages of `other`.
    pub(super) fn append(&mut self, other: Self) {
        self.small.append(other.small);
        self.large.append(other.large);
    }

    /// Gives all memory back to the allocator.
    pub(super) fn release(&mut self) {
        self.small.release();
        self.large.release();
    }

    /// Memory for a page with this bitmap.
    pub(super) fn take(&mut self, bitmap: u64) -> NonNull<u8> {
        self.class(bitmap).take()
    }

    /// # Safety
    ///
    /// `page` came from [`SparePages::take`] for the same bitmap, nothing in it
    /// needs to be dropped, and it is no longer reachable for anyone.
    pub(super) unsafe fn keep(&mut self, bitmap: u64, page: NonNull<u8>) {
        // SAFETY: by the caller's word, and the same bitmap has the same class.
        unsafe { self.class(bitmap).keep(page) };
    }

    /// Whether the memory of a page with this bitmap has room for another slot,
    /// and would be that of a page with one slot more.
    pub(super) fn has_room(bitmap: u64) -> bool {
        let slots = slots_of(bitmap);
        slots != SMALL && slots < LARGE
    }

    /// Whether a page with this bitmap has the larger size.
    pub(super) const fn is_large(bitmap: u64) -> bool {
        slots_of(bitmap) > SMALL
    }

    fn class(&mut self, bitmap: u64) -> &mut Spare {
        if Self::is_large(bitmap) {
            &mut self.large
        } else {
            &mut self.small
        }
    }
}
