//! The state word of an entry: one `u64` that carries all that can change.
//!
//! # Bits
//!
//! | bits | name | who writes it |
//! |---|---|---|
//! | 0..=3 | reason | markers, once: 0 is "valid", anything else the first [`InvalidReason`] |
//! | 4 | `LEADER_PIN` | markers; also the writer, on an entry that inherits the pin. Set, never cleared |
//! | 5 | `SUPERSEDED` | the writer that replaced or removed the entry. Set, never cleared |
//! | 6..=15 | reserved | reload flags |
//! | 16..=63 | time | `confirmed_at`: milliseconds of a [`Moment`] plus one; 0 is "never". Only grows |
//!
//! # Transitions
//!
//! - A reason goes from valid to invalid once and never back; the first reason
//!   wins (E1). A region that turns out to be good again is a new entry.
//! - The time never moves on an entry that is invalid (E2): both live in the
//!   same word, so "still valid?" and "renew" are one compare-and-swap.
//! - The pin says: the next load of this region must ask the PD leader. It is
//!   never cleared, it ends with the entry; who takes the entry's place without
//!   the PD leader's word under the same epoch inherits it (E3).
//!
//! # The hand-over of a pin
//!
//! A marker that pins an entry may race with a writer that replaces it. The
//! writer looks at the pin before it publishes, so that a replacement carries
//! an inherited pin from the first moment that it can be seen. A pin that comes
//! later than that look is caught by the second step: having published, the
//! writer sets `SUPERSEDED` in the old word. Both are read-modify-writes of one
//! word, so one of them comes first:
//!
//! - the pin comes first: the writer finds it in the value that its own
//!   operation returns, and pins the replacement;
//! - `SUPERSEDED` comes first: the marker finds it and is told so
//!   ([`Pinned::Superseded`]); the replacement is already published, and the
//!   marker sees it when it looks again.
//!
//! Between publication and the second step the replacement can be seen without
//! the pin that it is about to get, so a load that starts in that moment may
//! still ask a follower; the pin then waits for the load after it. It is never
//! lost.

use std::fmt;
use std::time::Duration;

use crate::clock::Moment;
use crate::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

const REASON: u64 = 0b1111;
const LEADER_PIN: u64 = 0b1_0000;
const SUPERSEDED: u64 = 0b10_0000;
const TIME_SHIFT: u32 = 16;
const TIME_MAX: u64 = u64::MAX >> TIME_SHIFT;

/// Why an entry is no longer good for routing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum InvalidReason {
    /// The region has no leader that anyone knows of.
    NoLeader,
    /// The store does not hold the region.
    RegionNotFound,
    /// The region has moved on to another epoch.
    EpochNotMatch,
    /// The store does not exist any more.
    StoreNotFound,
    /// Anything else.
    Other,
}

/// What became of [`StateWord::invalidate`] and its kin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "a superseded entry was not marked: its replacement may need it"]
pub enum Invalidated {
    /// The entry is invalid from now on, for the given reason.
    Done,
    /// It was invalid already, for this reason, which stays. A pin that was
    /// asked for has been set.
    Already(InvalidReason),
    /// The entry has left the map and was not changed. Look up the region again
    /// and mark what is there now, if it still is in doubt.
    Superseded,
}

/// What became of [`StateWord::pin_to_leader`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "a superseded entry's pin pins nothing: its replacement needs it"]
pub enum Pinned {
    /// The next load of the region asks the PD leader.
    Done,
    /// It would have done so anyway.
    Already,
    /// The entry has left the map, so that its pin has no effect. Look up the
    /// region again (that finds the replacement, if there is one) and pin that.
    Superseded,
}

/// What became of [`StateWord::confirm`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "an entry that was not confirmed must not be answered as if it were"]
pub enum Confirmed {
    /// The entry counts as confirmed at the given moment.
    Done,
    /// It counts as confirmed at a later moment already.
    Already(Moment),
    /// The entry is invalid; confirming does not revive it (E2).
    Invalid(InvalidReason),
    /// The entry has left the map.
    Superseded,
}

/// The value of a word at one moment.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct State(u64);

/// The state of an entry; see the module's protocol.
pub struct StateWord(AtomicU64);

// === impl InvalidReason ===

impl InvalidReason {
    const fn code(self) -> u64 {
        match self {
            Self::NoLeader => 1,
            Self::RegionNotFound => 2,
            Self::EpochNotMatch => 3,
            Self::StoreNotFound => 4,
            Self::Other => 5,
        }
    }

    const fn from_code(code: u64) -> Option<Self> {
        match code {
            0 => None,
            1 => Some(Self::NoLeader),
            2 => Some(Self::RegionNotFound),
            3 => Some(Self::EpochNotMatch),
            4 => Some(Self::StoreNotFound),
            _ => Some(Self::Other),
        }
    }
}

// === impl State ===

impl State {
    /// Why the entry is invalid; `None` while it is valid.
    #[inline]
    pub const fn reason(self) -> Option<InvalidReason> {
        InvalidReason::from_code(self.0 & REASON)
    }

    /// Whether the next load of the region must ask the PD leader.
    #[inline]
    pub const fn is_pinned(self) -> bool {
        self.0 & LEADER_PIN != 0
    }

    /// Whether the entry has left the map.
    #[inline]
    pub const fn is_superseded(self) -> bool {
        self.0 & SUPERSEDED != 0
    }

    /// When the PD leader last agreed with the entry, in whole milliseconds,
    /// rounded down.
    #[inline]
    pub fn confirmed_at(self) -> Option<Moment> {
        let millis = (self.0 >> TIME_SHIFT).checked_sub(1)?;
        Some(Moment::from_nanos(0).saturating_add(Duration::from_millis(millis)))
    }

    fn with_reason(self, reason: InvalidReason) -> Self {
        Self(self.0 & !REASON | reason.code())
    }

    const fn with_pin(self) -> Self {
        Self(self.0 | LEADER_PIN)
    }

    fn with_confirmed_at(self, at: Moment) -> Self {
        const NANOS_PER_MILLI: u64 = 1_000_000;
        // Rounded down: an entry may seem older than it is, never newer.
        let time = (at.as_nanos() / NANOS_PER_MILLI + 1).min(TIME_MAX);
        Self(self.0 & !(TIME_MAX << TIME_SHIFT) | time << TIME_SHIFT)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("reason", &self.reason())
            .field("pinned", &self.is_pinned())
            .field("superseded", &self.is_superseded())
            .field("confirmed_at", &self.confirmed_at())
            .finish()
    }
}

// === impl StateWord ===

impl StateWord {
    pub(crate) fn new(confirmed_at: Option<Moment>) -> Self {
        let valid = State(0);
        let state = confirmed_at.map_or(valid, |at| valid.with_confirmed_at(at));
        Self(AtomicU64::new(state.0))
    }

    /// All of the state at one moment.
    #[inline]
    pub fn load(&self) -> State {
        // Acquire: pairs with the Release of `update`, so that who sees a mark
        // sees what its marker had done before (the flight that it waited for,
        // the store that it gave up). Fails without it:
        // word::a_mark_carries_what_its_marker_did.
        State(self.0.load(Acquire))
    }

    /// Why the entry is invalid; `None` while it is valid.
    #[inline]
    pub fn reason(&self) -> Option<InvalidReason> {
        self.load().reason()
    }

    /// Whether the next load of the region must ask the PD leader.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.load().is_pinned()
    }

    /// Marks the entry as no longer good for routing.
    pub fn invalidate(&self, reason: InvalidReason) -> Invalidated {
        self.mark_invalid(reason, false)
    }

    /// Marks the entry as no longer good, and pins the next load of the region
    /// to the PD leader in the same step.
    pub fn invalidate_and_pin(&self, reason: InvalidReason) -> Invalidated {
        self.mark_invalid(reason, true)
    }

    /// Pins the next load of the region to the PD leader, without a word about
    /// the entry's validity.
    pub fn pin_to_leader(&self) -> Pinned {
        let pinned = self.update(|state| {
            if state.is_superseded() {
                Err(Pinned::Superseded)
            } else if state.is_pinned() {
                Err(Pinned::Already)
            } else {
                Ok(state.with_pin())
            }
        });
        pinned.map_or_else(|refused| refused, |_| Pinned::Done)
    }

    /// Records that the PD leader agreed with the entry at `at`.
    pub fn confirm(&self, at: Moment) -> Confirmed {
        let confirmed = self.update(|state| {
            if state.is_superseded() {
                return Err(Confirmed::Superseded);
            }
            if let Some(reason) = state.reason() {
                return Err(Confirmed::Invalid(reason));
            }
            let new = state.with_confirmed_at(at);
            match state.confirmed_at() {
                Some(known) if new.confirmed_at() <= Some(known) => Err(Confirmed::Already(known)),
                _ => Ok(new),
            }
        });
        confirmed.map_or_else(|refused| refused, |_| Confirmed::Done)
    }

    /// Step two of the hand-over: the entry has been replaced or removed, and
    /// whatever took its place is published. Returns whether it was pinned.
    pub(crate) fn supersede(&self) -> bool {
        // Release: a marker that finds the bit (its Acquire is in `update`)
        // looks again, and must then find the replacement, which was published
        // before. Acquire: a pin that came first was set by a marker whose
        // earlier writes the replacement's readers may rely on. Fails without:
        // word::e3_a_pin_meets_the_replacement_or_is_handed_to_it.
        State(self.0.fetch_or(SUPERSEDED, AcqRel)).is_pinned()
    }

    /// Gives the pin of a replaced entry to this one.
    pub(crate) fn inherit_pin(&self) {
        // Release: passes on what the marker of the old entry had done, which
        // `supersede` or `load` acquired. Relaxed would do for the bit itself.
        self.0.fetch_or(LEADER_PIN, Release);
    }

    /// Takes back an inherited pin, because the publication for which it was
    /// inherited has failed. `&mut` in spirit: nobody else has seen the entry.
    pub(crate) fn disinherit_unpublished(&self) {
        // Relaxed: the entry is private to the caller until it is published.
        self.0.fetch_and(!LEADER_PIN, Relaxed);
    }

    fn mark_invalid(&self, reason: InvalidReason, pin: bool) -> Invalidated {
        let marked = self.update(|state| {
            if state.is_superseded() {
                return Err(Invalidated::Superseded);
            }
            let pinned = if pin { state.with_pin() } else { state };
            match state.reason() {
                Some(first) if pinned == state => Err(Invalidated::Already(first)),
                Some(_) => Ok(pinned),
                None => Ok(pinned.with_reason(reason)),
            }
        });
        match marked {
            Ok(before) => before
                .reason()
                .map_or(Invalidated::Done, Invalidated::Already),
            Err(refused) => refused,
        }
    }

    /// Applies `transition` to the word, as often as others change it meanwhile;
    /// `Ok` is the state before, `Err` the transition's own refusal.
    fn update<R>(&self, transition: impl Fn(State) -> Result<State, R>) -> Result<State, R> {
        // Acquire: a refusal because of SUPERSEDED sends the caller back to the
        // map, where it must find what the writer published before it set the
        // bit (`supersede` releases). Fails without it:
        // word::e3_a_pin_meets_the_replacement_or_is_handed_to_it.
        let mut current = State(self.0.load(Acquire));
        loop {
            let next = transition(current)?;
            // Release: pairs with the Acquire of `load`; see there. Acquire, on
            // success and failure: as for the load above.
            match self
                .0
                .compare_exchange_weak(current.0, next.0, AcqRel, Acquire)
            {
                Ok(_) => return Ok(current),
                Err(changed) => current = State(changed),
            }
        }
    }
}

impl fmt::Debug for StateWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().fmt(f)
    }
}

#[cfg(all(test, not(tidegate_loom)))]
mod tests;
