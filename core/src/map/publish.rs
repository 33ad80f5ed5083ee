//! The one step by which changes become visible.
//!
//! A writer reads the root, builds the next one beside it, and swings the
//! pointer with a compare-and-swap. If another writer was faster, the swap
//! fails, the private nodes are freed and the work is done again from the new
//! root: someone always got on (M6), and no reader ever saw half a change (M2).
//!
//! The order of steps matters:
//!
//! 1. The guard comes before the load of the root and stays until the end: it
//!    keeps the old root from being freed, so that the compare-and-swap cannot
//!    mistake a new root at the same address for it, and it keeps the displaced
//!    entries readable for step 4.
//! 2. The swap.
//! 3. The map's counts of the new entries become real. Nobody can give them up
//!    earlier: what another writer displaces now is released after our guard.
//! 4. The displaced entries are superseded, and late pins handed over: after the
//!    swap, since a marker that finds the bit looks for the replacement.
//! 5. All that was replaced goes to the reclaimer in one bag.

use std::ptr::NonNull;

use super::RegionMap;
use super::bag::Bag;
use super::batch::Change;
use super::garbage::Content;
use super::order::Order;
use super::outcome::Outcome;
use super::root::{Replaced, Root};
use super::transaction::{Displaced, Transaction};
use crate::entry::{Entry, EntryPtr};
use crate::slab;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::reclaim::{self, Guard};

/// Changes whose outcomes need no memory until all are known.
const FEW: usize = 8;

/// Another writer was faster.
#[derive(Debug)]
pub(super) struct Outrun;

impl RegionMap {
    /// The published root; alive while a guard is that began before this call.
    #[inline]
    pub(super) fn load(&self, _guard: &Guard) -> NonNull<Root> {
        // Acquire: pairs with the Release of `swing`, so that the root and all
        // that it leads to are seen filled in. Fails without it:
        // tree::a_published_root_is_seen_filled_in.
        let root = self.root.load(Acquire);
        // SAFETY: null only once the map has been taken apart, by its owner.
        unsafe { NonNull::new_unchecked(root) }
    }

    pub(super) fn publish_changes(&self, changes: Vec<Change>) -> Vec<Outcome> {
        if changes.is_empty() {
            return Vec::new();
        }
        let order = Order::of(&changes);
        let mut few = [None; FEW];
        let mut many = Vec::new();
        let outcomes = if let Some(few) = few.get_mut(..changes.len()) {
            few
        } else {
            many.resize(changes.len(), None);
            &mut many[..]
        };
        self.publish(changes, order.as_ref(), outcomes);
        outcomes.iter().copied().map(applied).collect()
    }

    pub(super) fn publish_change(&self, change: Change) -> Outcome {
        let mut outcome = [None];
        self.publish([change], None, &mut outcome);
        let [outcome] = outcome;
        applied(outcome)
    }

    /// Fills in `outcomes`, one for each change.
    fn publish<C>(&self, changes: C, order: Option<&Order>, outcomes: &mut [Option<Outcome>])
    where
        C: AsRef<[Change]> + IntoIterator<Item = Change>,
    {
        let guard = reclaim::pin();
        let mut bag = self.recycling.take(outcomes.len());
        loop {
            let base = self.load(&guard);
            // SAFETY: `guard` is older than the load and outlives the loop.
            let mut transaction = Transaction::new(unsafe { base.as_ref() }, bag);
            transaction.apply_all(changes.as_ref(), order, outcomes);
            if outcomes.iter().flatten().all(Outcome::is_refused) {
                self.recycling.give(transaction.abandon());
                return;
            }
            let root = transaction.place_root();
            let old = match self.swing(base, root) {
                Ok(old) => old,
                Err(Outrun) => {
                    bag = transaction.abandon();
                    // SAFETY: from `place_root`, never published.
                    unsafe { bag.displace(root) };
                    continue;
                }
            };
            let bag = transaction.publish();
            take_counts(changes, outcomes);
            for displaced in &bag.displaced {
                self.supersede(displaced, &guard);
            }
            // SAFETY: the root has just been replaced by one that holds none of
            // this: the transaction noted what it took out. Its counts of the
            // entries are the map's.
            let objects = unsafe { Bag::retire(bag, old, &guard, &self.recycling) };
            if self.recycling.counters.flush_due(objects) {
                guard.flush();
                slab::tend();
            }
            return;
        }
    }

    pub(super) fn publish_content(&self, staged: Self, generation: u64) {
        let guard = reclaim::pin();
        let mut staged = staged.into_root();
        staged.generation = generation;
        let version = staged.version;
        let old = loop {
            let base = self.load(&guard);
            // SAFETY: `guard` is older than the load and outlives the loop.
            let base_version = unsafe { base.as_ref() }.version;
            // Edits tag their nodes with the version that they set out for: it
            // has to be above those of both histories.
            let root = Box::new(Root {
                version: version.max(base_version) + 1,
                ..staged.share()
            });
            let root = NonNull::from(Box::leak(root));
            match self.swing(base, root) {
                Ok(old) => break old,
                // SAFETY: from the `Box` above, never published.
                Err(Outrun) => drop(unsafe { Box::from_raw(root.as_ptr()) }),
            }
        };
        // SAFETY: unpublished by `swing`; the staged content shares nothing with
        // it, since each map makes its own nodes and entries.
        unsafe { Content::retire(old, &guard, &self.recycling) };
        guard.flush();
    }

    /// Publishes `root` if `base` still is the root; returns the latter.
    pub(super) fn swing(
        &self,
        base: NonNull<Root>,
        root: NonNull<Root>,
    ) -> Result<Replaced, Outrun> {
        // Release: the root and all nodes, pages and entries that were made for
        // it are written before it can be seen; pairs with the Acquire of
        // `load`. What was made for earlier roots follows by transitivity, since
        // the writer has acquired `base`. Fails without it:
        // tree::a_published_root_is_seen_filled_in.
        // Relaxed on failure: the next attempt loads the root again.
        let (expected, root) = (base.as_ptr(), root.as_ptr());
        match self.root.compare_exchange(expected, root, Release, Relaxed) {
            Ok(_) => Ok(Replaced(base)),
            Err(_) => Err(Outrun),
        }
    }

    /// The second step of a pin's hand-over: see `entry/word.rs`.
    fn supersede(&self, displaced: &Displaced, guard: &Guard) {
        // SAFETY: was live when the guard of this publication began.
        let old = unsafe { displaced.entry.as_ref() };
        let pinned = old.word().supersede();
        let mut heir = displaced.heir.filter(|_| pinned);
        while let Some(pointer) = heir {
            // SAFETY: published under the guard of this publication, or live
            // since: released no earlier, even if it has been displaced since.
            let was_superseded = unsafe { pointer.as_ref() }.word().inherit_pin();
            if !was_superseded {
                break;
            }
            // Another writer has replaced the heir before the pin came down on
            // it, and published what took its place. Each round takes a writer
            // that got on.
            heir = self.live_heir(old, guard);
        }
    }

    /// The live entry of `old`'s region, if a pin passes from `old` to it.
    fn live_heir(&self, old: &Entry, guard: &Guard) -> Option<EntryPtr> {
        // SAFETY: `guard` is older than the load.
        let root = unsafe { self.load(guard).as_ref() };
        let pointer = root.by_id(old.id())?;
        // SAFETY: live in a root that was loaded under the guard.
        let live = unsafe { pointer.as_ref() };
        old.hands_pin_to(live).then_some(pointer)
    }

    /// Takes the root out of a map that nobody else can reach.
    fn into_root(self) -> Box<Root> {
        let root = self.take_root();
        root.unwrap_or_else(|| unreachable!("a map has a root until it is dropped"))
    }

    fn take_root(&self) -> Option<Box<Root>> {
        // Acquire: whoever published last may have been another thread; however
        // this map came to be ours, that has ordered it already.
        let root = self.root.swap(std::ptr::null_mut(), Acquire);
        if root.is_null() {
            return None;
        }
        // SAFETY: from `Box::into_raw`; the callers own the map, so that no
        // reader is left.
        Some(unsafe { Box::from_raw(root) })
    }
}

impl Drop for RegionMap {
    fn drop(&mut self) {
        if let Some(root) = self.take_root() {
            // SAFETY: snapshots borrow the map, so none is left, and the map is
            // gone. What was retired earlier is in the reclaimer's bags.
            unsafe { Content::of(&root).free() };
        }
    }
}

fn applied(outcome: Option<Outcome>) -> Outcome {
    outcome.unwrap_or_else(|| unreachable!("every change has been applied"))
}

/// Makes the map an owner of the entries that went in.
fn take_counts(changes: impl IntoIterator<Item = Change>, outcomes: &[Option<Outcome>]) {
    for (change, outcome) in changes.into_iter().zip(outcomes) {
        if let Change::Put { entry, .. } = change
            && outcome.is_some_and(|outcome| !outcome.is_refused())
        {
            let _ = entry.into_ptr();
        }
    }
}
