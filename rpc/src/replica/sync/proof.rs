//! What answered probes prove, and when: at once on master, by what is broadcast after them on release 8.5.
//!
//! # Why an answer is not enough on release 8.5
//!
//! A leader of release 8.5 has one broadcaster. It waits for a change or for the tick of the keepalives; it takes the
//! changes that wait (1,001 at most), gives them their indexes, and sends them to every stream that is bound by then,
//! and takes nothing more before the slowest of them has its frame. Changes that are made meanwhile are in the leader's
//! map and have no index. A probe is answered by somebody else, from what has an index: so its answer says nothing of
//! what waits, and looks the same whether nothing has happened or the broadcaster stands still.
//!
//! Only a broadcast tells, and only if it was made up after the time that it is to prove. When a frame arrives says
//! nothing of that: it may have been under way, or behind others, for any time. What orders the two is something that we
//! sent, and no other time is ever used here.
//!
//! # Records
//!
//! A probe sent at `t` and answered with the head `H` is a proof of `t` once the stream brings records from an index not
//! below `H`, in a frame that left nothing behind, and these are applied. They had no index when the probe was answered,
//! so they were taken after `t`; and whatever waited at `t` was taken with them or before them: what proves `t` is not
//! that `H` is applied, but the frame's end. How late the frame comes does not matter.
//!
//! # Nothing new
//!
//! A quiet leader records nothing; it says so every ten seconds. Such a keepalive names the head, which does not tell
//! whether it was made up before the probe was answered or after. So a probe's stream is left open until it hears its
//! first broadcast, an [`Echo`]: a stream hears only what is sent after it was bound, and it was bound after it was
//! opened. Yet the tick may win over changes that wait, as they do after a send that took long; and the keepalive's own
//! sending may take long, with changes waiting behind it. So one keepalive does not prove what came before it, and
//! nothing after it. The next one does, if the head is still the same: in between, the broadcaster has had to choose
//! again, and has recorded nothing. A stream opened at `t` that hears a keepalive at `K`, and a stream opened after that
//! was heard which hears a keepalive at `K` as well, together prove that what had been changed by `t` lies below `K`.
//!
//! What it costs: one more idle stream at the leader, two at times; a proof of a quiet leader is 10 to 20 seconds old
//! when it is had, and the next comes 10 seconds later. That is how often such a leader speaks, and why `max-age` is
//! longer there (`broadcast-max-age`).
//!
//! # What is taken for granted
//!
//! - One clock, ours, read before a request is sent and after a frame was received. The leader's is not used.
//! - A stream brings what was sent on it in order, or ends.
//! - A tick wins over changes that wait at most once in a row. Go's choice is a coin's; it would have to fall the wrong
//!   way twice, and a send would have to take a whole keepalive's interval each time.
//! - The broadcaster does not rest between its choice and the look at who is bound for as long as it takes to open a
//!   stream, nor do PD's workers between its map and the changes that wait.

use std::collections::VecDeque;

use tidegate_core::Moment;

/// As many as the gate keeps. Behind so many the map is too old to answer.
const MOST: usize = 16;

/// A head that was shown to a probe, in this term.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Answer {
    pub(super) generation: u64,
    pub(super) sent_at: Moment,
    pub(super) head: u64,
}

/// Records of a broadcast that left nothing behind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Drained {
    /// The index of the first.
    pub(super) start: u64,
    /// The index that follows the last; 0 before there were any.
    pub(super) end: u64,
}

/// The first broadcast on a stream that was opened to hear it: that there is nothing new.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Echo {
    /// What the stream was opened for.
    pub(super) generation: u64,
    /// Before the request was sent.
    pub(super) opened_at: Moment,
    /// After the frame was received.
    pub(super) heard_at: Moment,
    /// The head that it names.
    pub(super) head: u64,
}

/// Answers that are not proofs of their time yet, and what has been heard that can make others such.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// The oldest first.
    answers: VecDeque<Answer>,
    echoes: VecDeque<Echo>,
}

impl Claims {
    /// A probe was answered.
    pub(super) fn answered(&mut self, answer: Answer) {
        if self.answers.len() == MOST {
            self.answers.pop_front();
        }
        self.answers.push_back(answer);
    }

    /// The lowest head of an answer that waits for records from there on.
    pub(super) fn waits_for(&self) -> Option<u64> {
        self.answers.front().map(|answer| answer.head)
    }

    /// A leader of master's dialect records before it answers: all that waits is proven.
    pub(super) fn all(&mut self) -> impl Iterator<Item = Answer> {
        self.echoes.clear();
        self.answers.drain(..)
    }

    /// What a broadcast proves that left nothing behind.
    pub(super) fn drained(&mut self, records: Drained) -> impl Iterator<Item = Answer> {
        // Heads only grow within a term.
        let proven = self
            .answers
            .iter()
            .take_while(|answer| answer.head <= records.start)
            .count();
        self.answers.drain(..proven).map(move |answer| Answer {
            head: records.end,
            ..answer
        })
    }

    /// A broadcast that there is nothing new. What it proves, together with an earlier one.
    pub(super) fn echoed(&mut self, echo: Echo) -> Option<Answer> {
        let before = |first: &&Echo| {
            first.generation == echo.generation
                && first.head == echo.head
                && first.heard_at < echo.opened_at
        };
        let first = self.echoes.iter().filter(before);
        let proven = first.map(|first| first.opened_at).max();
        // What is no later than what is proven has nothing more to say.
        self.echoes.retain(|first| {
            first.generation == echo.generation
                && first.head >= echo.head
                && Some(first.opened_at) > proven
        });
        if self.echoes.len() == MOST {
            self.echoes.pop_front();
        }
        self.echoes.push_back(echo);
        let sent_at = proven?;
        self.answers.retain(|answer| answer.sent_at > sent_at);
        Some(Answer {
            generation: echo.generation,
            sent_at,
            head: echo.head,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: u64 = 4;

    fn at(second: u64) -> Moment {
        Moment::from_nanos(second * 1_000_000_000)
    }

    fn answer(sent: u64, head: u64) -> Answer {
        Answer {
            generation: GENERATION,
            sent_at: at(sent),
            head,
        }
    }

    fn echo(opened: u64, heard: u64, head: u64) -> Echo {
        Echo {
            generation: GENERATION,
            opened_at: at(opened),
            heard_at: at(heard),
            head,
        }
    }

    #[test]
    fn g3_records_prove_the_answers_whose_head_they_do_not_begin_before() {
        let mut claims = Claims::default();
        for (sent, head) in [(1, 10), (2, 10), (3, 12)] {
            claims.answered(answer(sent, head));
        }
        let records = |start| Drained { start, end: 15 };
        assert_eq!(claims.drained(records(9)).count(), 0);
        let proven: Vec<_> = claims.drained(records(11)).collect();
        assert_eq!(
            proven,
            [answer(1, 15), answer(2, 15)],
            "once the records are applied"
        );
        assert_eq!(claims.waits_for(), Some(12));
        assert_eq!(claims.all().collect::<Vec<_>>(), [answer(3, 12)]);
        assert_eq!(claims.waits_for(), None);
    }

    #[test]
    fn g3_two_keepalives_at_one_head_prove_the_opening_of_the_first_stream() {
        let mut claims = Claims::default();
        claims.answered(answer(3, 10));
        claims.answered(answer(6, 10));
        assert_eq!(claims.echoed(echo(3, 8, 10)), None);
        assert_eq!(claims.echoed(echo(6, 8, 10)), None, "the same keepalive");
        assert_eq!(
            claims.echoed(echo(9, 18, 10)),
            Some(answer(6, 10)),
            "the later of the two"
        );
        assert_eq!(claims.waits_for(), None);
        assert_eq!(claims.echoed(echo(20, 28, 10)), Some(answer(9, 10)));
    }

    #[test]
    fn g3_a_stream_that_was_opened_before_the_first_was_heard_may_have_heard_the_same() {
        let mut claims = Claims::default();
        claims.echoed(echo(3, 8, 10));
        for opened in [7, 8] {
            assert_eq!(claims.echoed(echo(opened, 18, 10)), None, "{opened}");
        }
    }

    #[test]
    fn g3_keepalives_with_records_between_them_prove_nothing_together() {
        let mut claims = Claims::default();
        claims.echoed(echo(3, 8, 10));
        assert_eq!(claims.echoed(echo(9, 18, 11)), None);
        assert_eq!(claims.echoed(echo(19, 28, 10)), None, "of an older head");
        assert_eq!(claims.echoed(echo(29, 38, 11)), Some(answer(9, 11)));
    }

    #[test]
    fn g4_what_was_heard_for_another_generation_proves_nothing() {
        let mut claims = Claims::default();
        claims.echoed(echo(3, 8, 10));
        let other = Echo {
            generation: GENERATION + 1,
            ..echo(9, 18, 10)
        };
        assert_eq!(claims.echoed(other), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut claims = Claims::default();
        for second in 0..100 {
            claims.answered(answer(second, second));
            claims.echoed(echo(0, 1 + second, 100 - second));
        }
        assert_eq!((claims.answers.len(), claims.echoes.len()), (MOST, MOST));
        assert_eq!(claims.waits_for(), Some(84));
    }
}
