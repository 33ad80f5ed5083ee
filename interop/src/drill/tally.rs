//! What clients have seen in a drill.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::judge::Verdict;

/// Counts of one drill, shared by its clients.
#[derive(Debug)]
pub struct Tally {
    /// What an answer may be behind.
    bound: Duration,
    figures: Mutex<Figures>,
}

/// See [`Tally`].
#[derive(Clone, Debug)]
pub struct Figures {
    /// Lookups that have come to an end.
    pub lookups: u64,
    /// Answers of the replica, by where it had them from.
    pub map: u64,
    /// See [`Figures::map`]: entries that the leader had confirmed.
    pub confirmed: u64,
    /// See [`Figures::map`]: the leader was asked.
    pub through: u64,
    /// See [`Figures::map`]: on a stream, which does not say.
    pub streamed: u64,
    /// Attempts that the replica refused, by a header or as a status.
    pub refused: u64,
    /// Attempts that the replica did not answer in the client's time.
    pub unanswered: u64,
    /// Lookups that the client then asked the leader itself.
    pub at_leader: u64,
    /// Pauses that a client made because the leader had no answer either.
    pub backoffs: u64,
    /// Lookups that came to nothing.
    pub errors: u64,
    /// Answers that were behind by more than the bound.
    pub stale: u64,
    /// Answers that were never right.
    pub wrong: u64,
    /// The longest time that an answer was behind.
    pub longest_behind: Duration,
    /// The oldest proof that an answer from the map named.
    pub oldest_proof: Duration,
    /// The longest lookup, pauses and all.
    pub slowest: Duration,
    /// The longest time without an answer from the map.
    pub without_map: Duration,
    /// One line for each of the first faults.
    pub faults: Vec<String>,
    /// When the map answered last.
    pub last_map: Instant,
    begun: Instant,
}

/// How an attempt at the replica ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the map.
    Map {
        /// The age of its proof, as the answer names it.
        age: Duration,
    },
    /// From entries that the leader has confirmed.
    Confirmed,
    /// From the leader.
    Leader,
    /// On a stream.
    Stream,
}

impl Tally {
    /// Nothing seen yet; answers may be behind by `bound`.
    pub fn new(bound: Duration) -> Self {
        Self {
            bound,
            figures: Mutex::new(Figures {
                lookups: 0,
                map: 0,
                confirmed: 0,
                through: 0,
                streamed: 0,
                refused: 0,
                unanswered: 0,
                at_leader: 0,
                backoffs: 0,
                errors: 0,
                stale: 0,
                wrong: 0,
                longest_behind: Duration::ZERO,
                oldest_proof: Duration::ZERO,
                slowest: Duration::ZERO,
                without_map: Duration::ZERO,
                faults: Vec::new(),
                last_map: Instant::now(),
                begun: Instant::now(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen so far. A time without the map that goes on counts as far as it has come.
    pub fn figures(&self) -> Figures {
        let mut figures = self.lock().clone();
        figures.without_map = figures.without_map.max(figures.last_map.elapsed());
        figures
    }

    /// Times are counted from now on.
    pub fn begin(&self) {
        let figures = &mut *self.lock();
        figures.without_map = Duration::ZERO;
        figures.slowest = Duration::ZERO;
        figures.last_map = Instant::now();
        figures.begun = figures.last_map;
    }

    /// Counts one thing.
    pub fn count(&self, count: impl FnOnce(&mut Figures)) {
        count(&mut self.lock());
    }

    /// The replica has answered.
    pub fn answered(&self, source: Source, verdict: Verdict) {
        let figures = &mut *self.lock();
        match source {
            Source::Map { age } => {
                figures.map += 1;
                figures.oldest_proof = figures.oldest_proof.max(age);
                if age > self.bound {
                    figures.stale += 1;
                    figures.fault(format!("the map answered on a proof of {age:?} ago"));
                }
                let now = Instant::now();
                figures.without_map = figures.without_map.max(now - figures.last_map);
                figures.last_map = now;
            }
            Source::Confirmed => figures.confirmed += 1,
            Source::Leader => figures.through += 1,
            Source::Stream => figures.streamed += 1,
        }
        match verdict {
            Verdict::Current => {}
            Verdict::Behind(by) => {
                figures.longest_behind = figures.longest_behind.max(by);
                if by > self.bound {
                    figures.stale += 1;
                    figures.fault(format!("stale by {by:?}, from {source:?}"));
                }
            }
            Verdict::Wrong(what) => {
                figures.wrong += 1;
                figures.fault(format!("wrong, from {source:?}: {what}"));
            }
        }
    }

    /// A lookup that began at `begun` has come to an end.
    pub fn ended(&self, begun: Instant, error: Option<String>) {
        let figures = &mut *self.lock();
        figures.lookups += 1;
        figures.slowest = figures.slowest.max(begun.elapsed());
        if let Some(error) = error {
            figures.errors += 1;
            figures.fault(format!("error after {:?}: {error}", begun.elapsed()));
        }
    }
}

impl Figures {
    /// Attempts at the replica that its map did not answer, of those that can be told apart.
    pub fn without(&self) -> u64 {
        self.confirmed + self.through + self.refused + self.unanswered
    }

    fn fault(&mut self, line: String) {
        const KEPT: usize = 5;
        if self.faults.len() < KEPT {
            let at = self.begun.elapsed().as_secs_f64();
            self.faults.push(format!("at {at:.2} s: {line}"));
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lookups: {} errors, {} stale, {} wrong, at most {} ms behind, on proofs of at most {} ms; replica: {} from the map, {} confirmed, \
             {} through, {} on the stream, {} refused, {} unanswered; {} asked of the leader by clients, {} pauses; \
             slowest lookup {} ms, longest time without the map {} ms",
            self.lookups,
            self.errors,
            self.stale,
            self.wrong,
            self.longest_behind.as_millis(),
            self.oldest_proof.as_millis(),
            self.map,
            self.confirmed,
            self.through,
            self.streamed,
            self.refused,
            self.unanswered,
            self.at_leader,
            self.backoffs,
            self.slowest.as_millis(),
            self.without_map.as_millis(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_map_that_never_answers_again_is_without_from_its_last_answer_on() {
        let second = Duration::from_secs(1);
        let tally = Tally::new(second);
        let map = Source::Map {
            age: Duration::ZERO,
        };
        tally.begin();
        for _ in 0..3 {
            tokio::time::advance(second).await;
            tally.answered(map, Verdict::Current);
        }
        assert_eq!(tally.figures().without_map, second);
        for _ in 0..5 {
            tokio::time::advance(second).await;
            tally.answered(Source::Leader, Verdict::Current);
        }
        let figures = tally.figures();
        assert_eq!(figures.without_map, 5 * second);
        assert_eq!((figures.map, figures.without()), (3, 5));
    }
}
