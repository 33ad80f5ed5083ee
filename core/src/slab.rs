//! Memory for the many values of one size that lookups find by a random access:
//! entries, nodes and pages.
//!
//! A large map is looked up at the speed of memory, and half of a trip to memory is
//! the search for the page. So these values stand in *chunks* of 2 MiB for which
//! the system is asked for a huge page each. A chunk is cut into *slots*; its own
//! beginning holds what is known about it, and is found from a slot's address. Chunks
//! come from one range of addresses (`slab/arena.rs`), so that what refers to a slot
//! needs four bytes and not eight.
//!
//! # Life of a chunk
//!
//! - *Owned*: one thread takes slots from it, at first those that have never been
//!   used, later those that have been freed; when all are free, it begins anew, so
//!   that what is made together stands together. Between two allocations a chunk waits
//!   in one of a few places of the slab, from where a thread takes it by a swap;
//!   who finds the place empty gets another chunk. Nobody waits.
//! - *Full*: in no list. Whoever frees so many of its slots that a quarter is free
//!   makes it available.
//! - *Available*: in a stack that is taken whole (`stack.rs`).
//! - *Gone*: whoever frees the last slot of a chunk that nobody owns goes through
//!   the stack and gives the empty ones back to where they came from.
//!
//! Any thread frees a slot: it pushes it to the chunk's own stack, and then counts
//! it out, by which it has let go of the chunk. The count and whether the chunk is
//! owned are one word, so that of all who free exactly one sees the step that asks
//! for something to be done.
//!
//! # What is kept
//!
//! Freed slots are used before a new chunk is made. A chunk goes when all its slots
//! are free, unless it is one of the [`SHARDS`] that are owned. So a map that was
//! large and has become small keeps chunks as long as a value in each lives; the
//! content of a map that is replaced goes whole, but for those chunks that the new
//! content has used up. A chunk that goes keeps its memory for some seconds, in case it
//! is wanted again, and for as long as no map is changed: nothing here has a thread of
//! its own (`slab/numbers.rs`).

mod arena;
#[cfg(tidegate_loom)]
pub mod door;
#[cfg_attr(
    not(all(
        target_os = "linux",
        target_pointer_width = "64",
        not(any(miri, fuzzing, tidegate_loom))
    )),
    allow(dead_code, reason = "of arenas, which are not there")
)]
mod numbers;
#[cfg(all(test, not(tidegate_loom)))]
mod tests;

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::array;
use std::cell::Cell;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::{NonNull, null_mut};
use std::sync::LazyLock;
use std::sync::atomic::AtomicUsize as Number;

use crossbeam_utils::CachePadded;

use crate::prefetch::prefetch;
use crate::stack::{Link, Stack, turn};
use crate::sync::Canary;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicPtr, AtomicUsize};

pub(crate) use arena::{Beginning, Short, tend};

/// Bytes of a chunk: a huge page.
const CHUNK: usize = 2 << 20;

/// Chunks that threads take slots from at a time.
const SHARDS: usize = if cfg!(tidegate_loom) { 1 } else { 4 };

/// Whether values get memory of their own each: tools that look for wrong accesses
/// of memory see them then.
const PLAIN: bool = cfg!(any(miri, fuzzing, tidegate_loom));

/// A slab that lives as long as the process.
pub(crate) type Global = LazyLock<Slab>;

/// Where memory of one layout comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    layout: Layout,
    slab: Option<&'static Global>,
}

/// Takes slots one after the other. After the first few, the chunk that they are from
/// stays its own in between, which spares each slot two atomic exchanges.
pub(crate) struct Taker {
    source: Source,
    /// Slots that were taken one by one.
    taken: usize,
    // Invariant: owned, and of the source's slab.
    chunk: Option<NonNull<Chunk>>,
}

/// Slots of one size, in chunks.
#[derive(Debug)]
pub(crate) struct Slab {
    slot: Layout,
    /// As large as aligned.
    chunk: Layout,
    /// Slots of a chunk.
    slots: usize,
    /// Owned chunks while nobody uses them. Null where somebody does.
    owned: [CachePadded<AtomicPtr<Chunk>>; SHARDS],
    available: Stack,
    /// How often the last slot of a chunk that nobody owned was freed.
    emptied: AtomicUsize,
    /// Chunks that there are.
    chunks: Number,
    /// Whether chunks come from the arena, so that slots have a [`Short`].
    in_arena: bool,
}

/// The beginning of a chunk.
#[repr(C)]
struct Chunk {
    /// In the stack of available chunks. The first field: a link to it is one to the
    /// chunk.
    link: Cell<Link>,
    /// Freed slots.
    freed: Stack,
    /// [`OWNED`], and [`SLOT`] for each slot that has been given out and not been
    /// counted out again.
    state: AtomicUsize,
    /// The owner's: freed slots, taken from `freed`.
    taken: Cell<*mut Link>,
    /// The owner's: slots from here on have not been given out since all were free.
    fresh: Cell<usize>,
    /// Stands for the two.
    owner: Canary,
    alive: Canary,
}

/// So many slots a taker takes one by one: many takers of a few would keep as many
/// chunks.
const ONE_BY_ONE: usize = 16;

const OWNED: usize = 1;
const SLOT: usize = 2;

// SAFETY: what is not atomic in a chunk belongs to its owner, who got it by an Acquire
// from the one before; free memory may be sent anywhere.
unsafe impl Send for Slab {}
// SAFETY: as for `Send`.
unsafe impl Sync for Slab {}
// SAFETY: what is owned may be owned by any thread, one after the other.
unsafe impl Send for Taker {}
// SAFETY: shared access to it gives none to the chunk.
unsafe impl Sync for Taker {}

// === impl Source ===

impl Source {
    /// Slots of `slab`, which has been made for `layout`.
    pub(crate) const fn slab(slab: &'static Global, layout: Layout) -> Self {
        let slab = if PLAIN { None } else { Some(slab) };
        Self { layout, slab }
    }

    pub(crate) const fn layout(self) -> Layout {
        self.layout
    }

    /// Uninitialised memory of the layout.
    pub(crate) fn alloc(self) -> NonNull<u8> {
        match self.slab {
            Some(slab) => slab.alloc(),
            None => heap_alloc(self.layout),
        }
    }

    /// Takes memory several times.
    pub(crate) const fn taker(self) -> Taker {
        Taker {
            source: self,
            taken: 0,
            chunk: None,
        }
    }

    /// # Safety
    ///
    /// `memory` came from [`Source::alloc`] or a [`Taker`] of the same source, nothing
    /// in it needs to be dropped, and it is no longer reachable for anyone.
    pub(crate) unsafe fn dealloc(self, memory: NonNull<u8>) {
        match self.slab {
            // SAFETY: by the caller's word.
            Some(slab) => unsafe { slab.free(memory) },
            // SAFETY: as above.
            None => unsafe { dealloc(memory.as_ptr(), self.layout) },
        }
    }
}

fn heap_alloc(layout: Layout) -> NonNull<u8> {
    debug_assert!(layout.size() > 0);
    // SAFETY: nothing in this crate asks for no bytes.
    let memory = unsafe { alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

// === impl Taker ===

impl Taker {
    /// Uninitialised memory of the source's layout.
    pub(crate) fn alloc(&mut self) -> NonNull<u8> {
        match self.source.slab {
            Some(slab) if self.taken < ONE_BY_ONE => {
                self.taken += 1;
                slab.alloc()
            }
            Some(slab) => slab.alloc_from(&mut self.chunk),
            None => heap_alloc(self.source.layout),
        }
    }
}

// A chunk is free memory: no panic leaves it half done.
impl UnwindSafe for Taker {}
impl RefUnwindSafe for Taker {}

impl fmt::Debug for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taker").finish_non_exhaustive()
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        if let Some(slab) = self.source.slab {
            slab.put_down(self.chunk.take());
        }
    }
}

// === impl Slab ===

impl Slab {
    /// For values of the layout `slot`.
    pub(crate) fn new(slot: Layout) -> Self {
        Self::with_chunks_of(CHUNK, slot)
    }

    /// The same, and each slot has a [`Short`]. Such values begin with a line.
    pub(crate) fn in_arena(slot: Layout) -> Self {
        assert!(slot.align() >= 64, "{slot:?} may begin within a line");
        let mut slab = Self::new(slot);
        slab.in_arena = arena::ARENA;
        slab
    }

    fn with_chunks_of(bytes: usize, slot: Layout) -> Self {
        let slot = slot.pad_to_align();
        let chunk = Layout::from_size_align(bytes, bytes);
        let chunk = chunk.unwrap_or_else(|_| unreachable!("{bytes} is a power of two"));
        let first = size_of::<Chunk>().next_multiple_of(slot.align());
        let slots = (bytes - first) / slot.size();
        assert!(slots >= 2 && slot.size() >= size_of::<Link>());
        Self {
            slot,
            chunk,
            slots,
            owned: array::from_fn(|_| CachePadded::new(AtomicPtr::new(null_mut()))),
            available: Stack::new(),
            emptied: AtomicUsize::new(0),
            chunks: Number::new(0),
            in_arena: false,
        }
    }

    /// Chunks that there are.
    #[cfg(any(test, tidegate_loom))]
    pub(crate) fn chunks(&self) -> usize {
        // Relaxed: a number to be shown.
        self.chunks.load(Relaxed)
    }

    /// A slot, uninitialised.
    pub(crate) fn alloc(&self) -> NonNull<u8> {
        let mut chunk = None;
        let slot = self.alloc_from(&mut chunk);
        self.put_down(chunk);
        slot
    }

    /// A slot of `chunk`, which the caller owns, if that is there and has one, or else
    /// of another one, which takes its place.
    fn alloc_from(&self, chunk: &mut Option<NonNull<Chunk>>) -> NonNull<u8> {
        let mut current = chunk
            .take()
            .or_else(|| Self::own(&self.owned[turn() % SHARDS]))
            .unwrap_or_else(|| self.acquire());
        loop {
            // SAFETY: owned, hence alive.
            if let Some(slot) = unsafe { self.take_slot(current) } {
                *chunk = Some(current);
                return slot;
            }
            // SAFETY: owned by this call, and used no more.
            unsafe { self.disown(current) };
            current = self.acquire();
        }
    }

    /// Leaves an owned chunk to whoever takes a slot next.
    fn put_down(&self, chunk: Option<NonNull<Chunk>>) {
        let Some(chunk) = chunk else {
            return;
        };
        // Release: pairs with the Acquire in `own`. Relaxed on failure: another chunk has
        // been put there meanwhile, which is not looked into. Fails without it:
        // slab::a_slot_has_one_owner.
        if self.owned[turn() % SHARDS]
            .compare_exchange(null_mut(), chunk.as_ptr(), Release, Relaxed)
            .is_err()
        {
            // SAFETY: owned by the caller, and used no more.
            unsafe { self.disown(chunk) };
        }
    }

    /// Takes the chunk out of a place for owned ones, unless somebody else has.
    fn own(place: &AtomicPtr<Chunk>) -> Option<NonNull<Chunk>> {
        // Acquire: pairs with the Release of the exchange in `put_down`: the owner before
        // has written what is the owner's. Fails without it:
        // slab::a_slot_has_one_owner.
        NonNull::new(place.swap(null_mut(), Acquire))
    }

    /// # Safety
    ///
    /// `slot` came from [`Slab::alloc`] of this slab, nothing in it needs to be
    /// dropped, and it is no longer reachable for anyone.
    pub(crate) unsafe fn free(&self, slot: NonNull<u8>) {
        let address = slot.as_ptr().map_addr(|at| at & !(self.chunk.size() - 1));
        // SAFETY: a chunk is as large as aligned, so this is where the slot's begins.
        let pointer = unsafe { NonNull::new_unchecked(address) }.cast::<Chunk>();
        // SAFETY: alive while a slot has not been counted out.
        let chunk = unsafe { pointer.as_ref() };
        chunk.alive.check();

        let link = slot.cast::<Link>().as_ptr();
        // SAFETY: the caller's own, and large enough.
        unsafe { link.write(Link::before(null_mut())) };
        // SAFETY: the caller's own, given up here.
        unsafe { chunk.freed.push(link, link) };
        // Release: whoever gives the chunk back has this access behind it. Acquire:
        // whoever makes it available passes on what its last owner has written. Pairs
        // with the Acquire in `sweep` and with the Release in `disown`. Fails without
        // them: slab::an_empty_chunk_is_given_back,
        // slab::a_chunk_is_handed_on_by_who_makes_it_available.
        let state = chunk.state.fetch_sub(SLOT, AcqRel) - SLOT;
        // If it was the last slot, the chunk may be gone by now.
        if state == self.available_at() {
            // SAFETY: nobody owns it, and of all who free only this call sees the
            // count there: it does not grow before the chunk is owned again.
            unsafe { self.make_available(pointer) };
        } else if state == 0 {
            // AcqRel: see `emptied`.
            self.emptied.fetch_add(1, AcqRel);
            self.sweep();
        }
    }

    /// The state of a chunk that nobody owns when it becomes available.
    fn available_at(&self) -> usize {
        self.slots * 3 / 4 * SLOT
    }

    /// A slot of a chunk that the caller owns; none if it is full.
    ///
    /// # Safety
    ///
    /// The caller owns the chunk.
    unsafe fn take_slot(&self, pointer: NonNull<Chunk>) -> Option<NonNull<u8>> {
        // SAFETY: alive: owned.
        let chunk = unsafe { pointer.as_ref() };
        chunk.owner.refill();
        // Acquire: pairs with the Release in `free`: everybody who has counted a slot
        // out has pushed it before, so that none is pushed behind the lists that are
        // dropped here. slab::an_empty_chunk_begins_anew goes through it.
        if chunk.fresh.get() > 0 && chunk.state.load(Acquire) == OWNED {
            chunk.freed.take();
            chunk.taken.set(null_mut());
            chunk.fresh.set(0);
        }
        if chunk.taken.get().is_null() {
            chunk.taken.set(chunk.freed.take());
        }
        let slot = if let Some(taken) = NonNull::new(chunk.taken.get()) {
            // SAFETY: what has been taken is free memory of the owner.
            chunk.taken.set(unsafe { taken.as_ref() }.next());
            // Freed long ago, and written to next.
            prefetch(chunk.taken.get(), self.slot.size());
            taken.cast::<u8>()
        } else {
            let place = chunk.fresh.get();
            if place == self.slots {
                return None;
            }
            chunk.fresh.set(place + 1);
            let first = size_of::<Chunk>().next_multiple_of(self.slot.align());
            // SAFETY: `slots` of them fit behind the beginning of the chunk.
            unsafe { pointer.cast::<u8>().add(first + place * self.slot.size()) }
        };
        // Relaxed: only the owner adds, and the count matters when it owns no more.
        chunk.state.fetch_add(SLOT, Relaxed);
        Some(slot)
    }

    /// A chunk that the caller owns from now on.
    fn acquire(&self) -> NonNull<Chunk> {
        let emptied = self.emptied();
        let Some(link) = NonNull::new(self.available.take()) else {
            return self.make_chunk();
        };
        let pointer = link.cast::<Chunk>();
        // SAFETY: alive: what is taken from the stack is the caller's own.
        let chunk = unsafe { pointer.as_ref() };
        let rest = chunk.link.replace(Link::before(null_mut())).next();
        // Relaxed: the stack has handed it over; from now on whoever frees a slot
        // leaves it at that.
        chunk.state.fetch_or(OWNED, Relaxed);
        // SAFETY: taken from the stack, and given up here.
        unsafe { self.available.put_back(rest) };
        if self.emptied() != emptied {
            self.sweep();
        }
        pointer
    }

    fn make_chunk(&self) -> NonNull<Chunk> {
        let memory = if self.in_arena {
            arena::take().unwrap_or_else(|| handle_alloc_error(self.chunk))
        } else {
            heap_alloc(self.chunk)
        };
        // Relaxed: a hint, and a number to be shown. The first chunk is spared, so
        // that a small map takes no more memory than it needs.
        if self.chunks.fetch_add(1, Relaxed) > 0 {
            ask_for_a_huge_page(memory, self.chunk.size());
        }
        let chunk = Chunk {
            link: Cell::new(Link::before(null_mut())),
            freed: Stack::new(),
            state: AtomicUsize::new(OWNED),
            taken: Cell::new(null_mut()),
            fresh: Cell::new(0),
            owner: Canary::new(),
            alive: Canary::new(),
        };
        let pointer = memory.cast::<Chunk>();
        // SAFETY: memory of our own, large and aligned enough.
        unsafe { pointer.write(chunk) };
        pointer
    }

    /// # Safety
    ///
    /// The caller owns the chunk, and gives that up.
    unsafe fn disown(&self, pointer: NonNull<Chunk>) {
        // SAFETY: alive: owned.
        let chunk = unsafe { pointer.as_ref() };
        // Release: pairs with the Acquire in `free`, by which a chunk that becomes
        // available later brings what its owner has written. Fails without it:
        // slab::a_chunk_is_handed_on_by_who_makes_it_available.
        let state = chunk.state.fetch_sub(OWNED, Release) - OWNED;
        if state <= self.available_at() {
            // SAFETY: nobody owns it, and those who free see a lower count.
            unsafe { self.make_available(pointer) };
        }
    }

    /// # Safety
    ///
    /// Nobody owns the chunk, it is not available, and nobody else makes it so.
    unsafe fn make_available(&self, chunk: NonNull<Chunk>) {
        let link = chunk.cast::<Link>().as_ptr();
        // SAFETY: alive: a chunk goes only when it is available.
        unsafe { self.available.push(link, link) };
        // Its last slot may have been freed before it could be found.
        self.sweep();
    }

    /// Gives back the empty ones of the available chunks.
    fn sweep(&self) {
        loop {
            let emptied = self.emptied();
            let mut available = self.available.take();
            let mut kept = null_mut();
            while let Some(mut link) = NonNull::new(available) {
                let pointer = link.cast::<Chunk>();
                // SAFETY: alive: what is taken from the stack is the caller's own.
                let state = &unsafe { pointer.as_ref() }.state;
                // Acquire: pairs with the Release in `free`: everybody who has counted
                // a slot out has let go of the chunk. Fails without it:
                // slab::an_empty_chunk_is_given_back.
                let is_empty = state.load(Acquire) == 0;
                if is_empty {
                    // SAFETY: as above.
                    available = unsafe { link.as_ref() }.next();
                    // SAFETY: as above; all slots are free.
                    unsafe { self.give_back(pointer) };
                } else {
                    // SAFETY: as above.
                    available = unsafe { link.as_mut() }.relink(kept);
                    kept = link.as_ptr();
                }
            }
            // SAFETY: taken from the stack, and given up here.
            unsafe { self.available.put_back(kept) };
            if self.emptied() == emptied {
                return;
            }
        }
    }

    /// How often a chunk has been emptied. Who takes the available chunks asks before
    /// and after it has put them back: whoever emptied one of them in between could
    /// not find it.
    fn emptied(&self) -> usize {
        // AcqRel, as the other read-modify-writes of this number, all of which are in
        // one order: either this call is told of an emptied chunk, or whoever emptied
        // it finds it where this call's caller has put it. Fails without it:
        // slab::a_chunk_emptied_beside_a_sweep_is_given_back.
        self.emptied.fetch_add(0, AcqRel)
    }

    /// # Safety
    ///
    /// The chunk is the caller's own, and all of its slots are free.
    unsafe fn give_back(&self, chunk: NonNull<Chunk>) {
        // Relaxed: as in `make_chunk`.
        self.chunks.fetch_sub(1, Relaxed);
        // SAFETY: by the caller's word.
        unsafe { chunk.drop_in_place() };
        if self.in_arena {
            // SAFETY: from `make_chunk`, and the caller's own.
            unsafe { arena::give(chunk.cast()) };
        } else {
            // SAFETY: as above.
            unsafe { dealloc(chunk.as_ptr().cast(), self.chunk) };
        }
    }
}

impl Drop for Slab {
    /// Slots that have not been freed keep their chunks for ever.
    fn drop(&mut self) {
        for place in &self.owned {
            if let Some(chunk) = Self::own(place) {
                // SAFETY: owned, and used no more.
                unsafe { self.disown(chunk) };
            }
        }
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
fn ask_for_a_huge_page(memory: NonNull<u8>, bytes: usize) {
    use rustix::mm::{Advice, madvise};
    let advice = Advice::LinuxHugepage;
    // A system that gives none gives small pages.
    // SAFETY: the advice changes nothing that a program can see in its memory.
    let _ = unsafe { madvise(memory.as_ptr().cast(), bytes, advice) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn ask_for_a_huge_page(_memory: NonNull<u8>, _bytes: usize) {}
