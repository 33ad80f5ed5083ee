//! A cluster in one process that shows, and checks, that stale answers are refused.

pub mod judge;
pub mod keys;
