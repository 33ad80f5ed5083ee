//! Lock-free region map, change history and freshness gate for TiKV region routing.

pub mod clock;
pub mod entry;
pub mod epoch;
pub mod error;
pub mod gate;
pub mod history;
mod id_index;
pub mod key;
mod lag;
pub mod map;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod prefetch;
mod proof;
pub mod provenance;
pub mod range;
pub mod region;
pub mod sync;
mod tree;

pub use clock::Moment;
pub use entry::{Entry, InvalidReason};
pub use epoch::RegionEpoch;
pub use error::{InvalidRange, InvalidRegion};
pub use key::Key;
pub use map::{Batch, EntryRef, Expect, MapStats, Outcome, RegionMap, Scan, Snapshot};
pub use provenance::Provenance;
pub use range::KeyRange;
pub use region::{
    Buckets, Details, DownPeer, Flashback, Peer, PeerRole, Region, RegionBuilder, RegionStats,
};
