//! Carries points and batches: one QueryRegion under way at a time, so that what comes meanwhile gathers for the next.
//!
//! The look at the leader key and the healing that follow an answer do not hold up the next question.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::batched::{Read, read, request_of};
use super::flights::Flight;
use super::say::{Say, Target, all, header, is_leaders, region_of};
use super::{Answer, AskError, LeaderCalls, Outcome, Point, QueryLink, Question, Told};
use crate::lookup::fit;
use crate::proto::pdpb::{
    GetRegionByIdRequest, GetRegionRequest, GetRegionResponse, QueryRegionRequest,
    QueryRegionResponse, RegionResponse,
};
use crate::replica::heal::{Asked, Said};

/// How often a batch is asked: a link may have died since its last use, and the leader may be another by now.
const ATTEMPTS: usize = 2;

pub(super) struct Points<T: LeaderCalls> {
    say: Arc<Say<T>>,
    link: Option<(Target, T::Queries)>,
    /// The leader that does not know QueryRegion, in its term.
    old: Option<Target>,
    /// For lookups one by one.
    calls: Arc<Semaphore>,
}

impl<T: LeaderCalls> Points<T> {
    pub(super) fn new(say: Arc<Say<T>>) -> Self {
        let calls = Arc::new(Semaphore::new(say.flights().bounds.calls));
        Self {
            say,
            link: None,
            old: None,
            calls,
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let say = Arc::clone(&self.say);
        let flights = say.flights();
        loop {
            let carry = async {
                let taken = flights.next_points(flights.bounds.batch).await;
                self.carry(taken).await;
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = carry => {}
            }
        }
    }

    async fn carry(&mut self, mut flights: Vec<Flight>) {
        for _ in 0..ATTEMPTS {
            flights = self.say.flights().wanted(flights);
            if flights.is_empty() {
                return;
            }
            let Some(target) = self.say.target() else {
                self.say.flights().land(all(flights, AskError::NoLeader));
                return;
            };
            if target.term.is_none() || self.old.as_ref() == Some(&target) {
                // What is left is for another leader.
                flights = self.one_by_one(flights, &target).await;
                continue;
            }
            let asked = self.say.stamp(&flights);
            let request = request_of(&flights, &target);
            let counters = &self.say.flights().counters;
            counters.batches.add(1);
            counters.batched.add(flights.len() as u64);
            match self.query(&target, request.clone()).await {
                Ok(response) => {
                    let read = read(&flights, &request, &response, &asked);
                    if read.misfit.is_some() {
                        self.link = None;
                    }
                    let answered = Answered {
                        target,
                        asked,
                        read,
                    };
                    let say = Arc::clone(&self.say);
                    tokio::spawn(answered.land(say, flights));
                    return;
                }
                Err(status) if status.code() == Code::Unimplemented => {
                    self.link = None;
                    self.old = Some(target);
                    // The next turn goes one by one.
                }
                Err(status) => {
                    tracing::debug!(%status, url = target.url, "the PD leader could not be asked");
                    self.link = None;
                }
            }
        }
        // The leader may be too old, and the second turn not have come.
        match self.say.target() {
            Some(target) if self.old.as_ref() == Some(&target) => {
                flights = self.one_by_one(flights, &target).await;
            }
            _ => {}
        }
        self.say.flights().land(all(flights, AskError::Failed));
    }

    async fn query(
        &mut self,
        target: &Target,
        request: QueryRegionRequest,
    ) -> Result<QueryRegionResponse, Status> {
        let deadline = self.say.flights().bounds.call_timeout;
        let say = Arc::clone(&self.say);
        let asking = async {
            if self.link.as_ref().is_none_or(|(of, _)| of != target) {
                let link = say.transport.queries(&target.url).await?;
                self.link = Some((target.clone(), link));
            }
            match &mut self.link {
                Some((_, link)) => link.query(request).await,
                None => Err(Status::unavailable("no link")),
            }
        };
        let answer = timeout(deadline, asking).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")))?;
        if is_leaders(answer.header.as_ref(), target) {
            return Ok(answer);
        }
        say.flights().counters.disowned.add(1);
        Err(Status::unavailable("not the leader's answer"))
    }

    /// Starts a call for each that is still wanted, and waits while too many are under way; comes back with what is left
    /// if the leader is another by then. A leader that hangs holds up each call for its whole time, and nobody should wait
    /// behind calls that are made for nobody.
    async fn one_by_one(&mut self, flights: Vec<Flight>, target: &Target) -> Vec<Flight> {
        let mut left = flights.into_iter();
        loop {
            let Ok(place) = Arc::clone(&self.calls).acquire_owned().await else {
                return left.collect();
            };
            if self.say.target().as_ref() != Some(target) {
                return left.collect();
            }
            let wanted = self.say.flights().wanted(left.next().into_iter().collect());
            let Some(flight) = wanted.into_iter().next() else {
                if left.len() == 0 {
                    return Vec::new();
                }
                continue;
            };
            let say = Arc::clone(&self.say);
            let target = target.clone();
            tokio::spawn(async move {
                let outcome = ask_one(&say, &flight, &target).await;
                say.flights().land([(flight, outcome)]);
                drop(place);
            });
        }
    }
}

/// A batch that was answered.
struct Answered {
    target: Target,
    asked: Asked,
    read: Read,
}

impl Answered {
    async fn land<T: LeaderCalls>(self, say: Arc<Say<T>>, flights: Vec<Flight>) {
        let Self {
            target,
            asked,
            read,
        } = self;
        if !say.led(&target, Instant::now()).await {
            say.flights().counters.disowned.add(1);
            say.flights().land(all(flights, AskError::Failed));
            return;
        }
        if let Some(misfit) = read.misfit {
            say.unfit(&target.url, misfit);
        }
        // The map first: whoever is told looks there.
        say.take_in(asked, read.said, None).await;
        say.flights().land(flights.into_iter().zip(read.outcomes));
    }
}

/// One lookup by itself. A member that does not lead refuses it, so that nobody has to vouch for it.
async fn ask_one<T: LeaderCalls>(say: &Arc<Say<T>>, flight: &Flight, target: &Target) -> Outcome {
    let Question::Point {
        point,
        with_buckets,
    } = &flight.question
    else {
        // A batch needs a leader that knows batches.
        return Err(AskError::Failed);
    };
    let flights = say.flights();
    flights.counters.unary.add(1);
    let asked = say.stamp(std::slice::from_ref(flight));
    let by_key = |key: &bytes::Bytes| GetRegionRequest {
        header: header(target),
        region_key: key.clone(),
        need_buckets: *with_buckets,
    };
    let (transport, url) = (&say.transport, &target.url);
    let call = async {
        match point {
            Point::Key(key) => transport.get_region(url, by_key(key)).await,
            Point::Prev(key) => transport.get_prev_region(url, by_key(key)).await,
            Point::Id(region_id) => {
                let request = GetRegionByIdRequest {
                    header: header(target),
                    region_id: *region_id,
                    need_buckets: *with_buckets,
                };
                transport.get_region_by_id(url, request).await
            }
        }
    };
    let response = match timeout(flights.bounds.call_timeout, call).await {
        Ok(Ok(response)) if is_leaders(response.header.as_ref(), target) => response,
        Ok(Ok(_)) => {
            flights.counters.disowned.add(1);
            return Err(AskError::Failed);
        }
        Ok(Err(status)) => {
            tracing::debug!(%status, url = target.url, "the PD leader could not be asked");
            return Err(AskError::Failed);
        }
        Err(_) => return Err(AskError::Failed),
    };
    let asked_at = asked.at();
    let answer = match response {
        GetRegionResponse {
            header: Some(header),
            ..
        } if header.error.is_some() => Answer::Error(header),
        GetRegionResponse {
            region,
            leader,
            down_peers,
            pending_peers,
            buckets,
            ..
        } => {
            let found = RegionResponse {
                region,
                leader,
                down_peers,
                pending_peers,
                buckets,
            };
            let fits = found.region.as_ref().map_or(Ok(()), |region| match point {
                Point::Key(key) => fit::holds(region, key),
                Point::Prev(key) => fit::precedes(region, key),
                Point::Id(id) => fit::has_id(region, *id),
            });
            fits.map_err(|misfit| say.unfit(url, misfit))?;
            let mut said = Said {
                regions: region_of(&found).into_iter().collect(),
                with_buckets: *with_buckets,
                ..Said::default()
            };
            let exists = found.region.is_some();
            match point {
                Point::Id(id) if !exists && *id != 0 => said.unknown_ids.push(*id),
                Point::Key(key) if !exists => said.unknown_keys.push((&key[..]).into()),
                _ => {}
            }
            say.take_in(asked, said, None).await;
            if exists {
                Answer::Region(found)
            } else {
                Answer::Nothing
            }
        }
    };
    Ok(Arc::new(Told { answer, asked_at }))
}
