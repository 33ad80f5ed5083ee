//! Runs the built replica against a PD and compares every answer.
//!
//! ```text
//! cluster (model) --heartbeats--> authority (pd-server, or the embedded leader)
//!                                     |  sync stream             ^
//!                                     v                          | the same questions
//!                                 replica (built program) <--- quiet / changing
//! ```
//!
//! [`run`] is the whole of it; the files are read in the order of that picture.

pub mod authority;
pub mod changing;
pub mod client;
pub mod cluster;
pub mod error;
pub mod feeder;
pub mod keys;
pub mod process;
pub mod quiet;
pub mod replica;
pub mod run;
