//! A unary lookup whose answer the map may not give: from confirmed entries, else from the leader (F7).
//!
//! | the map | then |
//! |---|---|
//! | has an answer and the gate is open | that, unless it falls below the caller's floor or passes over a hole |
//! | the gate is shut | entries that the leader has confirmed within `max-age`, if the answer rests on nothing else |
//! | anything else | the leader is asked; its answer is passed on as it is, an error or a miss included |
//! | the leader cannot be asked, or not in time for the caller's bound | what the map has, if that is an answer; else a refusal |
//!
//! Where nobody may be asked (`when-stale = refuse`, or the caller is a replica itself), the last line is all there is,
//! and an answer below the floor is none.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Moment, Snapshot};
use tonic::{Response, Status};

use super::counters::{Fate, Method, Rejection};
use super::demand::Demand;
use super::evidence::Evidence;
use super::fresh::Fresh;
use super::unread::Unread;
use super::{Attempt, Found, Headed, Serving, Weight};
use crate::lookup::{Gone, Lookup, Reach};
use crate::proto::header::ok_header;
use crate::replica::ask::{Answer, Question};

/// A unary lookup.
pub(super) trait Inquiry: Send + Sync + 'static {
    type Response: Headed + Send + 'static;
    const METHOD: Method;

    fn weight(&self) -> Weight {
        Weight::Light
    }

    /// Bytes that it takes while it waits for room, beyond the few of any.
    fn size(&self) -> usize {
        0
    }

    /// The answer from the map, within reach.
    fn lookup(
        &self,
        lookup: &Lookup<'_, '_>,
        cluster_id: u64,
        reach: Reach<'_>,
    ) -> Found<Self::Response>;

    /// What that answer rests on.
    fn evidence(&self, snapshot: &Snapshot<'_>, evidence: &mut Evidence);

    /// Whether the answer keeps silent about keys that were asked for.
    fn passes_over_a_hole(&self, _: &Self::Response) -> bool {
        false
    }

    /// The question to the leader.
    fn question(&self) -> Question;

    /// The leader's answer; `None` if it answers something else.
    fn read(&self, answer: &Answer, cluster_id: u64) -> Option<Self::Response>;
}

/// What the map said to an inquiry.
struct Looked<I: Inquiry> {
    inquiry: I,
    attempt: Attempt<I::Response>,
    /// What the leader has confirmed, where the gate does not let the map answer.
    confirmed: Option<(I::Response, Fresh)>,
}

impl Serving {
    /// Answers a lookup, with everything behind the first checks. ResourceExhausted if it is heavy and there is no room,
    /// or if the answer would be larger than one may be.
    pub(super) async fn inquire<I: Inquiry>(
        self: &Arc<Self>,
        demand: &Demand,
        inquiry: I,
    ) -> Result<Response<I::Response>, Status> {
        if inquiry.weight() == Weight::Light {
            return self.answer_to(demand, inquiry).await;
        }
        let unread = self.unread_scans.enter(Weight::Heavy, inquiry.size()).await;
        let unread = unread.map_err(|r| self.reject(I::METHOD, r))?;
        let mut answer = self.answer_to(demand, inquiry).await?;
        if let Some(place) = unread {
            answer.extensions_mut().insert(Unread::new(place));
        }
        Ok(answer)
    }

    async fn answer_to<I: Inquiry>(
        self: &Arc<Self>,
        demand: &Demand,
        inquiry: I,
    ) -> Result<Response<I::Response>, Status> {
        let method = I::METHOD;
        let arrived = self.shared.clock.now();
        let cluster_id = self.shared.cluster_id().unwrap_or(0);
        let looked = match inquiry.weight() {
            Weight::Light => self.look(demand, inquiry, cluster_id).await,
            Weight::Heavy => self.look_elsewhere(demand, inquiry, cluster_id).await?,
        };
        let Looked {
            inquiry,
            attempt,
            confirmed,
        } = looked;
        if let Attempt::Found(Found::Unfinished(error), _) = attempt {
            let status = Status::resource_exhausted(error.to_string());
            return Err(self.reject(method, (Rejection::TooLarge, status)));
        }
        let attempt = match attempt {
            Attempt::Found(Found::Answer(response), fresh) => {
                let is_high = response.meets(demand);
                let is_whole =
                    || self.asker(demand).is_none() || !inquiry.passes_over_a_hole(&response);
                if is_high && is_whole() {
                    let found = Found::Answer(response);
                    return Ok(self.settle(method, Attempt::Found(found, fresh)));
                }
                // What passes over a hole is an answer still, if nobody knows better.
                let found = if is_high {
                    Found::Answer(response)
                } else {
                    Found::Nothing
                };
                Attempt::Found(found, fresh)
            }
            Attempt::Found(found @ Found::Invalid(_), fresh) => {
                return Ok(self.settle(method, Attempt::Found(found, fresh)));
            }
            attempt => attempt,
        };
        let Some(asker) = self.asker(demand) else {
            return Ok(self.settle(method, attempt));
        };
        if let Some((response, fresh)) = confirmed {
            self.note_use(&response);
            self.counters.record(method, Fate::Confirmed);
            return Ok(fresh.with(response.headed(ok_header(cluster_id))));
        }
        let looked_at = self.shared.clock.now();
        let max_age = self.thresholds(demand, arrived).max_age;
        let since = demand.since(arrived, max_age);
        let outcome = asker
            .ask(inquiry.question(), since, demand.deadline())
            .await;
        let told = outcome.ok();
        let told = told.and_then(|told| Some((self.age_of(told.asked_at, demand)?, told)));
        let Some((age, told)) = told else {
            let waited = self.shared.clock.now().saturating_since(looked_at);
            return Ok(self.settle(method, attempt.aged(waited, max_age)));
        };
        if let Answer::Status(status) = &told.answer {
            self.counters.record(method, Fate::Asked);
            let mut status = status.clone();
            Fresh::Leader { age }.note(status.metadata_mut());
            return Err(status);
        }
        let Some(response) = inquiry.read(&told.answer, cluster_id) else {
            return Ok(self.settle(method, attempt));
        };
        self.note_use(&response);
        self.counters.record(method, Fate::Asked);
        Ok(Fresh::Leader { age }.with(response))
    }

    /// How old the leader's answer to a question sent at `asked_at` is; `None` if it is too old for the caller, since the
    /// leader is slow, or for anybody: a process that was stopped meanwhile must not pass on what was fresh before.
    pub(super) fn age_of(&self, asked_at: Moment, demand: &Demand) -> Option<Duration> {
        let now = self.shared.clock.now();
        let age = now.saturating_since(asked_at);
        (age <= self.shared.limits(now).max_age && demand.allows(age)).then_some(age)
    }

    /// Looks at the map, here and now.
    async fn look<I: Inquiry>(&self, demand: &Demand, inquiry: I, cluster_id: u64) -> Looked<I> {
        let reach = || Reach::within(self.scan_bounds);
        let lookup = |lookup: &Lookup<'_, '_>| inquiry.lookup(lookup, cluster_id, reach());
        let attempt = self.local(demand, lookup).await;
        let confirmed = if attempt.is_shut() && self.asker(demand).is_some() {
            self.confirmed(demand, &inquiry, cluster_id, reach())
        } else {
            None
        };
        Looked {
            inquiry,
            attempt,
            confirmed,
        }
    }

    /// The same where it may take long: on a thread that is there for such work, which stops soon after the caller has
    /// gone, or its deadline has passed (both drop this). One snapshot is held meanwhile: regions from different moments
    /// could overlap, and nobody could tell.
    async fn look_elsewhere<I: Inquiry>(
        self: &Arc<Self>,
        demand: &Demand,
        inquiry: I,
        cluster_id: u64,
    ) -> Result<Looked<I>, Status> {
        let place = self.scans.enter(Weight::Heavy, inquiry.size()).await;
        let place = place.map_err(|r| self.reject(I::METHOD, r))?;
        let gone = Gone::default();
        let _waiting = gone.waiting();
        let (serving, demand) = (Arc::clone(self), demand.clone());
        let work = move || {
            let _place = place;
            let reach = || Reach::while_awaited(serving.scan_bounds, &gone);
            let lookup = |lookup: &Lookup<'_, '_>| inquiry.lookup(lookup, cluster_id, reach());
            let attempt = serving.local_blocking(&demand, lookup);
            let confirmed = if attempt.is_shut() && serving.asker(&demand).is_some() {
                serving.confirmed(&demand, &inquiry, cluster_id, reach())
            } else {
                None
            };
            Looked {
                inquiry,
                attempt,
                confirmed,
            }
        };
        let looked = tokio::task::spawn_blocking(work).await;
        looked.map_err(|_| Status::internal("the lookup has failed; report what was logged"))
    }

    /// An answer that rests on nothing but entries that the leader has confirmed lately enough.
    fn confirmed<I: Inquiry>(
        &self,
        demand: &Demand,
        inquiry: &I,
        cluster_id: u64,
        reach: Reach<'_>,
    ) -> Option<(I::Response, Fresh)> {
        let shared = &self.shared;
        let now = shared.clock.now();
        let max_age = self.thresholds(demand, now).max_age;
        let snapshot = shared.map.pin();
        if snapshot.generation() != shared.gate.generation() {
            return None;
        }
        let since = now.as_nanos().saturating_sub(nanos(max_age)).max(1);
        let mut evidence = Evidence::since(Moment::from_nanos(since), now);
        inquiry.evidence(&snapshot, &mut evidence);
        let oldest = evidence.oldest()?;
        let found = inquiry.lookup(&Lookup::new(&snapshot), cluster_id, reach);
        drop(snapshot);
        let Found::Answer(response) = found else {
            return None;
        };
        // Once more, for a process that was stopped in between.
        let age = shared.clock.now().saturating_since(oldest);
        let is_good = age <= max_age && response.meets(demand);
        is_good.then_some((response, Fresh::Confirmed { age }))
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
