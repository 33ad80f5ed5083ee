//! The replica: follows the PD leader's sync stream and answers region lookups while it can prove that they are fresh.

pub mod hooks;
pub mod state;
pub mod sync;
