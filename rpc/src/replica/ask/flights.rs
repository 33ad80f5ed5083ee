//! Questions under way: equal ones become one, and there is an end to how many there are.
//!
//! A question is queued, then sent, then landed. Who comes while it is queued waits for it. Who comes after it was sent
//! waits for it only if it was sent at or after the newcomer's own reason to ask: an answer to an earlier question may
//! be what the newcomer knows to be wrong. Otherwise the newcomer's is a question of its own, which may be under way
//! beside the earlier one.
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
    table: Mutex<Table>,
    /// Wakes who carries points and batches.
    points: Notify,
    /// Wakes who carries scans.
    scans: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// The latest flight of each question.
    latest: HashMap<Question, Latest>,
    points: VecDeque<Flight>,
    scans: VecDeque<Flight>,
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

/// A question on its way; to be landed.
#[derive(Debug)]
pub(super) struct Flight {
    id: u64,
    pub(super) question: Question,
    outcome: watch::Sender<Option<Outcome>>,
}

impl Flight {
    /// Whether nobody waits for it any more; the table keeps one receiver for those who are to come.
    fn is_deserted(&self) -> bool {
        self.outcome.receiver_count() <= 1
    }

    fn is_scan(&self) -> bool {
        is_scan(&self.question)
    }
}

fn is_scan(question: &Question) -> bool {
    matches!(question, Question::Scan(_) | Question::BatchScan(_))
}

impl Flights {
    pub(super) fn new(bounds: Bounds, counters: Arc<AskCounters>) -> Self {
        Self {
            bounds,
            counters,
            table: Mutex::default(),
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
        let mut table = self.lock();
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
            let taken = self.lock().take_points(most);
            if !taken.is_empty() {
                return taken;
            }
            self.points.notified().await;
        }
    }

    /// The next scan to ask; waits until there is one. Cancel safe.
    pub(super) async fn next_scan(&self) -> Flight {
        loop {
            if let Some(taken) = self.lock().take_scan() {
                return taken;
            }
            self.scans.notified().await;
        }
    }

    /// Those that somebody still waits for; the others are over.
    pub(super) fn wanted(&self, flights: Vec<Flight>) -> Vec<Flight> {
        let mut table = self.lock();
        let (wanted, deserted): (Vec<_>, Vec<_>) = flights
            .into_iter()
            .partition(|flight| !flight.is_deserted());
        deserted.iter().for_each(|flight| table.close(flight));
        wanted
    }

    /// From now on only those may join whose reason is no later than `at`. To be called before the question is sent.
    pub(super) fn sent<'f>(&self, flights: impl IntoIterator<Item = &'f Flight>, at: Moment) {
        let mut table = self.lock();
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
        let mut table = self.lock();
        for (flight, outcome) in landed {
            if let Err(error) = outcome {
                self.counters.failed(error, 1);
            }
            table.close(&flight);
            flight.outcome.send_replace(Some(outcome));
        }
    }

    /// The flights of one kind that are queued.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.lock().open
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Each change of the table is whole before anything can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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
        let flight = Flight {
            id,
            question,
            outcome,
        };
        if flight.is_scan() {
            self.scans.push_back(flight);
        } else {
            self.points.push_back(flight);
        }
        wait
    }

    fn close(&mut self, flight: &Flight) {
        self.open = self.open.saturating_sub(1);
        if self
            .latest
            .get(&flight.question)
            .is_some_and(|latest| latest.id == flight.id)
        {
            self.latest.remove(&flight.question);
        }
    }

    /// Points of one kind: a question for a batch cannot ask for buckets and for none.
    fn take_points(&mut self, most: usize) -> Vec<Flight> {
        let mut taken: Vec<Flight> = Vec::new();
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
            let Some(flight) = self.points.pop_front() else {
                break;
            };
            if flight.is_deserted() {
                self.close(&flight);
                continue;
            }
            taken.push(flight);
        }
        taken
    }

    fn take_scan(&mut self) -> Option<Flight> {
        while let Some(flight) = self.scans.pop_front() {
            if !flight.is_deserted() {
                return Some(flight);
            }
            self.close(&flight);
        }
        None
    }
}
