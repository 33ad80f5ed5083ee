//! The way of one key through a tree, remembered for a change at its end.
//!
//! A single change looks for its place twice: once to ask for the memory on the way
//! while it looks at other things, and once to copy the nodes there. The second time it
//! knows the places.

use super::edit::{Edit, Way};
use super::node::{Leaf, NodePtr, NodeRef, RawNode};
use super::search::Sought;
use super::{MAX_HEIGHT, TreeRef};
use crate::entry::EntryPtr;

/// The way to the leaf of a key. Valid for the tree in which it was found.
pub(crate) struct Trail<'k> {
    key: Sought<'k>,
    /// Which child was taken in each inner node.
    places: [u8; MAX_HEIGHT],
    depth: usize,
}

impl TreeRef<'_> {
    /// Walks to the leaf of `key`, and asks for it.
    pub(crate) fn trail(self, key: &[u8]) -> Trail<'_> {
        let mut trail = Trail {
            key: Sought::new(key),
            places: [0; MAX_HEIGHT],
            depth: 0,
        };
        let mut node = self.root();
        // The leaf itself is not looked into: only asked for, by `child_ref`.
        while let Some(NodeRef::Inner(inner)) = node {
            let place = inner.child_for(&trail.key);
            // Nodes have fewer than 256 children.
            trail.places[trail.depth] = place as u8;
            trail.depth += 1;
            node = Some(inner.child_ref(place));
        }
        trail
    }
}

impl<'k> Trail<'k> {
    pub(super) fn key(&self) -> &Sought<'k> {
        &self.key
    }

    /// The leaf to which it leads in `tree`, which is the one in which it was found.
    pub(super) fn leaf<'s>(&self, tree: TreeRef<'s>) -> Option<&'s Leaf> {
        let mut node = tree.root()?;
        for &place in &self.places[..self.depth] {
            let NodeRef::Inner(inner) = node else {
                return None;
            };
            node = inner.child_ref(usize::from(place));
        }
        match node {
            NodeRef::Leaf(leaf) => Some(leaf),
            NodeRef::Inner(_) => None,
        }
    }
}

impl Edit {
    /// Puts `entry` in the place of the region that has the same start. The trail of
    /// that start was found in this tree, which has not been changed since.
    pub(crate) fn replace_along(&mut self, trail: &Trail<'_>, entry: EntryPtr) {
        let Some(mut node) = self.tree.root else {
            debug_assert!(false, "nothing to replace in an empty tree");
            return;
        };
        let mut way = Way::new();
        for &place in &trail.places[..trail.depth] {
            let RawNode::Inner(inner) = node.kind() else {
                debug_assert!(false, "a trail of another tree");
                return;
            };
            let inner = self.own_inner(inner);
            self.attach(&way, NodePtr::inner(inner));
            // SAFETY: a node of this edit, and nothing changes it here.
            let current = unsafe { inner.as_ref() };
            way.step_to(inner, usize::from(place), current.len());
            node = current.child(usize::from(place));
        }
        let RawNode::Leaf(leaf) = node.kind() else {
            debug_assert!(false, "a trail of another tree");
            return;
        };
        let mut leaf = self.own_leaf(leaf);
        self.attach(&way, NodePtr::leaf(leaf));
        self.recent = Some((way, leaf));
        // SAFETY: a leaf of this edit, reached by nobody else.
        let leaf = unsafe { leaf.as_mut() };
        let place = leaf.count_below(&trail.key);
        leaf.replace(place, entry);
    }
}
