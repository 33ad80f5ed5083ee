//! Freeing a whole index.

use super::IdIndex;
use super::node::PagePtr;
use super::pages::SparePages;

/// A whole index that has been taken out, to be freed in portions.
pub(crate) struct Subindex {
    /// Pages, each with its level.
    pages: Vec<(PagePtr, u32)>,
}

impl Subindex {
    pub(crate) fn new(index: IdIndex) -> Self {
        let root = index.root.map(|root| (root, index.levels - 1));
        Self {
            pages: root.into_iter().collect(),
        }
    }

    /// Frees at most `portion` pages, not the entries that they point to;
    /// returns how many went, none once all are gone.
    ///
    /// # Safety
    ///
    /// The index is no longer reachable for anyone.
    pub(crate) unsafe fn free_some(&mut self, portion: usize) -> usize {
        let mut spare = SparePages::new();
        let mut freed = 0;
        while freed < portion
            && let Some((page, level)) = self.pages.pop()
        {
            if level > 0 {
                // SAFETY: not freed yet: each page hangs in the index once.
                for slot in unsafe { page.slots() } {
                    // SAFETY: above the lowest level slots are pages.
                    self.pages.push((unsafe { slot.page() }, level - 1));
                }
            }
            // SAFETY: unreachable by the caller's word, visited once.
            unsafe { page.free(&mut spare) };
            freed += 1;
        }
        freed
    }
}
