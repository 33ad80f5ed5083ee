//! The one pointer that all readers start from.

use std::ptr::NonNull;

use crate::entry::EntryPtr;
use crate::id_index::IdIndex;
use crate::sync::Canary;
use crate::tree::{Tag, Tree, TreeRef};

/// The map at one moment. A root never changes; the next moment is another one.
pub(super) struct Root {
    /// Grows by one with each publication. An edit that starts from this root
    /// tags its nodes with the next version, which therefore no node in here
    /// bears.
    pub(super) version: u64,
    pub(super) generation: u64,
    pub(super) tree: Tree,
    pub(super) ids: IdIndex,
    /// Bytes of all entries.
    pub(super) entry_bytes: usize,
    pub(super) canary: Canary,
}

/// A root that has been replaced. A raw pointer, since readers may still look
/// into it.
#[derive(Debug)]
pub(super) struct Replaced(pub(super) NonNull<Root>);

// SAFETY: a replaced root has one owner, who frees it; see `NodePtr`, `PagePtr`
// and `EntryPtr` for what it leads to.
unsafe impl Send for Replaced {}

impl Replaced {
    /// # Safety
    ///
    /// No reader is left.
    pub(super) unsafe fn free(self) {
        // SAFETY: published from a `Box`, and the caller's own.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Root {
    pub(super) fn empty(generation: u64) -> Self {
        Self {
            version: 0,
            generation,
            tree: Tree::default(),
            ids: IdIndex::default(),
            entry_bytes: 0,
            canary: Canary::new(),
        }
    }

    /// The same content in another record.
    pub(super) fn share(&self) -> Self {
        Self {
            canary: Canary::new(),
            ..*self
        }
    }

    /// The tag of an edit that starts from here.
    pub(super) fn next_tag(&self) -> Tag {
        Tag(self.version + 1)
    }

    /// The tree, for as long as the root can be read.
    #[inline]
    pub(super) fn tree(&self) -> TreeRef<'_> {
        // SAFETY: a root that can be read keeps what it holds alive: that is
        // retired after the root has been replaced, and freed no earlier.
        unsafe { self.tree.as_ref() }
    }

    /// The entry of a region, alive for as long as the root can be read.
    #[inline]
    pub(super) fn by_id(&self, id: u64) -> Option<EntryPtr> {
        // SAFETY: as for `tree`.
        unsafe { self.ids.get(id) }
    }

    /// The same for as many regions as `found` has room for.
    #[inline]
    pub(super) fn by_ids<const N: usize>(&self, ids: &[u64], found: &mut [Option<EntryPtr>; N]) {
        // SAFETY: as for `tree`.
        unsafe { self.ids.get_together(ids, found) };
    }

    /// Bytes of all that the map owns, this record included.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.tree.size().bytes() + self.ids.bytes() + self.entry_bytes
    }

    /// How many objects the map owns, this record included.
    pub(super) fn objects(&self) -> usize {
        self.tree.len() + self.tree.size().nodes() + self.ids.pages() + 1
    }
}
