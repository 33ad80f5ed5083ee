//! Pages of the index: a bitmap and as many slots as it has bits.
//!
//! Region ids come from PD's one allocator, which also serves peers and stores,
//! so that about a quarter of a page's slots are in use: a page holds only
//! those. A slot is found by counting the bits below its own.

use std::alloc::Layout;
use std::ptr::NonNull;

use super::pages::SparePages;
use crate::entry::{EntryPtr, ShortEntry};
use crate::prefetch::prefetch;
use crate::slab::Short;
use crate::sync::Canary;
use crate::tree::Tag;

/// A pointer to a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PagePtr(NonNull<Page>);

/// A page, without its slots: they follow it in memory.
#[repr(C)]
struct Page {
    tag: Tag,
    bitmap: u64,
    // Invariant: how many bits the bitmap has. To count them takes a dozen steps on
    // processors that are not known to do it in one.
    count: usize,
    canary: Canary,
}

/// What a slot points to: an entry on the lowest level, a page above.
#[derive(Clone, Copy)]
pub(super) union Slot {
    entry: ShortEntry,
    page: Short<Page>,
}

// SAFETY: frozen pages are only read, private ones have a single owner.
unsafe impl Send for PagePtr {}
// SAFETY: as for `Send`.
unsafe impl Sync for PagePtr {}

// === impl Slot ===

impl Slot {
    #[inline]
    pub(super) fn of_entry(entry: EntryPtr) -> Self {
        let entry = entry.short();
        Self { entry }
    }

    #[inline]
    pub(super) fn of_page(page: PagePtr) -> Self {
        let page = Short::new(page.0);
        Self { page }
    }

    /// # Safety
    ///
    /// The slot is one of the lowest level, and the entry is alive.
    #[inline]
    pub(super) unsafe fn entry(self) -> EntryPtr {
        // SAFETY: by the caller's word.
        let entry = unsafe { self.entry };
        // SAFETY: as above.
        unsafe { entry.pointer() }
    }

    /// # Safety
    ///
    /// The slot is one above the lowest level, and the page is alive.
    #[inline]
    pub(super) unsafe fn page(self) -> PagePtr {
        // SAFETY: by the caller's word.
        let page = unsafe { self.page };
        // SAFETY: as above.
        PagePtr(unsafe { page.pointer() })
    }
}

// === impl PagePtr ===

impl PagePtr {
    /// A page with the given bits and slots, in ascending order of the bits.
    #[inline]
    pub(super) fn alloc<const PARTS: usize>(
        tag: Tag,
        spare: &mut SparePages,
        bitmap: u64,
        slots: [&[Slot]; PARTS],
    ) -> Self {
        let count = slots.iter().map(|part| part.len()).sum();
        // Invariant: every slot that the bitmap names is written.
        assert_eq!(count, slots_of(bitmap), "a page needs a slot for each bit");
        let memory = spare.take(count);
        let page = memory.cast::<Page>();
        let head = Page {
            tag,
            bitmap,
            count,
            canary: Canary::new(),
        };
        // SAFETY: memory for a page, owned by nobody else.
        unsafe { page.write(head) };
        let mut written = 0;
        for part in slots {
            // SAFETY: `OFFSET + count * size_of::<Slot>()` is within the
            // allocation, and the parts have `count` slots together.
            let place = unsafe { memory.add(OFFSET + written * size_of::<Slot>()) };
            let place = place.cast::<Slot>().as_ptr();
            // SAFETY: as above, aligned by `layout`, and not the memory of a page
            // that anyone can read.
            unsafe { place.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            written += part.len();
        }
        Self(page)
    }

    /// A page with the same slots.
    ///
    /// # Safety
    ///
    /// The page is alive, and not changed meanwhile.
    #[inline]
    pub(super) unsafe fn copy(self, tag: Tag, spare: &mut SparePages) -> Self {
        // SAFETY: by the caller's word.
        let from = unsafe { self.page() };
        let memory = spare.take(from.count);
        let head = Page {
            tag,
            bitmap: from.bitmap,
            count: from.count,
            canary: Canary::new(),
        };
        let copy = Self(memory.cast::<Page>());
        // SAFETY: memory for a page, owned by nobody else.
        unsafe { copy.0.write(head) };
        let to = copy.first_slot().cast_mut();
        // SAFETY: `count` slots have been written there, and here is memory for as many,
        // of another page.
        unsafe { to.copy_from_nonoverlapping(self.first_slot(), from.count) };
        copy
    }

    /// Asks for the page, as long as pages usually are.
    pub(super) fn prefetch(self) {
        const USUAL: usize = 128;
        prefetch(self.0.as_ptr(), USUAL);
    }

    /// # Safety
    ///
    /// The page is alive.
    #[inline]
    unsafe fn page<'p>(self) -> &'p Page {
        // SAFETY: alive by the caller's word; the head changes in `add_slot` only,
        // whose caller holds no other reference.
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
        let count = unsafe { self.page() }.count;
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
        let place = unsafe { self.place(bit) }?;
        // SAFETY: as above; the bit is set, so its rank is below the count of slots.
        Some(unsafe { self.slot_at(place) })
    }

    /// The place of the slot of bit `bit`, if that is set.
    ///
    /// # Safety
    ///
    /// The page is alive.
    #[inline]
    pub(super) unsafe fn place(self, bit: u32) -> Option<usize> {
        // SAFETY: by the caller's word.
        let bitmap = unsafe { self.bitmap() };
        (bitmap & (1 << bit) != 0).then(|| rank(bitmap, bit))
    }

    /// The slot at `place`.
    ///
    /// # Safety
    ///
    /// The page is alive, and has this place.
    #[inline]
    pub(super) unsafe fn slot_at(self, place: usize) -> Slot {
        // SAFETY: by the caller's word.
        let slot = unsafe { self.first_slot().add(place) };
        // SAFETY: `alloc` has written it.
        unsafe { slot.read() }
    }

    /// Changes the slot at `place`.
    ///
    /// # Safety
    ///
    /// The page is alive and the caller's own, and has this place.
    #[inline]
    pub(super) unsafe fn set_slot_at(self, place: usize, slot: Slot) {
        // SAFETY: by the caller's word.
        let target = unsafe { self.first_slot().cast_mut().add(place) };
        // SAFETY: nobody else reads the page.
        unsafe { target.write(slot) };
    }

    /// Changes the slot of a bit that is set.
    ///
    /// # Safety
    ///
    /// The page is alive and the caller's own.
    pub(super) unsafe fn set_slot(self, bit: u32, slot: Slot) {
        // SAFETY: by the caller's word.
        let place = rank(unsafe { self.bitmap() }, bit);
        // SAFETY: as above; the bit is set, so its rank is below the count of slots.
        unsafe { self.set_slot_at(place, slot) };
    }

    /// Adds a slot for a bit that is not set.
    ///
    /// # Safety
    ///
    /// The page is alive and the caller's own, and its memory has room for the
    /// slot.
    pub(super) unsafe fn add_slot(mut self, bit: u32, slot: Slot) {
        // SAFETY: by the caller's word.
        let bitmap = unsafe { self.bitmap() };
        let place = rank(bitmap, bit);
        // SAFETY: as above.
        let count = unsafe { self.page() }.count;
        // SAFETY: `place` is at most `count`, for which there is room.
        let target = unsafe { self.first_slot().cast_mut().add(place) };
        // SAFETY: as above.
        let next = unsafe { target.add(1) };
        // SAFETY: the slots from `place` on have been written, and there is room
        // for them one further.
        unsafe { target.copy_to(next, count - place) };
        // SAFETY: nobody else reads the page.
        unsafe { target.write(slot) };
        // SAFETY: as above.
        let head = unsafe { self.0.as_mut() };
        head.bitmap = bitmap | 1 << bit;
        head.count = count + 1;
    }

    fn first_slot(self) -> *const Slot {
        let memory = self.0.as_ptr().cast::<u8>();
        // SAFETY: a page is at least that long.
        unsafe { memory.add(OFFSET) }.cast::<Slot>().cast_const()
    }

    /// Frees the page, not what it points to.
    ///
    /// # Safety
    ///
    /// The page is no longer reachable for anyone, and this is called once.
    pub(super) unsafe fn free(self, spare: &mut SparePages) {
        // SAFETY: by the caller's word.
        let count = unsafe { self.page() }.count;
        // SAFETY: `alloc` has written the head; slots need no drop.
        unsafe { self.0.drop_in_place() };
        // SAFETY: taken by `alloc` for as many slots, or as many as the memory has room
        // for.
        unsafe { spare.keep(count, self.0.cast()) };
    }
}

/// Where the slots of a page begin.
const OFFSET: usize = size_of::<Page>();
const _: () = assert!(OFFSET.is_multiple_of(align_of::<Slot>()));

/// How many slots a page with this bitmap has.
#[inline]
pub(super) const fn slots_of(bitmap: u64) -> usize {
    bitmap.count_ones() as usize
}

/// The memory of a page with `slots` slots: whole lines.
pub(super) fn layout_for(slots: usize) -> Layout {
    const LINE: usize = 64;
    const { assert!(align_of::<Page>() <= LINE && align_of::<Slot>() <= LINE) };
    let size = OFFSET + slots * size_of::<Slot>();
    match Layout::from_size_align(size, LINE) {
        Ok(layout) => layout.pad_to_align(),
        // A bitmap has at most 64 bits.
        Err(_) => unreachable!("{slots} slots fit into memory"),
    }
}

/// How many bits below `bit` are set.
#[inline]
pub(super) const fn rank(bitmap: u64, bit: u32) -> usize {
    (bitmap & ((1 << bit) - 1)).count_ones() as usize
}
