//! How far one source of regions is behind another: the same comparison for operators and for the replica itself.
//!
//! ```text
//!  leader A --page, by id--> compare --> track --> tally --> report
//!  other B  --page, by id-->   |           |
//!                          what differs   for how long
//! ```
//!
//! PD's followers and routers give no measure of how old their answers are. Here the answers themselves are measured:
//! region by region, epochs, leaders, peers and coverage, in milliseconds, by questions in an order that lets nothing
//! count that merely happened in between.
//!
//! The other side may be a PD follower, a router, or a replica of ours ([`Service`]); the replica compares its own map
//! with the leader in the same way.

pub mod compare;
pub mod pace;
mod report;
mod run;
pub mod source;
pub mod tally;
pub mod track;
mod walk;

pub use compare::{Difference, Kind};
pub use pace::Pace;
pub use report::{Ages, Example, KindReport, Report, SideReport, Verdict};
pub use run::{Args, AuditError, Output, run};
pub use source::{AskError, Server, Service, Source};
pub use walk::{Unanswered, Walk};
