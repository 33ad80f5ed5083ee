//! Questions under way: equal ones become one, and there is an end to how many there are.
//!
//! A question is queued, then sent, then landed. Who comes while it is queued waits for it. Who comes after it was sent
//! waits for it only if it was sent at or after the newcomer's own reason to ask: an answer to an earlier question may
//! be what the newcomer knows to be wrong. Otherwise the newcomer's is a question of its own, which may be under way
//! beside the earlier one.
//!
//! A flight that is dropped without having been landed has failed, whether whoever carried it was stopped or has panicked:
//! it gives its place back, and those who wait for it are told.
//!
//! One lock guards the table, held for moments and never across a wait.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::Moment;
use tokio::sync::{Notify, watch};

use super::{AskCounters, AskError, Bounds, Outcome, Question};

/// What a waiter waits on.
pub(super) type Wait = watch::Receiver<Option<Outcome>>;

/// A place among those who wait for a flight.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) wait: Wait,
    /// The question of one who came after the flight was sent: a failure of that flight is not its own, and it may ask
    /// again.
    pub(super) late: Option<Question>,
}

#[derive(Debug)]
pub(super) struct Flights {
    pub(super) bounds: Bounds,
    pub(super) counters: Arc<AskCounters>,
    table: Arc<Mutex<Table>>,
    /// Wakes who carries points and batches.
    points: Notify,
    /// Wakes who carries scans.
    scans: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// The latest flight of each question.
    latest: HashMap<Question, Latest>,
    points: VecDeque<Queued>,
    scans: VecDeque<Queued>,
    /// Flights that are queued or sent.
    open: usize,
    last_id: u64,
}

#[derive(Debug)]
struct Latest {
    id: u64,
    sent_at: Option<Moment>,
    wait: Wait,
}

/// A question that has not been taken up.
#[derive(Debug)]
struct Queued {
    id: u64,
    question: Question,
    outcome: watch::Sender<Option<Outcome>>,
}

/// A question on its way; to be landed. Not to be dropped while the table is locked.
#[derive(Debug)]
pub(super) struct Flight {
    id: u64,
    pub(super) question: Question,
    outcome: watch::Sender<Option<Outcome>>,
    landed: bool,
    table: Arc<Mutex<Table>>,
    counters: Arc<AskCounters>,
}

/// Whether nobody waits for an outcome any more; the table keeps one receiver for those who are to come.
fn is_deserted(outcome: &watch::Sender<Option<Outcome>>) -> bool {
    outcome.receiver_count() <= 1
}

impl Flight {
    /// Tells all who wait.
    fn land(&mut self, outcome: Outcome) {
        if let Err(error) = outcome {
            self.counters.failed(error, 1);
        }
        self.landed = true;
        lock(&self.table).close(self.id, &self.question);
        self.outcome.send_replace(Some(outcome));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.landed {
            return;
        }
        if is_deserted(&self.outcome) {
            lock(&self.table).close(self.id, &self.question);
        } else {
            self.land(Err(AskError::Failed));
        }
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    // Each change of the table is whole before anything can panic.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_scan(question: &Question) -> bool {
    matches!(question, Question::Scan(_) | Question::BatchScan(_))
}

impl Flights {
    pub(super) fn new(bounds: Bounds, counters: Arc<AskCounters>) -> Self {
        Self {
            bounds,
            counters,
            table: Arc::default(),
            points: Notify::new(),
            scans: Notify::new(),
        }
    }

    /// Waits for all of `questions`, or for none if there is no room for those that are not asked yet.
    pub(super) fn join(
        &self,
        questions: Vec<Question>,
        since: Moment,
    ) -> Result<Vec<Joined>, AskError> {
        let mut table = lock(&self.table);
        let joins = |latest: &Latest| latest.sent_at.is_none_or(|sent_at| sent_at >= since);
        let new = questions
            .iter()
            .filter(|question| !table.latest.get(question).is_some_and(joins));
        if table.open + new.count() > self.bounds.waiting {
            return Err(AskError::Overflow);
        }
        self.counters.asked.add(questions.len() as u64);
        let mut waits = Vec::with_capacity(questions.len());
        for question in questions {
            if let Some(latest) = table.latest.get(&question).filter(|latest| joins(latest)) {
                self.counters.coalesced.add(1);
                waits.push(Joined {
                    wait: latest.wait.clone(),
                    late: latest.sent_at.is_some().then_some(question),
                });
                continue;
            }
            let wake = if is_scan(&question) {
                &self.scans
            } else {
                &self.points
            };
            waits.push(Joined {
                wait: table.open(question),
                late: None,
            });
            wake.notify_one();
        }
        Ok(waits)
    }

    /// The next points to ask, `most` at most, or one batch alone; waits until there are any. Cancel safe.
    pub(super) async fn next_points(&self, most: usize) -> Vec<Flight> {
        loop {
            let taken = lock(&self.table).take_points(most);
            if !taken.is_empty() {
                return taken.into_iter().map(|next| self.flight(next)).collect();
            }
            self.points.notified().await;
        }
    }

    /// The next scan to ask; waits until there is one. Cancel safe.
    pub(super) async fn next_scan(&self) -> Flight {
        loop {
            let taken = lock(&self.table).take_scan();
            if let Some(taken) = taken {
                return self.flight(taken);
            }
            self.scans.notified().await;
        }
    }

    fn flight(&self, queued: Queued) -> Flight {
        Flight {
            id: queued.id,
            question: queued.question,
            outcome: queued.outcome,
            landed: false,
            table: Arc::clone(&self.table),
            counters: Arc::clone(&self.counters),
        }
    }

    /// Those that somebody still waits for; the others are over.
    pub(super) fn wanted(&self, mut flights: Vec<Flight>) -> Vec<Flight> {
        flights.retain(|flight| !is_deserted(&flight.outcome));
        flights
    }

    /// From now on only those may join whose reason is no later than `at`. To be called before the question is sent.
    pub(super) fn sent<'f>(&self, flights: impl IntoIterator<Item = &'f Flight>, at: Moment) {
        let mut table = lock(&self.table);
        for flight in flights {
            if let Some(latest) = table.latest.get_mut(&flight.question)
                && latest.id == flight.id
            {
                latest.sent_at = Some(at);
            }
        }
    }

    /// Tells all who wait.
    pub(super) fn land(&self, landed: impl IntoIterator<Item = (Flight, Outcome)>) {
        for (mut flight, outcome) in landed {
            flight.land(outcome);
        }
    }

    /// The flights that are queued or sent.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        lock(&self.table).open
    }
}

impl Table {
    fn open(&mut self, question: Question) -> Wait {
        self.last_id += 1;
        self.open += 1;
        let id = self.last_id;
        let (outcome, wait) = watch::channel(None);
        let latest = Latest {
            id,
            sent_at: None,
            wait: wait.clone(),
        };
        self.latest.insert(question.clone(), latest);
        let queue = if is_scan(&question) {
            &mut self.scans
        } else {
            &mut self.points
        };
        queue.push_back(Queued {
            id,
            question,
            outcome,
        });
        wait
    }

    fn close(&mut self, id: u64, question: &Question) {
        self.open = self.open.saturating_sub(1);
        let latest = self.latest.get(question);
        if latest.is_some_and(|latest| latest.id == id) {
            self.latest.remove(question);
        }
    }

    /// Points of one kind: a question for a batch cannot ask for buckets and for none.
    fn take_points(&mut self, most: usize) -> Vec<Queued> {
        let mut taken: Vec<Queued> = Vec::new();
        while taken.len() < most {
            let Some(next) = self.points.front() else {
                break;
            };
            let joins = match (taken.first().map(|first| &first.question), &next.question) {
                (None, _) => true,
                (
                    Some(Question::Point {
                        with_buckets: first,
                        ..
                    }),
                    Question::Point {
                        with_buckets: next, ..
                    },
                ) => first == next,
                _ => false,
            };
            if !joins {
                break;
            }
            let Some(next) = self.points.pop_front() else {
                break;
            };
            if is_deserted(&next.outcome) {
                self.close(next.id, &next.question);
                continue;
            }
            taken.push(next);
        }
        taken
    }

    fn take_scan(&mut self) -> Option<Queued> {
        while let Some(next) = self.scans.pop_front() {
            if !is_deserted(&next.outcome) {
                return Some(next);
            }
            self.close(next.id, &next.question);
        }
        None
    }
}
