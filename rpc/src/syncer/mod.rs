//! What every server of `SyncRegions` needs, the embedded leader and a replica that others follow: frames, one seat
//! for each member name, and a stream that can be ended beside its messages.

pub(crate) mod frame;
pub(crate) mod outlet;
pub(crate) mod registry;
