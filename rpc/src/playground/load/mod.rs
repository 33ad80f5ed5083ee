//! Clients that look regions up, and judge what they get.
//!
//! Each client takes the leader and the replicas in turn. A server that refuses, has no answer or
//! cannot be reached has the lookup passed on to the leader, which is asked again until the deadline.
//! A client rests between two lookups: the playground shares its processors with the servers, and a
//! load that starves their probes would show nothing but that.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tidegate_core::clock::Clock;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

mod questions;
mod tally;
#[cfg(test)]
mod tests;

pub use self::questions::Questions;
pub use self::tally::{ServerTally, Tally};
use super::judge::{Answer, Ledger, Question};

/// Where the leader is among the targets.
pub const LEADER: usize = 0;

/// A server that can be asked.
pub trait Target: Send + Sync + 'static {
    /// Asks once.
    fn ask(&self, question: &Question) -> impl Future<Output = Result<Answer, Declined>> + Send;
}

/// Why a server gave no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Declined {
    /// PD's REGION_NOT_FOUND header: a refusal or a miss.
    #[error("it has no answer to give")]
    NoAnswer,
    /// No connection, or an error of another kind.
    #[error("{0}")]
    Failed(String),
    /// Nothing within the time for one attempt.
    #[error("it did not answer in time")]
    Slow,
}

/// How the clients ask.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How many of them.
    pub clients: usize,
    /// How long each rests after an answer.
    pub rest: Duration,
    /// How long one lookup may take, retries included.
    pub deadline: Duration,
    /// How long one attempt may take.
    pub attempt: Duration,
}

/// What the clients share.
#[derive(Debug)]
pub struct Load<T> {
    targets: Vec<T>,
    ledger: Arc<Mutex<Ledger>>,
    tally: Mutex<Tally>,
    clock: Arc<dyn Clock>,
    pace: Pace,
    span: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            clients: 8,
            rest: Duration::from_millis(2),
            deadline: Duration::from_secs(5),
            attempt: Duration::from_secs(1),
        }
    }
}

impl<T: Target> Load<T> {
    /// A load on `targets`, the leader first, about the positions `0..span`.
    pub fn new(
        targets: Vec<T>,
        ledger: Arc<Mutex<Ledger>>,
        tally: Tally,
        clock: Arc<dyn Clock>,
        pace: Pace,
        span: u64,
    ) -> Self {
        Self {
            targets,
            ledger,
            tally: Mutex::new(tally),
            clock,
            pace,
            span,
        }
    }

    /// The counts so far.
    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        // Counts stay counts, whoever panicked over them.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks until `stop`, with all clients.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..self.pace.clients {
            clients.spawn(Arc::clone(&self).client(client, stop.clone()));
        }
        while clients.join_next().await.is_some() {}
    }

    async fn client(self: Arc<Self>, number: usize, stop: CancellationToken) {
        let mut questions = Questions::new(SmallRng::seed_from_u64(number as u64 + 1), self.span);
        for turn in number.. {
            let question = questions.next(&self.ledger());
            // A lookup under way is not abandoned: it would be one without an answer.
            self.look_up(turn % self.targets.len().max(1), &question)
                .await;
            let stopped = timeout(self.pace.rest, stop.cancelled()).await.is_ok();
            if stopped {
                return;
            }
        }
    }

    async fn look_up(&self, first: usize, question: &Question) {
        let deadline = Instant::now() + self.pace.deadline;
        let mut server = first;
        let mut pause = Duration::from_millis(10);
        loop {
            let Some(target) = self.targets.get(server) else {
                return;
            };
            let sent = self.clock.now();
            let attempt = Instant::now() + self.pace.attempt;
            let declined = match timeout_at(attempt.min(deadline), target.ask(question)).await {
                Ok(Ok(answer)) => {
                    let judged = self.ledger().judge(question, answer, sent);
                    self.tally()
                        .answered(server, question, judged, sent, self.clock.now());
                    return;
                }
                Ok(Err(declined)) => declined,
                Err(_) => Declined::Slow,
            };
            self.tally().declined(server);
            if server == LEADER {
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(200));
            }
            server = LEADER;
            if Instant::now() >= deadline {
                let deadline = self.pace.deadline;
                self.tally().unanswered(format!(
                    "no answer to {question} within {deadline:?}; the leader at last: {declined}"
                ));
                return;
            }
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A ledger is changed by whole changes only.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
