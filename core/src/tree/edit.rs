//! Changing a tree without changing what others read: copying the way down.
//!
//! An edit starts from a published tree and ends in one that shares with it all
//! that was not on the way to a change. The first change below a node copies the
//! node; later ones find the copy, which bears the edit's tag, and change it in
//! place. So a batch of changes copies each node once, however many of them pass
//! through it.
//!
//! Nothing that the edit makes can be seen before the edit is published, and
//! nothing that it takes out is freed before it is: [`Edit::publish`] yields the
//! replaced nodes for the reclaimer, [`Edit::abandon`] frees the new ones.

use std::ptr::NonNull;

use super::node::{Inner, Leaf, NodePtr, RawNode, Tag, node_memory};
use super::retire::{Retired, Subtree};
use super::search::Sought;
use super::trail::Trail;
use super::{CAPACITY, MAX_HEIGHT, MERGE_BELOW, Tree, TreeRef};
use crate::entry::{Entry, EntryPtr};
use crate::key::Key;
use crate::range::KeyRange;
use crate::spare::Spare;

/// A tree under change.
pub(crate) struct Edit {
    pub(super) tag: Tag,
    pub(super) tree: Tree,
    pub(super) means: Means,
    /// The leaf that was changed last, and the way to it, while that is still true: the
    /// changes of a small batch are often near to each other.
    pub(super) recent: Option<(Way, NonNull<Leaf>)>,
}

/// What an edit works with; used again by later ones.
#[derive(Debug)]
pub(crate) struct Means {
    /// Published nodes that are no longer in the tree.
    retired: Vec<Retired>,
    /// Nodes of this edit that are no longer in the tree.
    discarded: Vec<Retired>,
    /// Memory for new nodes.
    pub(super) spare: Spare,
}

/// The way from the root to a leaf: inner nodes of this edit, each with the
/// child that was taken.
#[derive(Clone, Copy)]
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
    pub(crate) fn new(tree: Tree, tag: Tag, means: Means) -> Self {
        Self {
            tag,
            tree,
            means,
            recent: None,
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
        let Some((_, mut leaf, place)) = self.own_place(&Sought::new(start)) else {
            debug_assert!(false, "nothing to replace in an empty tree");
            return;
        };
        // SAFETY: `own_place` returns a leaf of this edit, reached by nobody else.
        unsafe { leaf.as_mut() }.replace(place - 1, entry);
    }

    /// Adds `entry`, whose start no region in the tree has.
    pub(crate) fn insert(&mut self, entry: EntryPtr) {
        // SAFETY: the caller of any change keeps the entry alive.
        let start = unsafe { entry.as_ref() }.start();
        self.tree.len += 1;
        let Some((way, mut pointer, place)) = self.own_place(&Sought::new(start)) else {
            let mut leaf = Leaf::alloc(self.tag, &mut self.means.spare);
            // SAFETY: just allocated, nobody else knows it.
            unsafe { leaf.as_mut() }.insert(0, start, entry);
            self.tree.size.leaves += 1;
            self.tree.root = Some(NodePtr::leaf(leaf));
            return;
        };
        // SAFETY: `own_place` returns a leaf of this edit, reached by nobody else.
        let leaf = unsafe { pointer.as_mut() };
        if leaf.len() < CAPACITY {
            leaf.insert(place, start, entry);
            return;
        }
        self.recent = None;

        // Keys that arrive in order leave full leaves behind; others leave
        // halves, which have room for what comes between.
        let ascending = way.at_end && place == CAPACITY;
        let middle = if ascending { CAPACITY } else { CAPACITY / 2 };
        let mut right_pointer = leaf.split_off(middle, &mut self.means.spare);
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
        let Some((way, mut leaf, place)) = self.own_place(&Sought::new(start)) else {
            debug_assert!(false, "nothing to remove from an empty tree");
            return;
        };
        // SAFETY: `own_place` returns a leaf of this edit, reached by nobody else.
        let leaf = unsafe { leaf.as_mut() };
        leaf.remove(place - 1);
        self.tree.len -= 1;
        let len = leaf.len();
        if len < MERGE_BELOW {
            self.recent = None;
            self.mend(way, len);
        }
    }

    /// The tree as it is now, for a root record.
    pub(crate) fn tree(&self) -> Tree {
        self.tree
    }

    /// Ends the edit, whose tree has been published. The means hold what it has
    /// replaced, to be freed by [`Means::free_retired`].
    pub(crate) fn publish(mut self) -> Means {
        self.free_discarded();
        self.means
    }

    /// Frees all that the edit has made; returns the means.
    pub(crate) fn abandon(mut self) -> Means {
        self.free_discarded();
        if let Some(root) = self.tree.root {
            // SAFETY: nodes with the edit's tag were seen by nobody else, and
            // nothing that is published points to one of them.
            unsafe { Subtree::free_tagged(root, self.tag, &mut self.means.spare) };
        }
        self.means.retired.clear();
        self.means
    }

    fn free_discarded(&mut self) {
        let Means {
            discarded, spare, ..
        } = &mut self.means;
        for node in discarded.drain(..) {
            // SAFETY: made and dropped by this edit, seen by nobody else.
            unsafe { node.free(spare) };
        }
    }

    /// Makes the way to the leaf for `key` the edit's own. Returns it with the leaf, and
    /// how many regions in there start at or before `key`.
    fn own_place(&mut self, key: &Sought<'_>) -> Option<(Way, NonNull<Leaf>, usize)> {
        if let Some((_, place)) = self.recent_around(key) {
            return self.recent.map(|(way, leaf)| (way, leaf, place));
        }
        let mut way = Way::new();
        let mut node = self.tree.root?;
        let leaf = loop {
            let (own, inner) = match node.kind() {
                RawNode::Leaf(leaf) => {
                    let leaf = self.own_leaf(leaf);
                    self.attach(&way, NodePtr::leaf(leaf));
                    break leaf;
                }
                RawNode::Inner(inner) => {
                    let inner = self.own_inner(inner);
                    (NodePtr::inner(inner), inner)
                }
            };
            self.attach(&way, own);
            // SAFETY: a node of this edit, and nothing changes it here.
            let current = unsafe { inner.as_ref() };
            let place = current.child_for(key);
            way.step_to(inner, place, current.len());
            node = current.child(place);
        };
        self.recent = Some((way, leaf));
        // SAFETY: a leaf of this edit, which changes it through `&mut self` only.
        Some((way, leaf, unsafe { leaf.as_ref() }.count_at_most(key)))
    }

    /// The leaf that was changed last, if it has regions on both sides of `key`: that
    /// at or before it, and the next one. The place is the latter's.
    fn recent_around(&self, key: &Sought<'_>) -> Option<(&Leaf, usize)> {
        let (_, leaf) = self.recent.as_ref()?;
        // SAFETY: a leaf of this edit, which changes it through `&mut self` only.
        let leaf = unsafe { leaf.as_ref() };
        let place = leaf.count_at_most(key);
        (place > 0 && place < leaf.len()).then_some((leaf, place))
    }

    /// Adds the regions that overlap `range` to `found`. `trail` is that of its start in
    /// the tree as it is now, if it is known.
    pub(crate) fn overlapping(
        &self,
        range: &KeyRange,
        trail: Option<&Trail<'_>>,
        found: &mut Vec<EntryPtr>,
    ) {
        let in_leaf = match trail {
            Some(trail) => trail.leaf(self.read()).map(|leaf| {
                let place = leaf.count_at_most(trail.key());
                (leaf, place)
            }),
            None => self.recent_around(&Sought::new(range.start())),
        };
        // Unless there are regions on both sides, more than this leaf is to be looked at.
        if let Some((leaf, place)) = in_leaf.filter(|&(_, place)| place > 0) {
            let mut rest = place..leaf.len();
            let behind = rest.find(|&place| !range.ends_after(leaf.entry(place).start()));
            if let Some(behind) = behind {
                let before = leaf.entry(place - 1).region().range();
                let first = place - usize::from(before.ends_after(range.start()));
                found.extend((first..behind).map(|place| leaf.pointer(place)));
                return;
            }
        }
        for pointer in self.read().seek(range.start()) {
            // SAFETY: in the tree of this edit, which is not changed meanwhile.
            let entry: &Entry = unsafe { pointer.as_ref() };
            if !range.ends_after(entry.start()) {
                return;
            }
            found.push(pointer);
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
        let copy = current.copy(self.tag, &mut self.means.spare);
        self.means.retired.push(Retired::Leaf(leaf));
        copy
    }

    /// The node itself, its separators still shared.
    pub(super) fn own_inner(&mut self, inner: NonNull<Inner>) -> NonNull<Inner> {
        // SAFETY: in the tree, hence alive.
        let current = unsafe { inner.as_ref() };
        if current.tag == self.tag {
            return inner;
        }
        let copy = current.copy(self.tag, &mut self.means.spare);
        self.means.retired.push(Retired::Inner(inner));
        copy
    }

    /// The separators of a node that is the edit's own.
    pub(super) fn own_separators(&mut self, inner: &mut Inner) {
        let shared = inner.separators;
        if inner.separators().tag != self.tag {
            inner.separators = inner.separators().copy(self.tag, inner.len());
            self.means.retired.push(Retired::Separators(shared));
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
            self.means.discarded.push(node);
        } else {
            self.means.retired.push(node);
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
            let (up, mut sibling_pointer) = inner.split_off(middle, &mut self.means.spare);
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
        let mut root = Inner::alloc(self.tag, &mut self.means.spare, left);
        self.tree.size.inners += 1;
        // SAFETY: just allocated, nobody else knows it.
        unsafe { root.as_mut() }.insert(0, separator, right);
        self.tree.root = Some(NodePtr::inner(root));
    }
}

// === impl Means ===

impl Means {
    /// None.
    pub(crate) fn new() -> Self {
        Self {
            retired: Vec::new(),
            discarded: Vec::new(),
            spare: Spare::new(node_memory()),
        }
    }

    /// How many nodes have been replaced.
    pub(crate) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Frees what has been replaced, into the free memory.
    ///
    /// # Safety
    ///
    /// The edit was published, and no reader of an earlier tree is left.
    pub(crate) unsafe fn free_retired(&mut self) {
        for node in self.retired.drain(..) {
            // SAFETY: by the caller's word; each node was retired once.
            unsafe { node.free(&mut self.spare) };
        }
    }

    /// Bytes of the free memory.
    pub(crate) fn spare_bytes(&self) -> usize {
        self.spare.bytes()
    }

    /// Takes over the free memory of `other`.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.spare.append(other.spare);
    }

    /// Gives free memory back, and that of lists longer than `kept`.
    pub(crate) fn release(&mut self, kept: usize) {
        self.spare.release();
        self.retired.shrink_to(kept);
        self.discarded.shrink_to(kept);
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

    /// The same, for a node with so many separators.
    pub(super) fn step_to(&mut self, inner: NonNull<Inner>, place: usize, len: usize) {
        self.at_end &= place == len;
        self.push(inner, place);
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
