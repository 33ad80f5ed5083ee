//! The tree: regions in the order of their start keys.
//!
//! A copy-on-write B+tree. Its root is part of the map's root record, which one
//! compare-and-swap publishes, so that every root is a snapshot.
//!
//! # Shape
//!
//! ```text
//!              inner: base, heads ────── separators (a block of its own)
//!              /        |       \
//!         leaf: base, heads     ...
//!         /   |   \
//!     entry entry entry      (counted once by the tree, not by its nodes)
//! ```
//!
//! - A leaf holds up to 64 regions: of each key the first four bytes at which the
//!   keys of the leaf vary, as a number to search for (`search.rs`), and where the
//!   entry is, in four bytes too (`slab/arena.rs`).
//! - An inner node holds up to 64 separators and the children around them. The
//!   separators stand in a block of their own that copies share (`node.rs`).
//! - Leaves are not linked: a link could not be kept right without copying the
//!   neighbour. Walks keep the way down instead (`scan.rs`).
//!
//! # Protocol
//!
//! A *reader* pins a guard of the reclaimer, then loads the pointer to the root
//! record (Acquire), then follows plain pointers down. It writes nothing shared, but
//! for collecting garbage at times, and waits for nobody; what it has reached stays
//! alive and as it was until the guard ends. The index of ids hangs in the same
//! record, so that both answer for one moment.
//!
//! A *writer* pins a guard, loads the root in the same way, and builds the next one
//! beside it: of each node on the way to a change it makes a copy of its own, once,
//! and shares all others. Then it swings the pointer from the root that it loaded
//! to its own by one compare-and-swap (Release: all that is new is written before;
//! Relaxed if it fails, since the root is then loaded again).
//!
//! - It succeeds: the counts of the new entries become the map's; until then they are
//!   the caller's, as those of refused ones stay. The old root, the nodes and pages
//!   that were copied and the entries that were displaced are unreachable for whoever
//!   pins from now on; so are entries that the same batch has put and displaced again.
//!   The entries are superseded and their late pins handed down (`entry/word.rs`). Then
//!   all of it goes to the reclaimer in one bag.
//! - It fails: another writer was faster. The private copies are freed at once, and
//!   all is done again from the root that is there now, the rules of epochs
//!   included. So of several writers one always gets on (lock-free), and one that
//!   stops before its swap has changed nothing that others see.
//!
//! A bag is freed some time after the last guard that was pinned when it was handed
//! over has ended, by any thread that pins or flushes, a reader's included. For an
//! entry this gives up the map's count; [`SharedEntry`](crate::SharedEntry)s keep it
//! alive. A map that was replaced whole is walked once its guards are gone, a portion at
//! a time, each on whatever thread collects next.
//!
//! The writer's guard lasts from before the first load until the bag is handed over;
//! retries keep it. Until the swap it keeps the root that was read alive, so that no
//! new root can have its address: a compare-and-swap that succeeds replaces the very
//! root that was read. After it the guard keeps the displaced entries and their heirs
//! alive, to be superseded and given pins.
//!
//! A thread that stops with a guard, reader or writer, stops nobody, but holds back
//! all freeing in the process. What a writer has replaced waits for its last step.
//!
//! Pages of the index of ids live by the same rules as nodes, tags included; the lowest
//! ones point to the entries themselves. Separators and what a node keeps of its keys
//! are bytes of their own, and outlive the entries that they came from.
//!
//! # Life of a node
//!
//! *Private*: made by an edit, changed in place by that edit, known to nobody
//! else. *Published*: reachable from a root, never changed again. *Retired*:
//! reachable from no root that can still be loaded, freed after the last guard
//! that could know it has ended. A failed publication ends private nodes without
//! the detour, and so does an edit that drops a node that it made itself.
//!
//! Blocks of separators live by the same rules, without a count of the nodes that
//! share one. These are copies of one node, of which the newest tree holds one: the
//! edit that changes the block or drops that node retires it, and older snapshots
//! have it until their guards end. A block has a tag of its own, by which an edit knows
//! whether it may change it in place: a private node may still share its block.
//!
//! A node's tag says which edit may change it: the version that the edit set out
//! to publish. Versions of published roots only grow, so an edit that starts
//! from version `v` meets tags up to `v`, and its own, `v + 1`. (Two edits at a time may
//! both have that; neither sees the other's nodes, and one of them fails.) A map that
//! was filled aside has versions of its own; when it takes another's place its root gets
//! one above those of both.
//!
//! # Why this shape
//!
//! Prototypes compared it, at a million regions, with swapping a leaf instead of
//! the path to it, with updating a slot in place, and with keeping the fields
//! that a lookup reads in the leaf. A lookup takes 470 ns here, 300 with hot
//! fields in the leaf, 1000 in a locked `BTreeMap` (dependent lookups of random
//! keys, one thread); a change of one region takes 1100 ns, 870 with leaf swap,
//! 300 with slots updated in place. But leaf swap and slot update give up that a
//! root is a snapshot, so that the parts of a split or a batch could be seen one
//! by one, and a reader of hot fields goes on to read the entry anyway, to
//! answer from it. The path copy costs little in batches, which is how a replica
//! writes: they share it, and go through the tree in order (`finger.rs`).
//!
//! Since then a lookup has come to 380-450 ns at a million regions, where a locked
//! `BTreeMap` takes 850-1200 in the same run, and to 67 at ten thousand, where it
//! takes 160, without a change of shape. Two things did it: searches in nodes that
//! guess nothing and wait for no store (`search.rs`: 20 ns of every lookup had been
//! one load that spanned two stores, and 20 more comparisons packed into vectors), and
//! memory of their own for entries and nodes, in huge pages (`slab.rs`: a fifth of a
//! lookup in a large map was the search for pages). Nodes of ten lines instead of
//! eighteen took off another 10 to 15% of lookups and changes, at a million regions.
//! Single guards are not what it costs: a lookup without one is 5 ns shorter.

mod bulk;
mod descend;
mod edit;
mod finger;
mod many;
mod node;
mod occupied;
mod rebalance;
mod retire;
mod scan;
mod search;
mod size;
mod trail;

#[cfg(any(test, feature = "oracle"))]
mod check;

use std::marker::PhantomData;

pub(crate) use edit::{Edit, Means};
pub(crate) use finger::{Finger, Placed, Spot};
pub(crate) use many::GROUP;
pub(crate) use node::{NodePtr, Tag};
pub(crate) use retire::Subtree;
pub(crate) use scan::Range;
pub(crate) use trail::Trail;

use node::NodeRef;
use size::Size;

/// Keys of a node. Tiny under the model checker, so that few operations split,
/// merge and grow the tree.
#[cfg(not(tidegate_loom))]
const CAPACITY: usize = 64;
#[cfg(tidegate_loom)]
const CAPACITY: usize = 4;

/// A node with fewer keys is merged with a neighbour, if both fit into one with
/// room to spare.
const MERGE_BELOW: usize = CAPACITY / 4;
const MERGED_MAX: usize = CAPACITY * 3 / 4;

/// Bound on the levels of inner nodes. Two neighbours hold more than
/// `MERGED_MAX` keys together, so a level has at most a twelfth of the nodes of
/// the one below it: 12 levels are beyond any memory.
const MAX_HEIGHT: usize = 12;

/// A tree as a root record holds it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tree {
    root: Option<NodePtr>,
    /// Regions in the tree.
    len: usize,
    size: Size,
}

/// A tree that can be read for `'s`.
#[derive(Clone, Copy)]
pub(crate) struct TreeRef<'s> {
    root: Option<NodePtr>,
    alive: PhantomData<&'s Tree>,
}

impl Tree {
    /// # Safety
    ///
    /// All that the tree holds stays alive and unchanged for `'s`.
    #[inline]
    pub(crate) unsafe fn as_ref<'s>(&self) -> TreeRef<'s> {
        TreeRef {
            root: self.root,
            alive: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn size(&self) -> Size {
        self.size
    }
}

impl<'s> TreeRef<'s> {
    #[inline]
    fn root(self) -> Option<NodeRef<'s>> {
        // SAFETY: whoever made the `TreeRef` vouches for `'s`.
        self.root.map(|root| unsafe { root.as_ref() })
    }
}
