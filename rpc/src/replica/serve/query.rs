//! The QueryRegion stream: batches in, answers out, one for one and in order.
//!
//! A batch is taken when there is room for its answer, so a client that does not read is not read
//! either. A batch for another cluster ends the stream with PD's FailedPrecondition, and one of
//! too many items with InvalidArgument. A heavy batch waits for room ([`room`](super::room)), and for one of
//! a few places among the answers that nobody has read yet: readers that stand still do not pile up memory. An answer of more
//! bytes than `max-scan-size` ends the stream with ResourceExhausted. What the map cannot
//! answer is resolved with the leader ([`batch`](super::batch)), within a deadline; what follows on the same stream waits
//! for it, other streams do not.
//!
//! When the server stops, the batches that have arrived are answered and the stream ends with the error of a closed
//! server, which makes clients go elsewhere.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tidegate_core::Moment;
use tokio_stream::adapters::Map;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::{Request, Response, Status, Streaming};

use super::batch::Batch;
use super::checks::Rejected;
use super::counters::{Method, Rejection};
use super::demand::Demand;
use super::room::Place;
use super::{Attempt, Found, Headed, SWAP_ATTEMPTS, Serving, Weight, message, refusal};
use crate::lookup::{Bounds, Lookup, Reach, items, size};
use crate::proto::pdpb::{QueryRegionRequest, QueryRegionResponse};
use crate::proto::written::Written;

type Entering = Pin<Box<dyn Future<Output = Result<(Place, Place), Rejected>> + Send>>;
type Resolving = Pin<Box<dyn Future<Output = Written<QueryRegionResponse>> + Send>>;
type Answer = Result<Written<QueryRegionResponse>, Status>;

/// The same with messages.
pub(in crate::replica) type Messages<R> =
    Map<QueryStream<R>, fn(Answer) -> Result<QueryRegionResponse, Status>>;

/// The answers to the batches of `requests`.
pub(in crate::replica) struct QueryStream<R> {
    serving: Arc<Serving>,
    requests: R,
    /// The batch in work, and how often it met a change of generation.
    batch: Option<(QueryRegionRequest, usize)>,
    /// When it was read.
    arrived: Option<Moment>,
    /// The place of an answer that its reader has not taken.
    unread: Place,
    /// Waits for room for that batch.
    entering: Option<Entering>,
    /// What the caller demands, for all batches.
    demand: Demand,
    /// Waits for the leader, for a batch that the map could not answer.
    resolving: Option<Resolving>,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
    ended: bool,
}

impl<R> QueryStream<R>
where
    R: Stream<Item = Result<QueryRegionRequest, Status>> + Unpin,
{
    pub(super) fn new(serving: Arc<Serving>, demand: Demand, requests: R) -> Self {
        let draining = Box::pin(serving.draining.clone().cancelled_owned());
        Self {
            serving,
            requests,
            batch: None,
            arrived: None,
            unread: None,
            entering: None,
            demand,
            resolving: None,
            draining,
            ended: false,
        }
    }

    /// The next batch, checked; an error ends the stream.
    fn poll_batch(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<QueryRegionRequest, Status>>> {
        match Pin::new(&mut self.requests).poll_next(cx) {
            Poll::Ready(Some(Ok(request))) => {
                self.arrived = Some(self.serving.shared.clock.now());
                let checked = self.serving.check_batch(&request);
                let rejected = |r| self.serving.reject(Method::QueryRegion, r);
                Poll::Ready(Some(checked.map_err(rejected).map(|()| request)))
            }
            Poll::Ready(end) => Poll::Ready(end),
            // Nothing has arrived that is not answered.
            Poll::Pending => self
                .draining
                .as_mut()
                .poll(cx)
                .map(|()| Some(Err(refusal::closed()))),
        }
    }
}

impl QueryStream<Streaming<QueryRegionRequest>> {
    /// Opens a stream, whose headers tell how fresh the map is at that moment.
    pub(super) fn open(
        serving: &Arc<Serving>,
        request: Request<Streaming<QueryRegionRequest>>,
    ) -> Result<Response<Self>, Status> {
        let demand = Demand::of(request.metadata());
        let demand = demand.map_err(|r| serving.reject(Method::QueryRegion, r))?;
        let stream = Self::new(Arc::clone(serving), demand, request.into_inner());
        Ok(serving.freshness().with(stream))
    }
}

impl<R> QueryStream<R>
where
    R: Stream<Item = Result<QueryRegionRequest, Status>> + Unpin,
{
    /// The answers as messages.
    pub(super) fn messages(self) -> Messages<R> {
        self.map(|answer| answer.map(message))
    }
}

impl<R> QueryStream<R> {
    /// The answer to the batch in work goes out, or an error in its place.
    fn answer(&mut self, answer: Answer) -> Poll<Option<Answer>> {
        if let Some(arrived) = self.arrived.take() {
            let took = self.serving.shared.clock.now().saturating_since(arrived);
            let latencies = &self.serving.counters.latencies;
            latencies.record(Method::QueryRegion, took);
        }
        self.ended = answer.is_err();
        Poll::Ready(Some(answer))
    }

    /// Room for the batch in work.
    fn poll_room(
        &mut self,
        weight: Weight,
        request: &QueryRegionRequest,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Place, Rejected>> {
        if weight == Weight::Light {
            return Poll::Ready(Ok(None));
        }
        if self.entering.is_none() {
            // Of an attempt that met a change of generation.
            self.unread = None;
        }
        let (unread, room) = (&self.serving.unread, &self.serving.batches);
        let entering = self.entering.get_or_insert_with(|| {
            let size = size(request);
            let (unread, room) = (unread.enter(weight, size), room.enter(weight, size));
            Box::pin(async move { Ok((unread.await?, room.await?)) })
        });
        let entered = ready!(entering.as_mut().poll(cx));
        self.entering = None;
        let (unread, place) = match entered {
            Ok(places) => places,
            Err(rejected) => return Poll::Ready(Err(rejected)),
        };
        self.unread = unread;
        Poll::Ready(Ok(place))
    }
}

impl<R> Stream for QueryStream<R>
where
    R: Stream<Item = Result<QueryRegionRequest, Status>> + Unpin,
{
    type Item = Answer;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        // HTTP/2 asks for the next answer once the last one has been let through by its reader's window. While a batch
        // waits, nothing is unread.
        if self.resolving.is_none() && self.batch.is_none() {
            self.unread = None;
        }
        if let Some(resolving) = &mut self.resolving {
            let response = ready!(resolving.as_mut().poll(cx));
            self.resolving = None;
            return self.answer(Ok(response));
        }
        let (request, attempts) = match self.batch.take() {
            Some(batch) => batch,
            None => match ready!(self.poll_batch(cx)) {
                Some(Ok(request)) => (request, 0),
                Some(Err(status)) => return self.answer(Err(status)),
                None => {
                    self.ended = true;
                    return Poll::Ready(None);
                }
            },
        };
        let weight = Weight::of_batch(items(&request));
        let _place = match self.poll_room(weight, &request, cx) {
            Poll::Ready(Ok(place)) => place,
            Poll::Ready(Err(rejected)) => {
                let status = self.serving.reject(Method::QueryRegion, rejected);
                return self.answer(Err(status));
            }
            Poll::Pending => {
                self.batch = Some((request, attempts));
                return Poll::Pending;
            }
        };
        let demand = &self.demand;
        let attempt = weight.carry(|| {
            let bounds = self.serving.batch_bounds(weight);
            self.serving
                .attempt(demand, |lookup| batch(lookup, &request, bounds))
        });
        if matches!(attempt, Attempt::Swapped) && attempts < SWAP_ATTEMPTS {
            self.batch = Some((request, attempts + 1));
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let attempt = match attempt {
            Attempt::Found(Found::Unfinished(error), _) => {
                let status = Status::resource_exhausted(error.to_string());
                let rejected = (Rejection::TooLarge, status);
                let status = self.serving.reject(Method::QueryRegion, rejected);
                return self.answer(Err(status));
            }
            Attempt::Found(Found::Answer(answer), fresh) if answer.meets(demand) => {
                let attempt = Attempt::Found(Found::Answer(answer), fresh);
                let response = self.serving.settle(Method::QueryRegion, attempt);
                return self.answer(Ok(response.into_inner()));
            }
            Attempt::Found(Found::Answer(_), fresh) => Attempt::Found(Found::Nothing, fresh),
            attempt => attempt,
        };
        let Some(asker) = self.serving.asker(demand) else {
            let response = self.serving.settle(Method::QueryRegion, attempt);
            return self.answer(Ok(response.into_inner()));
        };
        let work = Batch {
            serving: Arc::clone(&self.serving),
            asker: Arc::clone(asker),
            demand: demand.clone(),
            request,
            attempt,
        };
        self.resolving = Some(Box::pin(work.resolve()));
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A batch of QueryRegion: one miss, and there is no answer to the batch. An item left out would
/// say that there is no such region.
fn batch(
    lookup: &Lookup<'_, '_>,
    request: &QueryRegionRequest,
    bounds: Bounds,
) -> Found<Written<QueryRegionResponse>> {
    match lookup.query_whole(request, Reach::within(bounds)) {
        Ok(Some(answer)) => Found::Answer(answer),
        Ok(None) => Found::Nothing,
        Err(error) => Found::Unfinished(error),
    }
}

impl<R> fmt::Debug for QueryStream<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryStream")
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
