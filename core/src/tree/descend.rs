//! Finding one region: by its key, or the one before a key.

use super::TreeRef;
use super::node::{Inner, Leaf, NodeRef};
use super::search::Sought;
use crate::entry::EntryPtr;

impl<'s> TreeRef<'s> {
    /// The last region that starts at or before `key`.
    #[inline]
    pub(crate) fn floor(self, key: &[u8]) -> Option<EntryPtr> {
        let key = Sought::new(key);
        self.last(
            |inner| inner.child_for(&key),
            |leaf| leaf.count_at_most(&key),
        )
    }

    /// The last region that starts before `key`.
    #[inline]
    pub(crate) fn before(self, key: &[u8]) -> Option<EntryPtr> {
        let key = Sought::new(key);
        self.last(
            |inner| inner.child_below(&key),
            |leaf| leaf.count_below(&key),
        )
    }

    /// Asks for the leaf to which `key` leads.
    pub(crate) fn prefetch(self, key: &[u8]) {
        let Some(mut node) = self.root() else {
            return;
        };
        let key = Sought::new(key);
        // The leaf itself is not looked into: only asked for, by `child_ref`.
        while let NodeRef::Inner(inner) = node {
            node = inner.child_ref(inner.child_for(&key));
        }
    }

    /// Asks for the entries on both sides of `key`; its leaf has been asked for.
    pub(crate) fn prefetch_neighbours(self, key: &[u8]) {
        let Some(mut node) = self.root() else {
            return;
        };
        let key = Sought::new(key);
        loop {
            match node {
                NodeRef::Inner(inner) => node = inner.child_ref(inner.child_for(&key)),
                NodeRef::Leaf(leaf) => {
                    let place = leaf.count_at_most(&key);
                    for place in place.saturating_sub(1)..leaf.len().min(place + 1) {
                        leaf.pointer(place).prefetch_whole();
                    }
                    return;
                }
            }
        }
    }

    /// The last region of those that `count` counts in a leaf; `choose` names the
    /// child in which they end.
    #[inline]
    fn last(
        self,
        choose: impl Fn(&'s Inner) -> usize,
        count: impl Fn(&'s Leaf) -> usize,
    ) -> Option<EntryPtr> {
        let mut node = self.root()?;
        // The deepest subtree that lies to the left of the way down.
        let mut left: Option<(&'s Inner, usize)> = None;
        loop {
            match node {
                NodeRef::Inner(inner) => {
                    let place = choose(inner);
                    if place > 0 {
                        left = Some((inner, place - 1));
                    }
                    node = inner.child_ref(place);
                }
                NodeRef::Leaf(leaf) => {
                    return match count(leaf).checked_sub(1) {
                        Some(place) => Some(leaf.pointer(place)),
                        // The leaf has room for the key (its separator is not
                        // above it) but no region as small: the last one of the
                        // leaf before is sought.
                        None => left.map(|(inner, place)| rightmost(inner.child_ref(place))),
                    };
                }
            }
        }
    }
}

#[cold]
fn rightmost(mut node: NodeRef<'_>) -> EntryPtr {
    loop {
        match node {
            NodeRef::Inner(inner) => node = inner.child_ref(inner.len()),
            // Leaves below an inner node are never empty.
            NodeRef::Leaf(leaf) => return leaf.pointer(leaf.len() - 1),
        }
    }
}
