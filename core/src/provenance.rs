//! Who described a region, and when that was true.
//!
//! An epoch orders two descriptions of a region only if it differs, and much
//! that matters changes without it: the leader, the peers that are down, the
//! traffic. Two descriptions under equal epochs are ordered here, by when they
//! were true and never by arrival alone.
//!
//! | new \ old | stream | leader | follower |
//! |---|---|---|---|
//! | **stream** | yes: the stream's order is the authority | unless received before the leader was asked | yes |
//! | **leader** | if asked no earlier than the record was received | if asked no earlier | yes |
//! | **follower** | no | no | if asked no earlier |
//!
//! Why a record of the stream yields only to questions that were sent after its
//! receipt: the leader sent it before it answered, so the answer is at least as
//! new. A record that arrived while the question was under way may be older or
//! newer than the answer. It is let in, because the stream mends the first
//! mistake (the change that the answer already knew is on its way as a record),
//! while nothing would mend the loss of a record. For the same reason an answer
//! does not replace a record that was received after the question was sent.

use crate::clock::Moment;

/// Where a description of a region came from.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Provenance {
    /// A record of the PD leader's region sync stream.
    Stream {
        /// When the message with the record was received.
        received_at: Moment,
    },
    /// An answer of the PD leader to a question.
    Leader {
        /// When the question was sent: the answer is at least as new.
        asked_at: Moment,
        /// When the answer was received.
        answered_at: Moment,
    },
    /// An answer of someone who copies the PD leader: a follower, a router or
    /// the peer that rejected a request.
    Follower {
        /// When the question was sent; says nothing about the answer's age.
        asked_at: Moment,
    },
}

impl Provenance {
    /// Whether a description from here may replace one from `old` that has the
    /// same id and the same epoch: the module's table.
    #[must_use]
    pub fn replaces(self, old: Self) -> bool {
        use Provenance::{Follower, Leader, Stream};
        match (self, old) {
            (Stream { .. }, Stream { .. } | Follower { .. }) => true,
            (Stream { received_at }, Leader { asked_at, .. }) => received_at >= asked_at,
            (Leader { asked_at, .. }, Stream { received_at }) => asked_at >= received_at,
            (Leader { asked_at: new, .. }, Leader { asked_at: old, .. }) => new >= old,
            (Leader { .. }, Follower { .. }) => true,
            (Follower { .. }, Stream { .. } | Leader { .. }) => false,
            (Follower { asked_at: new }, Follower { asked_at: old }) => new >= old,
        }
    }

    /// The moment since which the PD leader is known to have agreed with the
    /// description, if the leader itself said it.
    #[must_use]
    pub fn confirmed_at(self) -> Option<Moment> {
        match self {
            Self::Leader { asked_at, .. } => Some(asked_at),
            Self::Stream { .. } | Self::Follower { .. } => None,
        }
    }

    /// Whether the PD leader itself was asked.
    #[must_use]
    pub fn is_leader(self) -> bool {
        matches!(self, Self::Leader { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::Provenance;
    use crate::clock::Moment;

    fn stream(received_at: u64) -> Provenance {
        Provenance::Stream {
            received_at: Moment::from_nanos(received_at),
        }
    }

    fn leader(asked_at: u64, answered_at: u64) -> Provenance {
        Provenance::Leader {
            asked_at: Moment::from_nanos(asked_at),
            answered_at: Moment::from_nanos(answered_at),
        }
    }

    fn follower(asked_at: u64) -> Provenance {
        Provenance::Follower {
            asked_at: Moment::from_nanos(asked_at),
        }
    }

    #[test]
    fn m3_equal_epochs_are_ordered_by_when_they_were_true() {
        let table = [
            // (what, new, old, replaces)
            (
                "the stream's order is the authority",
                stream(5),
                stream(9),
                true,
            ),
            (
                "received after the answer",
                stream(30),
                leader(10, 20),
                true,
            ),
            (
                "received while the question was under way",
                stream(15),
                leader(10, 20),
                true,
            ),
            (
                "received as the question was sent",
                stream(10),
                leader(10, 20),
                true,
            ),
            (
                "received before the question was sent",
                stream(9),
                leader(10, 20),
                false,
            ),
            (
                "a record is worth more than a copy",
                stream(1),
                follower(9),
                true,
            ),
            ("asked after the record", leader(10, 20), stream(9), true),
            ("asked as the record came", leader(10, 20), stream(10), true),
            (
                "a record came while the question was under way",
                leader(10, 20),
                stream(11),
                false,
            ),
            (
                "the later question wins",
                leader(11, 12),
                leader(10, 20),
                true,
            ),
            (
                "the earlier question loses",
                leader(10, 20),
                leader(11, 12),
                false,
            ),
            (
                "the same answer again",
                leader(10, 20),
                leader(10, 20),
                true,
            ),
            ("the leader beats a copy", leader(1, 2), follower(9), true),
            (
                "a copy never beats the stream",
                follower(9),
                stream(1),
                false,
            ),
            (
                "a copy never beats the leader",
                follower(9),
                leader(1, 2),
                false,
            ),
            (
                "the later question to a copy wins",
                follower(9),
                follower(8),
                true,
            ),
            (
                "the earlier question to a copy loses",
                follower(8),
                follower(9),
                false,
            ),
        ];
        for (what, new, old, replaces) in table {
            assert_eq!(
                new.replaces(old),
                replaces,
                "{what}: {new:?} against {old:?}"
            );
        }
    }

    #[test]
    fn only_the_leader_confirms() {
        assert_eq!(leader(3, 4).confirmed_at(), Some(Moment::from_nanos(3)));
        assert_eq!(stream(3).confirmed_at(), None);
        assert_eq!(follower(3).confirmed_at(), None);
    }
}
