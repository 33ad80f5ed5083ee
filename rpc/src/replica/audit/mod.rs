//! Anti-entropy: the map is compared with the leader, region by region, for as long as the replica runs.
//!
//! The sync stream shows what changes. It does not show what is removed, and what it has lost once it never shows
//! again; a leader that begins anew at an index that was used before goes on as if nothing had happened. So the whole
//! map is gone through again and again, in pages, one pass in [`Knobs::pass`], regions in use more often
//! ([`InUse`]), and the leader is asked about the same keys:
//!
//! | what is found | then |
//! |---|---|
//! | a difference that is gone at a second look | nothing: a change was on its way |
//! | one that is older than [`Knobs::grace`] | counted by kind, and healed by the rules of [`heal`](super::heal) |
//! | one that cannot be healed, or is there again after it was | a full sync: the stream cannot show it |
//! | more than a few in one pass | a full sync: the stream has lost a stretch |
//!
//! The map is looked at first and the leader asked after it, so that what the leader says is the later word.
//!
//! Nothing is compared while the gate is shut or more than a few changes are known and not applied: a map that is
//! behind is no surprise. Only the leader of the term that the map follows is asked, never another replica, and its
//! answer counts only if the term still stands after it. It is asked so that its work for it stays below a hundredth of
//! a core ([`Pace`](crate::audit::Pace)).

mod auditor;
mod in_use;
mod state;
mod upstream;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::state::Shared;
use crate::pd::Remote;

pub use in_use::InUse;
pub use state::{AuditState, AuditStatus, Knobs};

/// Compares until `stop`.
pub(super) async fn keep(
    shared: Arc<Shared>,
    remote: Arc<Remote>,
    timeout: Duration,
    stop: CancellationToken,
) {
    let upstream = upstream::OverGrpc::new(remote, timeout);
    auditor::Auditor::new(shared, upstream).run(stop).await;
}
