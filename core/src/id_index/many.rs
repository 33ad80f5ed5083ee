//! Finding many regions at once: see `tree/many.rs`. All entries are equally deep
//! here, too.

use super::node::PagePtr;
use super::{IdIndex, bit_of, greatest_id};
use crate::entry::EntryPtr;

impl IdIndex {
    /// The entries of up to `N` regions.
    ///
    /// # Safety
    ///
    /// All pages of the index are alive and do not change meanwhile.
    pub(crate) unsafe fn get_together<const N: usize>(
        &self,
        ids: &[u64],
        found: &mut [Option<EntryPtr>; N],
    ) {
        let ids = &ids[..ids.len().min(N)];
        let mut pages: [Option<PagePtr>; N] = [None; N];
        for (page, &id) in pages.iter_mut().zip(ids) {
            *page = self.root.filter(|_| id <= greatest_id(self.levels));
        }
        for level in (1..self.levels).rev() {
            for (page, &id) in pages.iter_mut().zip(ids) {
                *page = page.and_then(|page| {
                    // SAFETY: by the caller's word.
                    let slot = unsafe { page.slot(bit_of(id, level)) }?;
                    // SAFETY: above the lowest level slots are pages.
                    let below = unsafe { slot.page() };
                    below.prefetch();
                    Some(below)
                });
            }
        }
        for ((found, page), &id) in found.iter_mut().zip(pages).zip(ids) {
            *found = page.and_then(|page| {
                // SAFETY: by the caller's word.
                let slot = unsafe { page.slot(bit_of(id, 0)) }?;
                // SAFETY: on the lowest level slots are entries.
                let entry = unsafe { slot.entry() };
                entry.prefetch();
                Some(entry)
            });
        }
    }
}
