//! A stand-in for pd-server, to try out what is done with a real one.
//!
//! It takes pd-server's flags, answers at its addresses, and leads with an embedded leader inside. What members of PD
//! agree on by raft, these agree on by files in one directory ([`table`]): so several processes are one cluster, one of
//! which leads, and the next when that one is killed. It tells nothing of PD; it shows that the harness starts, moves,
//! kills and asks real processes as it means to.

pub mod member;
pub mod router;
pub mod table;
