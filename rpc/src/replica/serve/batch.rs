//! A batch of QueryRegion whose answer the map may not give (F7).
//!
//! All items of a batch are answered from one snapshot. So the leader is asked for those that the snapshot lacks, or
//! that nobody vouches for, and when its answers are in the map the batch is resolved again, whole, on a new snapshot.
//! That may lack something else by then, and is repeated a few times; in the end the batch goes to the leader as it is,
//! and the answer is the leader's. All of it has one deadline: a stream answers in order, and what follows on the same
//! stream waits.
//!
//! | item | good if |
//! |---|---|
//! | a key, an id | its entry is there, meets the caller's floors, and the gate is open or the leader has confirmed it |
//! | a previous key | the same of both, the region before and the one that holds the key |
//! | any | the leader has just said that there is none |

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidegate_core::gate::{Decision, RefuseReason, Served};
use tidegate_core::{EntryRef, Moment, Snapshot};
use tokio::time::Instant;

use super::counters::{Fate, Method};
use super::demand::Demand;
use super::{Attempt, Headed, Serving, Weight, written};
use crate::lookup::{Lookup, Reach, items, size};
use crate::proto::header::ok_header;
use crate::proto::pdpb::{QueryRegionRequest, QueryRegionResponse};
use crate::proto::written::Written;
use crate::replica::ask::{Answer, Asker, Point, Question};

/// How often a batch is resolved before it goes to the leader as it is.
const ROUNDS: usize = 3;

/// A batch in work.
pub(super) struct Batch {
    pub(super) serving: Arc<Serving>,
    pub(super) asker: Arc<Asker>,
    pub(super) demand: Demand,
    pub(super) request: QueryRegionRequest,
    /// What came of the first attempt: the answer if the leader cannot be asked.
    pub(super) attempt: Attempt<Written<QueryRegionResponse>>,
}

/// What a snapshot says to a batch.
enum Look {
    /// Everything.
    Whole(QueryRegionResponse),
    /// Not these.
    Wanting(Vec<Question>),
    /// Map and gate are of different generations, or the gate has shut during the look.
    Moved,
    /// It would have too many bytes.
    TooLarge,
}

impl Batch {
    /// The answer, counted.
    pub(super) async fn resolve(self) -> Written<QueryRegionResponse> {
        let (serving, deadline) = (Arc::clone(&self.serving), self.demand.deadline());
        let answered = self.try_to(deadline).await;
        match answered {
            Ok((fate, response)) => {
                serving.note_use(&response);
                serving.counters.record(Method::QueryRegion, fate);
                written(response)
            }
            Err(attempt) => serving.settle(Method::QueryRegion, attempt).into_inner(),
        }
    }

    async fn try_to(
        mut self,
        deadline: Instant,
    ) -> Result<(Fate, QueryRegionResponse), Attempt<Written<QueryRegionResponse>>> {
        let arrived = self.serving.shared.clock.now();
        let max_age = self.serving.thresholds(&self.demand, arrived).max_age;
        let since = self.demand.since(arrived, max_age);
        let weight = Weight::of_batch(items(&self.request));
        let mut missing: HashMap<Question, Moment> = HashMap::new();
        let mut fate = Fate::Confirmed;
        for _ in 0..ROUNDS {
            let Ok(_place) = self
                .serving
                .batches
                .enter(weight, size(&self.request))
                .await
            else {
                break;
            };
            let wanting = match weight.carry(|| self.look(weight, arrived, &missing)) {
                Look::Whole(response) => return Ok((fate, response)),
                Look::Moved => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Look::TooLarge => return Err(self.attempt),
                Look::Wanting(wanting) => wanting,
            };
            drop(_place);
            fate = Fate::Asked;
            let outcomes = self.asker.ask_all(wanting.clone(), since, deadline).await;
            let now = self.serving.shared.clock.now();
            for (question, outcome) in wanting.into_iter().zip(outcomes) {
                let Ok(told) = outcome else {
                    return Err(self.attempt);
                };
                if !self.demand.allows(now.saturating_since(told.asked_at)) {
                    // The leader is too slow for this caller, and would be again.
                    return Err(Attempt::Refused(RefuseReason::Age));
                }
                match &told.answer {
                    Answer::Nothing => {
                        missing.insert(question, told.asked_at);
                    }
                    Answer::Error(header) => {
                        let response = QueryRegionResponse::default().headed(header.clone());
                        return Ok((fate, response));
                    }
                    _ => {}
                }
            }
            // One answer of the leader is all that a floor can ask for.
            self.demand.floors.clear();
        }
        let request = QueryRegionRequest {
            header: None,
            ..self.request.clone()
        };
        let outcome = self
            .asker
            .ask(Question::Batch(request), arrived, deadline)
            .await;
        let Ok(told) = outcome else {
            return Err(self.attempt);
        };
        if self.serving.age_of(told.asked_at, &self.demand).is_none() {
            return Err(Attempt::Refused(RefuseReason::Age));
        }
        match &told.answer {
            Answer::Batch(response) => Ok((Fate::Asked, response.clone())),
            _ => Err(self.attempt),
        }
    }

    fn look(&self, weight: Weight, arrived: Moment, missing: &HashMap<Question, Moment>) -> Look {
        let shared = &self.serving.shared;
        let at = shared.clock.now();
        let thresholds = self.serving.thresholds(&self.demand, at);
        let generation = shared.map.generation();
        let limits = thresholds.into();
        let served = match shared.gate.decide(generation, at, &limits) {
            Decision::Serve { age } => Some(Served {
                generation,
                at,
                age,
            }),
            Decision::Refuse(_) => None,
        };
        let snapshot = shared.map.pin();
        if snapshot.generation() != shared.gate.generation() {
            return Look::Moved;
        }
        let since = self.demand.confirmed_since(arrived, at, thresholds.max_age);
        let mut view = View {
            snapshot: &snapshot,
            demand: &self.demand,
            with_buckets: self.request.need_buckets,
            is_open: served.is_some(),
            since,
            oldest: at,
            missing,
            wanting: Vec::new(),
            listed: HashSet::new(),
        };
        view.look_at(&self.request);
        if !view.wanting.is_empty() {
            return Look::Wanting(view.wanting);
        }
        let oldest = view.oldest;
        let bounds = self.serving.batch_bounds(weight);
        let queried = Lookup::new(&snapshot).query_within(&self.request, Reach::within(bounds));
        let Ok(queried) = queried else {
            return Look::TooLarge;
        };
        let response = queried.response;
        let generation = snapshot.generation();
        drop(snapshot);
        let now = shared.clock.now();
        let recheck = |served| shared.gate.recheck(&served, generation, now, &limits);
        let stands = served.is_none_or(|served| recheck(served).is_serve());
        if stands && self.serving.age_of(oldest, &self.demand).is_some() {
            let cluster_id = shared.cluster_id().unwrap_or(0);
            Look::Whole(response.headed(ok_header(cluster_id)))
        } else {
            Look::Moved
        }
    }
}

/// A look at one snapshot.
struct View<'a> {
    snapshot: &'a Snapshot<'a>,
    demand: &'a Demand,
    with_buckets: bool,
    is_open: bool,
    since: Moment,
    /// The oldest of the leader's words that counted.
    oldest: Moment,
    missing: &'a HashMap<Question, Moment>,
    wanting: Vec<Question>,
    listed: HashSet<Question>,
}

impl View<'_> {
    fn look_at(&mut self, request: &QueryRegionRequest) {
        let snapshot = self.snapshot;
        for key in &request.keys {
            self.check(snapshot.get(key), || Point::Key(key.clone()));
        }
        for key in &request.prev_keys {
            self.check(snapshot.get(key), || Point::Key(key.clone()));
            self.check(snapshot.prev(key), || Point::Prev(key.clone()));
        }
        for id in request.ids.iter().filter(|id| **id != 0) {
            self.check(snapshot.by_id(*id), || Point::Id(*id));
        }
    }

    fn is_good(&mut self, found: EntryRef<'_>) -> bool {
        if !self.demand.is_met_by_entry(&found) {
            return false;
        }
        if self.is_open {
            return true;
        }
        let confirmed = found.confirmed_at().filter(|at| *at >= self.since);
        if let Some(at) = confirmed {
            self.oldest = self.oldest.min(at);
        }
        confirmed.is_some()
    }

    fn check(&mut self, entry: Option<EntryRef<'_>>, point: impl Fn() -> Point) {
        if entry.is_some_and(|found| self.is_good(found)) {
            return;
        }
        let question = Question::Point {
            point: point(),
            with_buckets: self.with_buckets,
        };
        // What the map still has is no miss, whatever the leader has said of it.
        let said_at = self.missing.get(&question).filter(|_| entry.is_none());
        match said_at.filter(|at| **at >= self.since) {
            Some(at) => self.oldest = self.oldest.min(*at),
            None if self.listed.insert(question.clone()) => self.wanting.push(question),
            None => {}
        }
    }
}
