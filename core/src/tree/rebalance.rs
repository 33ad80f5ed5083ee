//! Keeping nodes from getting too small, so that memory is bounded by what is
//! live.
//!
//! An empty node leaves the tree; one with few keys is merged with a neighbour
//! under the same parent if the two fit into one with room to spare. If they do
//! not, the neighbour is large, so that two neighbours always hold a fair number
//! of keys together.

use std::ptr::NonNull;

use super::edit::{Edit, Way};
use super::node::{Inner, NodePtr, RawNode};
use super::{MERGE_BELOW, MERGED_MAX};

impl Edit {
    /// Restores the shape after a removal from the leaf at the end of `way`,
    /// which now has `len` keys, too few.
    pub(super) fn mend(&mut self, mut way: Way, len: usize) {
        let mut empty = len == 0;
        let mut small = len < MERGE_BELOW;
        while let Some((mut pointer, place)) = way.pop() {
            if !small {
                return;
            }
            // SAFETY: the steps of a way are nodes of this edit.
            let inner = unsafe { pointer.as_mut() };
            if empty {
                self.drop_subtree(inner.child(place));
                if inner.len() == 0 {
                    // The only child: the node goes with it.
                    continue;
                }
                let separator = place.saturating_sub(1);
                self.own_separators(inner);
                self.tree.size.remove_separator(inner.separator(separator));
                inner.remove(separator, place);
                empty = false;
            } else if place < inner.len() {
                if !self.merge(inner, place) && (place == 0 || !self.merge(inner, place - 1)) {
                    return;
                }
            } else if place == 0 || !self.merge(inner, place - 1) {
                return;
            }
            small = inner.len() < MERGE_BELOW;
        }
        self.mend_root(empty);
    }

    /// Removes what holds nothing above the last level.
    fn mend_root(&mut self, empty: bool) {
        if empty {
            if let Some(root) = self.tree.root.take() {
                self.drop_subtree(root);
            }
            return;
        }
        while let Some(RawNode::Inner(root)) = self.tree.root.map(NodePtr::kind) {
            // SAFETY: in the tree, hence alive.
            let inner = unsafe { root.as_ref() };
            if inner.len() > 0 {
                return;
            }
            self.tree.root = Some(inner.child(0));
            self.drop_inner(root);
        }
    }

    /// Drops a node whose keys are gone, along with its only child and so on.
    fn drop_subtree(&mut self, node: NodePtr) {
        match node.kind() {
            RawNode::Leaf(leaf) => self.drop_leaf(leaf),
            RawNode::Inner(inner) => self.drop_inner(inner),
        }
    }

    /// Merges the children on both sides of separator `place`, if they fit.
    fn merge(&mut self, inner: &mut Inner, place: usize) -> bool {
        match (inner.child(place).kind(), inner.child(place + 1).kind()) {
            (RawNode::Leaf(left), RawNode::Leaf(right)) => {
                // SAFETY: in the tree, hence alive; `right` is only read.
                let right_leaf = unsafe { right.as_ref() };
                // SAFETY: as above.
                let len = unsafe { left.as_ref() }.len();
                if len + right_leaf.len() > MERGED_MAX {
                    return false;
                }
                let mut left = self.own_leaf(left);
                // SAFETY: a leaf of this edit, another one than `right`.
                unsafe { left.as_mut() }.append(right_leaf);
                inner.set_child(place, NodePtr::leaf(left));
                self.drop_leaf(right);
                // Of two inner nodes it goes down, between their separators.
                self.tree.size.remove_separator(inner.separator(place));
            }
            (RawNode::Inner(left), RawNode::Inner(right)) => {
                if !self.merge_inner(inner, place, left, right) {
                    return false;
                }
            }
            _ => unreachable!("children of one node are of one kind"),
        }
        self.own_separators(inner);
        inner.remove(place, place + 1);
        true
    }

    fn merge_inner(
        &mut self,
        parent: &mut Inner,
        place: usize,
        left: NonNull<Inner>,
        right: NonNull<Inner>,
    ) -> bool {
        // SAFETY: in the tree, hence alive; `right` is only read.
        let right_inner = unsafe { right.as_ref() };
        // SAFETY: as above.
        let len = unsafe { left.as_ref() }.len();
        if len + 1 + right_inner.len() > MERGED_MAX {
            return false;
        }
        let mut left = self.own_inner(left);
        // SAFETY: a node of this edit, another one than `right`.
        let left_inner = unsafe { left.as_mut() };
        self.own_separators(left_inner);
        left_inner.append(parent.separator(place), right_inner);
        parent.set_child(place, NodePtr::inner(left));
        self.drop_inner(right);
        true
    }
}
