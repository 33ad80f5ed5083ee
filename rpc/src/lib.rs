//! Fresh region routing for TiKV: a replica of PD's region map that refuses to be stale, and an embedded PD leader.

#![forbid(unsafe_code)]

pub mod admin;
pub mod audit;
pub mod cli;
pub mod clock;
pub mod config;
pub mod leader;
mod link;
pub mod lookup;
pub mod pd;
pub mod playground;
pub mod proto;
mod regular_file;
pub mod replica;
mod syncer;
pub mod tls;

/// The version of this program and the commit that it was built from; `unknown` where it was built from no clone.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("TIDEGATE_COMMIT"),
    ")"
);

/// The commit alone.
pub const COMMIT: &str = env!("TIDEGATE_COMMIT");
