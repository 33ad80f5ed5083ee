//! Walking over the regions of a range in order.

use super::node::{Inner, Leaf, NodeRef};
use super::search::Sought;
use super::{MAX_HEIGHT, TreeRef};
use crate::entry::{Entry, EntryPtr};

/// A place between two regions of a tree; yields what follows.
pub(crate) struct Cursor<'s> {
    // The way down to `leaf`: each inner node with the child that was taken.
    way: [Option<(&'s Inner, usize)>; MAX_HEIGHT],
    depth: usize,
    leaf: Option<&'s Leaf>,
    place: usize,
}

impl<'s> TreeRef<'s> {
    /// Before the region that holds `start`, or else the first that starts after
    /// it.
    pub(crate) fn seek(self, start: &[u8]) -> Cursor<'s> {
        let mut cursor = Cursor {
            way: [None; MAX_HEIGHT],
            depth: 0,
            leaf: None,
            place: 0,
        };
        cursor.go_to(self, start);
        let Some(leaf) = cursor.leaf else {
            return cursor;
        };
        if let Some(place) = cursor.place.checked_sub(1) {
            if leaf.entry(place).region().range().ends_after(start) {
                cursor.place = place;
            }
        } else if let Some(floor) = self.floor(start) {
            // The last region that starts before `start` is in the leaf before.
            // SAFETY: what the tree holds is alive for `'s`.
            let floor: &'s Entry = unsafe { floor.as_ref() };
            if floor.region().range().ends_after(start) {
                cursor.go_to(self, floor.start());
                cursor.place = cursor.place.saturating_sub(1);
            }
        }
        cursor
    }
}

impl<'s> Cursor<'s> {
    /// Behind the last region of the leaf for `key` that starts at or before it.
    fn go_to(&mut self, tree: TreeRef<'s>, key: &[u8]) {
        self.depth = 0;
        let key = Sought::new(key);
        if let Some(root) = tree.root() {
            self.descend(root, |inner| inner.child_for(&key));
        }
        self.place = self.leaf.map_or(0, |leaf| leaf.count_at_most(&key));
    }

    fn descend(&mut self, mut node: NodeRef<'s>, choose: impl Fn(&'s Inner) -> usize) {
        loop {
            match node {
                NodeRef::Inner(inner) => {
                    let place = choose(inner);
                    self.way[self.depth] = Some((inner, place));
                    self.depth += 1;
                    node = inner.child_ref(place);
                }
                NodeRef::Leaf(leaf) => {
                    self.leaf = Some(leaf);
                    self.place = 0;
                    return;
                }
            }
        }
    }

    fn next_leaf(&mut self) {
        self.leaf = None;
        while let Some(above) = self.depth.checked_sub(1) {
            self.depth = above;
            let Some((inner, place)) = self.way[above] else {
                return;
            };
            if place < inner.len() {
                self.way[above] = Some((inner, place + 1));
                self.depth += 1;
                self.descend(inner.child_ref(place + 1), |_| 0);
                return;
            }
        }
    }
}

impl Iterator for Cursor<'_> {
    type Item = EntryPtr;

    fn next(&mut self) -> Option<EntryPtr> {
        loop {
            let leaf = self.leaf?;
            if self.place < leaf.len() {
                self.place += 1;
                return Some(leaf.pointer(self.place - 1));
            }
            self.next_leaf();
        }
    }
}
