//! What must hold in every index, for tests.

use super::BITS;
use super::IdIndex;
use super::node::PagePtr;
use crate::entry::EntryPtr;

impl IdIndex {
    /// Checks the pages and their count, and calls `visit` for each entry.
    ///
    /// # Safety
    ///
    /// All pages of the index are alive and do not change meanwhile.
    pub(crate) unsafe fn check(
        &self,
        mut visit: impl FnMut(u64, EntryPtr) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut pages = 0;
        if let Some(root) = self.root {
            // SAFETY: by the caller's word.
            unsafe { check_page(root, self.levels - 1, 0, &mut pages, &mut visit) }?;
        } else if self.levels != 0 {
            return Err("an empty index has levels".into());
        }
        if pages != self.pages {
            return Err(format!("{pages} pages are counted as {}", self.pages));
        }
        Ok(())
    }
}

/// # Safety
///
/// The page and all below it are alive and do not change meanwhile.
unsafe fn check_page(
    page: PagePtr,
    level: u32,
    above: u64,
    pages: &mut usize,
    visit: &mut impl FnMut(u64, EntryPtr) -> Result<(), String>,
) -> Result<(), String> {
    *pages += 1;
    // SAFETY: by the caller's word.
    let mut bits = unsafe { page.bitmap() };
    if bits == 0 {
        return Err("a page is empty".into());
    }
    // SAFETY: by the caller's word.
    for slot in unsafe { page.slots() } {
        let id = above << BITS | u64::from(bits.trailing_zeros());
        bits &= bits - 1;
        if level == 0 {
            // SAFETY: on the lowest level slots are entries.
            visit(id, unsafe { slot.entry })?;
        } else {
            // SAFETY: above the lowest level slots are pages.
            let below = unsafe { slot.page };
            // SAFETY: by the caller's word.
            unsafe { check_page(below, level - 1, id, pages, visit) }?;
        }
    }
    Ok(())
}
