//! Following the PD leader.

mod config;
pub mod frame;
pub mod probe;

pub use config::{SyncConfig, SyncConfigError};
