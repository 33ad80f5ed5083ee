//! Changing a tree without changing what others read: copying the way down.
//!
//! An edit starts from a published tree and ends in one that shares with it all
//! that was not on the way to a change. The first change below a node copies the
//! node; later ones find the copy, which bears the edit's tag, and change it in
//! place. So a batch of changes copies each node once, however many of them pass
//! through it.
//!
//! Nothing that the edit makes can be seen before the edit is published, and
//! nothing that it takes out is freed before it is: [`Edit::into_retired`]
//! yields the replaced nodes for the reclaimer, [`Edit::abandon`] frees the new
//! ones.

use std::ptr::NonNull;

use super::node::{Inner, Leaf, NodePtr, RawNode, Tag};
use super::retire::{Retired, Subtree};
use super::search::Sought;
use super::{CAPACITY, MAX_HEIGHT, Tree, TreeRef};
use crate::entry::{Entry, EntryPtr};
use crate::key::Key;
use crate::pool::Spare;

/// A tree under change.
pub(crate) struct Edit {
    pub(super) tag: Tag,
    pub(super) tree: Tree,
    /// Published nodes that are no longer in the tree.
    retired: Vec<Retired>,
    /// Nodes of this edit that are no longer in the tree.
    discarded: Vec<Retired>,
    /// Memory for new nodes.
    pub(super) spare: Spare,
}

/// The way from the root to a leaf: inner nodes of this edit, each with the
/// child that was taken.
pub(super) struct Way {
    steps: [Option<(NonNull<Inner>, usize)>; MAX_HEIGHT],
    depth: usize,
    /// Whether the leaf is the last one of the tree.
    at_end: bool,
}

// === impl Edit ===

impl Edit {
    /// Starts from `tree`, all of which stays alive while the edit lasts. No
    /// node of `tree` may bear `tag`.
    pub(crate) fn new(tree: Tree, tag: Tag, spare: Spare) -> Self {
        Self {
            tag,
            tree,
            retired: Vec::new(),
            discarded: Vec::new(),
            spare,
        }
    }

    /// The tree as it is now.
    pub(crate) fn read(&self) -> TreeRef<'_> {
        // SAFETY: nodes of this edit are changed through `&mut self` only, and
        // freed when it ends; all others are alive by the word of `new`'s caller.
        unsafe { self.tree.as_ref() }
    }

    /// Puts `entry` in the place of the region that has the same start.
    pub(crate) fn replace(&mut self, entry: EntryPtr) {
        // SAFETY: the caller of any change keeps the entry alive.
        let start = unsafe { entry.as_ref() }.start();
        let Some((_, mut leaf)) = self.own_way(start) else {
            debug_assert!(false, "nothing to replace in an empty tree");
            return;
        };
        // SAFETY: `own_way` returns a leaf of this edit, reached by nobody else.
        let leaf = unsafe { leaf.as_mut() };
        let place = leaf.count_below(&Sought::new(start));
        leaf.replace(place, entry);
    }

    /// Adds `entry`, whose start no region in the tree has.
    pub(crate) fn insert(&mut self, entry: EntryPtr) {
        // SAFETY: the caller of any change keeps the entry alive.
        let start = unsafe { entry.as_ref() }.start();
        self.tree.len += 1;
        let Some((way, mut pointer)) = self.own_way(start) else {
            let mut leaf = Leaf::alloc(self.tag, &mut self.spare);
            // SAFETY: just allocated, nobody else knows it.
            unsafe { leaf.as_mut() }.insert(0, start, entry);
            self.tree.size.leaves += 1;
            self.tree.root = Some(NodePtr::leaf(leaf));
            return;
        };
        // SAFETY: `own_way` returns a leaf of this edit, reached by nobody else.
        let leaf = unsafe { pointer.as_mut() };
        let place = leaf.count_at_most(&Sought::new(start));
        if leaf.len() < CAPACITY {
            leaf.insert(place, start, entry);
            return;
        }

        // Keys that arrive in order leave full leaves behind; others leave
        // halves, which have room for what comes between.
        let ascending = way.at_end && place == CAPACITY;
        let middle = if ascending { CAPACITY } else { CAPACITY / 2 };
        let mut right_pointer = leaf.split_off(middle, &mut self.spare);
        self.tree.size.leaves += 1;
        // SAFETY: just allocated, nobody else knows it.
        let right = unsafe { right_pointer.as_mut() };
        let goes_right = if place == middle && !ascending {
            // Between the two: to the one that it shares more with.
            let (left, right) = (leaf.entry(leaf.len() - 1), right.entry(0));
            shared(left.start(), start) < shared(start, right.start())
        } else {
            place >= middle
        };
        if goes_right {
            right.insert(place - middle, start, entry);
        } else {
            leaf.insert(place, start, entry);
        }
        leaf.sharpen();
        right.sharpen();
        let separator = separator(leaf.entry(leaf.len() - 1), right.entry(0));
        self.add_sibling(way, separator, NodePtr::leaf(right_pointer));
    }

    /// Takes out the region that starts at `start`.
    pub(crate) fn remove(&mut self, start: &[u8]) {
        let Some((way, mut leaf)) = self.own_way(start) else {
            debug_assert!(false, "nothing to remove from an empty tree");
            return;
        };
        // SAFETY: `own_way` returns a leaf of this edit, reached by nobody else.
        let leaf = unsafe { leaf.as_mut() };
        let place = leaf.count_below(&Sought::new(start));
        leaf.remove(place);
        self.tree.len -= 1;
        let len = leaf.len();
        self.mend(way, len);
    }

    /// The tree as it is now, for a root record.
    pub(crate) fn tree(&self) -> Tree {
        self.tree
    }

    /// What the edit has replaced, to be retired now that its tree has been
    /// published; and the memory that it did not need.
    pub(crate) fn into_retired(mut self) -> (Vec<Retired>, Spare) {
        self.free_discarded();
        (self.retired, self.spare)
    }

    /// Frees all that the edit has made; returns the memory.
    pub(crate) fn abandon(mut self) -> Spare {
        self.free_discarded();
        if let Some(root) = self.tree.root {
            // SAFETY: nodes with the edit's tag were seen by nobody else, and
            // nothing that is published points to one of them.
            unsafe { Subtree::free_tagged(root, self.tag, &mut self.spare) };
        }
        self.spare
    }

    fn free_discarded(&mut self) {
        for node in self.discarded.drain(..) {
            // SAFETY: made and dropped by this edit, seen by nobody else.
            unsafe { node.free(&mut self.spare) };
        }
    }

    /// Makes the way to the leaf for `key` the edit's own.
    fn own_way(&mut self, key: &[u8]) -> Option<(Way, NonNull<Leaf>)> {
        let mut way = Way::new();
        let mut node = self.tree.root?;
        let key = Sought::new(key);
        loop {
            let (own, inner) = match node.kind() {
                RawNode::Leaf(leaf) => {
                    let leaf = self.own_leaf(leaf);
                    self.attach(&way, NodePtr::leaf(leaf));
                    return Some((way, leaf));
                }
                RawNode::Inner(inner) => {
                    let inner = self.own_inner(inner);
                    (NodePtr::inner(inner), inner)
                }
            };
            self.attach(&way, own);
            // SAFETY: a node of this edit, and nothing changes it here.
            let current = unsafe { inner.as_ref() };
            let place = current.child_for(&key);
            way.at_end &= place == current.len();
            way.push(inner, place);
            node = current.child(place);
        }
    }

    /// Points the last step of the way, or the root, to `node`.
    pub(super) fn attach(&mut self, way: &Way, node: NodePtr) {
        match way.last() {
            Some((mut inner, place)) => {
                // SAFETY: the steps of a way are nodes of this edit.
                unsafe { inner.as_mut() }.set_child(place, node);
            }
            None => self.tree.root = Some(node),
        }
    }

    pub(super) fn own_leaf(&mut self, leaf: NonNull<Leaf>) -> NonNull<Leaf> {
        // SAFETY: in the tree, hence alive.
        let current = unsafe { leaf.as_ref() };
        if current.tag == self.tag {
            return leaf;
        }
        let copy = current.copy(self.tag, &mut self.spare);
        self.retired.push(Retired::Leaf(leaf));
        copy
    }

    /// The node itself, its separators still shared.
    pub(super) fn own_inner(&mut self, inner: NonNull<Inner>) -> NonNull<Inner> {
        // SAFETY: in the tree, hence alive.
        let current = unsafe { inner.as_ref() };
        if current.tag == self.tag {
            return inner;
        }
        let copy = current.copy(self.tag, &mut self.spare);
        self.retired.push(Retired::Inner(inner));
        copy
    }

    /// The separators of a node that is the edit's own.
    pub(super) fn own_separators(&mut self, inner: &mut Inner) {
        let shared = inner.separators;
        if inner.separators().tag != self.tag {
            inner.separators = inner.separators().copy(self.tag, inner.len());
            self.retired.push(Retired::Separators(shared));
        }
    }

    /// Notes that `leaf` has left the tree; its entries have not.
    pub(super) fn drop_leaf(&mut self, leaf: NonNull<Leaf>) {
        self.tree.size.leaves -= 1;
        // SAFETY: alive until the edit ends.
        let tag = unsafe { leaf.as_ref() }.tag;
        self.drop_node(tag, Retired::Leaf(leaf));
    }

    /// Notes that `inner` and its separators have left the tree; its children
    /// have not.
    pub(super) fn drop_inner(&mut self, inner: NonNull<Inner>) {
        self.tree.size.inners -= 1;
        // SAFETY: alive until the edit ends.
        let node = unsafe { inner.as_ref() };
        let separators = node.separators().tag;
        self.drop_node(separators, Retired::Separators(node.separators));
        self.drop_node(node.tag, Retired::Inner(inner));
    }

    fn drop_node(&mut self, tag: Tag, node: Retired) {
        if tag == self.tag {
            self.discarded.push(node);
        } else {
            self.retired.push(node);
        }
    }

    /// Hangs `right` into the tree, beside the node that the way leads to.
    fn add_sibling(&mut self, mut way: Way, separator: Key, right: NodePtr) {
        self.tree.size.add_separator(&separator);
        let (mut separator, mut right) = (separator, right);
        while let Some((mut pointer, place)) = way.pop() {
            // SAFETY: the steps of a way are nodes of this edit.
            let inner = unsafe { pointer.as_mut() };
            self.own_separators(inner);
            if inner.len() < CAPACITY {
                inner.insert(place, separator, right);
                return;
            }
            let ascending = way.at_end && place == CAPACITY;
            let middle = if ascending {
                CAPACITY - 1
            } else {
                CAPACITY / 2
            };
            let (up, mut sibling_pointer) = inner.split_off(middle, &mut self.spare);
            self.tree.size.inners += 1;
            // SAFETY: just allocated, nobody else knows it.
            let sibling = unsafe { sibling_pointer.as_mut() };
            if place > middle {
                sibling.insert(place - middle - 1, separator, right);
            } else {
                inner.insert(place, separator, right);
            }
            (separator, right) = (up, NodePtr::inner(sibling_pointer));
        }
        let Some(left) = self.tree.root else {
            return;
        };
        let mut root = Inner::alloc(self.tag, &mut self.spare, left);
        self.tree.size.inners += 1;
        // SAFETY: just allocated, nobody else knows it.
        unsafe { root.as_mut() }.insert(0, separator, right);
        self.tree.root = Some(NodePtr::inner(root));
    }
}

/// A key that separates `left` from `right`: the start of `right`. If that does
/// not fit into a [`Key`] without memory of its own, it is cut behind the first
/// byte that differs; otherwise it is kept whole, for then it resembles the
/// others, and the node's keys vary at fewer positions.
pub(super) fn separator(left: &Entry, right: &Entry) -> Key {
    let (left, right) = (left.start(), right.start());
    if right.len() <= Key::INLINE {
        return right.clone();
    }
    Key::from(&right[..=shared(left, right)])
}

/// How many bytes two keys begin with alike.
fn shared(left: &[u8], right: &[u8]) -> usize {
    let alike = |(left, right): &(&u8, &u8)| left == right;
    left.iter().zip(right).take_while(alike).count()
}

// === impl Way ===

impl Way {
    pub(super) const fn new() -> Self {
        Self {
            steps: [None; MAX_HEIGHT],
            depth: 0,
            at_end: true,
        }
    }

    pub(super) fn push(&mut self, inner: NonNull<Inner>, place: usize) {
        self.steps[self.depth] = Some((inner, place));
        self.depth += 1;
    }

    pub(super) fn pop(&mut self) -> Option<(NonNull<Inner>, usize)> {
        self.depth = self.depth.checked_sub(1)?;
        self.steps[self.depth]
    }

    pub(super) fn last(&self) -> Option<(NonNull<Inner>, usize)> {
        self.steps[self.depth.checked_sub(1)?]
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn step(&self, step: usize) -> Option<(NonNull<Inner>, usize)> {
        self.steps[step]
    }

    pub(super) fn truncate(&mut self, depth: usize) {
        self.depth = self.depth.min(depth);
    }
}
