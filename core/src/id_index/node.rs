//! Pages of the index: a bitmap and as many slots as it has bits.
//!
//! Region ids come from PD's one allocator, which also serves peers and stores,
//! so that about a quarter of a page's slots are in use: a page holds only
//! those. A slot is found by counting the bits below its own.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

use crate::entry::EntryPtr;
use crate::prefetch::prefetch;
use crate::sync::Canary;
use crate::tree::Tag;

/// A pointer to a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PagePtr(NonNull<Page>);

/// A page, without its slots: they follow it in memory.
#[repr(C)]
struct Page {
    tag: Tag,
    bitmap: u64,
    canary: Canary,
}

/// What a slot points to: an entry on the lowest level, a page above.
#[derive(Clone, Copy)]
pub(super) union Slot {
    pub(super) entry: EntryPtr,
    pub(super) page: PagePtr,
}

// SAFETY: frozen pages are only read, private ones have a single owner.
unsafe impl Send for PagePtr {}
// SAFETY: as for `Send`.
unsafe impl Sync for PagePtr {}

impl PagePtr {
    /// A page with the given bits and slots, in ascending order of the bits.
    pub(super) fn alloc(tag: Tag, bitmap: u64, slots: impl Iterator<Item = Slot>) -> Self {
        let count = bitmap.count_ones() as usize;
        let (layout, offset) = Self::layout(count);
        // SAFETY: the layout is that of a `Page` at least, never of size 0.
        let memory = unsafe { std::alloc::alloc(layout) };
        let Some(page) = NonNull::new(memory.cast::<Page>()) else {
            handle_alloc_error(layout);
        };
        let head = Page {
            tag,
            bitmap,
            canary: Canary::new(),
        };
        // SAFETY: allocated just now, with the layout of a page.
        unsafe { page.write(head) };
        let mut written = 0;
        for slot in slots.take(count) {
            // SAFETY: `offset + (written + 1) * size_of::<Slot>()` is within the
            // allocation, since `written < count`.
            let place = unsafe { memory.add(offset + written * size_of::<Slot>()) };
            // SAFETY: as above, and aligned by `layout`.
            unsafe { place.cast::<Slot>().write(slot) };
            written += 1;
        }
        // Invariant: every slot that the bitmap names has been written.
        assert_eq!(written, count, "a page needs a slot for each bit");
        Self(page)
    }

    /// The layout of a page with `count` slots, and where they begin.
    fn layout(count: usize) -> (Layout, usize) {
        let slots = Layout::array::<Slot>(count);
        match slots.and_then(|slots| Layout::new::<Page>().extend(slots)) {
            Ok((layout, offset)) => (layout.pad_to_align(), offset),
            // A bitmap has at most 64 bits.
            Err(_) => unreachable!("{count} slots fit into memory"),
        }
    }

    /// Asks for the page, as long as pages usually are.
    pub(super) fn prefetch(self) {
        const USUAL: usize = 192;
        prefetch(self.0.as_ptr(), USUAL);
    }

    /// # Safety
    ///
    /// The page is alive.
    #[inline]
    unsafe fn page<'p>(self) -> &'p Page {
        // SAFETY: alive by the caller's word; the head is not changed after
        // `alloc`.
        let page = unsafe { self.0.as_ref() };
        page.canary.check();
        page
    }

    /// # Safety
    ///
    /// The page is alive.
    #[inline]
    pub(super) unsafe fn tag(self) -> Tag {
        // SAFETY: by the caller's word.
        unsafe { self.page() }.tag
    }

    /// # Safety
    ///
    /// The page is alive.
    #[inline]
    pub(super) unsafe fn bitmap(self) -> u64 {
        // SAFETY: by the caller's word.
        unsafe { self.page() }.bitmap
    }

    /// The slots, in ascending order of their bits.
    ///
    /// # Safety
    ///
    /// The page is alive, and not changed for `'p`.
    #[inline]
    pub(super) unsafe fn slots<'p>(self) -> &'p [Slot] {
        // SAFETY: by the caller's word.
        let count = unsafe { self.bitmap() }.count_ones() as usize;
        // SAFETY: `alloc` has written `count` slots there.
        unsafe { std::slice::from_raw_parts(self.first_slot(), count) }
    }

    /// The slot of bit `bit`, if it is set.
    ///
    /// # Safety
    ///
    /// The page is alive.
    #[inline]
    pub(super) unsafe fn slot(self, bit: u32) -> Option<Slot> {
        // SAFETY: by the caller's word.
        let bitmap = unsafe { self.bitmap() };
        if bitmap & (1 << bit) == 0 {
            return None;
        }
        let place = rank(bitmap, bit);
        // SAFETY: the bit is set, so its rank is below the count of slots.
        let slot = unsafe { self.first_slot().add(place) };
        // SAFETY: `alloc` has written it.
        Some(unsafe { slot.read() })
    }

    /// Changes the slot of a bit that is set.
    ///
    /// # Safety
    ///
    /// The page is alive and the caller's own.
    pub(super) unsafe fn set_slot(self, bit: u32, slot: Slot) {
        // SAFETY: by the caller's word.
        let place = rank(unsafe { self.bitmap() }, bit);
        // SAFETY: the bit is set, so its rank is below the count of slots.
        let target = unsafe { self.first_slot().cast_mut().add(place) };
        // SAFETY: nobody else reads the page.
        unsafe { target.write(slot) };
    }

    fn first_slot(self) -> *const Slot {
        let (_, offset) = Self::layout(0);
        let memory = self.0.as_ptr().cast::<u8>();
        // SAFETY: `alloc` reserves at least `offset` bytes.
        unsafe { memory.add(offset) }.cast::<Slot>().cast_const()
    }

    /// Frees the page, not what it points to.
    ///
    /// # Safety
    ///
    /// The page is no longer reachable for anyone, and this is called once.
    pub(crate) unsafe fn free(self) {
        // SAFETY: by the caller's word.
        let count = unsafe { self.bitmap() }.count_ones() as usize;
        let (layout, _) = Self::layout(count);
        // SAFETY: `alloc` has written the head; slots need no drop.
        unsafe { self.0.drop_in_place() };
        // SAFETY: allocated by `alloc` with this layout.
        unsafe { std::alloc::dealloc(self.0.as_ptr().cast(), layout) };
    }
}

/// How many bits below `bit` are set.
#[inline]
pub(super) const fn rank(bitmap: u64, bit: u32) -> usize {
    (bitmap & ((1 << bit) - 1)).count_ones() as usize
}
