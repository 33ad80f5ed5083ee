//! The state word of an entry: one `u64` that carries all that can change.
//!
//! # Bits
//!
//! | bits | name | who writes it |
//! |---|---|---|
//! | 0..=3 | reason | markers, once: 0 is "valid", anything else the first [`InvalidReason`] |
//! | 4 | `LEADER_PIN` | markers. Set, never cleared |
//! | 5 | `INHERITED_PIN` | the writer that replaced a pinned entry by this one, or an earlier one that hands a late pin down. Set, never cleared once published (an attempt to publish that failed is no publication); both pins mean the same |
//! | 6 | `SUPERSEDED` | the writer that replaced or removed the entry. Set, never cleared |
//! | 7 | `RELOAD_ON_ACCESS` | set by markers and by who restores a reload; cleared by who takes it |
//! | 8 | `DELAYED_PENDING` | set by markers; cleared by the sweeper that ripens it |
//! | 9 | `DELAYED_READY` | set by the sweeper and by who restores a reload; cleared by who takes it |
//! | 10 | `LEASED` | whoever makes the entry, before it is published: the time is a deadline |
//! | 11 | `FIXED` | markers, or whoever makes the entry: expire after the TTL. Set, never cleared |
//! | 12..=15 | reserved | nobody: zero |
//! | 16..=63 | time | milliseconds of a [`Moment`] plus one; 0 is "never". Only grows |
//!
//! **One time, two meanings.** A replica wants to know when the PD leader last
//! agreed with an entry (`confirmed_at`), a client until when it may use one (its
//! deadline). No map needs both: what a replica follows does not expire, and a
//! client takes a leader's answer in as a new entry, whose [`Provenance`] tells
//! when the leader was asked. So the two share the field, which leaves it wide
//! enough for any `Moment`, and `LEASED` says which it is. That is settled before
//! the entry is published: neither can be mistaken for the other, and
//! [`StateWord::confirm`] and [`StateWord::renew`] each leave the other's alone.
//!
//! # Transitions
//!
//! - A reason goes from valid to invalid once and never back; the first reason
//!   wins (E1). A region that turns out to be good again is a new entry.
//! - The time never moves on an entry that is invalid (E2), nor do `FIXED` and the
//!   flags of reloads: they live in the word of the reason, so "still valid?" and the
//!   change are one compare-and-swap. Pins and `SUPERSEDED` may still be set. Nor does
//!   a deadline move that has passed.
//! - The pin says: the next load of this region must ask the PD leader. It is
//!   never cleared, it ends with the entry; who takes the entry's place without
//!   the PD leader's word under the same epoch inherits it (E3). Removal,
//!   displacement by another region and the replacement of the whole map end it.
//! - On an entry that is superseded nothing moves at all, but for a pin that a
//!   writer hands down (below). Replacing the whole map supersedes nothing.
//! - Every transition is one read-modify-write that is a Release, and every look is an
//!   Acquire: who sees a mark sees what its marker had done before. One that finds
//!   nothing to change writes nothing, and passes nothing on.
//! - Expired is not invalid: marks and reloads go on, only [`StateWord::renew`] says so.
//!   `FIXED` holds a deadline where it is, and means nothing for an entry without one,
//!   which never expires; a `LEASED` word with no time has no deadline either.
//!
//! An entry is put into one map, once: `SUPERSEDED` and an inherited pin are about
//! that map, and a description that two maps hold has an entry, and a word, in each.
//!
//! # Three degrees of doubt
//!
//! *Invalid* or *expired*: load the region; if that fails, so does the request.
//! *To be reloaded on access*: the same, but if that fails, the entry is good
//! enough. *Delayed reload*: the entry is as good as before, but something better
//! may be had (a replica is back), and nobody is in a hurry: `pending` until a
//! sweeper comes by and ripens it to `ready`, which spreads the reloads of many
//! regions over the pace of the sweep. A reload flag is **taken** by who reloads:
//! of many accesses, one. If its reload fails, it **restores** the flag, or nobody
//! would ever reload; [`ReloadTicket`](super::ReloadTicket) does so unless it is
//! told that the reload is done. A flag that is set while another reload is under
//! way is not part of what was taken, and stays for the next.
//!
//! # The hand-over of a pin
//!
//! A marker that pins an entry may race with a writer that replaces it. Until its
//! writer's second step a replaced entry accepts marks; only a pin is handed on. The
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
//! The replacement may have been replaced itself by the time that it gets the
//! pin, by a writer who then found none on it. Handing a pin down is a
//! read-modify-write, too: it shows `SUPERSEDED` in the heir, and the pin goes on
//! to whatever is live by then: the region's entry in the root that is published now,
//! found by its id. Each time it is that entry and the one that was pinned that are
//! compared (same id and epoch, not the PD leader's word), not those in between; so a
//! pin may reach an entry beyond one of the PD leader's, which costs one question more.
//!
//! A region that is removed and put again, in one batch or in two, has no heir: the pin
//! has ended. One that is put under the same epoch with another range is a replacement.
//!
//! Between publication and the second step the replacement can be seen without
//! the pin that it is about to get, so loads may still ask a follower until that
//! writer has taken its second step, however long it is stopped before it. The pin
//! is never lost.
//!
//! [`Provenance`]: crate::Provenance

use std::fmt;

use super::outcome::{Confirmed, Flagged, Invalidated, Pinned, Reload, Renewed, Ripened, Taken};
use super::reason::InvalidReason;
use super::state::{INHERITED_PIN, SUPERSEDED, State};
use super::ttl::Ttl;
use crate::clock::Moment;
use crate::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The state of an entry; see the module's protocol.
pub struct StateWord(AtomicU64);

impl StateWord {
    /// A word that nobody else has seen.
    pub(super) fn new(state: State) -> Self {
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
    #[must_use]
    pub fn reason(&self) -> Option<InvalidReason> {
        self.load().reason()
    }

    /// Whether the next load of the region must ask the PD leader.
    #[inline]
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.load().is_pinned()
    }

    // === marks ===

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
    /// the entry's validity. An entry that is yet to be put into the map may be
    /// pinned in advance.
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

    // === time ===

    /// Records that the PD leader agreed with the entry at `at`.
    pub fn confirm(&self, at: Moment) -> Confirmed {
        let confirmed = self.update(|state| {
            if state.is_superseded() {
                return Err(Confirmed::Superseded);
            }
            if let Some(reason) = state.reason() {
                return Err(Confirmed::Invalid(reason));
            }
            if state.is_leased() {
                return Err(Confirmed::Leased);
            }
            let new = state.with_confirmed_at(at);
            match state.confirmed_at() {
                Some(known) if new.confirmed_at() <= Some(known) => Err(Confirmed::Already(known)),
                _ => Ok(new),
            }
        });
        confirmed.map_or_else(|refused| refused, |_| Confirmed::Done)
    }

    /// An access at `now`: says whether the entry is valid and not expired, and
    /// moves its deadline on if it is due, at most once per band of `ttl`.
    ///
    /// Does not look at reloads: take a ticket first
    /// ([`ReloadTicket::take`](super::ReloadTicket::take)). An entry that is to be
    /// reloaded on access is good here and not [`State::is_usable`].
    ///
    /// `jitter` is drawn only if there is something to write; see
    /// [`Ttl::deadline`].
    #[inline]
    pub fn renew(&self, now: Moment, ttl: Ttl, jitter: impl FnOnce() -> u32) -> Renewed {
        let state = self.load();
        if state.is_in_band(now, ttl) {
            return Renewed::InBand;
        }
        match state.access(now, ttl) {
            Ok(renewed) => renewed,
            Err(()) => self.extend(now, ttl, jitter()),
        }
    }

    #[inline(never)]
    fn extend(&self, now: Moment, ttl: Ttl, jitter: u32) -> Renewed {
        // Asked again of each state that others leave meanwhile: of many who find
        // a deadline due, one moves it on, and none revives an invalid entry.
        let extended = self.update(|state| match state.access(now, ttl) {
            Ok(renewed) => Err(renewed),
            Err(()) => Ok(state.with_deadline(ttl.deadline(now, jitter))),
        });
        extended.map_or_else(|settled| settled, |_| Renewed::Extended)
    }

    /// Fixes the deadline where it is, so that the region is loaded again after
    /// one TTL however often it is asked for: for an entry that routes around
    /// something that may come back. An entry without a deadline is flagged, too
    /// ([`Flagged::Done`]), and never expires.
    pub fn expire_after_ttl(&self) -> Flagged {
        self.flag(|state| (!state.is_fixed()).then(|| state.with_fixed_deadline()))
    }

    // === reload ===

    /// Asks the next access to reload the region before it uses the entry.
    pub fn reload_on_access(&self) -> Flagged {
        self.flag(|state| {
            let asked_for = state.reload() == Some(Reload::OnAccess);
            (!asked_for).then(|| state.with_reload(Reload::OnAccess))
        })
    }

    /// Asks for a reload some time, once it is ripened.
    pub fn delay_reload(&self) -> Flagged {
        self.flag(|state| {
            let asked_for = state.reload().is_some() || state.is_reload_pending();
            (!asked_for).then(|| state.with_pending_reload())
        })
    }

    /// Makes a pending delayed reload one that the next access does: the
    /// sweeper's part.
    pub fn ripen_delayed_reload(&self) -> Ripened {
        let ripened = self.update(|state| {
            if state.is_superseded() {
                Err(Ripened::Superseded)
            } else if let Some(reason) = state.reason() {
                Err(Ripened::Invalid(reason))
            } else if state.is_reload_pending() {
                Ok(state.with_ripe_reload())
            } else {
                Err(Ripened::NotPending)
            }
        });
        ripened.map_or_else(|refused| refused, |_| Ripened::Done)
    }

    /// Takes the reload that is asked for, so that nobody else does: both
    /// [`Reload::OnAccess`] and [`Reload::Delayed`] if it is asked for in both ways,
    /// and then only the former is reported, and restored if the reload fails. A
    /// delayed reload that is still pending stays.
    ///
    /// [`ReloadTicket::take`](super::ReloadTicket::take) does the same and cannot
    /// be forgotten.
    pub fn take_reload(&self) -> Taken {
        let taken = self.update(|state| {
            if state.is_superseded() {
                Err(Taken::Superseded)
            } else if let Some(reason) = state.reason() {
                Err(Taken::Invalid(reason))
            } else if state.reload().is_some() {
                Ok(state.without_reload())
            } else {
                Err(Taken::Nothing)
            }
        });
        match taken {
            Ok(before) => before.reload().map_or(Taken::Nothing, Taken::Reload),
            Err(refused) => refused,
        }
    }

    /// Gives back a reload that was taken and has failed.
    pub fn restore_reload(&self, reload: Reload) -> Flagged {
        self.flag(|state| {
            let restored = state.with_reload(reload);
            (restored != state).then_some(restored)
        })
    }

    // === replacement, by the map ===

    /// Step two of the hand-over: the entry has been replaced or removed, and
    /// whatever took its place is published. Returns whether it was pinned.
    pub(crate) fn supersede(&self) -> bool {
        // Release: a marker that finds the bit (its Acquire is in `update`)
        // looks again, and must then find the replacement, which was published
        // before. Fails without it:
        // word::e3_a_pin_meets_the_replacement_or_is_handed_to_it. Acquire: a pin
        // that came first (the Release of `update`) is handed down together with
        // what its marker had done. Fails without it:
        // word::an_inherited_pin_carries_what_its_marker_did.
        State(self.0.fetch_or(SUPERSEDED, AcqRel)).is_pinned()
    }

    /// Gives the pin of a replaced entry to this one. Returns whether this one
    /// has left the map meanwhile, so that the pin has to go further.
    #[must_use = "the pin of a superseded entry pins nothing"]
    pub(crate) fn inherit_pin(&self) -> bool {
        // Release: passes on what the marker of the old entry had done, which
        // `supersede` or `load` acquired, to the Acquire of `load`. Fails without
        // it: word::an_inherited_pin_carries_what_its_marker_did. Acquire: pairs
        // with the Release of `supersede`, whose entry's successor must be found
        // when the pin is carried on. Fails without it:
        // word::e3_a_pin_outlives_a_second_replacement.
        State(self.0.fetch_or(INHERITED_PIN, AcqRel)).is_superseded()
    }

    /// Takes back an inherited pin, because the publication for which it was
    /// inherited has failed. `&mut` in spirit: no map has shown the entry, which is
    /// put into one map only. A pin of the entry's own stays.
    pub(crate) fn disinherit_unpublished(&self) {
        // Relaxed: the entry is in no map before it is published.
        self.0.fetch_and(!INHERITED_PIN, Relaxed);
    }

    fn mark_invalid(&self, reason: InvalidReason, pin: bool) -> Invalidated {
        let marked = self.update(|state| {
            if state.is_superseded() {
                return Err(Invalidated::Superseded);
            }
            let pinned = if pin && !state.is_pinned() {
                state.with_pin()
            } else {
                state
            };
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

    /// Sets a flag of a valid entry; `set` is `None` if there is nothing to set.
    fn flag(&self, set: impl Fn(State) -> Option<State>) -> Flagged {
        let flagged = self.update(|state| {
            if state.is_superseded() {
                return Err(Flagged::Superseded);
            }
            match state.reason() {
                Some(reason) => Err(Flagged::Invalid(reason)),
                None => set(state).ok_or(Flagged::Already),
            }
        });
        flagged.map_or_else(|refused| refused, |_| Flagged::Done)
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
            // Release, on success: pairs with the Acquire of `load`; see there.
            // Acquire, on success: the value may have come back since it was
            // loaded (a reload that was taken and asked for again), and who takes
            // it must see why. Fails without it:
            // word::a_taken_reload_carries_why_it_was_asked_for.
            // Acquire, on failure: as for the load above.
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
