//! Which reign of a PD leader a call was handed to.

use crate::pd::Term;
use crate::replica::state::{LeaderView, PdView};

/// A reign: who leads, and since when if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reign {
    member_id: u64,
    term: Option<Term>,
}

impl Reign {
    pub(super) fn of(leader: &LeaderView) -> Self {
        Self {
            member_id: leader.member.member_id,
            term: leader.term,
        }
    }

    /// Whether another reign is known to have begun. That no leader is known says nothing: we may have lost sight of
    /// one that still answers.
    pub(super) fn is_over(self, pd: Option<&PdView>) -> bool {
        let Some(leader) = pd.and_then(|pd| pd.leader.as_ref()) else {
            return false;
        };
        let now = Self::of(leader);
        now.member_id != self.member_id
            || matches!((self.term, now.term), (Some(then), Some(now)) if then != now)
    }
}
