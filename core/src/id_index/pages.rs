//! Memory for pages, in two sizes.

use std::alloc::Layout;
use std::ptr::NonNull;

use super::node::{layout_for, slots_of};
use crate::pool::{Pool, Spare, kept};
use crate::slab::Source;

/// Most pages have about sixteen slots; see `node.rs`.
const SMALL: usize = 24;
const LARGE: usize = 64;

/// Free pages of a map.
#[derive(Debug)]
pub(crate) struct PagePools {
    small: Pool,
    large: Pool,
}

/// Free pages of one edit, or on their way into the pools.
#[derive(Debug)]
pub(crate) struct SparePages {
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

impl Default for PagePools {
    fn default() -> Self {
        // 1.8 MiB and 0.5 MiB.
        Self {
            small: Pool::new(Source::heap(small()), kept(8192)),
            large: Pool::new(Source::heap(large()), kept(1024)),
        }
    }
}

impl PagePools {
    /// Takes all that is there.
    pub(crate) fn take(&self) -> SparePages {
        SparePages {
            small: self.small.take(),
            large: self.large.take(),
        }
    }

    /// Adds what is left of `spare`, or frees it if there is enough.
    pub(crate) fn give(&self, spare: SparePages) {
        self.small.give(spare.small);
        self.large.give(spare.large);
    }
}

impl SparePages {
    pub(crate) fn new() -> Self {
        Self {
            small: Spare::new(Source::heap(small())),
            large: Spare::new(Source::heap(large())),
        }
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
