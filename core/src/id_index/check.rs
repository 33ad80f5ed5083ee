//! What must hold in every index, for tests.

use super::BITS;
use super::IdIndex;
use super::node::PagePtr;
use crate::entry::EntryPtr;

impl IdIndex {
    /// Checks the pages and their counts, and calls `visit` for each entry.
    ///
    /// # Safety
    ///
    /// All pages of the index are alive and do not change meanwhile.
    pub(crate) unsafe fn check(
        &self,
        mut visit: impl FnMut(u64, EntryPtr) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut counted = Self::default();
        if let Some(root) = self.root {
            // SAFETY: by the caller's word.
            unsafe { check_page(root, self.levels - 1, 0, &mut counted, &mut visit) }?;
        } else if self.levels != 0 {
            return Err("an empty index has levels".into());
        }
        let size = |index: &Self| index.census;
        if size(&counted) != size(self) {
            let (found, counted) = (size(&counted), size(self));
            return Err(format!("{found:?} pages are counted as {counted:?}"));
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
    counted: &mut IdIndex,
    visit: &mut impl FnMut(u64, EntryPtr) -> Result<(), String>,
) -> Result<(), String> {
    // SAFETY: by the caller's word.
    let mut bits = unsafe { page.bitmap() };
    counted.census.add(bits);
    if bits == 0 {
        return Err("a page is empty".into());
    }
    // SAFETY: by the caller's word.
    for slot in unsafe { page.slots() } {
        let id = above << BITS | u64::from(bits.trailing_zeros());
        bits &= bits - 1;
        if level == 0 {
            // SAFETY: on the lowest level slots are entries.
            visit(id, unsafe { slot.entry() })?;
        } else {
            // SAFETY: above the lowest level slots are pages.
            let below = unsafe { slot.page() };
            // SAFETY: by the caller's word.
            unsafe { check_page(below, level - 1, id, counted, visit) }?;
        }
    }
    Ok(())
}
