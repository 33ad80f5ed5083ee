//! The normal side of the door: the standard library, at no cost.

pub use std::sync::Arc;

/// Atomics and fences.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Hints to the processor.
pub mod hint {
    pub use std::hint::spin_loop;
}

/// Cells that closures look into, the shape that loom can watch.
pub mod cell {
    /// A [`std::cell::UnsafeCell`] that is reached through closures.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Wraps `data`.
        #[inline]
        pub const fn new(data: T) -> Self {
            Self(std::cell::UnsafeCell::new(data))
        }

        /// Hands out the pointer for reading.
        #[inline]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Hands out the pointer for writing.
        #[inline]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }

        /// Takes the data back.
        #[inline]
        pub fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }
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
