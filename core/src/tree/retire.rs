//! Freeing nodes: one by one once replaced, or a whole tree at once.

use std::ptr::NonNull;

use super::Tree;
use super::node::{Inner, Leaf, NodePtr, RawNode, Separators, Tag, node_memory, reclaim};
use crate::entry::EntryPtr;
use crate::spare::Spare;

/// One node that has left the tree. What it points to is not part of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Retired {
    Inner(NonNull<Inner>),
    Leaf(NonNull<Leaf>),
    Separators(NonNull<Separators>),
}

/// A whole tree that has been taken out, to be freed in portions.
pub(crate) struct Subtree {
    nodes: Vec<NodePtr>,
}

// SAFETY: a retired node has one owner, who frees it; see `NodePtr` for what
// nodes hold.
unsafe impl Send for Retired {}

impl Retired {
    /// # Safety
    ///
    /// The node is no longer reachable for anyone, and this is called once.
    pub(super) unsafe fn free(self, spare: &mut Spare) {
        match self {
            Self::Inner(inner) => {
                // SAFETY: placed by `Inner::alloc`, unreachable by the caller's word.
                unsafe { reclaim(spare, inner) };
            }
            Self::Leaf(leaf) => {
                // SAFETY: placed by `Leaf::alloc`, unreachable by the caller's word.
                unsafe { reclaim(spare, leaf) };
            }
            Self::Separators(block) => {
                // SAFETY: allocated by `Box` in `Separators::alloc`, the caller's own.
                drop(unsafe { Box::from_raw(block.as_ptr()) });
            }
        }
    }
}

impl Subtree {
    pub(crate) fn new(tree: Tree) -> Self {
        Self {
            nodes: tree.root.into_iter().collect(),
        }
    }

    /// Frees about `portion` nodes and releases their entries; returns how many
    /// nodes and entries went, none once all are gone.
    ///
    /// # Safety
    ///
    /// The tree, its nodes and its entries included, is no longer reachable for
    /// anyone.
    pub(crate) unsafe fn free_some(&mut self, portion: usize) -> usize {
        let mut spare = Spare::new(node_memory());
        let mut freed = 0;
        for _ in 0..portion {
            let Some(node) = self.nodes.pop() else {
                break;
            };
            match node.kind() {
                RawNode::Inner(inner) => {
                    // SAFETY: not freed yet: each node hangs in the tree once.
                    let node = unsafe { inner.as_ref() };
                    self.nodes
                        .extend((0..=node.len()).map(|place| node.child(place)));
                    let separators = Retired::Separators(node.separators);
                    // SAFETY: unreachable by the caller's word; each block
                    // belongs to one node of a tree.
                    unsafe { separators.free(&mut spare) };
                    // SAFETY: as above.
                    unsafe { Retired::Inner(inner).free(&mut spare) };
                    freed += 2;
                }
                RawNode::Leaf(leaf) => {
                    // SAFETY: not freed yet: each node hangs in the tree once.
                    let node = unsafe { leaf.as_ref() };
                    freed += node.len() + 1;
                    for place in 0..node.len() {
                        let entry: EntryPtr = node.pointer(place);
                        // SAFETY: the map's count of a live entry, unreachable
                        // by the caller's word; each entry is in one leaf.
                        unsafe { entry.release() };
                    }
                    // SAFETY: as above.
                    unsafe { Retired::Leaf(leaf).free(&mut spare) };
                }
            }
        }
        freed
    }

    /// Frees the nodes with `tag` from `node` down.
    ///
    /// # Safety
    ///
    /// Nobody else has seen the nodes with this tag, and all nodes with this tag
    /// hang below others with it, or are `node`.
    pub(super) unsafe fn free_tagged(node: NodePtr, tag: Tag, spare: &mut Spare) {
        match node.kind() {
            RawNode::Leaf(leaf) => {
                // SAFETY: alive: private, or published and under a guard.
                if unsafe { leaf.as_ref() }.tag == tag {
                    // SAFETY: private by the caller's word.
                    unsafe { Retired::Leaf(leaf).free(spare) };
                }
            }
            RawNode::Inner(inner) => {
                // SAFETY: alive: private, or published and under a guard.
                let node = unsafe { inner.as_ref() };
                if node.tag != tag {
                    return;
                }
                for place in 0..=node.len() {
                    // SAFETY: by the caller's word, as for this node.
                    unsafe { Self::free_tagged(node.child(place), tag, spare) };
                }
                if node.separators().tag == tag {
                    // SAFETY: private by the caller's word.
                    unsafe { Retired::Separators(node.separators).free(spare) };
                }
                // SAFETY: private by the caller's word.
                unsafe { Retired::Inner(inner).free(spare) };
            }
        }
    }
}
