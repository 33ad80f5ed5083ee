//! The nodes: leaves, inner nodes, and the separators of inner nodes.
//!
//! Every node bears the *tag* of the edit that made it. An edit may change the
//! nodes with its own tag in place, since nobody else has seen them; all others
//! are frozen from the publication of the root that first reached them, until
//! they are freed.
//!
//! The separators of an inner node stand in a block of their own, because they
//! change only when a child is split or merged, while the node itself is copied
//! by each change below it. Copies of a node share the block until one of them
//! changes it.

use std::alloc::Layout;
use std::mem::offset_of;
use std::ptr::NonNull;

use super::CAPACITY;
use super::occupied::Occupied;
use super::search::{Heads, Sought};
use crate::entry::{Entry, EntryPtr, ShortEntry};
use crate::key::Key;
use crate::prefetch::prefetch;
use crate::slab::{Global, Short, Slab, Source};
use crate::spare::Spare;
use crate::sync::Canary;

/// Which edit made a node: the version of the root that it set out to publish.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Tag(pub(crate) u64);

/// A leaf: regions in the order of their keys.
#[repr(C, align(64))]
pub(crate) struct Leaf {
    pub(super) heads: Heads,
    // Invariant: the first `heads.len()` are entries of the map, alive while the leaf
    // can be read: they are released after it has become unreachable.
    slots: [Option<ShortEntry>; CAPACITY],
    pub(super) tag: Tag,
    canary: Canary,
}

/// An inner node: separators, and one child more than these.
///
/// Separator `i` is above every key of child `i` and at most as great as every
/// key of child `i + 1`.
#[repr(C, align(64))]
pub(crate) struct Inner {
    pub(super) heads: Heads,
    // Invariant: the first `heads.len() + 1` are nodes, alive while this one can be
    // read: they are freed after it has become unreachable. All or none are leaves.
    children: [Option<Short<()>>; CAPACITY + 1],
    pub(super) tag: Tag,
    pub(super) separators: NonNull<Separators>,
    canary: Canary,
}

/// The separators of an inner node, as many as its heads say.
pub(crate) struct Separators {
    pub(super) tag: Tag,
    keys: [Key; CAPACITY],
    canary: Canary,
}

/// A pointer to a leaf or to an inner node; its lowest bit says which.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NodePtr(NonNull<()>);

/// A node that can be read for `'s`.
#[derive(Clone, Copy)]
pub(super) enum NodeRef<'s> {
    Leaf(&'s Leaf),
    Inner(&'s Inner),
}

/// A node by its kind.
#[derive(Clone, Copy)]
pub(super) enum RawNode {
    Leaf(NonNull<Leaf>),
    Inner(NonNull<Inner>),
}

// SAFETY: frozen nodes are only read, private ones have a single owner; what
// they hold (keys and entries) may be shared and sent.
unsafe impl Send for NodePtr {}
// SAFETY: as for `Send`.
unsafe impl Sync for NodePtr {}

const LEAF_BIT: usize = 1;

/// What fits any node.
pub(super) const NODE: Layout = {
    let (leaf, inner) = (Layout::new::<Leaf>(), Layout::new::<Inner>());
    assert!(leaf.align() == inner.align(), "one alignment for all nodes");
    if leaf.size() > inner.size() {
        leaf
    } else {
        inner
    }
};

/// Memory that fits any node.
pub(super) fn node_memory() -> Source {
    static NODES: Global = Global::new(|| Slab::in_arena(NODE));
    Source::slab(&NODES, NODE)
}

/// Moves `node` to such memory.
fn put<T>(spare: &mut Spare, node: T) -> NonNull<T> {
    const { assert!(size_of::<T>() <= NODE.size() && align_of::<T>() <= NODE.align()) };
    let memory = spare.take().cast::<T>();
    // SAFETY: memory for any node, owned by nobody else.
    unsafe { memory.write(node) };
    memory
}

/// The bytes of `node` again; its canary is not one of its own, and must be
/// replaced without being dropped. Nothing else in a node needs a drop.
fn duplicate<T>(spare: &mut Spare, node: &T) -> NonNull<T> {
    const { assert!(size_of::<T>() <= NODE.size() && align_of::<T>() <= NODE.align()) };
    let memory = spare.take().cast::<T>();
    // SAFETY: memory for any node, owned by nobody else, hence not `node`'s.
    unsafe { memory.as_ptr().copy_from_nonoverlapping(node, 1) };
    memory
}

/// Drops `node` and keeps its memory.
///
/// # Safety
///
/// `node` came from `put` and is no longer reachable for anyone.
pub(super) unsafe fn reclaim<T>(spare: &mut Spare, node: NonNull<T>) {
    // SAFETY: by the caller's word.
    unsafe { node.drop_in_place() };
    // SAFETY: from `put`, and what was in it has been dropped.
    unsafe { spare.keep(node.cast()) };
}

// === impl NodePtr ===

impl NodePtr {
    pub(super) fn leaf(leaf: NonNull<Leaf>) -> Self {
        Self(leaf.cast::<()>().map_addr(|addr| addr | LEAF_BIT))
    }

    pub(super) fn inner(inner: NonNull<Inner>) -> Self {
        Self(inner.cast())
    }

    #[inline]
    pub(super) fn kind(self) -> RawNode {
        if !self.is_leaf() {
            return RawNode::Inner(self.0.cast());
        }
        let leaf = self.0.as_ptr().map_addr(|addr| addr & !LEAF_BIT);
        // SAFETY: `leaf` made this from a non-null, aligned pointer.
        RawNode::Leaf(unsafe { NonNull::new_unchecked(leaf) }.cast())
    }

    #[inline]
    fn is_leaf(self) -> bool {
        self.0.addr().get() & LEAF_BIT != 0
    }

    /// The node in four bytes, without its kind.
    fn short(self) -> Short<()> {
        match self.kind() {
            RawNode::Leaf(leaf) => Short::new(leaf.cast()),
            RawNode::Inner(inner) => Short::new(inner.cast()),
        }
    }

    /// Asks for what a search in the node will read.
    #[inline]
    pub(super) fn prefetch(self) {
        match self.kind() {
            RawNode::Leaf(leaf) => prefetch(leaf.as_ptr(), offset_of!(Leaf, tag)),
            RawNode::Inner(inner) => prefetch(inner.as_ptr(), offset_of!(Inner, tag)),
        }
    }

    /// Asks for what tells the place of a key in the node, not for what stands at
    /// that place.
    #[inline]
    pub(super) fn prefetch_heads(self) {
        const { assert!(offset_of!(Leaf, heads) == 0 && offset_of!(Inner, heads) == 0) };
        let node = match self.kind() {
            RawNode::Leaf(leaf) => leaf.cast(),
            RawNode::Inner(inner) => inner.cast::<Heads>(),
        };
        prefetch(node.as_ptr(), size_of::<Heads>());
    }

    /// # Safety
    ///
    /// The node, and everything below it, stays alive and unchanged for `'s`.
    #[inline]
    pub(super) unsafe fn as_ref<'s>(self) -> NodeRef<'s> {
        match self.kind() {
            RawNode::Leaf(leaf) => {
                // SAFETY: alive and frozen by the caller's word.
                let leaf = unsafe { leaf.as_ref() };
                leaf.canary.check();
                NodeRef::Leaf(leaf)
            }
            RawNode::Inner(inner) => {
                // SAFETY: alive and frozen by the caller's word.
                let inner = unsafe { inner.as_ref() };
                inner.canary.check();
                NodeRef::Inner(inner)
            }
        }
    }
}

// === impl Leaf ===

impl Leaf {
    pub(super) fn alloc(tag: Tag, spare: &mut Spare) -> NonNull<Self> {
        Self::alloc_with(tag, spare, Heads::new(), [None; CAPACITY])
    }

    #[inline]
    fn alloc_with(
        tag: Tag,
        spare: &mut Spare,
        heads: Heads,
        slots: [Option<ShortEntry>; CAPACITY],
    ) -> NonNull<Self> {
        put(
            spare,
            Self {
                tag,
                heads,
                slots,
                canary: Canary::new(),
            },
        )
    }

    pub(super) fn copy(&self, tag: Tag, spare: &mut Spare) -> NonNull<Self> {
        let mut copy = duplicate(spare, self);
        // SAFETY: just made, nobody else knows it.
        let leaf = unsafe { copy.as_mut() };
        leaf.tag = tag;
        // SAFETY: valid for writes; the bytes there are another node's canary.
        unsafe { (&raw mut leaf.canary).write(Canary::new()) };
        copy
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// The pointer in slot `place`.
    #[inline]
    pub(super) fn pointer(&self, place: usize) -> EntryPtr {
        match self.slots[place] {
            // SAFETY: alive by the invariant.
            Some(entry) => unsafe { entry.pointer() },
            None => unreachable!("slot {place} of {} is empty", self.len()),
        }
    }

    /// The slots from `place` up to `stop`, which is at most their number.
    pub(super) fn occupied(&self, place: usize, stop: usize) -> Occupied<'_> {
        debug_assert!(stop <= self.len());
        // SAFETY: filled by the invariant, and readable as long as this leaf.
        unsafe { Occupied::of(self.slots.get(place..stop).unwrap_or_default()) }
    }

    /// Asks for the pointer in slot `place`.
    #[inline]
    pub(super) fn prefetch_pointer(&self, place: usize) {
        prefetch(&raw const self.slots[place], 1);
    }

    /// The entry in slot `place`.
    #[inline]
    pub(super) fn entry(&self, place: usize) -> &Entry {
        // SAFETY: alive by the invariant.
        unsafe { self.pointer(place).as_ref() }
    }

    #[inline]
    fn key(&self, place: usize) -> &[u8] {
        self.entry(place).start()
    }

    /// How many regions start at or before `key`.
    #[inline]
    pub(super) fn count_at_most(&self, key: &Sought<'_>) -> usize {
        self.heads.count_at_most(key, |place| self.key(place))
    }

    /// How many regions start before `key`.
    #[inline]
    pub(super) fn count_below(&self, key: &Sought<'_>) -> usize {
        self.heads.count_below(key, |place| self.key(place))
    }

    pub(super) fn replace(&mut self, place: usize, entry: EntryPtr) -> EntryPtr {
        let old = self.pointer(place);
        self.slots[place] = Some(entry.short());
        old
    }

    pub(super) fn insert(&mut self, place: usize, key: &[u8], entry: EntryPtr) {
        let len = self.len();
        self.heads.insert(place, key);
        self.slots.copy_within(place..len, place + 1);
        self.slots[place] = Some(entry.short());
    }

    pub(super) fn remove(&mut self, place: usize) -> EntryPtr {
        let old = self.pointer(place);
        let len = self.len();
        self.heads.remove(place);
        self.slots.copy_within(place + 1..len, place);
        old
    }

    /// Moves the slots from `put` on to a new leaf.
    pub(super) fn split_off(&mut self, place: usize, spare: &mut Spare) -> NonNull<Self> {
        let moved = self.len() - place;
        let mut slots = [None; CAPACITY];
        slots[..moved].copy_from_slice(&self.slots[place..place + moved]);
        let heads = self.heads.split_off(place);
        Self::alloc_with(self.tag, spare, heads, slots)
    }

    /// Adds the slots of the right neighbour.
    pub(super) fn append(&mut self, right: &Self) {
        let (len, added) = (self.len(), right.len());
        self.heads.append(&right.heads);
        self.slots[len..len + added].copy_from_slice(&right.slots[..added]);
        self.sharpen();
    }

    /// Makes the heads anew if they do not tell all keys apart. Reads every key of
    /// the leaf, so it is done only when the leaf has changed its shape.
    pub(super) fn sharpen(&mut self) {
        if self.heads.has_ties() {
            let slots = &self.slots;
            self.heads.renew(|place| match slots[place] {
                Some(entry) => {
                    // SAFETY: alive by the invariant.
                    let pointer = unsafe { entry.pointer() };
                    // SAFETY: as above.
                    unsafe { pointer.as_ref::<'_>() }.start().as_bytes()
                }
                None => &[],
            });
        }
    }

    #[cfg(any(test, feature = "oracle"))]
    pub(super) fn check_heads(&self) -> Result<(), String> {
        self.heads.check(|place| self.key(place))
    }
}

// === impl Inner ===

impl Inner {
    /// A node with one child and no separators.
    pub(super) fn alloc(tag: Tag, spare: &mut Spare, child: NodePtr) -> NonNull<Self> {
        let mut children = [None; CAPACITY + 1];
        children[0] = Some(child.short());
        let mut heads = Heads::new();
        heads.lowest = child.is_leaf();
        put(
            spare,
            Self {
                heads,
                children,
                tag,
                separators: Separators::alloc(tag),
                canary: Canary::new(),
            },
        )
    }

    /// A copy that shares the separators.
    pub(super) fn copy(&self, tag: Tag, spare: &mut Spare) -> NonNull<Self> {
        let mut copy = duplicate(spare, self);
        // SAFETY: just made, nobody else knows it.
        let inner = unsafe { copy.as_mut() };
        inner.tag = tag;
        // SAFETY: valid for writes; the bytes there are another node's canary.
        unsafe { (&raw mut inner.canary).write(Canary::new()) };
        copy
    }

    /// How many separators the node has; its children are one more.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    #[inline]
    pub(super) fn child(&self, place: usize) -> NodePtr {
        match self.children[place] {
            Some(child) => {
                // SAFETY: alive by the invariant.
                let child = unsafe { child.pointer() };
                if self.heads.lowest {
                    NodePtr::leaf(child.cast())
                } else {
                    NodePtr::inner(child.cast())
                }
            }
            None => unreachable!("child {place} of {} is missing", self.len() + 1),
        }
    }

    /// Child `place`, for as long as this node can be read.
    #[inline]
    pub(super) fn child_ref(&self, place: usize) -> NodeRef<'_> {
        let child = self.child(place);
        child.prefetch();
        // SAFETY: alive by the invariant.
        unsafe { child.as_ref() }
    }

    /// The same, but asks for the heads of the child only.
    #[inline]
    pub(super) fn child_for_search(&self, place: usize) -> NodeRef<'_> {
        let child = self.child(place);
        child.prefetch_heads();
        // SAFETY: as in `child_ref`.
        unsafe { child.as_ref() }
    }

    pub(super) fn separators(&self) -> &Separators {
        // SAFETY: the block lives at least as long as the node that points to it.
        let separators = unsafe { self.separators.as_ref() };
        separators.canary.check();
        separators
    }

    #[inline]
    pub(super) fn separator(&self, place: usize) -> &Key {
        &self.separators().keys[place]
    }

    /// The child that a region starting at `key` belongs to.
    #[inline]
    pub(super) fn child_for(&self, key: &Sought<'_>) -> usize {
        self.heads.count_at_most(key, |place| self.separator(place))
    }

    /// The child that the last region starting before `key` belongs to, unless
    /// that child has none.
    #[inline]
    pub(super) fn child_below(&self, key: &Sought<'_>) -> usize {
        self.heads.count_below(key, |place| self.separator(place))
    }

    pub(super) fn set_child(&mut self, place: usize, child: NodePtr) {
        debug_assert_eq!(child.is_leaf(), self.heads.lowest);
        self.children[place] = Some(child.short());
    }

    /// Adds `right` as the child after `place`, behind `separator`. The node and
    /// its block are the caller's own.
    pub(super) fn insert(&mut self, place: usize, separator: Key, right: NodePtr) {
        let len = self.len();
        self.heads.insert(place, &separator);
        self.children.copy_within(place + 1..=len, place + 2);
        debug_assert_eq!(right.is_leaf(), self.heads.lowest);
        self.children[place + 1] = Some(right.short());
        let keys = &mut self.own_separators().keys;
        keys[place..=len].rotate_right(1);
        keys[place] = separator;
    }

    /// Removes separator `place` and child `child`, its left or right side. The
    /// node and its block are the caller's own.
    pub(super) fn remove(&mut self, place: usize, child: usize) {
        debug_assert!(child == place || child == place + 1);
        let len = self.len();
        self.heads.remove(place);
        self.children.copy_within(child + 1..=len, child);
        let keys = &mut self.own_separators().keys;
        keys[place..len].rotate_left(1);
        keys[len - 1] = Key::EMPTY;
    }

    /// Splits at separator `place`, which moves up: returned with the new right
    /// node. The node and its block are the caller's own.
    pub(super) fn split_off(&mut self, place: usize, spare: &mut Spare) -> (Key, NonNull<Self>) {
        let len = self.len();
        let mut children = [None; CAPACITY + 1];
        children[..len - place].copy_from_slice(&self.children[place + 1..=len]);

        let mut heads = self.heads.split_off(place + 1);
        let right_separators = Separators::alloc(self.tag);
        let right = {
            let mut pointer = right_separators;
            // SAFETY: just allocated, nobody else knows it.
            unsafe { pointer.as_mut() }
        };
        let keys = &mut self.own_separators().keys;
        for (to, from) in right.keys.iter_mut().zip(&mut keys[place + 1..len]) {
            *to = std::mem::take(from);
        }
        let middle = std::mem::take(&mut keys[place]);
        heads.renew(|place| &right.keys[place]);

        self.heads.truncate(place);
        self.sharpen();
        let right = Self {
            heads,
            children,
            tag: self.tag,
            separators: right_separators,
            canary: Canary::new(),
        };
        (middle, put(spare, right))
    }

    /// Adds the separators and children of the right neighbour, behind the
    /// separator between the two. The node and its block are the caller's own.
    pub(super) fn append(&mut self, separator: &Key, right: &Self) {
        debug_assert_eq!(right.heads.lowest, self.heads.lowest);
        let len = self.len();
        let added = right.len();
        self.heads.insert(len, separator);
        self.heads.append(&right.heads);
        self.children[len + 1..len + 2 + added].copy_from_slice(&right.children[..=added]);
        let keys = &mut self.own_separators().keys;
        keys[len] = separator.clone();
        keys[len + 1..=len + added].clone_from_slice(&right.separators().keys[..added]);
        self.sharpen();
    }

    fn sharpen(&mut self) {
        // SAFETY: as in `separators`; the borrow is of the block, not the node.
        let separators = unsafe { self.separators.as_ref() };
        self.heads.renew(|place| &separators.keys[place]);
    }

    fn own_separators(&mut self) -> &mut Separators {
        debug_assert_eq!(self.separators().tag, self.tag, "the block is shared");
        // SAFETY: both the node and the block bear the tag of the edit that now
        // changes them, so nobody else can reach the block.
        unsafe { self.separators.as_mut() }
    }

    #[cfg(any(test, feature = "oracle"))]
    pub(super) fn check_heads(&self) -> Result<(), String> {
        self.heads.check(|place| self.separator(place))
    }
}

// === impl Separators ===

impl Separators {
    fn alloc(tag: Tag) -> NonNull<Self> {
        let block = Box::new(Self {
            tag,
            keys: [Key::EMPTY; CAPACITY],
            canary: Canary::new(),
        });
        NonNull::from(Box::leak(block))
    }

    /// A copy of the first `len` keys.
    pub(super) fn copy(&self, tag: Tag, len: usize) -> NonNull<Self> {
        let mut copy = Self::alloc(tag);
        // SAFETY: just allocated, nobody else knows it.
        let block = unsafe { copy.as_mut() };
        block.keys[..len].clone_from_slice(&self.keys[..len]);
        copy
    }
}

#[cfg(all(
    test,
    not(any(miri, fuzzing, tidegate_loom)),
    target_os = "linux",
    target_pointer_width = "64"
))]
mod tests {
    use super::*;

    #[test]
    fn what_a_search_reads_of_a_node_is_nine_lines() {
        assert_eq!(size_of::<Heads>(), 5 * 64);
        assert_eq!(offset_of!(Leaf, tag), 9 * 64);
        assert_eq!(NODE.size(), 10 * 64);
    }
}
