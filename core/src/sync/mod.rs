//! The only door to atomics, fences and shared pointers.
//!
//! Two sibling modules with equal paths stand behind it: [`std`](self) in a normal build and
//! loom's instrumented types under `--cfg tidegate_loom`. Code that takes what it needs from here
//! can be searched exhaustively by the models in `loom-tests` without a change. In the crate's own
//! unit tests the atomics are a third kind, which can stop a thread before any of its accesses
//! (`steps.rs`).
//!
//! # House rules
//!
//! - A comment beside each atomic access starts with the ordering's name and names its partner.
//! - Loads and stores are never `SeqCst`. Where two threads each write and then look at the
//!   other's word, a `fence(SeqCst)` says so and names the pair.
//! - A pointer that readers follow is published with Release and read with Acquire, and what it
//!   points to carries a [`Canary`], so that a model sees both an unsynchronised publication and
//!   a use after free.
//! - Unlinked memory goes to [`reclaim`], never straight to the allocator.

#[cfg(tidegate_loom)]
mod loom;
#[cfg(not(tidegate_loom))]
mod std;
#[cfg(all(test, not(tidegate_loom)))]
#[allow(dead_code, reason = "all that the other doors have")]
pub(crate) mod steps;

#[cfg(not(tidegate_loom))]
pub mod reclaim;
#[cfg(tidegate_loom)]
#[path = "reclaim_model.rs"]
pub mod reclaim;

#[cfg(tidegate_loom)]
pub use self::loom::{Arc, Canary, atomic};
#[cfg(not(any(test, tidegate_loom)))]
pub use self::std::atomic;
#[cfg(not(tidegate_loom))]
pub use self::std::{Arc, Canary};
#[cfg(all(test, not(tidegate_loom)))]
pub(crate) use self::steps::atomic;
