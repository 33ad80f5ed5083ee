//! A listener on every change of the leader's map.
//!
//! What the sync stream publishes is less than what changes: a bootstrap, a small change of flow or a flashback alter
//! the map and leave no record. Whoever has to know what a lookup could have answered, and until when, listens here.

use std::fmt::Debug;

use tidegate_core::{Region, SharedEntry};

/// One change of the leader's map: a region takes the place of everything that it displaces.
#[derive(Debug)]
pub struct Change<'a> {
    /// Counts the changes from 1, without gaps, in the order in which the map took them. The next leader of the same
    /// state goes on counting, and so does the state itself while there is none.
    pub sequence: u64,
    /// What the map holds from now on.
    pub put: &'a Region,
    /// What it no longer holds: the region's former state under the same id, and every region that overlapped it.
    /// Each appears once.
    pub displaced: &'a [SharedEntry],
}

/// Hears of every change, in order.
///
/// Both calls are made under the lock that orders the changes, so they must be short and must not report to the same
/// leader. Changes that become visible together are announced together: first [`changing`](Self::changing) for each,
/// then they become visible, then [`changed`](Self::changed) for each. A change that was announced is always made.
pub trait ChangeObserver: Debug + Send + Sync {
    /// The change is about to become visible: a lookup that is under way may already see it when this returns.
    fn changing(&self, _change: &Change<'_>) {}

    /// The change is visible: a lookup that starts after this call began sees it or something newer.
    fn changed(&self, change: &Change<'_>);
}
