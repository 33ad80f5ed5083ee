//! What the lookups came to.

use std::time::Duration;

use tidegate_core::Moment;

use super::LEADER;
use crate::playground::judge::{Bounds, NeverHeld, Question, Verdict};

/// How many errors are kept in words.
const EXAMPLES: usize = 3;
/// How long one of them may be. What a server says can be of any length.
const EXAMPLE: usize = 240;

/// What one server's answers came to.
#[derive(Clone, Debug, Default)]
pub struct ServerTally {
    /// Lookups that it answered.
    pub answered: u64,
    /// Times that it did not answer: a refusal, a miss, or no connection.
    pub declined: u64,
    /// Items of its answers with any age.
    pub behind: u64,
    /// Items with an age above the bounds.
    pub stale: u64,
    /// When its first answer arrived that was sent for after the fault and was not behind.
    pub recovered_at: Option<Moment>,
}

/// What all answers came to.
#[derive(Clone, Debug)]
pub struct Tally {
    bounds: Bounds,
    /// By server, in the order of the load's targets.
    pub servers: Vec<ServerTally>,
    /// Lookups that ended, one way or the other.
    pub lookups: u64,
    /// Judged items: each region of an answer, and each absence that it claims.
    pub checked: u64,
    /// Lookups without an answer within the deadline, or with one that the leader's map never held.
    pub errors: u64,
    /// Of these, those without an answer.
    pub unanswered: u64,
    /// The first of the errors, in a line each.
    pub examples: Vec<String>,
    /// Items with any age.
    pub behind: u64,
    /// Items with an age above the bounds.
    pub stale: u64,
    /// The greatest age of a stale item.
    pub stale_max_age: Duration,
    /// The greatest age of any item.
    pub behind_max_age: Duration,
    /// The largest number of changes that an item was behind by.
    pub max_behind_changes: u64,
    /// Answers whose items were each true, but never all at one moment; errors unless that is tolerated.
    pub torn: u64,
    tolerates_torn: bool,
    fault_ended: Option<Moment>,
}

impl Tally {
    /// Nothing asked yet, of this many servers.
    pub fn new(bounds: Bounds, servers: usize) -> Self {
        Self {
            bounds,
            servers: vec![ServerTally::default(); servers],
            lookups: 0,
            checked: 0,
            errors: 0,
            unanswered: 0,
            examples: Vec::new(),
            behind: 0,
            stale: 0,
            stale_max_age: Duration::ZERO,
            behind_max_age: Duration::ZERO,
            max_behind_changes: 0,
            torn: 0,
            tolerates_torn: false,
            fault_ended: None,
        }
    }

    /// The same, for servers that read through: what they answer from confirmed entries, or from a map that the
    /// leader's answers have healed, holds each region as the leader had it, though not all at one moment. Each is judged
    /// by its own age.
    #[must_use]
    pub fn tolerating_torn(mut self, tolerates: bool) -> Self {
        self.tolerates_torn = tolerates;
        self
    }

    /// From when on answers count as a recovery.
    pub fn fault_ended(&mut self, at: Moment) {
        self.fault_ended = Some(at);
        for server in &mut self.servers {
            server.recovered_at = None;
        }
    }

    /// How long after the fault each of `servers` was back; none while one is not, or without a fault.
    pub fn time_to_recover(&self, servers: &[usize]) -> Option<Duration> {
        let ended = self.fault_ended?;
        let times = servers
            .iter()
            .map(|at| Some(self.servers.get(*at)?.recovered_at?.saturating_since(ended)));
        times.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// The share of lookups that the first server, the leader, answered.
    pub fn leader_share(&self) -> f64 {
        let all: u64 = self.servers.iter().map(|server| server.answered).sum();
        let leader = self.servers.first().map_or(0, |server| server.answered);
        if all == 0 {
            0.0
        } else {
            leader as f64 / all as f64
        }
    }

    /// A server gave no answer.
    pub fn declined(&mut self, server: usize) {
        if let Some(server) = self.servers.get_mut(server) {
            server.declined += 1;
        }
    }

    /// A server gave an answer to a `question` that was sent at `sent`, and it has been judged.
    pub fn answered(
        &mut self,
        server: usize,
        question: &Question,
        judged: Result<Verdict, NeverHeld>,
        sent: Moment,
        now: Moment,
    ) {
        self.lookups += 1;
        let verdict = match judged {
            Ok(verdict) => verdict,
            Err(NeverHeld::Torn(_, verdict)) if self.tolerates_torn => {
                self.torn += 1;
                verdict
            }
            Err(never) => {
                self.wrong(format!("{} to {question}: {never}", name(server)));
                Vec::new()
            }
        };
        let before = (self.behind, self.stale);
        let current = !verdict.is_empty() && verdict.iter().all(Option::is_none);
        self.checked += verdict.len() as u64;
        for late in verdict.into_iter().flatten() {
            self.behind += 1;
            self.behind_max_age = self.behind_max_age.max(late.age);
            self.max_behind_changes = self.max_behind_changes.max(late.changes);
            if late.age > self.bounds.stale_after() {
                self.stale += 1;
                self.stale_max_age = self.stale_max_age.max(late.age);
            }
        }
        let Some(server) = self.servers.get_mut(server) else {
            return;
        };
        server.answered += 1;
        server.behind += self.behind - before.0;
        server.stale += self.stale - before.1;
        if current && self.fault_ended.is_some_and(|ended| sent >= ended) {
            server.recovered_at.get_or_insert(now);
        }
    }

    /// No server gave an answer within the deadline.
    pub fn unanswered(&mut self, why: String) {
        self.lookups += 1;
        self.unanswered += 1;
        self.wrong(why);
    }

    fn wrong(&mut self, why: String) {
        self.errors += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(one_line(&why));
        }
    }
}

/// What a server is called in words, by its place among the targets.
fn name(server: usize) -> String {
    match server {
        LEADER => "leader".to_owned(),
        number => format!("replica-{number}"),
    }
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(EXAMPLE) {
        Some((at, _)) => format!("{}..", &line[..at]),
        None => line,
    }
}
