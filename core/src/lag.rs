//! What is known about one generation: indexes and stamps, each a plain atomic.
//!
//! A [`Counters`] belongs to one generation of the map. The gate holds two of them, chosen by the
//! lowest bit of the generation, so that the next generation can be built up while the current
//! one still answers.
//!
//! # Who writes
//!
//! | field | written by | when |
//! |---|---|---|
//! | `head` | receiver and prober, `fetch_max` | on receipt, before anything is applied (G1) |
//! | `applied` | applier | after the change is visible in the map |
//! | `last_sync` | applier | after `applied`, with the *receipt* time of what was applied (G2) |
//! | `apply_since` | applier | before an apply begins, and to "none" when it has finished |
//! | `gap` | receiver or applier | before anything beyond a skipped index is applied; off once that is recovered |
//!
//! # Why a reader cannot see lag that is too small
//!
//! Each value was true at the time it was loaded, so only a mixture can deceive. Readers load in
//! the order `gap`, `apply_since`, `last_sync`, `applied`, `head`, each with Acquire, and writers
//! store with Release. Whoever sees "no gap" or "no apply in progress" from the end of an episode
//! also sees every counter that was moved before it; and `head` comes last, so that it is at least
//! the head that was known when the `applied` that it is compared with was stored.
//!
//! Unknown is a state of its own: an index that nobody has reported is not zero.

use crate::clock::Moment;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many records the map is behind the known head of the leader.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Lag {
    /// No head or no applied index is known yet. Never treated as "not behind".
    Unknown,
    /// The distance in records; zero when everything known has been applied.
    Known(u64),
}

impl Lag {
    /// The lag of `applied` behind `head`. Saturates at zero: a map ahead of the known head is
    /// not behind it.
    #[inline]
    pub(crate) fn between(applied: Option<u64>, head: Option<u64>) -> Self {
        match (applied, head) {
            (Some(applied), Some(head)) => Self::Known(head.saturating_sub(applied)),
            _ => Self::Unknown,
        }
    }
}

/// A history index that may be unknown: zero is "unknown", any other value is the index plus one.
#[derive(Debug)]
pub(crate) struct Index(AtomicU64);

impl Index {
    pub(crate) fn unknown() -> Self {
        Self(AtomicU64::new(0))
    }

    const fn encode(index: u64) -> u64 {
        // The very last index is out of reach of any leader; it is taken for its predecessor.
        index.saturating_add(1)
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<u64> {
        // Acquire: pairs with the Release of `set` and `forget`; what was done before the index was
        // reported is visible to whoever acts on it, and the reset of a reused bank shows in its
        // generation. Models: gate::who_sees_the_applied_index_sees_the_map,
        // lag::the_head_is_never_older_than_the_applied_index.
        self.0.load(Ordering::Acquire).checked_sub(1)
    }

    /// Sets the index. One writer at a time.
    pub(crate) fn set(&self, index: u64) {
        // Release: pairs with the Acquire of `get`; a reader of this applied index sees the map
        // that holds it. Model: gate::who_sees_the_applied_index_sees_the_map.
        self.0.store(Self::encode(index), Ordering::Release);
    }

    /// Raises the index; never lowers it. Any number of writers.
    pub(crate) fn raise(&self, index: u64) {
        // Relaxed: the index publishes nothing that was done before it. A reused bank still shows:
        // an RMW continues the release sequence of the store in `forget`.
        self.0.fetch_max(Self::encode(index), Ordering::Relaxed);
    }

    pub(crate) fn forget(&self) {
        // Release: pairs with the Acquire of `get`; see `Counters::reset`.
        // Model: gate::a_view_is_of_one_generation.
        self.0.store(0, Ordering::Release);
    }
}

/// A moment that may be "never".
#[derive(Debug)]
pub(crate) struct Stamp(AtomicU64);

impl Stamp {
    pub(crate) fn never() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<Moment> {
        // Acquire: pairs with the Release of `set` and `raise`; what was done before the stamp is
        // visible to whoever acts on it. Models: lag::a_finished_stall_shows_the_lag_that_it_left,
        // proof::who_sees_the_proof_sees_the_map.
        Moment::from_bits(self.0.load(Ordering::Acquire))
    }

    /// Sets the stamp. One writer at a time.
    pub(crate) fn set(&self, at: Option<Moment>) {
        // Release: pairs with the Acquire of `get`; who sees "none" after a reset sees that the bank
        // was withdrawn, and who sees "none" after an apply sees what the apply has moved.
        // Model: gate::a_bank_that_is_used_again_is_noticed.
        self.0
            .store(at.map_or(0, Moment::to_bits), Ordering::Release);
    }

    /// Moves the stamp forward; never back. Any number of writers.
    pub(crate) fn raise(&self, at: Moment) {
        // Release: pairs with the Acquire of `get`; whoever sees the proof sees the map that it is
        // about. Model: proof::who_sees_the_proof_sees_the_map.
        self.0.fetch_max(at.to_bits(), Ordering::Release);
    }
}

/// The counters of one generation.
#[derive(Debug)]
pub(crate) struct Counters {
    gap: AtomicBool,
    apply_since: Stamp,
    last_sync: Stamp,
    applied: Index,
    head: Index,
}

/// The counters as one reader found them.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Reading {
    pub(crate) gap: bool,
    pub(crate) apply_since: Option<Moment>,
    pub(crate) last_sync: Option<Moment>,
    pub(crate) applied: Option<u64>,
    pub(crate) head: Option<u64>,
}

impl Reading {
    #[inline]
    pub(crate) fn lag(&self) -> Lag {
        Lag::between(self.applied, self.head)
    }
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            gap: AtomicBool::new(false),
            apply_since: Stamp::never(),
            last_sync: Stamp::never(),
            applied: Index::unknown(),
            head: Index::unknown(),
        }
    }

    /// Forgets everything. Every store is a Release, so that a reader who still works on the
    /// generation before and meets one of these values also meets the change of the generation.
    pub(crate) fn reset(&self) {
        // Release: pairs with the Acquire in `read`. Model: gate::a_bank_that_is_used_again_is_noticed.
        self.gap.store(false, Ordering::Release);
        self.apply_since.set(None);
        self.last_sync.set(None);
        self.applied.forget();
        self.head.forget();
    }

    /// G1: a head that the leader has told.
    pub(crate) fn head_received(&self, head: u64) {
        self.head.raise(head);
    }

    /// An apply begins.
    pub(crate) fn apply_started(&self, at: Moment) {
        self.apply_since.set(Some(at));
    }

    /// G2: the apply of a message received at `received_at` is finished; `applied` has moved.
    pub(crate) fn apply_finished(&self, received_at: Moment) {
        self.last_sync.set(Some(received_at));
        self.apply_since.set(None);
    }

    /// A skipped index is noticed, or recovered.
    pub(crate) fn gap(&self, open: bool) {
        // Release: pairs with the Acquire in `read`; who sees the gap closed sees the head and the
        // applied index that it left behind.
        // Model: lag::a_closed_gap_shows_the_lag_that_it_left.
        self.gap.store(open, Ordering::Release);
    }

    /// The applied index, for the proofs that wait for it.
    pub(crate) fn applied(&self) -> &Index {
        &self.applied
    }

    /// Loads everything, in the order that the module's documentation gives.
    #[inline]
    pub(crate) fn read(&self) -> Reading {
        Reading {
            // Acquire: pairs with the Release in `gap`, and keeps the loads below behind it.
            // Model: lag::a_closed_gap_shows_the_lag_that_it_left.
            gap: self.gap.load(Ordering::Acquire),
            apply_since: self.apply_since.get(),
            last_sync: self.last_sync.get(),
            applied: self.applied.get(),
            head: self.head.get(),
        }
    }
}
