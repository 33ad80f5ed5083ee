//! A cluster in one process that shows, and checks, that stale answers are refused.

pub mod churn;
pub mod judge;
pub mod keys;
pub mod load;
