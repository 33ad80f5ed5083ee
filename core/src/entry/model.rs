//! The state word as one thread would keep it: a field for each fact, and the
//! rules written out one by one.
//!
//! Property tests and fuzz targets run the same [`Step`]s on both and compare
//! what each says of itself.

use std::time::Duration;

use super::outcome::{Confirmed, Flagged, Invalidated, Pinned, Reload, Renewed, Ripened, Taken};
use super::{Entry, InvalidReason, State, StateWord, Ttl};
use crate::clock::Moment;

/// One thing that can be done to a word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "named for the methods of `StateWord`")]
pub enum Step {
    Invalidate(InvalidReason),
    InvalidateAndPin(InvalidReason),
    PinToLeader,
    Confirm(Moment),
    Renew {
        now: Moment,
        jitter: u32,
    },
    ExpireAfterTtl,
    ReloadOnAccess,
    DelayReload,
    RipenDelayedReload,
    TakeReload,
    RestoreReload(Reload),
    /// What the map does to an entry that it has replaced.
    Supersede,
    /// What the map does to an entry that has replaced a pinned one.
    InheritPin,
}

/// What a step was answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "one for each type of answer")]
pub enum Told {
    Invalidated(Invalidated),
    Pinned(Pinned),
    Confirmed(Confirmed),
    Renewed(Renewed),
    Flagged(Flagged),
    Ripened(Ripened),
    Taken(Taken),
    /// Whether the superseded entry was pinned.
    Superseded(bool),
    /// Whether the heir had been superseded.
    Inherited(bool),
}

impl Step {
    /// Does it to an entry.
    pub fn run(self, entry: &Entry, ttl: Ttl) -> Told {
        let word: &StateWord = entry.word();
        match self {
            Self::Invalidate(reason) => Told::Invalidated(word.invalidate(reason)),
            Self::InvalidateAndPin(reason) => Told::Invalidated(word.invalidate_and_pin(reason)),
            Self::PinToLeader => Told::Pinned(word.pin_to_leader()),
            Self::Confirm(at) => Told::Confirmed(word.confirm(at)),
            Self::Renew { now, jitter } => Told::Renewed(word.renew(now, ttl, || jitter)),
            Self::ExpireAfterTtl => Told::Flagged(word.expire_after_ttl()),
            Self::ReloadOnAccess => Told::Flagged(word.reload_on_access()),
            Self::DelayReload => Told::Flagged(word.delay_reload()),
            Self::RipenDelayedReload => Told::Ripened(word.ripen_delayed_reload()),
            Self::TakeReload => Told::Taken(word.take_reload()),
            Self::RestoreReload(reload) => Told::Flagged(word.restore_reload(reload)),
            Self::Supersede => Told::Superseded(word.supersede()),
            Self::InheritPin => Told::Inherited(word.inherit_pin()),
        }
    }
}

/// What the word's time means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Time {
    Confirmed(Option<u64>),
    Deadline(u64),
}

/// A sequential state word. Times in it are whole milliseconds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelWord {
    reason: Option<InvalidReason>,
    pinned: bool,
    superseded: bool,
    on_access: bool,
    pending: bool,
    ready: bool,
    fixed: bool,
    time: Time,
}

impl ModelWord {
    /// The word of an entry without a deadline.
    #[must_use]
    pub fn new(confirmed_at: Option<Moment>) -> Self {
        Self {
            reason: None,
            pinned: false,
            superseded: false,
            on_access: false,
            pending: false,
            ready: false,
            fixed: false,
            time: Time::Confirmed(confirmed_at.map(whole_millis)),
        }
    }

    /// The word of an entry with one.
    #[must_use]
    pub fn with_deadline(deadline: Moment, fixed: bool) -> Self {
        Self {
            fixed,
            time: Time::Deadline(millis_begun(deadline)),
            ..Self::new(None)
        }
    }

    /// Does a step.
    pub fn run(&mut self, step: Step, ttl: Ttl) -> Told {
        match step {
            Step::Invalidate(reason) => Told::Invalidated(self.invalidate(reason, false)),
            Step::InvalidateAndPin(reason) => Told::Invalidated(self.invalidate(reason, true)),
            Step::PinToLeader => Told::Pinned(match (self.superseded, self.pinned) {
                (true, _) => Pinned::Superseded,
                (_, true) => Pinned::Already,
                _ => {
                    self.pinned = true;
                    Pinned::Done
                }
            }),
            Step::Confirm(at) => Told::Confirmed(self.confirm(at)),
            Step::Renew { now, jitter } => Told::Renewed(self.renew(now, jitter, ttl)),
            Step::ExpireAfterTtl => {
                let known = self.fixed;
                Told::Flagged(self.flag(known, |word| word.fixed = true))
            }
            Step::ReloadOnAccess | Step::RestoreReload(Reload::OnAccess) => {
                let known = self.on_access;
                Told::Flagged(self.flag(known, |word| word.on_access = true))
            }
            Step::RestoreReload(Reload::Delayed) => {
                let known = self.ready;
                Told::Flagged(self.flag(known, |word| word.ready = true))
            }
            Step::DelayReload => {
                let known = self.on_access || self.pending || self.ready;
                Told::Flagged(self.flag(known, |word| word.pending = true))
            }
            Step::RipenDelayedReload => Told::Ripened(match (self.superseded, self.reason) {
                (true, _) => Ripened::Superseded,
                (_, Some(reason)) => Ripened::Invalid(reason),
                _ if !self.pending => Ripened::NotPending,
                _ => {
                    (self.pending, self.ready) = (false, true);
                    Ripened::Done
                }
            }),
            Step::TakeReload => Told::Taken(self.take_reload()),
            Step::Supersede => {
                self.superseded = true;
                Told::Superseded(self.pinned)
            }
            Step::InheritPin => {
                self.pinned = true;
                Told::Inherited(self.superseded)
            }
        }
    }

    /// Compares all that can be asked of a state at `now`.
    ///
    /// # Panics
    ///
    /// If an answer differs.
    pub fn assert_equals(&self, state: State, now: Moment) {
        let (confirmed_at, deadline) = match self.time {
            Time::Confirmed(at) => (at, None),
            Time::Deadline(at) => (None, Some(at)),
        };
        let nanos = |moment: Moment| moment.as_nanos();
        let expected = |millis: Option<u64>| millis.map(|millis| millis.saturating_mul(1_000_000));
        assert_eq!(state.reason(), self.reason);
        assert_eq!(state.is_pinned(), self.pinned);
        assert_eq!(state.is_superseded(), self.superseded);
        assert_eq!(state.reload(), self.reload());
        assert_eq!(state.is_reload_pending(), self.pending);
        assert_eq!(state.is_fixed(), self.fixed);
        assert_eq!(state.is_leased(), deadline.is_some());
        assert_eq!(state.confirmed_at().map(nanos), expected(confirmed_at));
        assert_eq!(state.deadline().map(nanos), expected(deadline));
        let expired = self.has_expired(now);
        assert_eq!(state.is_expired(now), expired);
        let usable = self.reason.is_none() && !self.on_access && !expired;
        assert_eq!(state.is_usable(now), usable);
    }

    fn invalidate(&mut self, reason: InvalidReason, pin: bool) -> Invalidated {
        if self.superseded {
            return Invalidated::Superseded;
        }
        self.pinned |= pin;
        if let Some(first) = self.reason {
            return Invalidated::Already(first);
        }
        self.reason = Some(reason);
        Invalidated::Done
    }

    fn confirm(&mut self, at: Moment) -> Confirmed {
        if self.superseded {
            return Confirmed::Superseded;
        }
        if let Some(reason) = self.reason {
            return Confirmed::Invalid(reason);
        }
        let Time::Confirmed(known) = self.time else {
            return Confirmed::Leased;
        };
        match known {
            Some(known) if whole_millis(at) <= known => {
                let known = Duration::from_millis(known);
                Confirmed::Already(Moment::from_nanos(0).saturating_add(known))
            }
            _ => {
                self.time = Time::Confirmed(Some(whole_millis(at)));
                Confirmed::Done
            }
        }
    }

    fn renew(&mut self, now: Moment, jitter: u32, ttl: Ttl) -> Renewed {
        if self.superseded {
            return Renewed::Superseded;
        }
        if let Some(reason) = self.reason {
            return Renewed::Invalid(reason);
        }
        let Time::Deadline(deadline) = self.time else {
            return Renewed::Unleased;
        };
        if self.has_expired(now) {
            return Renewed::Expired;
        }
        if self.fixed {
            return Renewed::Fixed;
        }
        // All moments lie before the end of time: what would be later is that.
        let end = u128::from(u64::MAX);
        let deadline = (u128::from(deadline) * 1_000_000).min(end);
        let wanted = (u128::from(now.as_nanos()) + ttl.base().as_nanos()).min(end);
        if deadline >= wanted {
            return Renewed::InBand;
        }
        self.time = Time::Deadline(millis_begun(ttl.deadline(now, jitter)));
        Renewed::Extended
    }

    fn take_reload(&mut self) -> Taken {
        if self.superseded {
            return Taken::Superseded;
        }
        if let Some(reason) = self.reason {
            return Taken::Invalid(reason);
        }
        let reload = self.reload();
        (self.on_access, self.ready) = (false, false);
        reload.map_or(Taken::Nothing, Taken::Reload)
    }

    fn flag(&mut self, known: bool, set: impl FnOnce(&mut Self)) -> Flagged {
        if self.superseded {
            return Flagged::Superseded;
        }
        if let Some(reason) = self.reason {
            return Flagged::Invalid(reason);
        }
        if known {
            return Flagged::Already;
        }
        set(self);
        Flagged::Done
    }

    fn reload(&self) -> Option<Reload> {
        match (self.on_access, self.ready) {
            (true, _) => Some(Reload::OnAccess),
            (false, true) => Some(Reload::Delayed),
            (false, false) => None,
        }
    }

    fn has_expired(&self, now: Moment) -> bool {
        match self.time {
            Time::Deadline(at) => u128::from(now.as_nanos()) > u128::from(at) * 1_000_000,
            Time::Confirmed(_) => false,
        }
    }
}

fn whole_millis(moment: Moment) -> u64 {
    moment.as_nanos() / 1_000_000
}

fn millis_begun(moment: Moment) -> u64 {
    moment.as_nanos().div_ceil(1_000_000)
}
