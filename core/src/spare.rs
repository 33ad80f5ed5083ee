//! Memory of freed nodes and pages, for the next edit.
//!
//! Each change of the map frees as many nodes as it makes, of few sizes, on
//! whatever thread the reclaimer runs. General allocators pay dearly for that
//! pattern (more than half of the cost of a batch at a million regions), so the
//! memory goes on in lists, one for each size, from what has been replaced to what
//! replaces the next (`map/bag.rs`).

use std::ptr::{NonNull, null_mut};

use crate::prefetch::prefetch;
use crate::slab::Source;
use crate::stack::Link;

/// Free blocks of one size, which belong to whoever has the list.
#[derive(Debug)]
pub(crate) struct Spare {
    source: Source,
    first: *mut Link,
    /// Not looked at while the list is empty.
    last: *mut Link,
    len: usize,
}

// SAFETY: free memory with a single owner may be sent anywhere.
unsafe impl Send for Spare {}

impl Spare {
    /// No blocks, of the size that `source` gives.
    pub(crate) fn new(source: Source) -> Self {
        let layout = source.layout();
        assert!(layout.size() >= size_of::<Link>() && layout.align() >= align_of::<Link>());
        Self {
            source,
            first: null_mut(),
            last: null_mut(),
            len: 0,
        }
    }

    /// Bytes of all blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.len * self.source.layout().size()
    }

    /// A block, uninitialised.
    #[inline]
    pub(crate) fn take(&mut self) -> NonNull<u8> {
        self.pop().unwrap_or_else(|| self.source.alloc())
    }

    /// Keeps a block.
    ///
    /// # Safety
    ///
    /// `block` came from [`Spare::take`] of the same source, nothing in it
    /// needs to be dropped, and it is no longer reachable for anyone.
    #[inline]
    pub(crate) unsafe fn keep(&mut self, block: NonNull<u8>) {
        let free = block.cast::<Link>().as_ptr();
        // SAFETY: the caller's own, and large enough for a link.
        unsafe { free.write(Link::before(self.first)) };
        if self.first.is_null() {
            self.last = free;
        }
        self.first = free;
        self.len += 1;
    }

    /// Takes over the blocks of `other`, which has the same source.
    pub(crate) fn append(&mut self, mut other: Self) {
        debug_assert_eq!(self.source.layout(), other.source.layout());
        let Some(mut last) = NonNull::new(other.last).filter(|_| !other.first.is_null()) else {
            return;
        };
        // SAFETY: the last block of a list that this call owns.
        unsafe { last.as_mut() }.relink(self.first);
        if self.first.is_null() {
            self.last = other.last;
        }
        self.first = std::mem::replace(&mut other.first, null_mut());
        self.len += std::mem::take(&mut other.len);
    }

    /// Gives all memory back to where it came from.
    pub(crate) fn release(&mut self) {
        while let Some(memory) = self.pop() {
            // SAFETY: from `take`, and out of the list now.
            unsafe { self.source.dealloc(memory) };
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        let free = NonNull::new(self.first)?;
        // SAFETY: what is in the list is free memory that this list owns.
        let link = unsafe { free.read() };
        self.first = link.next();
        // Written to soon, at the latest to link on from it.
        prefetch(self.first, self.source.layout().size());
        self.len -= 1;
        Some(free.cast())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.release();
    }
}
