//! Loom's stand-in for `reclaim.rs`: the last guard out frees the bag.
//!
//! It keeps models small (one counter instead of an epoch scheme) and makes mistakes visible: as
//! soon as no guard is left, retired memory is really dropped, and a [`Canary`](super::Canary) in
//! it reports a reader that was not protected.
//!
//! What the stand-in promises is what the real reclaimer promises, and little more:
//! - a guard that ends happens before the freeing of what was retired (`Release` on the way out,
//!   `Acquire` by the last one);
//! - a guard that begins after the freeing sees what was unlinked before it (`Acquire` on the way
//!   in). A reader that pinned *before* a writer's guard ended gains no ordering from here, so a
//!   publication that lacks Release is still found.
//!
//! The bag is behind a standard mutex that loom does not see: loom switches threads only at
//! loom's own operations, so it is never contended and adds no ordering.

use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use loom::sync::atomic::{AtomicUsize, Ordering};

type Free = Box<dyn FnOnce() + Send>;

struct State {
    guards: AtomicUsize,
    bag: Mutex<Vec<Free>>,
}

loom::lazy_static! {
    static ref STATE: State = State { guards: AtomicUsize::new(0), bag: Mutex::new(Vec::new()) };
}

/// Keeps alive what the thread could reach when it pinned. Not `Send`.
#[derive(Debug)]
#[must_use = "memory is protected only while the guard lives"]
pub struct Guard {
    not_send: PhantomData<*mut ()>,
}

/// Pins the current thread. Nests.
pub fn pin() -> Guard {
    // Acquire: pairs with the Release in `drop`, so that a guard which begins after a freeing
    // sees the unlinking.
    STATE.guards.fetch_add(1, Ordering::Acquire);
    Guard {
        not_send: PhantomData,
    }
}

impl Guard {
    /// Runs `free` once no guard that exists now is left.
    ///
    /// # Safety
    ///
    /// Whatever `free` frees or reuses is already unlinked: no thread that pins after this call
    /// can reach it, and nobody else will free it.
    pub unsafe fn defer<F>(&self, free: F)
    where
        F: FnOnce() + Send + 'static,
    {
        STATE
            .bag
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Box::new(free));
    }

    /// Frees the box behind `pointer` once no guard that exists now is left.
    ///
    /// # Safety
    ///
    /// `pointer` came from [`Box::into_raw`], is already unlinked (no thread that pins after this
    /// call can reach it), and nobody else will free it.
    pub unsafe fn retire_box<T: Send + 'static>(&self, pointer: *mut T) {
        let retired = Retired(pointer);
        // SAFETY: as this function's caller promises; the closure does nothing but free the box.
        unsafe { self.defer(move || retired.free()) }
    }

    /// Nothing to do: the bag is freed as early as it can be.
    pub fn flush(&self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        // AcqRel: Release orders this guard's reads before the freeing, Acquire orders the freeing
        // after every guard that has ended.
        if STATE.guards.fetch_sub(1, Ordering::AcqRel) == 1 {
            // No loom operation lies between the count and this: nobody can pin in between.
            let bag =
                std::mem::take(&mut *STATE.bag.lock().unwrap_or_else(PoisonError::into_inner));
            bag.into_iter().for_each(|free| free());
        }
    }
}

/// A box on its way out. A raw pointer, since readers may still look into it.
struct Retired<T>(*mut T);

// SAFETY: a `Retired` is the only owner of the box, whose content may be dropped by any thread.
unsafe impl<T: Send> Send for Retired<T> {}

impl<T> Retired<T> {
    fn free(self) {
        // SAFETY: `retire_box`'s caller gave up the box, and no guard is left.
        drop(unsafe { Box::from_raw(self.0) });
    }
}
