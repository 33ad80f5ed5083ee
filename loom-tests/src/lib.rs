//! Models of `tidegate-core`'s protocols, searched exhaustively by loom, and the weakenings that
//! show that the models can fail.
//!
//! With `--cfg tidegate_loom`, which `loom-tests/run` sets, this crate is what a model needs;
//! without it, what `loom-tests/weaken` needs.

#[cfg(tidegate_loom)]
mod search;
#[cfg(not(tidegate_loom))]
pub mod sources;
#[cfg(not(tidegate_loom))]
pub mod weakening;

#[cfg(tidegate_loom)]
pub use search::model;
