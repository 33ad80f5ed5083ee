//! A slab in the hands of a model, which cannot reach the crate's own.

use std::alloc::Layout;
use std::ptr::NonNull;

use super::Slab;
use super::numbers::{COOLED, Numbers};

/// A slab whose chunks have few slots.
#[derive(Debug)]
pub struct Slots(Slab);

impl Default for Slots {
    fn default() -> Self {
        Self(Slab::with_chunks_of(1024, Layout::new::<[u64; 25]>()))
    }
}

impl Slots {
    /// Slots of a chunk.
    #[must_use]
    pub fn of_a_chunk(&self) -> usize {
        self.0.slots
    }

    /// Chunks that there are.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.0.chunks()
    }

    /// A slot, as its address.
    #[must_use]
    pub fn take(&self) -> usize {
        self.0.alloc().as_ptr() as usize
    }

    /// Owns the chunk that is in its place, and gives it up, as a thread does that finds another
    /// chunk in the place.
    pub fn give_up(&self) {
        if let Some(chunk) = Slab::own(&self.0.owned[0]) {
            // SAFETY: alive: owned.
            unsafe { chunk.as_ref() }.owner.refill();
            // SAFETY: owned, and used no more.
            unsafe { self.0.disown(chunk) };
        }
    }

    /// Frees a slot that [`take`](Self::take) has given out, and the caller has not freed since.
    pub fn free(&self, slot: usize) {
        let slot = NonNull::new(slot as *mut u8);
        let slot = slot.unwrap_or_else(|| unreachable!("slots are not null"));
        // SAFETY: by the caller's word: a slot of this slab, with one owner.
        unsafe { self.0.free(slot) };
    }
}

/// Chunks of an arena, without their memory. The first is taken unless somebody has it.
#[derive(Debug)]
pub struct Chunks(Numbers);

impl Default for Chunks {
    fn default() -> Self {
        Self(Numbers::new(1 + COOLED))
    }
}

impl Chunks {
    /// A chunk that is the caller's own, as its number.
    #[must_use]
    pub fn take(&self) -> Option<usize> {
        self.0.take().map(|taken| taken.number)
    }

    /// Gives back a chunk that [`take`](Self::take) has given out.
    pub fn give(&self, number: usize) {
        self.0.give(number, 0);
    }

    /// Calls `cool` with a chunk that nobody has wanted for long, if there is one.
    pub fn cool_old(&self, cool: impl FnMut(usize) -> bool) {
        self.0.cool_old(u32::MAX >> 2, cool);
    }
}
