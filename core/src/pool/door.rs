//! A pool in the hands of a model, which cannot reach the crate's own.

use std::alloc::Layout;
use std::ptr::NonNull;

use super::{Pool, Spare};
use crate::slab::Source;

/// A pool of blocks that are large enough for a link.
#[derive(Debug)]
pub struct Blocks(Pool);

/// Blocks on their way, see [`Spare`].
#[derive(Debug)]
pub struct Taken(Spare);

impl Blocks {
    /// Keeps about so many blocks.
    #[must_use]
    pub fn new(kept: usize) -> Self {
        Self(Pool::new(Source::heap(Layout::new::<[u64; 16]>()), kept))
    }

    /// All that is there.
    #[must_use]
    pub fn take(&self) -> Taken {
        Taken(self.0.take())
    }

    /// None, for blocks like those in here.
    #[must_use]
    pub fn none(&self) -> Taken {
        Taken(self.0.spare())
    }

    /// Adds what is left.
    pub fn give(&self, taken: Taken) {
        self.0.give(taken.0);
    }
}

impl Taken {
    /// A block, as its address.
    pub fn block(&mut self) -> usize {
        self.0.take().as_ptr() as usize
    }

    /// Keeps a block that [`block`](Self::block) has given out, and the caller has not kept since.
    pub fn keep(&mut self, block: usize) {
        let block = NonNull::new(block as *mut u8);
        let block = block.unwrap_or_else(|| unreachable!("blocks are not null"));
        // SAFETY: by the caller's word: free memory of this layout, with one owner.
        unsafe { self.0.keep(block) };
    }
}
