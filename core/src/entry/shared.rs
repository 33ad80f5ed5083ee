//! Counted pointers to entries, and the pointer that the map owns one count of.
//!
//! An [`Arc`](std::sync::Arc) would do, but for where it puts what it points to: an
//! entry is found by a random access to memory, and how long that takes is decided
//! by the pages and lines that it lies in. So entries have memory of their own
//! (`slab.rs`), whose slots begin with a line, and one count instead of two.

use std::alloc::Layout;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::process::abort;
use std::ptr::NonNull;

use super::Entry;
use crate::prefetch::prefetch;
use crate::slab::{Beginning, Global, Short, Slab, Source, Taker};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicUsize, fence};

/// A counted pointer to an entry: keeps it alive and readable beyond any snapshot.
///
/// Cloning it and dropping it writes to the entry's count, which reading from a
/// snapshot does not.
pub struct SharedEntry {
    // Invariant: alive; one count is this pointer's.
    counted: NonNull<Counted>,
}

/// A pointer to an entry, as the nodes of the map hold it.
///
/// The map owns one count of each live entry, however many nodes point to it:
/// copies of a node do not touch the count. The count is given up through the
/// reclaimer once the entry has left the map.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct EntryPtr(NonNull<Counted>);

/// The same in four bytes, as a leaf holds it.
#[derive(Clone, Copy)]
pub(crate) struct ShortEntry(Short<Counted>);

/// An entry with the number of its owners, in memory of its own. Begins with a
/// line, so that what a lookup reads lies in two.
#[repr(C, align(64))]
struct Counted {
    owners: AtomicUsize,
    entry: Entry,
}

/// Makes several entries.
#[derive(Debug)]
pub(crate) struct Maker(Taker);

impl Default for Maker {
    fn default() -> Self {
        Self(memory().taker())
    }
}

/// Memory for entries.
fn memory() -> Source {
    const COUNTED: Layout = Layout::new::<Counted>();
    static ENTRIES: Global = Global::new(|| Slab::in_arena(COUNTED));
    Source::slab(&ENTRIES, COUNTED)
}

/// More owners than this are not counted; there is no memory for as many pointers.
const MOST: usize = isize::MAX as usize;

// SAFETY: an entry may be used and dropped by any thread, and the count is atomic.
unsafe impl Send for SharedEntry {}
// SAFETY: as for `Send`; it gives shared access only.
unsafe impl Sync for SharedEntry {}
// SAFETY: an `EntryPtr` is a count of an entry or a copy of a pointer to one; see
// `SharedEntry`.
unsafe impl Send for EntryPtr {}
// SAFETY: as for `Send`; it gives shared access only.
unsafe impl Sync for EntryPtr {}

// === impl SharedEntry ===

impl SharedEntry {
    /// Moves `entry` to memory of its own.
    #[must_use]
    pub fn new(entry: Entry) -> Self {
        Self::place(entry, memory().alloc())
    }

    /// The same, for one of several.
    pub(crate) fn new_in(maker: &mut Maker, entry: Entry) -> Self {
        Self::place(entry, maker.0.alloc())
    }

    /// Moves `entry` to `slot`, which came from `memory`.
    #[inline]
    fn place(entry: Entry, slot: NonNull<u8>) -> Self {
        let counted = slot.cast::<Counted>();
        let owners = AtomicUsize::new(1);
        // SAFETY: memory of our own for one.
        unsafe { counted.write(Counted { owners, entry }) };
        Self { counted }
    }

    /// Whether both point to the same entry, not just to equal ones.
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.counted == other.counted
    }

    /// How many own the entry: pointers like this one, and each map that it is live
    /// in or not yet freed from. True at some moment of the call.
    #[must_use]
    pub fn owners(this: &Self) -> usize {
        // SAFETY: alive by the type's invariant.
        let counted = unsafe { this.counted.as_ref() };
        // Relaxed: a number to be shown; nothing follows from it.
        counted.owners.load(Relaxed)
    }

    /// The pointer, with the count that it owns.
    pub(crate) fn into_ptr(self) -> EntryPtr {
        EntryPtr(ManuallyDrop::new(self).counted)
    }
}

impl Clone for SharedEntry {
    fn clone(&self) -> Self {
        // SAFETY: alive by the type's invariant.
        unsafe { EntryPtr(self.counted).share() }
    }
}

impl Drop for SharedEntry {
    fn drop(&mut self) {
        // SAFETY: the count is this pointer's, which is used no more.
        unsafe { EntryPtr(self.counted).release() };
    }
}

impl Deref for SharedEntry {
    type Target = Entry;

    #[inline]
    fn deref(&self) -> &Entry {
        // SAFETY: alive for as long as this pointer.
        unsafe { EntryPtr(self.counted).as_ref() }
    }
}

impl AsRef<Entry> for SharedEntry {
    fn as_ref(&self) -> &Entry {
        self
    }
}

impl From<Entry> for SharedEntry {
    fn from(entry: Entry) -> Self {
        Self::new(entry)
    }
}

impl fmt::Debug for SharedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

// === impl ShortEntry ===

impl ShortEntry {
    /// The pointer.
    ///
    /// # Safety
    ///
    /// The entry is alive.
    #[inline(always)]
    pub(crate) unsafe fn pointer(self) -> EntryPtr {
        // SAFETY: alive by the caller's word.
        EntryPtr(unsafe { self.0.pointer() })
    }

    /// The same, from a beginning that was read when the entry was alive.
    ///
    /// # Safety
    ///
    /// The entry is alive.
    #[inline(always)]
    pub(crate) unsafe fn pointer_from(self, beginning: Beginning) -> EntryPtr {
        // SAFETY: by the caller's word.
        EntryPtr(unsafe { self.0.pointer_from(beginning) })
    }
}

// === impl EntryPtr ===

impl EntryPtr {
    /// Bytes of the memory that an entry stands in, with its count.
    pub(crate) const BLOCK: usize = size_of::<Counted>();

    /// Points to the entry; whoever holds `entry` keeps it alive.
    pub(crate) fn of(entry: &SharedEntry) -> Self {
        Self(entry.counted)
    }

    /// The same in four bytes.
    #[inline]
    pub(crate) fn short(self) -> ShortEntry {
        ShortEntry(Short::new(self.0))
    }

    /// # Safety
    ///
    /// The entry stays alive for `'s`.
    #[inline]
    pub(crate) unsafe fn as_ref<'s>(self) -> &'s Entry {
        // SAFETY: alive by the caller's word, and entries are only ever shared.
        let counted: &'s Counted = unsafe { self.0.as_ref() };
        counted.entry.check_alive();
        &counted.entry
    }

    /// Asks for what a lookup reads: all but the region's start and what is rarely
    /// asked for.
    #[inline]
    pub(crate) fn prefetch(self) {
        prefetch(self.0.as_ptr(), 2 * 64);
    }

    /// Asks for the entry.
    #[inline]
    pub(crate) fn prefetch_whole(self) {
        prefetch(self.0.as_ptr(), size_of::<Counted>());
    }

    /// A count of one's own.
    ///
    /// # Safety
    ///
    /// The entry is alive.
    pub(crate) unsafe fn share(self) -> SharedEntry {
        // SAFETY: alive by the caller's word.
        let counted = unsafe { self.0.as_ref() };
        // Relaxed: whoever shares the entry has access to it already; the count is
        // only looked at when one is given up.
        if counted.owners.fetch_add(1, Relaxed) > MOST {
            abort();
        }
        SharedEntry { counted: self.0 }
    }

    /// Gives up one count: the map's, or a `SharedEntry`'s.
    ///
    /// # Safety
    ///
    /// The count is the caller's, who does not use the pointer any more.
    pub(crate) unsafe fn release(self) {
        // SAFETY: alive: the count is not given up yet.
        let counted = unsafe { self.0.as_ref() };
        // Release: what this owner has read and written comes before the end of the
        // entry; pairs with the Acquire below. Fails without it:
        // entries::the_last_owner_of_two_ends_the_entry.
        if counted.owners.fetch_sub(1, Release) > 1 {
            return;
        }
        // Acquire: pairs with the Release of all other owners. Fails without it:
        // entries::the_last_owner_of_two_ends_the_entry.
        fence(Acquire);
        // SAFETY: this was the last owner.
        unsafe { self.0.drop_in_place() };
        // SAFETY: from `memory` in `SharedEntry::new`, and nothing is left in it.
        unsafe { memory().dealloc(self.0.cast()) };
    }
}

#[cfg(all(test, not(tidegate_loom)))]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::clock::Moment;
    use crate::epoch::RegionEpoch;
    use crate::key::Key;
    use crate::provenance::Provenance;
    use crate::range::KeyRange;
    use crate::region::Region;

    fn entry(id: u64) -> Entry {
        // A key that owns memory: the tests run under miri, which sees a leak.
        let end = Key::from(&[b'z'; 64]);
        let range = KeyRange::new("a", end).expect("a valid range");
        let region = Region::builder(id, range, RegionEpoch::new(1, 1)).build();
        let received_at = Moment::from_nanos(1);
        Entry::new(
            region.expect("a valid region"),
            Provenance::Stream { received_at },
        )
    }

    #[test]
    fn an_entry_lives_as_long_as_its_last_owner() {
        let first = SharedEntry::new(entry(1));
        let second = first.clone();
        let other = SharedEntry::from(entry(1));
        assert!(SharedEntry::ptr_eq(&first, &second));
        assert!(!SharedEntry::ptr_eq(&first, &other));
        assert_eq!(SharedEntry::owners(&first), 2);
        drop(first);
        assert_eq!(second.id(), 1);
        let third = std::thread::spawn(move || second).join();
        assert_eq!(third.expect("no panic").end().len(), 64);
    }

    #[test]
    fn a_count_that_the_map_owns_is_given_up_once() {
        let shared = SharedEntry::new(entry(2));
        let pointer = shared.clone().into_ptr();
        assert_eq!(pointer, EntryPtr::of(&shared));
        drop(shared);
        // SAFETY: the count that `into_ptr` left.
        let shared = unsafe { pointer.share() };
        // SAFETY: as above, given up here.
        unsafe { pointer.release() };
        assert_eq!(shared.id(), 2);
    }

    #[test]
    fn what_a_lookup_reads_lies_in_two_lines() {
        assert_eq!(align_of::<Counted>(), 64);
        assert!(size_of::<Counted>() <= 3 * 64, "{}", size_of::<Counted>());
        let region = offset_of!(Counted, entry) + offset_of!(Entry, region);
        for (part, end, line) in entry(3).region().ends_of_what_a_lookup_reads() {
            assert!(region + end <= line * 64, "{part} ends at {}", region + end);
        }
    }
}
