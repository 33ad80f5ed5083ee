//! Lock-free region map, change history and freshness gate for TiKV region routing.

pub mod clock;
pub mod sync;
