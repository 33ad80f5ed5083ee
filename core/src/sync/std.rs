//! The normal side of the door: the standard library, at no cost.

pub use std::sync::Arc;

/// Atomics and fences.
#[cfg(not(test))]
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// A sign of life inside shared memory. Free of cost here; under loom it notices a reader that
/// was not synchronised with the publication, and a reader of freed memory.
#[derive(Debug, Default)]
pub struct Canary(());

impl Canary {
    /// A living canary; made where the memory is filled in.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }

    /// Called by a reader that has followed the pointer.
    #[inline]
    pub const fn check(&self) {}

    /// Called by a writer who fills the memory in anew, with every earlier reader done.
    #[inline]
    pub const fn refill(&self) {}
}
