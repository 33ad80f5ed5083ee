//! Memory that readers may still hold: a small facade over `crossbeam-epoch`.
//!
//! A reader [`pin`]s before it loads a shared pointer and keeps the [`Guard`] for as long as it
//! uses what it found. A writer unlinks, then hands the unlinked memory to [`Guard::defer`] or
//! [`Guard::retire_box`]; it is freed once every guard that could have seen it is gone.
//!
//! Guards of the whole process share one collector, so a guard that is held for long delays the
//! freeing of everything. A guard must never be held across an `.await`; it is not `Send`, so
//! the compiler refuses that on a multi-threaded runtime.
//!
//! Deferred work waits in a bag of the thread that deferred it, until the bag is full or the
//! thread calls [`Guard::flush`]. A writer that may fall silent flushes after its last change.
//!
//! Under `--cfg tidegate_loom` this module is replaced by `reclaim_model.rs`, which has the same
//! items.

use crossbeam_epoch as epoch;

/// Keeps alive what the thread could reach when it pinned. Not `Send`.
#[derive(Debug)]
#[must_use = "memory is protected only while the guard lives"]
pub struct Guard {
    inner: epoch::Guard,
}

/// Pins the current thread. Nests; costs a thread-local write and one fence.
#[inline]
pub fn pin() -> Guard {
    Guard {
        inner: epoch::pin(),
    }
}

impl Guard {
    /// Runs `free` once no guard that exists now is left. Small closures (three words) are kept
    /// without an allocation, so hand over a bag of many objects rather than each object.
    ///
    /// # Safety
    ///
    /// Whatever `free` frees or reuses is already unlinked: no thread that pins after this call
    /// can reach it, and nobody else will free it. `free` may run on another thread at any later
    /// time, so what it captures must be safe to send and to use until the process ends.
    #[inline]
    pub unsafe fn defer<F>(&self, free: F)
    where
        F: FnOnce() + Send + 'static,
    {
        // SAFETY: the caller promises that `free` touches only unlinked memory that is its own;
        // `Send + 'static` covers running it later and elsewhere.
        unsafe { self.inner.defer_unchecked(free) }
    }

    /// Frees the box behind `pointer` once no guard that exists now is left.
    ///
    /// # Safety
    ///
    /// `pointer` came from [`Box::into_raw`], is already unlinked (no thread that pins after this
    /// call can reach it), and nobody else will free it.
    #[inline]
    pub unsafe fn retire_box<T: Send + 'static>(&self, pointer: *mut T) {
        let retired = Retired(pointer);
        // SAFETY: as this function's caller promises; the closure does nothing but free the box.
        unsafe { self.defer(move || retired.free()) }
    }

    /// Hands this thread's bag of deferred work to the collector and helps to collect.
    pub fn flush(&self) {
        self.inner.flush();
    }
}

/// A box on its way out. A raw pointer, since readers may still look into it.
struct Retired<T>(*mut T);

// SAFETY: a `Retired` is the only owner of the box, whose content may be dropped by any thread.
unsafe impl<T: Send> Send for Retired<T> {}

impl<T> Retired<T> {
    fn free(self) {
        // SAFETY: `retire_box`'s caller gave up the box, and the collector calls this only once no
        // guard can reach it.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn retired_memory_outlives_the_guards_and_no_more() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let reader = pin();
        let pointer = Box::into_raw(Box::new(Counted(Arc::clone(&dropped))));
        {
            let writer = pin();
            // SAFETY: the box was never linked anywhere.
            unsafe { writer.retire_box(pointer) };
            writer.flush();
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 0, "freed under a guard");
        drop(reader);
        // Other tests of this process pin for moments only, so the epoch moves on.
        for _ in 0..1_000_000 {
            if dropped.load(Ordering::Relaxed) == 1 {
                return;
            }
            pin().flush();
            std::thread::yield_now();
        }
        panic!("never freed");
    }
}
