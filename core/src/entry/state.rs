//! The value of a state word: bits to read and bits to change, no atomics.

use std::fmt;

use super::outcome::{Reload, Renewed};
use super::reason::InvalidReason;
use super::ttl::{Standing, Ttl, has_passed};
use crate::clock::Moment;

const REASON: u64 = 0b1111;
pub(super) const LEADER_PIN: u64 = 1 << 4;
pub(super) const INHERITED_PIN: u64 = 1 << 5;
pub(super) const SUPERSEDED: u64 = 1 << 6;
const RELOAD_ON_ACCESS: u64 = 1 << 7;
const DELAYED_PENDING: u64 = 1 << 8;
const DELAYED_READY: u64 = 1 << 9;
const LEASED: u64 = 1 << 10;
const FIXED: u64 = 1 << 11;
const TIME_SHIFT: u32 = 16;
const TIME: u64 = u64::MAX << TIME_SHIFT;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// The value of a word at one moment.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct State(pub(super) u64);

impl State {
    /// Valid, unpinned, without a time.
    pub(super) const FRESH: Self = Self(0);

    /// Why the entry is invalid; `None` while it is valid.
    #[inline]
    #[must_use]
    pub const fn reason(self) -> Option<InvalidReason> {
        InvalidReason::from_code(self.0 & REASON)
    }

    /// Whether the next load of the region must ask the PD leader.
    #[inline]
    #[must_use]
    pub const fn is_pinned(self) -> bool {
        self.0 & (LEADER_PIN | INHERITED_PIN) != 0
    }

    /// Whether the entry has left the map.
    #[inline]
    #[must_use]
    pub const fn is_superseded(self) -> bool {
        self.0 & SUPERSEDED != 0
    }

    /// The reload that the next access is to take, if one is asked for.
    #[inline]
    #[must_use]
    pub const fn reload(self) -> Option<Reload> {
        if self.0 & RELOAD_ON_ACCESS != 0 {
            Some(Reload::OnAccess)
        } else if self.0 & DELAYED_READY != 0 {
            Some(Reload::Delayed)
        } else {
            None
        }
    }

    /// Whether a delayed reload waits to be ripened.
    #[inline]
    #[must_use]
    pub const fn is_reload_pending(self) -> bool {
        self.0 & DELAYED_PENDING != 0
    }

    /// Whether the entry's time is a deadline.
    #[inline]
    #[must_use]
    pub const fn is_leased(self) -> bool {
        self.0 & LEASED != 0
    }

    /// Whether accesses leave the deadline where it is.
    #[inline]
    #[must_use]
    pub const fn is_fixed(self) -> bool {
        self.0 & FIXED != 0
    }

    /// The last moment at which an entry with a deadline is good, in whole
    /// milliseconds, rounded up.
    #[inline]
    #[must_use]
    pub const fn deadline(self) -> Option<Moment> {
        if self.is_leased() { self.time() } else { None }
    }

    /// When the PD leader last agreed with an entry that has no deadline, in
    /// whole milliseconds, rounded down.
    #[inline]
    #[must_use]
    pub const fn confirmed_at(self) -> Option<Moment> {
        if self.is_leased() { None } else { self.time() }
    }

    /// Whether a deadline has passed. Reads only: for whoever sweeps the map,
    /// and must not count as an access.
    #[inline]
    #[must_use]
    pub const fn is_expired(self, now: Moment) -> bool {
        match self.deadline() {
            Some(deadline) => has_passed(deadline, now),
            None => false,
        }
    }

    /// Whether a request may be routed by the entry: it is valid, not expired,
    /// and not to be reloaded first. Reads only, as [`State::is_expired`].
    #[inline]
    #[must_use]
    pub const fn is_usable(self, now: Moment) -> bool {
        self.0 & (REASON | RELOAD_ON_ACCESS) == 0 && !self.is_expired(now)
    }

    /// Whether [`State::access`] says [`Renewed::InBand`]: the common case in one
    /// comparison of bits and two of times.
    #[inline]
    pub(super) const fn is_in_band(self, now: Moment, ttl: Ttl) -> bool {
        let is_plain = self.0 & (REASON | SUPERSEDED | LEASED | FIXED) == LEASED;
        match self.time() {
            Some(deadline) if is_plain => matches!(ttl.standing(deadline, now), Standing::InBand),
            _ => false,
        }
    }

    /// What an access makes of the word: an answer at once, or `Err` if the
    /// deadline is to be moved on.
    #[inline]
    pub(super) const fn access(self, now: Moment, ttl: Ttl) -> Result<Renewed, ()> {
        if self.is_superseded() {
            return Ok(Renewed::Superseded);
        }
        if let Some(reason) = self.reason() {
            return Ok(Renewed::Invalid(reason));
        }
        let Some(deadline) = self.deadline() else {
            return Ok(Renewed::Unleased);
        };
        match ttl.standing(deadline, now) {
            Standing::Expired => Ok(Renewed::Expired),
            Standing::Due | Standing::InBand if self.is_fixed() => Ok(Renewed::Fixed),
            Standing::InBand => Ok(Renewed::InBand),
            Standing::Due => Err(()),
        }
    }

    pub(super) const fn with_reason(self, reason: InvalidReason) -> Self {
        Self(self.0 & !REASON | reason.code())
    }

    pub(super) const fn with_pin(self) -> Self {
        Self(self.0 | LEADER_PIN)
    }

    pub(super) const fn with_reload(self, reload: Reload) -> Self {
        match reload {
            Reload::OnAccess => Self(self.0 | RELOAD_ON_ACCESS),
            Reload::Delayed => Self(self.0 | DELAYED_READY),
        }
    }

    pub(super) const fn without_reload(self) -> Self {
        Self(self.0 & !(RELOAD_ON_ACCESS | DELAYED_READY))
    }

    pub(super) const fn with_pending_reload(self) -> Self {
        Self(self.0 | DELAYED_PENDING)
    }

    pub(super) const fn with_ripe_reload(self) -> Self {
        Self(self.0 & !DELAYED_PENDING | DELAYED_READY)
    }

    pub(super) const fn with_confirmed_at(self, at: Moment) -> Self {
        // Rounded down: an entry may seem older than it is, never newer.
        self.with_millis(at.as_nanos() / NANOS_PER_MILLI)
    }

    pub(super) const fn with_deadline(self, at: Moment) -> Self {
        // Rounded up: a deadline that is moved on does move, and an entry lives
        // for all of its time.
        Self(self.0 | LEASED).with_millis(at.as_nanos().div_ceil(NANOS_PER_MILLI))
    }

    pub(super) const fn with_fixed_deadline(self) -> Self {
        Self(self.0 | FIXED)
    }

    /// A `Moment` has at most 2^45 milliseconds, so that the field has room.
    const fn with_millis(self, millis: u64) -> Self {
        Self(self.0 & !TIME | (millis + 1) << TIME_SHIFT)
    }

    #[inline]
    const fn time(self) -> Option<Moment> {
        match (self.0 >> TIME_SHIFT).checked_sub(1) {
            Some(millis) => Some(Moment::from_nanos(millis.saturating_mul(NANOS_PER_MILLI))),
            None => None,
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("reason", &self.reason())
            .field("pinned", &self.is_pinned())
            .field("superseded", &self.is_superseded())
            .field("reload", &self.reload())
            .field("reload_pending", &self.is_reload_pending())
            .field("fixed", &self.is_fixed())
            .field("deadline", &self.deadline())
            .field("confirmed_at", &self.confirmed_at())
            .finish()
    }
}
