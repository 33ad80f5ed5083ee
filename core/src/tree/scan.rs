//! Walking over the regions of a range, from both ends.
//!
//! Leaves are not linked, so a walk keeps its way down. It stands in a gap: between
//! two regions of one leaf, or at an edge of it. A range has a gap at its front
//! and, once someone has asked for its last region, one at its back; it is used up
//! when the two meet.

use std::ptr;

use super::node::{Inner, Leaf, NodeRef};
use super::occupied::Occupied;
use super::search::Sought;
use super::{MAX_HEIGHT, TreeRef};
use crate::entry::{Entry, EntryPtr};

/// So many entries are asked for before they are yielded: fewer in a tree that the caches
/// near by have room for, where more would only be in each other's way.
const AHEAD: usize = 8;
const FAR_AHEAD: usize = 16;

/// So many levels of inner nodes a tree has that they have no room for.
const HIGH: usize = 3;

/// A gap between two regions of a tree; yields what follows.
pub(crate) struct Cursor<'s> {
    // The way down to `leaf`: each inner node with the child that was taken.
    way: [Option<(&'s Inner, usize)>; MAX_HEIGHT],
    depth: usize,
    leaf: Option<&'s Leaf>,
    place: usize,
}

/// The regions of a range, from both ends.
pub(crate) struct Range<'s, 'k> {
    tree: TreeRef<'s>,
    /// Behind `rest`.
    front: Cursor<'s>,
    /// What the front's leaf still has to yield, while nothing is asked for from the
    /// back.
    rest: Occupied<'s>,
    /// So many entries are asked for before they are yielded.
    ahead: usize,
    /// How many regions of the front's leaf start before the end.
    stop: usize,
    /// Nothing until the last region has been asked for.
    back: Option<Cursor<'s>>,
    /// `None` is plus infinity.
    end: Option<Sought<'k>>,
    done: bool,
}

impl<'s> TreeRef<'s> {
    /// Before the region that holds `start`, or else the first that starts after
    /// it.
    #[inline]
    pub(crate) fn seek(self, start: &[u8]) -> Cursor<'s> {
        let mut cursor = Cursor::new();
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

    /// Behind the last region that starts before `end`; `None` is plus infinity.
    fn seek_end(self, end: Option<&Sought<'_>>) -> Cursor<'s> {
        let mut cursor = Cursor::new();
        let Some(root) = self.root() else {
            return cursor;
        };
        match end {
            Some(end) => cursor.descend(root, |inner| inner.child_below(end)),
            None => cursor.descend(root, Inner::len),
        }
        cursor.place = cursor.leaf.map_or(0, |leaf| before(leaf, end));
        cursor
    }

    /// The region that holds `start`, or the next one, and those after it that
    /// start before `end`; an empty `end` is plus infinity.
    #[inline]
    pub(crate) fn range<'k>(self, start: &[u8], end: &'k [u8]) -> Range<'s, 'k> {
        let mut range = Range {
            tree: self,
            front: self.seek(start),
            rest: Occupied::none(),
            ahead: AHEAD,
            stop: 0,
            back: None,
            end: (!end.is_empty()).then(|| Sought::new(end)),
            done: false,
        };
        if range.front.depth >= HIGH {
            range.ahead = FAR_AHEAD;
        }
        range.enter();
        range
    }
}

/// How many regions of `leaf` start before `end`.
fn before(leaf: &Leaf, end: Option<&Sought<'_>>) -> usize {
    end.map_or(leaf.len(), |end| leaf.count_below(end))
}

// === impl Cursor ===

impl<'s> Cursor<'s> {
    const fn new() -> Self {
        Self {
            way: [None; MAX_HEIGHT],
            depth: 0,
            leaf: None,
            place: 0,
        }
    }

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

    /// At the left edge of the next leaf.
    fn next_leaf(&mut self) {
        self.turn(
            |inner, place| (place < inner.len()).then_some(place + 1),
            |_| 0,
        );
    }

    /// At the right edge of the leaf before.
    fn leaf_before(&mut self) {
        self.turn(|_, place| place.checked_sub(1), Inner::len);
        self.place = self.leaf.map_or(0, Leaf::len);
    }

    /// Up to the first node that has a child beside the way, and down from there.
    fn turn(
        &mut self,
        beside: impl Fn(&'s Inner, usize) -> Option<usize>,
        choose: impl Fn(&'s Inner) -> usize,
    ) {
        self.leaf = None;
        while let Some(above) = self.depth.checked_sub(1) {
            self.depth = above;
            let Some((inner, place)) = self.way[above] else {
                return;
            };
            if let Some(place) = beside(inner, place) {
                self.way[above] = Some((inner, place));
                self.depth += 1;
                self.descend(inner.child_ref(place), choose);
                return;
            }
        }
    }

    /// Asks for the next leaf, if it is under the same node.
    #[inline(never)]
    fn prefetch_next_leaf(&self) {
        let above = self.depth.checked_sub(1).and_then(|above| self.way[above]);
        if let Some((inner, place)) = above
            && place < inner.len()
        {
            inner.child(place + 1).prefetch();
        }
    }

    fn is_in(&self, leaf: &Leaf) -> bool {
        self.leaf.is_some_and(|own| ptr::eq(own, leaf))
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

// === impl Range ===

impl<'s> Range<'s, '_> {
    /// Takes in the leaf that the front has come to.
    fn enter(&mut self) {
        let Some(leaf) = self.front.leaf else {
            self.done = true;
            return;
        };
        self.stop = before(leaf, self.end.as_ref());
        let rest = leaf.occupied(self.front.place, self.stop);
        rest.prefetch(self.ahead);
        if self.back.is_none() && rest.len() > 0 {
            self.rest = rest;
            self.front.place = self.stop;
        }
    }

    /// Puts the front before what is left of its leaf.
    fn put_rest_back(&mut self) {
        self.front.place -= self.rest.len();
        self.rest = Occupied::none();
    }

    /// Moves the front to the leaf of the next region that is left, if there is
    /// one. Returns that leaf.
    fn settle(&mut self) -> Option<&'s Leaf> {
        while !self.done {
            let leaf = self.front.leaf?;
            let back = self.back.as_ref().filter(|back| back.is_in(leaf));
            if self.rest.len() > 0 || self.front.place < back.map_or(self.stop, |back| back.place) {
                return Some(leaf);
            }
            // No leaf is empty: what ends here leaves nothing for the next one.
            if back.is_some() || self.stop < leaf.len() {
                self.done = true;
            } else {
                self.front.next_leaf();
                self.enter();
            }
        }
        None
    }
}

impl Range<'_, '_> {
    /// The next region, which the front's leaf does not have, or not for the front
    /// alone.
    #[inline(never)]
    fn next_settled(&mut self) -> Option<EntryPtr> {
        let leaf = self.settle()?;
        self.rest.next().or_else(|| {
            let place = self.front.place;
            self.front.place += 1;
            Some(leaf.pointer(place))
        })
    }
}

impl Iterator for Range<'_, '_> {
    type Item = EntryPtr;

    // Always in line: this is a load and a few comparisons, a call as much again.
    #[inline(always)]
    fn next(&mut self) -> Option<EntryPtr> {
        let Some(next) = self.rest.next() else {
            return self.next_settled();
        };
        if let Some(ahead) = self.rest.ahead(self.ahead - 1) {
            ahead.prefetch();
        } else if self.rest.len() == self.ahead - 1 {
            self.front.prefetch_next_leaf();
        }
        Some(next)
    }
}

impl DoubleEndedIterator for Range<'_, '_> {
    fn next_back(&mut self) -> Option<EntryPtr> {
        // Something is left, so it starts before the end: the front's gap comes
        // before the one that is sought for the back, and stays before it.
        self.put_rest_back();
        self.settle()?;
        self.put_rest_back();
        let (tree, end) = (self.tree, self.end.as_ref());
        let back = self.back.get_or_insert_with(|| tree.seek_end(end));
        loop {
            let leaf = back.leaf?;
            let floor = if self.front.is_in(leaf) {
                self.front.place
            } else {
                0
            };
            if back.place > floor {
                back.place -= 1;
                if let Some(ahead) = back.place.checked_sub(self.ahead)
                    && ahead >= floor
                {
                    leaf.pointer(ahead).prefetch();
                }
                return Some(leaf.pointer(back.place));
            }
            back.leaf_before();
        }
    }
}
