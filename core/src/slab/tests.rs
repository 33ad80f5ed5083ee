use std::collections::BTreeSet;
use std::thread;

use super::*;

const SLOT_BYTES: usize = 192;

fn slab() -> Slab {
    Slab::with_chunks_of(4096, Layout::new::<[u64; SLOT_BYTES / 8]>())
}

/// Takes a slot and writes all of it: miri sees what another owner does there.
fn take(slab: &Slab, byte: u8) -> NonNull<u8> {
    let slot = slab.alloc();
    // SAFETY: a slot of our own.
    unsafe { slot.write_bytes(byte, SLOT_BYTES) };
    slot
}

fn free(slab: &Slab, slot: NonNull<u8>, byte: u8) {
    // SAFETY: a slot has that many bytes.
    let last = unsafe { slot.add(SLOT_BYTES - 1) };
    // SAFETY: a slot of our own, that `take` has written.
    let last = unsafe { last.read() };
    assert_eq!(last, byte, "a slot with two owners");
    // SAFETY: from `take`, and given up here.
    unsafe { slab.free(slot) };
}

#[test]
fn freed_slots_are_used_before_a_new_chunk_is_made() {
    let slab = slab();
    let slots: Vec<_> = (0..3 * slab.slots).map(|_| take(&slab, 1)).collect();
    assert_eq!(slab.chunks(), 3);
    let places: BTreeSet<usize> = slots.iter().map(|slot| slot.as_ptr().addr()).collect();
    assert_eq!(places.len(), slots.len());
    let (freed, kept): (Vec<_>, Vec<_>) = (0..).zip(slots).partition(|(at, _)| at % 2 == 0);
    let many = freed.len();
    freed.into_iter().for_each(|(_, slot)| free(&slab, slot, 1));
    let again: Vec<_> = (0..many).map(|_| take(&slab, 2)).collect();
    assert_eq!(slab.chunks(), 3);
    for slot in again {
        assert!(places.contains(&slot.as_ptr().addr()));
        free(&slab, slot, 2);
    }
    kept.into_iter().for_each(|(_, slot)| free(&slab, slot, 1));
}

#[test]
fn m7_a_chunk_goes_with_its_last_slot_unless_it_is_owned() {
    let slab = slab();
    for _ in 0..3 {
        let slots: Vec<_> = (0..20 * slab.slots).map(|_| take(&slab, 1)).collect();
        assert!((20..=20 + SHARDS).contains(&slab.chunks()));
        // All but one of each chunk: they all stay.
        let (last, others): (Vec<_>, Vec<_>) =
            (0..).zip(slots).partition(|(at, _)| at % slab.slots == 0);
        others
            .into_iter()
            .for_each(|(_, slot)| free(&slab, slot, 1));
        assert!(slab.chunks() >= 20);
        last.into_iter().for_each(|(_, slot)| free(&slab, slot, 1));
        assert!(slab.chunks() <= SHARDS, "{} chunks", slab.chunks());
    }
    drop(slab);
}

#[test]
fn slots_are_taken_and_freed_by_different_threads() {
    let slab = slab();
    let rounds: u8 = if cfg!(miri) { 3 } else { 60 };
    let run = |number: u8| {
        for round in 0..rounds {
            let byte = number * 64 + round;
            let taken: Vec<_> = (0..50).map(|_| Sent(take(&slab, byte))).collect();
            let (here, there) = taken.split_at(usize::from(round) % 50);
            thread::scope(|scope| {
                scope.spawn(|| there.iter().for_each(|slot| free(&slab, slot.0, byte)));
                here.iter().for_each(|slot| free(&slab, slot.0, byte));
            });
        }
    };
    thread::scope(|scope| {
        for number in 0..4 {
            let run = &run;
            scope.spawn(move || run(number));
        }
    });
    assert!(slab.chunks() <= SHARDS, "{} chunks", slab.chunks());
}

/// A slot on its way to another thread.
struct Sent(NonNull<u8>);

// SAFETY: memory with a single owner.
unsafe impl Send for Sent {}
// SAFETY: as for `Send`; each is used by one thread.
unsafe impl Sync for Sent {}
