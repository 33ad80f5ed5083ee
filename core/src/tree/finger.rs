//! Changes in the order of their keys, several at a time.
//!
//! A batch that goes through the tree from left to right finds most of the way to
//! a key under its finger: the inner nodes that the key before it passed. And
//! since the keys are known beforehand, the ways of several can be walked before
//! the first leaf is looked into, so that their trips to memory overlap:
//!
//! 1. [`Edit::spot`] walks down to the leaf of each key, and asks for it;
//! 2. [`Edit::locate`] finds the place in it, and asks for the entries on both
//!    sides;
//! 3. [`Edit::place_new`] and [`Edit::place_known`] make the changes.
//!
//! A change that splits a leaf moves the places that were found for later ones:
//! these are sought again. A change that needs more than what is under the finger
//! (it displaces something, or its neighbours are not at hand) is left to the
//! caller, who makes it by the operations of `edit.rs`.

use std::ptr::NonNull;

use super::CAPACITY;
use super::edit::{Edit, Way};
use super::node::{Inner, Leaf, NodePtr, RawNode};
use super::search::Sought;
use crate::entry::{Entry, EntryPtr};

/// Where a walk through the tree has come to.
pub(crate) struct Finger {
    way: Way,
    run: Option<Run>,
}

/// The leaf that was changed last.
struct Run {
    /// The leaf as the spots know it.
    found: NonNull<Leaf>,
    /// The edit's own copy, or the same.
    own: NonNull<Leaf>,
    /// Entries added since the places in it were sought.
    added: usize,
}

/// The place of a key in a leaf. Valid until the edit splits or merges a node.
pub(crate) struct Spot {
    /// The inner node above the leaf, which is the edit's own, and which child
    /// of it the leaf is.
    parent: Option<(NonNull<Inner>, usize)>,
    leaf: NonNull<Leaf>,
    place: usize,
    /// Whether the leaf is the first of the tree, or the last one.
    first: bool,
    last: bool,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Placed {
    /// It is made.
    Done,
    /// It is made, and has split a leaf: spots are no longer valid.
    Split,
    /// It is not made, and has to be made otherwise.
    No,
}

impl Finger {
    pub(crate) fn new() -> Self {
        Self {
            way: Way::new(),
            run: None,
        }
    }
}

impl Edit {
    /// The leaf for `key`; `None` if the tree is empty. Keys have to ascend for
    /// as long as the finger is used. The inner nodes on the way become the
    /// edit's own.
    pub(crate) fn spot(&mut self, finger: &mut Finger, key: &[u8]) -> Option<Spot> {
        finger.run = None;
        let way = &mut finger.way;
        let mut node = match way.leave(key) {
            Some(node) => node,
            None => self.tree.root?,
        };
        let sought = Sought::new(key);
        let leaf = loop {
            match node.kind() {
                RawNode::Leaf(leaf) => break leaf,
                RawNode::Inner(inner) => {
                    let inner = self.own_inner(inner);
                    self.attach(way, NodePtr::inner(inner));
                    // SAFETY: a node of this edit, and nothing changes it here.
                    let current = unsafe { inner.as_ref() };
                    let place = current.child_for(&sought);
                    way.push(inner, place);
                    node = current.child(place);
                }
            }
        };
        node.prefetch();
        let (first, last) = way.edges();
        Some(Spot {
            parent: way.last(),
            leaf,
            place: 0,
            first,
            last,
        })
    }

    /// Finds the place of `key` in the leaf of `spot`.
    pub(crate) fn locate(&self, spot: &mut Spot, key: &[u8]) {
        // SAFETY: in the tree when the spot was found, hence alive; the edit
        // changes it through `&mut self` only.
        let leaf = unsafe { spot.leaf.as_ref() };
        spot.place = leaf.count_at_most(&Sought::new(key));
        for place in spot.place.saturating_sub(1)..leaf.len().min(spot.place + 1) {
            leaf.pointer(place).prefetch_whole();
        }
    }

    /// Adds `entry` at its spot, if it can be seen from there that no region in
    /// the tree overlaps it. Spots have to be used in ascending order.
    pub(crate) fn place_new(
        &mut self,
        finger: &mut Finger,
        spot: &Spot,
        pointer: EntryPtr,
    ) -> Placed {
        // SAFETY: the caller of any change keeps the entry alive.
        let entry: &Entry = unsafe { pointer.as_ref() };
        let (found, added) = finger.at(spot);
        let place = spot.place + added;
        // SAFETY: in the tree, hence alive.
        let leaf = unsafe { found.as_ref() };
        if !is_free(leaf, place, spot, entry) {
            return Placed::No;
        }
        if leaf.len() == CAPACITY {
            self.insert(pointer);
            *finger = Finger::new();
            return Placed::Split;
        }
        self.tree.len += 1;
        let run = self.own_at(finger, spot);
        run.added += 1;
        // SAFETY: a leaf of this edit, reached by nobody else.
        unsafe { run.own.as_mut() }.insert(place, entry.start(), pointer);
        Placed::Done
    }

    /// Puts `entry` in the place of `old`, which has the same range and is the
    /// one before its spot. Spots have to be used in ascending order.
    pub(crate) fn place_known(
        &mut self,
        finger: &mut Finger,
        spot: &Spot,
        old: EntryPtr,
        pointer: EntryPtr,
    ) -> Placed {
        let (found, added) = finger.at(spot);
        // SAFETY: in the tree, hence alive.
        let leaf = unsafe { found.as_ref() };
        let place = match (spot.place + added).checked_sub(1) {
            Some(place) if leaf.pointer(place) == old => place,
            _ => return Placed::No,
        };
        let run = self.own_at(finger, spot);
        // SAFETY: a leaf of this edit, reached by nobody else.
        unsafe { run.own.as_mut() }.replace(place, pointer);
        Placed::Done
    }

    /// Makes the leaf of `spot` the edit's own.
    fn own_at<'f>(&mut self, finger: &'f mut Finger, spot: &Spot) -> &'f mut Run {
        let run = finger.run.take().filter(|run| run.found == spot.leaf);
        let run = run.unwrap_or_else(|| {
            let own = self.own_leaf(spot.leaf);
            match spot.parent {
                Some((mut inner, place)) => {
                    // SAFETY: a node of this edit, reached by nobody else.
                    unsafe { inner.as_mut() }.set_child(place, NodePtr::leaf(own));
                }
                None => self.tree.root = Some(NodePtr::leaf(own)),
            }
            Run {
                found: spot.leaf,
                own,
                added: 0,
            }
        });
        finger.run.insert(run)
    }
}

impl Finger {
    /// The leaf of `spot` as it is now, and how many entries have been added to
    /// it, all of them before the spot.
    fn at(&self, spot: &Spot) -> (NonNull<Leaf>, usize) {
        match &self.run {
            Some(run) if run.found == spot.leaf => (run.own, run.added),
            _ => (spot.leaf, 0),
        }
    }
}

/// Whether `entry`, whose place in `leaf` is `place`, certainly overlaps neither
/// of its neighbours.
fn is_free(leaf: &Leaf, place: usize, spot: &Spot, entry: &Entry) -> bool {
    let range = entry.region().range();
    let left_is_free = if let Some(left) = place.checked_sub(1) {
        !leaf.entry(left).region().range().ends_after(range.start())
    } else {
        spot.first
            || spot
                .beside(|place| place.checked_sub(1))
                .is_some_and(|leaf| {
                    let left = leaf.entry(leaf.len() - 1).region().range();
                    !left.ends_after(range.start())
                })
    };
    left_is_free
        && if place < leaf.len() {
            !range.ends_after(leaf.entry(place).start())
        } else {
            spot.last
                || spot
                    .beside(|place| place.checked_add(1))
                    .is_some_and(|leaf| !range.ends_after(leaf.entry(0).start()))
        }
}

impl Spot {
    /// A leaf beside that of the spot, if it is under the same node.
    fn beside(&self, place: impl Fn(usize) -> Option<usize>) -> Option<&Leaf> {
        let (inner, own) = self.parent?;
        // SAFETY: in the tree, hence alive.
        let inner = unsafe { inner.as_ref() };
        let place = place(own).filter(|&place| place <= inner.len())?;
        match inner.child(place).kind() {
            // SAFETY: in the tree, hence alive; leaves below an inner node are
            // never empty.
            RawNode::Leaf(leaf) => Some(unsafe { leaf.as_ref() }),
            RawNode::Inner(_) => None,
        }
    }
}

impl Way {
    /// Goes up to where the way to `key` parts from this one. Returns the node
    /// that it goes on from, which the way does not hold any more; `None` if it
    /// starts from the root.
    fn leave(&mut self, key: &[u8]) -> Option<NodePtr> {
        let mut kept = self.depth();
        for step in (0..self.depth()).rev() {
            let (inner, place) = self.step(step)?;
            // SAFETY: the steps of a way are nodes of the edit.
            let inner = unsafe { inner.as_ref() };
            if place < inner.len() {
                if key < inner.separator(place).as_bytes() {
                    break;
                }
                kept = step;
            }
        }
        if kept < self.depth() {
            let (inner, _) = self.step(kept)?;
            self.truncate(kept);
            return Some(NodePtr::inner(inner));
        }
        let (inner, place) = self.last()?;
        // SAFETY: as above.
        Some(unsafe { inner.as_ref() }.child(place))
    }

    /// Whether the way keeps to the left edge of the tree, and to the right one.
    fn edges(&self) -> (bool, bool) {
        let (mut first, mut last) = (true, true);
        for step in 0..self.depth() {
            if let Some((inner, place)) = self.step(step) {
                first &= place == 0;
                // SAFETY: the steps of a way are nodes of the edit.
                last &= place == unsafe { inner.as_ref() }.len();
            }
        }
        (first, last)
    }
}
