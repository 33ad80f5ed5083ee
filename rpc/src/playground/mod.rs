//! A cluster in one process that shows, and checks, that stale answers are refused.
//!
//! ```text
//!  churn --> PD leader --SyncRegions--> replica 1 --\
//!    |           |  \---[ relay ]-----> replica 2 ---+--> load --> judge
//!    |           |                         \--> (3) -/              |
//!    |           \-----------------------------------/              |
//!    \--> ledger of everything that the leader's map ever held <----/
//! ```
//!
//! The leader is the embedded one, the replicas are what `tidegate serve` runs, and everything between
//! them and the load is gRPC over loopback. Keepalives, probes and thresholds run at a tenth of their
//! real values, so that a fault shows within seconds.

mod args;
pub mod churn;
pub mod faults;
pub mod judge;
pub mod keys;
pub mod load;
mod report;
mod run;
pub mod server;
mod sweep;
pub mod view;
pub mod world;

#[cfg(test)]
mod tests;

pub use self::args::{Args, GateSwitch, Output};
pub use self::faults::Scenario;
pub use self::report::{Report, ServerReport};
pub use self::run::{PlaygroundError, play, run};
pub use self::sweep::{Setting, Swept, sweep};
