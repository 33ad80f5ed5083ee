//! The PD of the drills: three members that can be moved, killed, removed and cut off.
//!
//! [`front`] and [`relay`] are what stands at a member's address, [`played`] the members around an embedded leader,
//! [`etcd`] a real etcd beside them.

pub mod etcd;
pub mod front;
pub mod played;
pub mod relay;
