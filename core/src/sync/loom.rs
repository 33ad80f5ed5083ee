//! The modelled side of the door: loom's instrumented types under the same paths.

pub use loom::sync::Arc;

/// Atomics and fences.
pub mod atomic {
    pub use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// A sign of life inside shared memory: filled in by its maker, read by followers of the pointer,
/// written once more when the memory is freed. Loom reports any two of these that are not
/// ordered.
#[derive(Debug)]
pub struct Canary(loom::cell::UnsafeCell<()>);

impl Canary {
    /// A living canary; made where the memory is filled in.
    #[must_use]
    pub fn new() -> Self {
        let cell = loom::cell::UnsafeCell::new(());
        cell.with_mut(|_| ());
        Self(cell)
    }

    /// Called by a reader that has followed the pointer.
    pub fn check(&self) {
        self.0.with(|_| ());
    }

    /// Called by a writer who fills the memory in anew, with every earlier reader done.
    pub fn refill(&self) {
        self.0.with_mut(|_| ());
    }
}

impl Default for Canary {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.with_mut(|_| ());
    }
}
