//! What became of a transition of the state word.
//!
//! One enum for each kind of question, none of them open to more variants: the
//! compiler shows every caller what else can happen.

use super::reason::InvalidReason;
use crate::clock::Moment;

/// What became of [`StateWord::invalidate`](super::StateWord::invalidate) and
/// its kin.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
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

/// What became of [`StateWord::pin_to_leader`](super::StateWord::pin_to_leader).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
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

/// What became of [`StateWord::confirm`](super::StateWord::confirm).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use = "an entry that was not confirmed must not be answered as if it were"]
pub enum Confirmed {
    /// The entry counts as confirmed at the given moment.
    Done,
    /// It counts as confirmed at a later moment already.
    Already(Moment),
    /// The entry's time is a deadline: put the PD leader's answer into the map
    /// as a new entry.
    Leased,
    /// The entry is invalid; confirming does not revive it (E2).
    Invalid(InvalidReason),
    /// The entry has left the map.
    Superseded,
}

/// What became of [`StateWord::renew`](super::StateWord::renew).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use = "an entry that was not renewed may be no good any more"]
pub enum Renewed {
    /// Good, and its deadline is far enough off: nothing was written.
    InBand,
    /// Good, and its deadline was moved on.
    Extended,
    /// Good until its deadline, which stays where it is.
    Fixed,
    /// Good; the entry has no deadline.
    Unleased,
    /// The deadline has passed, and does not come back: load the region.
    Expired,
    /// The entry is invalid; a renewal does not revive it (E2): load the region.
    Invalid(InvalidReason),
    /// The entry has left the map: look up the region again.
    Superseded,
}

/// What became of setting a flag.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use = "an invalid or superseded entry was not flagged"]
pub enum Flagged {
    /// The flag is set from now on. A fixed deadline has no effect on an entry that
    /// has none.
    Done,
    /// What it asks for was asked for before.
    Already,
    /// The entry is invalid: it has to be loaded anyway, and is not changed.
    Invalid(InvalidReason),
    /// The entry has left the map, and is not changed.
    Superseded,
}

/// What became of
/// [`StateWord::ripen_delayed_reload`](super::StateWord::ripen_delayed_reload).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use = "only a ripened reload happens"]
pub enum Ripened {
    /// The next access reloads.
    Done,
    /// No delayed reload is pending.
    NotPending,
    /// The entry is invalid, and is not changed.
    Invalid(InvalidReason),
    /// The entry has left the map, and is not changed.
    Superseded,
}

/// What became of [`StateWord::take_reload`](super::StateWord::take_reload).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use = "who takes a reload has to do it, or to restore it"]
pub enum Taken {
    /// The caller, and nobody else, is to reload the region. Of two reloads that
    /// were asked for this is the more urgent; both have been taken.
    Reload(Reload),
    /// No reload is asked for, or another has taken it.
    Nothing,
    /// The entry is invalid: load the region.
    Invalid(InvalidReason),
    /// The entry has left the map: look up the region again.
    Superseded,
}

/// A reload that an entry asks for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Reload {
    /// The entry is to be used again only if a reload fails.
    OnAccess,
    /// The entry is as good as before; something better may be had.
    Delayed,
}

impl Renewed {
    /// Whether the entry is valid and not expired. Whether it is to be reloaded
    /// first is another question: see
    /// [`StateWord::renew`](super::StateWord::renew).
    #[must_use]
    pub const fn is_good(self) -> bool {
        matches!(
            self,
            Self::InBand | Self::Extended | Self::Fixed | Self::Unleased
        )
    }
}
