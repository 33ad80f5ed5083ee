//! Why a session ended, and what that means for the next one.

use std::time::Duration;

use crate::pd::told::{NOTHING_YET, STOPPING};
use crate::pd::{CallError, ResolveError};
use crate::proto::convert::Malformed;

/// The end of one attempt to follow a leader. None of them shuts the gate: a proof only stops advancing.
#[derive(Debug)]
pub(super) enum Ending {
    /// The replica is stopping.
    Stopped,
    /// No leader was found.
    NoLeader(ResolveError),
    /// The member that was named as the leader does not hold the leader key, or nobody does.
    NotLeading,
    /// A call or the stream failed.
    Call(CallError),
    /// The leader closed the stream without a word.
    Closed,
    /// The leader reported an error in a frame.
    LeaderError(String),
    /// Nothing was heard for this long.
    Silence(Duration),
    /// More frames wait to be applied than the queue holds.
    Backlog,
    /// A full sync was not complete after this long.
    Endless(Duration),
    /// Indexes were skipped.
    Gap {
        /// The first that is missing.
        missing: u64,
        /// The index that closes the gap: all before it has been shown to exist.
        until: u64,
        /// The stream's first frame skipped: asking again at the same index would not help.
        at_once: bool,
    },
    /// The leader's index went back.
    Regressed,
    /// The map was found to hold what the leader does not say, and the stream does not show it.
    Distrusted,
    /// The replica that is to be followed cannot be.
    Upstream(String),
    /// The term ended, or is not the one that the stream was opened in.
    TermChanged,
    /// A frame that a leader of this kind does not send.
    Broken(&'static str),
    /// A region that cannot be used.
    Malformed(Malformed),
}

impl Ending {
    /// Whether the own index means nothing any more.
    pub(super) fn distrusts_index(&self) -> bool {
        matches!(
            self,
            Self::Regressed | Self::Distrusted | Self::Broken(_) | Self::Gap { at_once: true, .. }
        )
    }

    /// Whether the next attempt may follow at once: nothing is wrong with the leader.
    pub(super) fn reopens_at_once(&self) -> bool {
        matches!(self, Self::Regressed | Self::Distrusted | Self::Gap { .. })
    }

    /// Whether the replica that is to be followed has only just started, as is to be expected when both have.
    pub(super) fn is_too_early(&self) -> bool {
        self.says(NOTHING_YET)
    }

    fn says(&self, what: &str) -> bool {
        matches!(self, Self::Call(CallError::Status { status, .. }) if status.message() == what)
    }

    /// The name in logs; a change of it is what is logged.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::NoLeader(ResolveError::Unreachable { .. }) => "no PD member answers",
            Self::NoLeader(_) => "no leader",
            Self::NotLeading => "the member named does not lead",
            Self::Call(_) if self.says(STOPPING) => "the upstream stops",
            Self::Call(_) if self.is_too_early() => "the upstream has nothing yet",
            Self::Call(_) => "call failed",
            Self::Closed => "closed by the remote",
            Self::LeaderError(_) => "error reported by the remote",
            Self::Silence(_) => "silence",
            Self::Backlog => "applying too slowly",
            Self::Endless(_) => "full sync without an end",
            Self::Gap { .. } => "skipped indexes",
            Self::Regressed => "index went back",
            Self::Distrusted => "the map differs from the leader's",
            Self::Upstream(_) => "the upstream cannot be followed",
            Self::TermChanged => "term changed",
            Self::Broken(_) => "frame out of order",
            Self::Malformed(_) => "malformed region",
        }
    }

    /// What is known beyond the name.
    pub(super) fn detail(&self) -> String {
        match self {
            Self::NoLeader(error @ ResolveError::Unreachable { .. }) => {
                format!("{error}; check --backend-endpoints")
            }
            Self::NoLeader(error) => error.to_string(),
            Self::Call(error) => error.to_string(),
            Self::LeaderError(message) | Self::Upstream(message) => message.clone(),
            Self::Silence(length) => format!("nothing heard for {length:?}"),
            Self::Endless(length) => format!(
                "not complete after {length:?}; the leader or the way to it is too slow for the size of the cluster: \
                 raise full-sync-deadline"
            ),
            Self::Gap { missing, until, .. } => {
                format!("missing from {missing}, shown up to {until}")
            }
            Self::Broken(what) => (*what).to_owned(),
            Self::Malformed(region) => region.to_string(),
            Self::Backlog => {
                "the queue between receive and apply is full; the stream is opened again at what has been applied"
                    .to_owned()
            }
            Self::Stopped
            | Self::NotLeading
            | Self::Closed
            | Self::Regressed
            | Self::Distrusted
            | Self::TermChanged => String::new(),
        }
    }
}
