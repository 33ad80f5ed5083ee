//! The door in unit tests: the standard library's atomics, before each access of which a thread can
//! be stopped.
//!
//! Every access, of a hooked thread, runs the thread's hook first; others pay a look at a thread
//! local. See `lock_freedom.rs`.

use std::cell::RefCell;
use std::fmt;

thread_local! {
    static HOOK: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// Takes the hook off again.
pub(crate) struct Hooked(());

/// Runs `hook` before each atomic access and fence of this thread, until the result goes.
pub(crate) fn before_each_step(hook: impl FnMut() + 'static) -> Hooked {
    HOOK.with_borrow_mut(|slot| *slot = Some(Box::new(hook)));
    Hooked(())
}

impl Drop for Hooked {
    fn drop(&mut self) {
        HOOK.with_borrow_mut(Option::take);
    }
}

fn step() {
    // What a thread does at its very end has no hook any more.
    let _ = HOOK.try_with(|slot| {
        if let Some(hook) = &mut *slot.borrow_mut() {
            hook();
        }
    });
}

/// Atomics and fences.
pub(crate) mod atomic {
    use super::{fmt, step};
    pub(crate) use std::sync::atomic::Ordering;

    /// A fence, which is a step.
    pub(crate) fn fence(order: Ordering) {
        step();
        std::sync::atomic::fence(order);
    }

    macro_rules! accesses {
        ($value:ty) => {
            pub(crate) fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.swap(value, order)
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(current, new, success, failure)
            }

            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange_weak(current, new, success, failure)
            }
        };
    }

    macro_rules! number {
        ($name:ident, $value:ty) => {
            /// The standard library's, with steps.
            #[derive(Debug, Default)]
            pub(crate) struct $name(std::sync::atomic::$name);

            impl $name {
                pub(crate) const fn new(value: $value) -> Self {
                    Self(std::sync::atomic::$name::new(value))
                }

                accesses!($value);
                updates!($value; fetch_add fetch_sub fetch_or fetch_and fetch_max);
            }
        };
    }

    macro_rules! updates {
        ($value:ty; $($update:ident)*) => {$(
            pub(crate) fn $update(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.$update(value, order)
            }
        )*};
    }

    number!(AtomicU8, u8);
    number!(AtomicU32, u32);
    number!(AtomicU64, u64);
    number!(AtomicUsize, usize);

    /// The standard library's, with steps.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicBool(std::sync::atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) const fn new(value: bool) -> Self {
            Self(std::sync::atomic::AtomicBool::new(value))
        }

        accesses!(bool);
    }

    /// The standard library's, with steps.
    pub(crate) struct AtomicPtr<T>(std::sync::atomic::AtomicPtr<T>);

    impl<T> AtomicPtr<T> {
        pub(crate) const fn new(value: *mut T) -> Self {
            Self(std::sync::atomic::AtomicPtr::new(value))
        }

        accesses!(*mut T);
    }

    impl<T> Default for AtomicPtr<T> {
        fn default() -> Self {
            Self::new(std::ptr::null_mut())
        }
    }

    impl<T> fmt::Debug for AtomicPtr<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }
}
