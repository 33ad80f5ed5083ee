//! Finding many regions at once.
//!
//! A lookup far down a large tree waits for memory: for its leaf, then for its
//! entry. Lookups that do not depend on one another can wait together. A group of
//! keys goes down level by level: each key's next node is asked for when its
//! place in the node above is known, and looked into only after all other keys of
//! the group have come as far. All leaves are equally deep, so that the keys of a
//! group arrive together.

use std::array;

use super::TreeRef;
use super::node::{Leaf, NodeRef};
use super::search::Sought;
use crate::entry::{Entry, EntryPtr};

/// Keys that are looked for together. With more, what was asked for first would be
/// out of the nearest cache before it is used.
pub(crate) const GROUP: usize = 16;

/// Where each key of a group has come to.
struct Descent<'s, 'k> {
    keys: [Sought<'k>; GROUP],
    nodes: [NodeRef<'s>; GROUP],
    len: usize,
}

/// A region, and the one before it in the tree.
pub(crate) type Neighbours = (Option<EntryPtr>, EntryPtr);

impl<'s> TreeRef<'s> {
    /// The last region that starts at or before each of up to [`GROUP`] keys.
    pub(crate) fn floors<K: AsRef<[u8]>>(self, keys: &[K], found: &mut [Option<EntryPtr>; GROUP]) {
        let Some(descent) = self.descend_together(keys) else {
            found.fill(None);
            return;
        };
        let counts = descent.counts();
        descent.for_each_leaf(|index, leaf, key| {
            let floor = match counts[index].checked_sub(1) {
                Some(place) => Some(leaf.pointer(place)),
                // It is in the leaf before, if there is one.
                None => self.floor(key.key),
            };
            found[index] = floor.inspect(|floor| floor.prefetch());
        });
    }

    /// The same, each with its left neighbour.
    pub(crate) fn floors_with_neighbours<K: AsRef<[u8]>>(
        self,
        keys: &[K],
        found: &mut [Option<Neighbours>; GROUP],
    ) {
        let Some(descent) = self.descend_together(keys) else {
            found.fill(None);
            return;
        };
        let counts = descent.counts();
        descent.for_each_leaf(|index, leaf, key| {
            let neighbours = match counts[index] {
                0 | 1 => self.floor(key.key).map(|floor| {
                    // SAFETY: what the tree holds is alive for `'s`.
                    let entry: &'s Entry = unsafe { floor.as_ref() };
                    (self.before(entry.start()), floor)
                }),
                count => Some((Some(leaf.pointer(count - 2)), leaf.pointer(count - 1))),
            };
            found[index] = neighbours.inspect(|(before, floor)| {
                floor.prefetch_whole();
                before.inspect(|before| before.prefetch());
            });
        });
    }

    /// The way down to the leaf of each key. `None` if the tree is empty.
    fn descend_together<'k, K: AsRef<[u8]>>(self, keys: &'k [K]) -> Option<Descent<'s, 'k>> {
        let root = self.root()?;
        let mut descent = Descent {
            keys: array::from_fn(|index| Sought::new(keys.get(index).map_or(&[], K::as_ref))),
            nodes: [root; GROUP],
            len: keys.len().min(GROUP),
        };
        while descent.step() {}
        Some(descent)
    }
}

impl<'s> Descent<'s, '_> {
    /// Goes down a level with every key, unless they have come to the leaves.
    #[inline]
    fn step(&mut self) -> bool {
        for (key, node) in self.keys.iter().zip(&mut self.nodes).take(self.len) {
            let NodeRef::Inner(inner) = *node else {
                return false;
            };
            *node = inner.child_for_search(inner.child_for(key));
        }
        self.len > 0
    }

    /// How many regions of its leaf start at or before each key. Asks for the
    /// pointer to the last of these.
    #[inline]
    fn counts(&self) -> [usize; GROUP] {
        let mut counts = [0; GROUP];
        self.for_each_leaf(|index, leaf, key| {
            counts[index] = leaf.count_at_most(key);
            leaf.prefetch_pointer(counts[index].saturating_sub(1));
        });
        counts
    }

    /// Calls `visit` with each key and its leaf.
    #[inline]
    fn for_each_leaf(&self, mut visit: impl FnMut(usize, &'s Leaf, &Sought<'_>)) {
        let ways = self.keys.iter().zip(&self.nodes).enumerate();
        for (index, (key, node)) in ways.take(self.len) {
            if let NodeRef::Leaf(leaf) = node {
                visit(index, leaf, key);
            }
        }
    }
}
