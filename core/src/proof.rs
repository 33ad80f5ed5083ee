//! Proofs of freshness, and the probes that are not proofs yet.
//!
//! A probe sent at `t` and answered with head `H` says: at some time after `t` the leader had
//! recorded everything before `H`. That becomes a proof for `t` once the applied index has
//! reached `H` (G3). Nothing else moves [`Proofs::proven_at`] forward, and nothing moves it back.
//!
//! # The race, and why no proof is lost
//!
//! Two threads meet here. The prober has an answer whose head is not applied yet; the applier is
//! about to apply it. Each writes its own word and then looks at the other's:
//!
//! - prober: put the probe into `pending`, **fence**, look at `applied`;
//! - applier: store `applied`, **fence**, look at `pending`.
//!
//! The two fences are sequentially consistent and therefore ordered one way or the other: if the
//! applier's comes later, it sees the probe; if the prober's does, it sees the index. At least one
//! of them settles the proof, and both may, since settling is a `fetch_max`. Without the fences
//! both could miss, and a quiet leader's proof would wait for the next probe.
//!
//! # The pending array
//!
//! A ring of [`CAPACITY`] places with one writer at each end: the prober puts at the tail, the
//! applier takes from the front. A place is written again only after the applier has taken it.
//! When all are taken, the newest probe is dropped: the oldest then waits since `CAPACITY`
//! probes, the gate is long shut for age, and the first apply that settles anything makes room.
//! The applier stops at the first probe that it has not reached: a leader's index does not go back
//! within a generation, so those behind it are not reached either.

use crate::clock::Moment;
use crate::lag::{Index, Stamp};
use crate::sync::Canary;
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// Probes that can wait for the apply at once. Tiny in a model, so that it wraps.
pub(crate) const CAPACITY: usize = if cfg!(tidegate_loom) { 2 } else { 16 };

/// The latest proof of one generation and the probes that wait to become one.
#[derive(Debug)]
pub(crate) struct Proofs {
    proven_at: Stamp,
    /// Probes taken so far; written by the applier only.
    front: AtomicU64,
    /// Probes put so far; written by the prober only.
    tail: AtomicU64,
    pending: [Pending; CAPACITY],
}

/// One probe's answer. Written by the prober while the place is its own, see [`Proofs::put`].
#[derive(Debug)]
struct Pending {
    head: AtomicU64,
    sent_at: AtomicU64,
    canary: Canary,
}

impl Proofs {
    pub(crate) fn new() -> Self {
        Self {
            proven_at: Stamp::never(),
            front: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            pending: std::array::from_fn(|_| Pending {
                head: AtomicU64::new(0),
                sent_at: AtomicU64::new(0),
                canary: Canary::new(),
            }),
        }
    }

    /// Forgets everything. The caller has stopped the prober and the applier of the generation
    /// that these proofs were about.
    pub(crate) fn reset(&self) {
        self.proven_at.set(None);
        // Relaxed: published by the bank's generation, which the new generation's events load first.
        // Model: gate::events_of_a_new_generation_find_an_empty_bank.
        self.front.store(0, Ordering::Relaxed);
        self.tail.store(0, Ordering::Relaxed);
    }

    /// The send time of the latest probe that became a proof.
    #[inline]
    pub(crate) fn proven_at(&self) -> Option<Moment> {
        self.proven_at.get()
    }

    /// Prober: a probe sent at `sent_at` was answered with `head`. One prober at a time.
    pub(crate) fn offer(&self, sent_at: Moment, head: u64, applied: &Index) {
        if reached(applied, head) {
            self.proven_at.raise(sent_at);
            return;
        }
        if !self.put(sent_at, head) {
            return;
        }
        // SeqCst: pairs with the fence in `reach`. Either the applier's look at `pending` sees the
        // probe, or the look at `applied` below sees its index.
        // Model: proof::no_proof_is_lost_between_prober_and_applier.
        fence(Ordering::SeqCst);
        if reached(applied, head) {
            // The probe stays in its place; the applier takes it out later, to no further effect.
            self.proven_at.raise(sent_at);
        }
    }

    /// Applier: everything before `next_index` is in the map. One applier at a time.
    pub(crate) fn reach(&self, next_index: u64, applied: &Index) {
        applied.set(next_index);
        // SeqCst: pairs with the fence in `offer`. Either the prober's second look at `applied`
        // sees this index, or `settle` sees its probe.
        // Model: proof::no_proof_is_lost_between_prober_and_applier.
        fence(Ordering::SeqCst);
        self.settle(next_index);
    }

    fn put(&self, sent_at: Moment, head: u64) -> bool {
        // Relaxed: only the prober writes the tail.
        let tail = self.tail.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `settle`; the applier has done with the place before
        // it is written again. Model: proof::a_place_is_used_again_only_when_it_has_been_read.
        let front = self.front.load(Ordering::Acquire);
        if tail.wrapping_sub(front) >= CAPACITY as u64 {
            return false;
        }
        let place = self.place(tail);
        place.canary.refill();
        // Relaxed: published by the tail.
        place.head.store(head, Ordering::Relaxed);
        place.sent_at.store(sent_at.as_nanos(), Ordering::Relaxed);
        // Release: pairs with the Acquire in `settle`; who sees the tail sees the probe.
        // Model: proof::who_sees_the_proof_sees_the_map.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    fn settle(&self, next_index: u64) {
        // Relaxed: only the applier writes the front.
        let mut front = self.front.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `put`. Model: proof::who_sees_the_proof_sees_the_map.
        let tail = self.tail.load(Ordering::Acquire);
        let before = front;
        while front != tail {
            let place = self.place(front);
            place.canary.check();
            // Relaxed: published by the tail.
            if place.head.load(Ordering::Relaxed) > next_index {
                break;
            }
            // Relaxed: published by the tail.
            let sent_at = Moment::from_nanos(place.sent_at.load(Ordering::Relaxed));
            self.proven_at.raise(sent_at);
            front = front.wrapping_add(1);
        }
        if front != before {
            // Release: pairs with the Acquire in `put`; the places are free only after they have
            // been read. Model: proof::a_place_is_used_again_only_when_it_has_been_read.
            self.front.store(front, Ordering::Release);
        }
    }

    fn place(&self, position: u64) -> &Pending {
        &self.pending[(position % CAPACITY as u64) as usize]
    }
}

fn reached(applied: &Index, head: u64) -> bool {
    applied.get().is_some_and(|applied| applied >= head)
}
