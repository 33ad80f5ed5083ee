//! One range of addresses for all chunks of a kind, so that four bytes say where a
//! slot is.
//!
//! A leaf points to as many entries as it has room for, and half of its lines would be
//! these pointers. So chunks of entries come from an *arena*: addresses that are
//! reserved once, without memory, from which chunks are taken and to which they are
//! given back. A [`Short`] is the slot's distance from the beginning of the arena, in
//! units of a line. To follow it takes one addition.
//!
//! The arena has 256 GiB of addresses, room for a billion regions. Where a process may
//! not reserve as many (`ulimit -v`), it takes half of that, and so on. When it is used
//! up, no more memory can be had, as from an allocator.
//!
//! # Order
//!
//! All accesses of the beginning are Relaxed. Whoever makes or follows a `Short` was
//! given the slot, or has it from somebody who was, by way of what publishes the slot
//! itself (the root's Release and Acquire): the arena began before, and a load that
//! comes after cannot see less. Who takes a chunk is decided by an exchange of its state,
//! and memory that was given back is handed on by it: Release there, Acquire here.
//!
//! Without such a range (under tools that follow memory, see `slab.rs`, and on other
//! systems) a `Short` is a pointer.

pub(crate) use repr::Short;
pub(super) use repr::{ARENA, give, take};

#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    not(any(miri, fuzzing, tidegate_loom))
))]
mod repr {
    use std::marker::PhantomData;
    use std::num::NonZeroU32;
    use std::ptr::{NonNull, null_mut};
    // Not the door's, which can't be in a static; see the module on their order.
    use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
    use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize};

    use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
    use rustix::mm::{madvise, mmap_anonymous, mprotect, munmap};

    use crate::slab::CHUNK;

    /// Whether there are arenas.
    pub(in crate::slab) const ARENA: bool = true;

    /// What a slot's place is counted in: slots begin with a line.
    const UNIT: usize = 64;

    /// Chunks of the largest arena.
    const CHUNKS: usize = (1 << u32::BITS) / (CHUNK / UNIT);

    /// Where the first chunk begins. Null before there is one.
    static BEGINNING: AtomicPtr<u8> = AtomicPtr::new(null_mut());

    /// How many chunks have addresses.
    static RESERVED: AtomicUsize = AtomicUsize::new(0);

    /// What has become of each chunk: [`NEW`], [`TAKEN`], [`COLD`] or [`WARM`].
    static STATES: [AtomicU8; CHUNKS] = [const { AtomicU8::new(NEW) }; CHUNKS];

    /// Never taken: no access is granted yet.
    const NEW: u8 = 0;
    /// In use.
    const TAKEN: u8 = 1;
    /// Given back, its memory too.
    const COLD: u8 = 2;
    /// Given back, and has its memory still.
    const WARM: u8 = 3;

    /// How many are warm.
    static WARM_ONES: AtomicUsize = AtomicUsize::new(0);

    /// So many may be: memory that comes anew is cleared by the system, which costs a
    /// small map that is loaded again and again more than the load.
    const MOST_WARM: usize = 8;

    /// No chunk before it is free, or not for long.
    static FREE: AtomicUsize = AtomicUsize::new(0);

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

    impl<T> Short<T> {
        /// Of a slot of the arena.
        #[inline]
        pub(crate) fn new(slot: NonNull<T>) -> Self {
            // Relaxed: see the module.
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
            // Relaxed: see the module.
            let beginning = BEGINNING.load(Relaxed);
            // SAFETY: there is a slot, hence an arena.
            let beginning = unsafe { NonNull::new_unchecked(beginning) };
            // SAFETY: as far behind the beginning as the slot was in `new`.
            unsafe { beginning.add(self.units.get() as usize * UNIT) }.cast()
        }
    }

    /// A chunk that is the caller's own; none if there is no more memory.
    pub(in crate::slab) fn take() -> Option<NonNull<u8>> {
        let beginning = beginning()?;
        // Relaxed: written before the beginning that has been seen, and a hint.
        let (reserved, from) = (RESERVED.load(Relaxed), FREE.load(Relaxed));
        for number in (from..reserved).chain(0..from.min(reserved)) {
            // Relaxed: only to see whether an exchange is worth it. Acquire: see the
            // module.
            let state = STATES[number].load(Relaxed);
            if state == TAKEN
                || STATES[number]
                    .compare_exchange(state, TAKEN, Acquire, Relaxed)
                    .is_err()
            {
                continue;
            }
            // Relaxed: a hint, and a number about which it is no matter if it is off.
            FREE.fetch_max(number + 1, Relaxed);
            if state == WARM {
                WARM_ONES.fetch_sub(1, Relaxed);
            }
            // SAFETY: within the arena.
            let chunk = unsafe { beginning.add(number * CHUNK) };
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: addresses of our own, which nobody uses.
            if state == NEW && unsafe { mprotect(chunk.as_ptr().cast(), CHUNK, access) }.is_err() {
                release(number, NEW);
                return None;
            }
            return Some(chunk);
        }
        None
    }

    /// Gives a chunk back.
    ///
    /// # Safety
    ///
    /// It came from [`take`], is the caller's own, and used no more.
    pub(in crate::slab) unsafe fn give(chunk: NonNull<u8>) {
        // Relaxed: as in `take`, and see the module.
        let number = (chunk.addr().get() - BEGINNING.load(Relaxed).addr()) / CHUNK;
        if WARM_ONES.load(Relaxed) < MOST_WARM {
            WARM_ONES.fetch_add(1, Relaxed);
            release(number, WARM);
            return;
        }
        // A system that keeps the memory has it used again.
        // SAFETY: the caller's own, and what is in it is not needed.
        let _ = unsafe { madvise(chunk.as_ptr().cast(), CHUNK, Advice::LinuxDontNeed) };
        release(number, COLD);
    }

    fn release(number: usize, state: u8) {
        // Release: see the module.
        STATES[number].store(state, Release);
        // Relaxed: a hint.
        FREE.fetch_min(number, Relaxed);
    }

    /// The beginning of the arena; makes it if there is none.
    fn beginning() -> Option<NonNull<u8>> {
        // Acquire: pairs with the Release below, for what has been reserved.
        if let Some(beginning) = NonNull::new(BEGINNING.load(Acquire)) {
            return Some(beginning);
        }
        let (reserved, chunks) = reserve()?;
        // A chunk begins at a multiple of its size.
        let beginning = reserved.map_addr(|at| at.next_multiple_of(CHUNK));
        // Relaxed: published by the exchange. All who come here reserve as much, unless
        // they are refused: the least of it counts.
        let least = RESERVED.load(Relaxed);
        RESERVED.store(
            if least == 0 {
                chunks
            } else {
                least.min(chunks)
            },
            Relaxed,
        );
        // Release: pairs with the Acquire above, and below for whoever comes too late.
        match BEGINNING.compare_exchange(null_mut(), beginning, Release, Acquire) {
            Ok(_) => NonNull::new(beginning),
            Err(first) => {
                // SAFETY: reserved by this call, and never used.
                let _ = unsafe { munmap(reserved.cast(), (chunks + 1) * CHUNK) };
                NonNull::new(first)
            }
        }
    }

    /// Addresses without memory, for so many chunks and one more.
    fn reserve() -> Option<(*mut u8, usize)> {
        let mut chunks = CHUNKS;
        while chunks > 0 {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            let bytes = (chunks + 1) * CHUNK;
            // SAFETY: at an address that the system chooses, so that nothing is replaced.
            let mapped = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), flags) };
            if let Ok(mapped) = mapped {
                return Some((mapped.cast(), chunks));
            }
            chunks /= 2;
        }
        None
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
    }

    pub(in crate::slab) fn take() -> Option<NonNull<u8>> {
        None
    }

    /// # Safety
    ///
    /// Never called: nothing is taken.
    pub(in crate::slab) unsafe fn give(_: NonNull<u8>) {}
}
