//! The gate: may an answer from the map be served now, and if not, why not.
//!
//! One word carries the generation that answers; two banks of counters, chosen by the lowest bit
//! of a generation, carry what is known about it. Sync tasks report events, request threads ask
//! [`Gate::decide`]. Both sides are lock-free and allocate nothing.
//!
//! # What a decision rests on
//!
//! In this order, causes before their symptoms; the first that applies is the reason (G5):
//!
//! | reason | refused when |
//! |---|---|
//! | [`NotProven`](RefuseReason::NotProven) | no generation is published, the map's is another one, nothing was applied in it, or no probe has been proven in it |
//! | [`Gap`](RefuseReason::Gap) | an index was skipped and is not recovered |
//! | [`ApplyStall`](RefuseReason::ApplyStall) | one apply has been running for more than `stall_threshold` |
//! | [`Silence`](RefuseReason::Silence) | the last applied stream message was received more than `time_threshold` ago |
//! | [`IndexLag`](RefuseReason::IndexLag) | more than `index_threshold` records are known and not applied, or the lag is unknown |
//! | [`Age`](RefuseReason::Age) | the latest proof is for a time more than `max_age` ago |
//!
//! A value equal to its threshold still serves.
//!
//! # How to ask
//!
//! 1. [`Gate::decide`] with the map's generation and a fresh reading of the clock;
//! 2. pin the map and look up;
//! 3. [`Gate::recheck`] with the snapshot's generation and another fresh reading.
//!
//! In this order the snapshot is at least as new as the proof that step 1 saw. A thread may be
//! stopped for a minute between two of these lines while other threads catch up; step 3 therefore
//! counts the age on from step 1 and does not let a newer proof rejuvenate an older snapshot.
//! After a refusal for another generation (a full sync was swapped in between), start over.
//!
//! # Generations
//!
//! A full sync builds the next generation aside: [`Gate::begin`] empties the other bank,
//! events for the new generation go there, and after the map's content has been swapped
//! [`Gate::publish`] moves the word. Between the swap and the publication root and word differ,
//! and the answer is a refusal: never one generation's map on the other's proof (G4).
//!
//! A bank comes round again two generations later, while a reader may still be in the middle of
//! it. The bank's own generation is withdrawn before the first counter is emptied and read after
//! the last counter is loaded, so such a reader finds that it has read nothing.
//!
//! Events of a generation that has no bank (any more) are ignored: a late probe of an older
//! generation proves nothing. That is a check and not a lock: whoever begins a generation has
//! waited for the end of the tasks that report for earlier ones with the same lowest bit (to
//! have aborted them is not enough), so that none of them is inside a call.

use std::fmt;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::clock::Moment;
use crate::lag::{Counters, Reading};
use crate::proof::Proofs;
use crate::sync::atomic::{AtomicU64, Ordering};

pub use crate::lag::Lag;

#[cfg(all(test, not(tidegate_loom)))]
mod tests;

/// The limits of a decision. A value equal to its limit is still good.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Thresholds {
    /// Longest time since the send of the latest proven probe.
    pub max_age: Duration,
    /// Longest time since the receipt of the last applied stream message.
    pub time_threshold: Duration,
    /// Most records that may be known and not applied.
    pub index_threshold: u64,
    /// Longest time that one apply may run.
    pub stall_threshold: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            max_age: Duration::from_secs(10),
            time_threshold: Duration::from_secs(30),
            index_threshold: 20_000,
            stall_threshold: Duration::from_secs(3),
        }
    }
}

impl Thresholds {
    /// All four limits divided by `divisor` (zero counts as one), for runs in fast motion.
    #[must_use]
    pub fn scaled(self, divisor: u32) -> Self {
        let divisor = divisor.max(1);
        Self {
            max_age: self.max_age / divisor,
            time_threshold: self.time_threshold / divisor,
            index_threshold: self.index_threshold / u64::from(divisor),
            stall_threshold: self.stall_threshold / divisor,
        }
    }
}

/// Thresholds in the form in which a decision compares them, made once for many of them: a decision
/// takes three nanoseconds, and half as long again if it has to make these.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Limits {
    // In nanoseconds, but for `index`.
    max_age: u64,
    time: u64,
    index: u64,
    stall: u64,
}

impl From<Thresholds> for Limits {
    /// Times of more than 584 years count as that.
    fn from(thresholds: Thresholds) -> Self {
        Self {
            max_age: nanos(thresholds.max_age),
            time: nanos(thresholds.time_threshold),
            index: thresholds.index_threshold,
            stall: nanos(thresholds.stall_threshold),
        }
    }
}

/// What the gate says.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[must_use]
pub enum Decision {
    /// The map may answer.
    Serve {
        /// How old the data can be: the time since the latest proven probe was sent.
        age: Duration,
    },
    /// The map may not answer.
    Refuse(Refusal),
}

impl Decision {
    /// Whether the map may answer.
    #[must_use]
    pub fn is_serve(&self) -> bool {
        matches!(self, Self::Serve { .. })
    }

    /// Why not, if it may not.
    #[must_use]
    pub fn refused(&self) -> Option<RefuseReason> {
        match self {
            Self::Serve { .. } => None,
            Self::Refuse(refusal) => Some(refusal.reason),
        }
    }
}

/// A refusal, with what the gate saw.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// The first reason that applies.
    pub reason: RefuseReason,
    /// The age of the data, if anything is proven.
    pub age: Option<Duration>,
    /// The lag of the map.
    pub lag: Lag,
}

/// Why the gate is shut.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum RefuseReason {
    /// The latest proof is too old.
    Age,
    /// One apply has been running for too long.
    ApplyStall,
    /// An index was skipped and is not recovered.
    Gap,
    /// Too many records are known and not applied.
    IndexLag,
    /// No full sync, no proof since, or the map is of another generation.
    NotProven,
    /// The stream has said nothing for too long.
    Silence,
}

impl RefuseReason {
    /// Every reason, for tables of counters.
    pub const ALL: [Self; 6] = [
        Self::Age,
        Self::ApplyStall,
        Self::Gap,
        Self::IndexLag,
        Self::NotProven,
        Self::Silence,
    ];

    /// The name used in metrics, metadata and status pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::ApplyStall => "apply_stall",
            Self::Gap => "gap",
            Self::IndexLag => "index_lag",
            Self::NotProven => "not_proven",
            Self::Silence => "silence",
        }
    }
}

impl fmt::Display for RefuseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A first decision to serve, as [`Gate::recheck`] needs it.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Served {
    /// The generation that the decision was asked for.
    pub generation: u64,
    /// The clock reading that it was asked with.
    pub at: Moment,
    /// The age that it allowed.
    pub age: Duration,
}

/// What the gate knows, for status pages.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct GateView {
    /// The published generation; zero before the first.
    pub generation: u64,
    /// The highest head that the leader has told; zero while `lag` is unknown.
    pub head: u64,
    /// The next index to apply; zero while none is known.
    pub applied: u64,
    /// `head` minus `applied`.
    pub lag: Lag,
    /// The time that the latest proof is for.
    pub proven_at: Option<Moment>,
    /// The receipt time of the last applied stream message.
    pub last_sync: Option<Moment>,
    /// The start of the apply in progress.
    pub apply_since: Option<Moment>,
    /// Whether a gap is open.
    pub gap: bool,
}

/// What is known about one generation.
#[derive(Debug)]
struct Bank {
    /// The generation that the counters are about; zero while they are being emptied.
    generation: AtomicU64,
    counters: Counters,
    proofs: Proofs,
}

/// The freshness gate of one map.
#[derive(Debug)]
pub struct Gate {
    word: CachePadded<AtomicU64>,
    banks: [CachePadded<Bank>; 2],
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A shut gate: no generation, nothing known.
    #[must_use]
    pub fn new() -> Self {
        let bank = || {
            CachePadded::new(Bank {
                generation: AtomicU64::new(0),
                counters: Counters::new(),
                proofs: Proofs::new(),
            })
        };
        Self {
            word: CachePadded::new(AtomicU64::new(0)),
            banks: [bank(), bank()],
        }
    }

    // === Generations: one task ===

    /// The smallest generation that may be begun next: greater than every one begun so far, and
    /// in the bank that is not answering. A sync that was given up is succeeded by a number two
    /// higher, so that its late events find no bank.
    #[must_use]
    pub fn next_generation(&self) -> u64 {
        let published = self.generation();
        let begun = self
            .banks
            .iter()
            .map(|bank| bank.generation())
            .max()
            .unwrap_or(0);
        let next = begun.max(published).saturating_add(1);
        if published != 0 && next & 1 == published & 1 {
            next.saturating_add(1)
        } else {
            next
        }
    }

    /// Prepares the other bank for `generation`, which is being built aside; the published one
    /// still answers.
    ///
    /// Take the number from [`next_generation`](Self::next_generation). A number whose lowest bit
    /// is the published generation's takes that generation's bank away and thereby shuts the gate
    /// until the new one is published and proven. Zero is no generation and is ignored.
    pub fn begin(&self, generation: u64) {
        if generation == 0 {
            return;
        }
        let bank = self.slot(generation);
        // Relaxed: each store of the emptying is a Release, so that a reader who meets one of them
        // also meets this. Model: gate::a_bank_that_is_used_again_is_noticed.
        bank.generation.store(0, Ordering::Relaxed);
        bank.counters.reset();
        bank.proofs.reset();
        // Release: pairs with the Acquire in `Bank::generation`; events find an empty bank.
        // Model: gate::events_of_a_new_generation_find_an_empty_bank.
        bank.generation.store(generation, Ordering::Release);
    }

    /// Lets `generation` answer. Call it after the map carries the generation.
    pub fn publish(&self, generation: u64) {
        // Release: pairs with the Acquire in `generation`; who sees the word sees the bank emptied
        // for it, and the map. Model: gate::a_generation_inherits_no_proof_from_its_bank.
        self.word.store(generation, Ordering::Release);
    }

    // === Events: the generation's own tasks ===

    /// G1: the leader has told that its next index is `head`: `start_index` plus the number of
    /// records of a frame, reported on receipt and before the frame is applied.
    pub fn head_received(&self, generation: u64, head: u64) {
        if let Some(bank) = self.bank(generation) {
            bank.counters.head_received(head);
        }
    }

    /// The apply of a message begins. One applier at a time.
    pub fn apply_started(&self, generation: u64, at: Moment) {
        if let Some(bank) = self.bank(generation) {
            bank.counters.apply_started(at);
        }
    }

    /// G2: the apply of a message that was received at `received_at` is finished, and the map
    /// holds everything before `next_index`. Settles the probes that waited for it. Call it after
    /// the map shows the change; one applier at a time.
    pub fn apply_finished(&self, generation: u64, next_index: u64, received_at: Moment) {
        if let Some(bank) = self.bank(generation) {
            bank.proofs.reach(next_index, bank.counters.applied());
            bank.counters.apply_finished(received_at);
        }
    }

    /// An index was skipped (`open`), or what was skipped has been recovered. An open gap is
    /// reported before the applied index moves past it.
    pub fn gap(&self, generation: u64, open: bool) {
        if let Some(bank) = self.bank(generation) {
            bank.counters.gap(open);
        }
    }

    /// G3: a probe sent at `sent_at` was answered with `head`. Raises the known head, and proves
    /// `sent_at` as soon as the applied index has reached `head`. One prober at a time.
    pub fn probe_answered(&self, generation: u64, sent_at: Moment, head: u64) {
        if let Some(bank) = self.bank(generation) {
            bank.counters.head_received(head);
            bank.proofs.offer(sent_at, head, bank.counters.applied());
        }
    }

    // === Questions: any thread ===

    /// The published generation; zero before the first.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`; the bank and the map of this generation
        // are visible. Model: gate::a_map_never_answers_on_another_generations_proof.
        self.word.load(Ordering::Acquire)
    }

    /// The next index to apply in the published generation; zero while none is known.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.bank(self.generation())
            .and_then(|bank| bank.counters.applied().get())
            .unwrap_or(0)
    }

    /// Whether the map, whose generation is `map_generation`, may answer at `now`.
    ///
    /// Eight loads, no lock, no allocation, no clock. See the module's documentation for the order
    /// of reasons and for how to ask.
    #[inline]
    pub fn decide(&self, map_generation: u64, now: Moment, limits: &Limits) -> Decision {
        let generation = self.generation();
        if generation != map_generation {
            return Decision::Refuse(Refusal::not_proven(Lag::Unknown));
        }
        match self.read(generation) {
            Some((reading, proven_at)) => judge(&reading, proven_at, now, limits),
            None => Decision::Refuse(Refusal::not_proven(Lag::Unknown)),
        }
    }

    /// Decides again after the lookup, for a snapshot of `snapshot_generation` that was pinned
    /// after the decision `served`.
    ///
    /// Refuses whatever [`decide`](Self::decide) refuses at `now`, and counts the age on from the
    /// first decision: the snapshot does not grow younger by proofs that came after it.
    pub fn recheck(
        &self,
        served: &Served,
        snapshot_generation: u64,
        now: Moment,
        limits: &Limits,
    ) -> Decision {
        if snapshot_generation != served.generation {
            return Decision::Refuse(Refusal::not_proven(Lag::Unknown));
        }
        let decision = self.decide(snapshot_generation, now, limits);
        let Decision::Serve { age } = decision else {
            return decision;
        };
        let age = age.max(served.age.saturating_add(now.saturating_since(served.at)));
        if nanos(age) > limits.max_age {
            let lag = self.view().lag;
            return Decision::Refuse(Refusal {
                reason: RefuseReason::Age,
                age: Some(age),
                lag,
            });
        }
        Decision::Serve { age }
    }

    /// Everything the gate knows about the published generation; all of it unknown if the bank
    /// changes hands during the look.
    #[must_use]
    pub fn view(&self) -> GateView {
        // A bank comes round only every second full sync; the second look finds a settled one.
        for _ in 0..3 {
            let generation = self.generation();
            if let Some((reading, proven_at)) = self.read(generation) {
                return GateView::of(generation, &reading, proven_at);
            }
        }
        GateView::of(self.generation(), &Reading::nothing(), None)
    }

    #[inline]
    fn slot(&self, generation: u64) -> &Bank {
        &self.banks[(generation & 1) as usize]
    }

    /// The bank of `generation`, if it has one.
    fn bank(&self, generation: u64) -> Option<&Bank> {
        let bank = self.slot(generation);
        (generation != 0 && bank.generation() == generation).then_some(bank)
    }

    /// The counters of `generation`, unless its bank has gone to another.
    #[inline]
    fn read(&self, generation: u64) -> Option<(Reading, Option<Moment>)> {
        let bank = self.slot(generation);
        let proven_at = bank.proofs.proven_at();
        let reading = bank.counters.read();
        // Relaxed: the loads above are Acquire. If one of them read a value that `begin` or a later
        // event has stored, `begin`'s withdrawal happened before, and this load sees it.
        // Model: gate::a_bank_that_is_used_again_is_noticed.
        let owner = bank.generation.load(Ordering::Relaxed);
        (generation != 0 && owner == generation).then_some((reading, proven_at))
    }
}

impl Bank {
    fn generation(&self) -> u64 {
        // Acquire: pairs with the Release in `begin`; events land in an emptied bank.
        // Model: gate::events_of_a_new_generation_find_an_empty_bank.
        self.generation.load(Ordering::Acquire)
    }
}

impl Reading {
    fn nothing() -> Self {
        Self {
            gap: false,
            apply_since: None,
            last_sync: None,
            applied: None,
            head: None,
        }
    }
}

impl Refusal {
    fn not_proven(lag: Lag) -> Self {
        Self {
            reason: RefuseReason::NotProven,
            age: None,
            lag,
        }
    }
}

impl GateView {
    fn of(generation: u64, reading: &Reading, proven_at: Option<Moment>) -> Self {
        Self {
            generation,
            head: reading.head.unwrap_or(0),
            applied: reading.applied.unwrap_or(0),
            lag: reading.lag(),
            proven_at,
            last_sync: reading.last_sync,
            apply_since: reading.apply_since,
            gap: reading.gap,
        }
    }
}

/// The decision, as a pure function of what was read.
#[inline]
fn judge(reading: &Reading, proven_at: Option<Moment>, now: Moment, limits: &Limits) -> Decision {
    let lag = reading.lag();
    let (Some(proven_at), Some(last_sync)) = (proven_at, reading.last_sync) else {
        return Decision::Refuse(Refusal::not_proven(lag));
    };
    // In nanoseconds throughout: a `Duration` for each would cost more than the loads.
    let since = |then: Moment| now.as_nanos().saturating_sub(then.as_nanos());
    let age = since(proven_at);
    let stalled = reading
        .apply_since
        .is_some_and(|then| since(then) > limits.stall);
    let behind = match lag {
        Lag::Unknown => true,
        Lag::Known(records) => records > limits.index,
    };
    let reason = if reading.gap {
        RefuseReason::Gap
    } else if stalled {
        RefuseReason::ApplyStall
    } else if since(last_sync) > limits.time {
        RefuseReason::Silence
    } else if behind {
        RefuseReason::IndexLag
    } else if age > limits.max_age {
        RefuseReason::Age
    } else {
        return Decision::Serve {
            age: Duration::from_nanos(age),
        };
    };
    Decision::Refuse(Refusal {
        reason,
        age: Some(Duration::from_nanos(age)),
        lag,
    })
}

/// Nanoseconds, at most 584 years.
#[inline]
const fn nanos(limit: Duration) -> u64 {
    let seconds = limit.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(limit.subsec_nanos() as u64)
}
