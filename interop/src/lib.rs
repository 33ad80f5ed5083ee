//! Runs the built replica against a PD: compares every answer, and puts it through drills.
//!
//! ```text
//! cluster (model) --heartbeats--> authority (pd-server, or the embedded leader)
//!                                     |  sync stream             ^
//!                                     v                          | the same questions
//!                                 replica (built program) <--- quiet / changing
//! ```
//!
//! [`run`] is the comparison, whose files are read in the order of that picture. [`drill`] has the faults: with [`pd`],
//! three members that can be moved, killed and cut off, and [`judge`], which knows what the leader had when. [`burst`]
//! counts what cold clients cost the leader, [`stock`] runs programs that are built on stock clients, and [`side`]
//! measures what a lookup, a region and a start cost. [`standin`] takes a pd-server's place where there is none.

pub mod authority;
pub mod burst;
pub mod changing;
pub mod client;
pub mod cluster;
pub mod drill;
pub mod error;
pub mod feeder;
pub mod judge;
pub mod keys;
pub mod pd;
pub mod process;
pub mod quiet;
pub mod replica;
pub mod run;
pub mod seeding;
pub mod side;
pub mod standin;
pub mod status;
pub mod stock;
pub mod store;
