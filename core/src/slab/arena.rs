//! One range of addresses for all chunks of a kind, so that four bytes say where a
//! slot is.
//!
//! A leaf points to as many entries as it has room for, and half of its lines would be
//! these pointers. So chunks of entries, nodes and pages come from an *arena*: addresses
//! that are reserved once, without memory, from which chunks are taken and to which they
//! are given back. A [`Short`] is a slot's distance from the beginning of the arena, in
//! units of a line. To follow it takes one addition.
//!
//! The arena has 256 GiB of addresses, room for a billion regions. Where a process may
//! not reserve as many (`ulimit -v`), it takes a quarter of what it may, since the rest
//! of the process needs addresses too. When it is used up, no more memory can be had, as
//! from an allocator.
//!
//! Without an arena (under tools that follow memory, see `slab.rs`, and on other systems)
//! a `Short` is a pointer.

pub(crate) use repr::tend;
pub(super) use repr::{ARENA, give, take};
pub(crate) use repr::{Beginning, Short};

#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    not(any(miri, fuzzing, tidegate_loom))
))]
mod repr {
    use std::marker::PhantomData;
    use std::num::NonZeroU32;
    use std::ptr::{NonNull, null_mut};
    use std::sync::LazyLock;
    // Not the door's, which can't be in a static; see `BEGINNING` on its order.
    use std::sync::atomic::AtomicPtr;
    use std::sync::atomic::Ordering::Relaxed;

    use crossbeam_utils::CachePadded;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
    use rustix::mm::{mmap_anonymous, mprotect, munmap};

    use crate::clock::{BootClock, Clock};
    use crate::slab::CHUNK;
    use crate::slab::numbers::{Numbers, Taken};

    /// Whether there are arenas.
    pub(in crate::slab) const ARENA: bool = true;

    /// What a slot's place is counted in: slots begin with a line.
    const UNIT: usize = 64;

    /// Chunks of the largest arena.
    const CHUNKS: usize = (1 << u32::BITS) / (CHUNK / UNIT);

    /// The arena; none if not a single chunk could be reserved.
    static ARENA_OF_ALL: LazyLock<Option<Arena>> = LazyLock::new(Arena::reserve);

    /// Where the arena begins; null before there is one.
    // Relaxed, all accesses: whoever makes or follows a `Short` was given the slot, hence
    // after the arena began, or has it from somebody who was, by way of what publishes
    // the slot itself (the root's Release and Acquire): it cannot see less.
    // In a line of its own, since every lookup reads it.
    static BEGINNING: CachePadded<AtomicPtr<u8>> = CachePadded::new(AtomicPtr::new(null_mut()));

    /// Reserved addresses.
    struct Arena {
        beginning: NonNull<u8>,
        numbers: Numbers,
    }

    // SAFETY: addresses, given out by number to one owner each.
    unsafe impl Send for Arena {}
    // SAFETY: as for `Send`.
    unsafe impl Sync for Arena {}

    /// A slot of the arena, with a `T` in it.
    pub(crate) struct Short<T> {
        // Invariant: not 0, where the first chunk's own beginning is.
        units: NonZeroU32,
        of: PhantomData<NonNull<T>>,
    }

    impl<T> Clone for Short<T> {
        fn clone(&self) -> Self {
            *self
        }
    }

    impl<T> Copy for Short<T> {}

    /// Where the arena begins, read once for many slots.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Beginning(*mut u8);

    impl Beginning {
        #[inline(always)]
        pub(crate) fn read() -> Self {
            // Relaxed: see there.
            Self(BEGINNING.load(Relaxed))
        }
    }

    impl<T> Short<T> {
        /// Of a slot of the arena.
        #[inline]
        pub(crate) fn new(slot: NonNull<T>) -> Self {
            // Relaxed: see there.
            let beginning = BEGINNING.load(Relaxed).addr();
            let units = slot.addr().get().wrapping_sub(beginning) / UNIT;
            let units = u32::try_from(units).ok().and_then(NonZeroU32::new);
            Self {
                units: units.unwrap_or_else(|| unreachable!("the slot is not in the arena")),
                of: PhantomData,
            }
        }

        /// Where the slot is.
        ///
        /// # Safety
        ///
        /// The slot is in use.
        #[inline(always)]
        pub(crate) unsafe fn pointer(self) -> NonNull<T> {
            // SAFETY: by the caller's word.
            unsafe { self.pointer_from(Beginning::read()) }
        }

        /// The same, from a beginning that was read when the slot was in use.
        ///
        /// # Safety
        ///
        /// The slot is in use.
        #[inline(always)]
        pub(crate) unsafe fn pointer_from(self, beginning: Beginning) -> NonNull<T> {
            // SAFETY: there is a slot, hence an arena.
            let beginning = unsafe { NonNull::new_unchecked(beginning.0) };
            // SAFETY: as far behind the beginning as the slot was in `new`.
            unsafe { beginning.add(self.units.get() as usize * UNIT) }.cast()
        }
    }

    /// A chunk that is the caller's own; none if there is no more memory.
    pub(in crate::slab) fn take() -> Option<NonNull<u8>> {
        let arena = ARENA_OF_ALL.as_ref()?;
        let Taken { number, is_warm } = arena.numbers.take()?;
        // SAFETY: within the arena.
        let chunk = unsafe { arena.beginning.add(number * CHUNK) };
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: addresses of our own, which nobody uses.
        if !is_warm && unsafe { mprotect(chunk.as_ptr().cast(), CHUNK, access) }.is_err() {
            arena.numbers.give_cold(number);
            return None;
        }
        Some(chunk)
    }

    /// Gives a chunk back.
    ///
    /// # Safety
    ///
    /// It came from [`take`], is the caller's own, and used no more.
    pub(in crate::slab) unsafe fn give(chunk: NonNull<u8>) {
        let Some(arena) = ARENA_OF_ALL.as_ref() else {
            return;
        };
        let number = (chunk.addr().get() - arena.beginning.addr().get()) / CHUNK;
        arena.numbers.give(number, now());
    }

    /// Gives back what nobody has wanted for long. Costs next to nothing while there is
    /// nothing.
    #[inline]
    pub(crate) fn tend() {
        if let Some(arena) = ARENA_OF_ALL.as_ref()
            && arena.numbers.has_warm()
        {
            arena.cool_old();
        }
    }

    const FLAGS: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

    /// Addresses for so many chunks, or one less if they do not begin where a chunk does: at
    /// a multiple of its size.
    fn map(chunks: usize) -> Option<NonNull<u8>> {
        // SAFETY: at an address that the system chooses: nothing is replaced.
        let mapped =
            unsafe { mmap_anonymous(null_mut(), chunks * CHUNK, ProtFlags::empty(), FLAGS) };
        NonNull::new(mapped.ok()?.cast())
    }

    /// Seconds, in as many bits as the state of a chunk has for them.
    fn now() -> u32 {
        (BootClock.now().as_nanos() / 1_000_000_000) as u32 & u32::MAX >> 2
    }

    impl Arena {
        fn reserve() -> Option<Self> {
            let mut chunks = CHUNKS;
            let mut reserved = map(chunks + 1);
            if reserved.is_none() {
                while reserved.is_none() && chunks > 1 {
                    chunks /= 2;
                    reserved = map(chunks + 1);
                }
                // SAFETY: reserved just now, and never used.
                let _ = unsafe { munmap(reserved?.as_ptr().cast(), (chunks + 1) * CHUNK) };
                // Between an eighth and a quarter of what there is.
                chunks = (chunks / 4).max(1);
                reserved = map(chunks + 1);
            }
            let first = reserved?.as_ptr().map_addr(|at| at.next_multiple_of(CHUNK));
            let beginning = NonNull::new(first)?;
            // Relaxed: see there.
            BEGINNING.store(beginning.as_ptr(), Relaxed);
            let numbers = Numbers::new(chunks);
            Some(Self { beginning, numbers })
        }

        fn cool_old(&self) {
            self.numbers.cool_old(now(), |number| {
                // SAFETY: within the arena.
                let chunk = unsafe { self.beginning.add(number * CHUNK) };
                let flags = FLAGS | MapFlags::FIXED;
                // Mapped anew, it counts no longer among what the process may write to.
                // SAFETY: the caller's own meanwhile, and what is in it is not needed.
                let mapped = unsafe {
                    mmap_anonymous(chunk.as_ptr().cast(), CHUNK, ProtFlags::empty(), flags)
                };
                mapped.is_ok()
            });
        }
    }
}

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    not(any(miri, fuzzing, tidegate_loom))
)))]
mod repr {
    use std::ptr::NonNull;

    pub(in crate::slab) const ARENA: bool = false;

    /// A slot with a `T` in it.
    pub(crate) struct Short<T>(NonNull<T>);

    impl<T> Clone for Short<T> {
        fn clone(&self) -> Self {
            *self
        }
    }

    impl<T> Copy for Short<T> {}

    /// Nothing: a `Short` does without it.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Beginning(());

    impl Beginning {
        #[inline(always)]
        pub(crate) fn read() -> Self {
            Self(())
        }
    }

    impl<T> Short<T> {
        /// Of a slot, wherever it is.
        #[inline]
        pub(crate) fn new(slot: NonNull<T>) -> Self {
            Self(slot)
        }

        /// Where the slot is.
        ///
        /// # Safety
        ///
        /// The slot is in use.
        #[inline(always)]
        pub(crate) unsafe fn pointer(self) -> NonNull<T> {
            self.0
        }

        /// The same.
        ///
        /// # Safety
        ///
        /// The slot is in use.
        #[inline(always)]
        pub(crate) unsafe fn pointer_from(self, _: Beginning) -> NonNull<T> {
            self.0
        }
    }

    pub(in crate::slab) fn take() -> Option<NonNull<u8>> {
        None
    }

    /// # Safety
    ///
    /// Never called: nothing is taken.
    pub(in crate::slab) unsafe fn give(_: NonNull<u8>) {}

    pub(crate) fn tend() {}
}
