//! Asking the PD leader on behalf of clients (F7).
//!
//! While the gate is shut, or where the map has no answer, the leader is asked. What makes that cheap for it:
//!
//! - **one question at a time for equal lookups** (`flights.rs`): who asks for what is asked already waits for that
//!   answer, if the question was sent late enough for the waiter; if that question fails, those who came after it was
//!   sent ask once more;
//! - **batches** (`points.rs`): keys, previous keys and ids that gather while one QueryRegion is under way go out
//!   together in the next; where the leader is too old for QueryRegion, one by one, a few at a time;
//! - **the map is healed** with what the leader said ([`heal`](super::heal)), and the entry is confirmed: whoever asks
//!   within `max-age` is answered from the map.
//!
//! ```text
//!   lookups --> flights --> points --QueryRegion--> leader      the answer, to all who wait for it
//!                      \--> ranges --ScanRegions--> leader      and into the map
//! ```
//!
//! What bounds it: questions in wait ([`Bounds::waiting`]), items of a batch, calls in flight, and a deadline for each
//! waiter and each call. What exceeds the first bound is turned away at once, and the client goes to the leader itself,
//! as if there were no read-through.
//!
//! # Only the leader's word counts
//! A unary lookup is refused by a PD member that does not lead. QueryRegion is not: a member that has been deposed goes
//! on answering the stream from a follower's map. So an answer that came over the stream counts once a look at the
//! leader key, taken after it, has found the term that the question was sent in (`reign.rs`). Without a known term,
//! lookups go one by one. An answer that says where it comes from (a replica's do) is not the leader's.
//!
//! And an answer has to fit its question (`lookup/fit.rs`): one that does not, for whatever reason, is passed
//! on to nobody and gets into no map. A stream on which that happened is left, since its answers may have fallen out of
//! step with its questions.
//!
//! # No circles
//! Every question carries [`MARK`]. A replica that is asked such a question answers it or refuses; it asks nobody.

mod batched;
mod bounds;
mod counters;
mod flights;
mod leader;
mod points;
mod question;
mod ranges;
mod reign;
mod remote;
mod say;
mod unfit;

#[cfg(test)]
pub(in crate::replica) mod tests;

use std::future::Future;
use std::sync::Arc;

use tidegate_core::Moment;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::state::Shared;

pub use bounds::Bounds;
pub use counters::{AskCounters, AskCounts};
pub use leader::{LeaderCalls, QueryLink};
pub use question::{Answer, AskError, Encoded, Outcome, Point, Question, Told};

use flights::{Flights, Wait};

/// The metadata key of a question that a replica asks on behalf of somebody else. Its presence counts.
pub const MARK: &str = "tidegate-read-through";

/// The questions of one replica to the leader. Any number of tasks ask; two tasks ([`spawn`]) carry them there.
#[derive(Debug)]
pub struct Asker {
    flights: Flights,
    counters: Arc<AskCounters>,
}

impl Asker {
    /// Nothing asked yet.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let counters = Arc::new(AskCounters::default());
        Self {
            flights: Flights::new(bounds, Arc::clone(&counters)),
            counters,
        }
    }

    /// What was asked so far.
    #[must_use]
    pub fn counters(&self) -> &AskCounters {
        &self.counters
    }

    /// Asks, and waits until `deadline` at most. The answer is the leader's, to a question that was sent at `since` or
    /// later: the waiter's reason to ask. Cancel safe: a question that nobody waits for any more is not sent.
    ///
    /// # Errors
    /// [`AskError`]: there is no answer.
    pub async fn ask(&self, question: Question, since: Moment, deadline: Instant) -> Outcome {
        let mut outcomes = self.ask_all(vec![question], since, deadline).await;
        outcomes.pop().unwrap_or(Err(AskError::Failed))
    }

    /// Asks several questions at once; the outcomes are in their order. If they are too many, none is asked.
    pub async fn ask_all(
        &self,
        questions: Vec<Question>,
        since: Moment,
        deadline: Instant,
    ) -> Vec<Outcome> {
        let count = questions.len();
        let Ok(joined) = self.flights.join(questions, since) else {
            self.counters.failed(AskError::Overflow, 1);
            return vec![Err(AskError::Overflow); count];
        };
        let mut outcomes = Vec::with_capacity(count);
        let mut again = Vec::new();
        for (place, mut joined) in joined.into_iter().enumerate() {
            let outcome = landed(&mut joined.wait, deadline).await;
            if let (Err(AskError::Failed), Some(question)) = (&outcome, joined.late) {
                again.push((place, question));
            }
            outcomes.push(outcome);
        }
        // What failed had been sent before these came: to the leader before this one, perhaps.
        if !again.is_empty()
            && let (places, questions) = again.into_iter().unzip::<_, _, Vec<_>, Vec<_>>()
            && let Ok(joined) = self.flights.join(questions, since)
        {
            for (place, mut joined) in places.into_iter().zip(joined) {
                outcomes[place] = landed(&mut joined.wait, deadline).await;
            }
        }
        let late = outcomes
            .iter()
            .filter(|o| matches!(o, Err(AskError::Deadline)));
        self.counters
            .failed(AskError::Deadline, late.count() as u64);
        outcomes
    }
}

/// What a flight came to, by `deadline`.
async fn landed(wait: &mut Wait, deadline: Instant) -> Outcome {
    match timeout_at(deadline, wait.wait_for(Option::is_some)).await {
        Ok(Ok(outcome)) => outcome.clone().unwrap_or(Err(AskError::Failed)),
        // The replica stops.
        Ok(Err(_)) => Err(AskError::Failed),
        Err(_) => Err(AskError::Deadline),
    }
}

/// Starts to carry questions to the leader, until `stop`.
pub fn spawn<T: LeaderCalls>(
    asker: &Arc<Asker>,
    shared: &Arc<Shared>,
    transport: &Arc<T>,
    stop: &CancellationToken,
) {
    let say = Arc::new(say::Say::new(asker, shared, transport));
    let (points, ranges) = (Arc::clone(&say), say);
    let stops = (stop.clone(), stop.clone());
    tokio::spawn(keep_carrying(stop.clone(), move || {
        points::Points::new(Arc::clone(&points)).run(stops.0.clone())
    }));
    tokio::spawn(keep_carrying(stop.clone(), move || {
        ranges::run(Arc::clone(&ranges), stops.1.clone())
    }));
}

/// Begins anew where a panic has ended it: what it carried has failed, what waits has not.
async fn keep_carrying<F>(stop: CancellationToken, carry: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    while !stop.is_cancelled() {
        if let Err(error) = tokio::spawn(carry()).await {
            tracing::error!(%error, "asking the PD leader has failed and begins anew; report it");
        }
    }
}
