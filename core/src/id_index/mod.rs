//! From region id to entry: a radix tree, copied on write like the tree of keys
//! and published with it in one root.
//!
//! A level of the index decides six bits of the id; the lowest level's pages
//! point to the entries themselves. An index of pointers, unlike one from id to
//! start key, answers without a second descent, and what it answers is by
//! construction the very entry that the tree of keys holds (M4). Its price is
//! that every change of a region changes the index too; pages are compact (see
//! `node.rs`), so the copy is two lines, and a batch copies the upper
//! pages once.
//!
//! Measured beside an index of start keys, made of the same pages, which a change
//! of the same range leaves alone and behind which a lookup goes down the tree
//! (medians of one run, at 10,000 / 1,000,000 regions): a lookup by id takes 20 /
//! 300 ns here and 110 / 890 ns there; a single change of the same range 1080 /
//! 2070 ns here and 1010 / 1990 ns there. So the pointers cost a change 4 to 7%,
//! and spare a lookup two thirds and more. Besides, a start key takes 32 bytes a
//! region where what refers to an entry takes 4, and each change finds by its id the
//! entry that it replaces.
//!
//! The index is as high as its greatest id demands, and pages with nothing in
//! them leave it. An id of any size costs at most eleven small pages.

mod bulk;
#[cfg(any(test, feature = "oracle"))]
mod check;
mod edit;
mod many;
mod node;
mod pages;
mod retire;
mod trail;

use crate::entry::EntryPtr;

pub(crate) use edit::{Edit, Means};
pub(crate) use trail::Trail;

use node::PagePtr;
use pages::Census;
pub(crate) use retire::Subindex;

/// Bits of the id that a level decides. Small under the model checker, so that
/// few ids make several levels.
#[cfg(not(tidegate_loom))]
const BITS: u32 = 6;
#[cfg(tidegate_loom)]
const BITS: u32 = 1;

/// An index as a root record holds it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdIndex {
    root: Option<PagePtr>,
    /// Levels of pages; 0 without a root.
    levels: u32,
    census: Census,
}

impl IdIndex {
    /// How many pages the index has.
    pub(crate) fn pages(&self) -> usize {
        self.census.pages()
    }

    /// Bytes of all pages.
    pub(crate) fn bytes(&self) -> usize {
        self.census.bytes()
    }

    /// Asks for the page that points to the entry of a region.
    ///
    /// # Safety
    ///
    /// All pages of the index are alive and do not change meanwhile.
    pub(crate) unsafe fn prefetch(&self, id: u64) {
        let Some(mut page) = self.root else {
            return;
        };
        for level in (1..self.levels).rev() {
            // SAFETY: by the caller's word.
            let Some(slot) = (unsafe { page.slot(bit_of(id, level)) }) else {
                return;
            };
            // SAFETY: above the lowest level slots are pages.
            page = unsafe { slot.page() };
        }
        page.prefetch();
    }

    /// The entry of a region.
    ///
    /// # Safety
    ///
    /// All pages of the index are alive and do not change meanwhile.
    #[inline]
    pub(crate) unsafe fn get(&self, id: u64) -> Option<EntryPtr> {
        if id > greatest_id(self.levels) {
            return None;
        }
        let mut page = self.root?;
        let mut level = self.levels;
        loop {
            level -= 1;
            // SAFETY: by the caller's word.
            let slot = unsafe { page.slot(bit_of(id, level)) }?;
            if level == 0 {
                // SAFETY: on the lowest level slots are entries.
                return Some(unsafe { slot.entry() });
            }
            // SAFETY: above the lowest level slots are pages.
            page = unsafe { slot.page() };
        }
    }
}

/// The greatest id that an index of so many levels can hold.
const fn greatest_id(levels: u32) -> u64 {
    match u64::MAX.checked_shl(levels * BITS) {
        Some(above) => !above,
        None => u64::MAX,
    }
}

/// Which slot of a page on `level` leads to `id`.
#[inline]
const fn bit_of(id: u64, level: u32) -> u32 {
    (id >> (level * BITS)) as u32 & ((1 << BITS) - 1)
}
