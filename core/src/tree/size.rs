//! How much memory a tree takes.

use super::node::{NODE, Separators};
use crate::key::Key;

/// What a tree is made of. Kept along with the tree, and always equal to what a
/// walk through it would count.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Size {
    /// Leaves.
    pub(super) leaves: usize,
    /// Inner nodes, each of which has a block of separators.
    pub(super) inners: usize,
    /// Bytes of separators that do not fit into their block.
    pub(super) long_keys: usize,
}

impl Size {
    /// Leaves, inner nodes and blocks of separators.
    pub(crate) const fn nodes(self) -> usize {
        self.leaves + 2 * self.inners
    }

    /// Bytes of all nodes, without the entries.
    pub(crate) const fn bytes(self) -> usize {
        (self.leaves + self.inners) * NODE.size()
            + self.inners * size_of::<Separators>()
            + self.long_keys
    }

    /// Notes that `separator` has entered the tree.
    pub(super) fn add_separator(&mut self, separator: &Key) {
        self.long_keys += separator.heap_bytes();
    }

    /// Notes that `separator` is about to leave the tree.
    pub(super) fn remove_separator(&mut self, separator: &Key) {
        self.long_keys -= separator.heap_bytes();
    }
}
