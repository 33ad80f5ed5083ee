//! The lookups, whose answers are written while they are looked up.
//!
//! The code that is generated for a service wants messages. So these methods of both services are taken here, before it,
//! with a codec of their own; the rest goes on. The generated service has them as well, as messages: for whoever calls it
//! without a wire between.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::server::{Grpc, NamedService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tower_service::Service;

use super::Serving;
use super::checks::Rejected;
use super::demand::Demand;
use super::lookups::{BatchScan, ById, Get, Prev, Scan, Unary};
use super::query::QueryStream;
use crate::proto::pdpb::{QueryRegionRequest, QueryRegionResponse, RequestHeader};
use crate::proto::written::{Written, WrittenCodec};

/// As which service a call came in; they check it differently.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::replica) enum Face {
    /// `pdpb.PD`
    Pd,
    /// `routerpb.Router`
    Router,
}

impl Serving {
    fn check_unary(
        &self,
        face: Face,
        metadata: &MetadataMap,
        header: Option<&RequestHeader>,
    ) -> Result<(), Rejected> {
        match face {
            Face::Pd => self.check_pd(metadata, header),
            Face::Router => self.check_router(header),
        }
    }

    /// A unary lookup, from the first check on.
    pub(super) async fn unary<I: Unary>(
        self: &Arc<Self>,
        face: Face,
        request: Request<I::Request>,
    ) -> Result<Response<I::Response>, Status> {
        let (metadata, _, request) = request.into_parts();
        let inquiry = I::of(request);
        let checked = self.check_unary(face, &metadata, inquiry.header());
        let demand = checked.and_then(|()| Demand::of(&metadata));
        let demand = demand.map_err(|r| self.reject(I::METHOD, r))?;
        self.inquire(&demand, inquiry).await
    }
}

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type HttpAnswer = Answer<Result<http::Response<Body>, Infallible>>;

/// A service of which some methods are answered here.
#[derive(Clone)]
pub(in crate::replica) struct Direct<S> {
    inner: S,
    serving: Arc<Serving>,
    face: Face,
    /// The most bytes of a request.
    largest: usize,
}

impl<S> Direct<S> {
    pub(in crate::replica) fn new(
        inner: S,
        serving: Arc<Serving>,
        face: Face,
        largest: usize,
    ) -> Self {
        Self {
            inner,
            serving,
            face,
            largest,
        }
    }

    fn answering<I>(&self) -> Answering<I> {
        Answering {
            serving: Arc::clone(&self.serving),
            face: self.face,
            inquiry: PhantomData,
        }
    }

    fn unary<I: Unary>(&self, request: http::Request<Body>) -> HttpAnswer {
        let (answering, largest) = (self.answering::<I>(), self.largest);
        Box::pin(async move {
            let codec = WrittenCodec::<I::Message, I::Request>::default();
            let mut grpc = Grpc::new(codec).apply_max_message_size_config(Some(largest), None);
            Ok(grpc.unary(answering, request).await)
        })
    }

    fn query(&self, request: http::Request<Body>) -> HttpAnswer {
        let (answering, largest) = (self.answering::<QueryRegionRequest>(), self.largest);
        Box::pin(async move {
            let codec = WrittenCodec::<QueryRegionResponse, QueryRegionRequest>::default();
            let mut grpc = Grpc::new(codec).apply_max_message_size_config(Some(largest), None);
            Ok(grpc.streaming(answering, request).await)
        })
    }
}

impl<S> fmt::Debug for Direct<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct")
            .field("face", &self.face)
            .finish_non_exhaustive()
    }
}

impl<S: NamedService> NamedService for Direct<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Direct<S>
where
    S: Service<
            http::Request<Body>,
            Response = http::Response<Body>,
            Error = Infallible,
            Future = HttpAnswer,
        >,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = HttpAnswer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> HttpAnswer {
        match request.uri().path().rsplit('/').next() {
            Some("GetRegion") => self.unary::<Get>(request),
            Some("GetPrevRegion") => self.unary::<Prev>(request),
            Some("GetRegionByID") => self.unary::<ById>(request),
            Some("BatchScanRegions") => self.unary::<BatchScan>(request),
            Some("QueryRegion") => self.query(request),
            // PD's router has none.
            Some("ScanRegions") if self.face == Face::Pd => self.unary::<Scan>(request),
            _ => self.inner.call(request),
        }
    }
}

struct Answering<I> {
    serving: Arc<Serving>,
    face: Face,
    inquiry: PhantomData<fn() -> I>,
}

impl<I: Unary> UnaryService<I::Request> for Answering<I> {
    type Response = I::Response;
    type Future = Answer<Result<Response<Self::Response>, Status>>;

    fn call(&mut self, request: Request<I::Request>) -> Self::Future {
        let (serving, face) = (Arc::clone(&self.serving), self.face);
        Box::pin(async move { serving.unary::<I>(face, request).await })
    }
}

impl StreamingService<QueryRegionRequest> for Answering<QueryRegionRequest> {
    type Response = Written<QueryRegionResponse>;
    type ResponseStream = QueryStream<Streaming<QueryRegionRequest>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<QueryRegionRequest>>) -> Self::Future {
        ready(QueryStream::open(&self.serving, request))
    }
}
