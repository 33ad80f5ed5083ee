//! The place where calls of PD's services come in, before anything of them is decoded.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::route::{self, Route};
use super::stores::Ask;
use super::{Gateway, nobody};
use crate::proto::pdpb::{GetMembersRequest, GetMembersResponse};
use crate::replica::serve::closed;

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

/// `pdpb.PD` and `routerpb.Router`: what is answered here reaches the inner service, the rest the leader.
#[derive(Clone)]
pub(in crate::replica) struct Front<S> {
    inner: S,
    gateway: Arc<Gateway>,
}

impl<S> Front<S> {
    pub(in crate::replica) fn new(inner: S, gateway: Arc<Gateway>) -> Self {
        Self { inner, gateway }
    }
}

impl<S> fmt::Debug for Front<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

impl<S: NamedService> NamedService for Front<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Front<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        let (mut head, body) = request.into_parts();
        if !nobody::is_grpc(&head.headers) {
            return Box::pin(ready(Ok(nobody::not_grpc())));
        }
        let route = self.gateway.route(head.uri.path(), &mut head.headers);
        match route {
            Route::HereAsFollower => route::allow_follower(&mut head.headers),
            Route::HereFromLeader => route::demand_the_leaders(&mut head.headers),
            _ => {}
        }
        let body = match route {
            // Passed on, or not taken at all.
            Route::Leader | Route::Refused(_) | Route::Unknown => body,
            _ => self.gateway.hall.let_in(&head.headers, body),
        };
        let request = http::Request::from_parts(head, body);
        match route {
            Route::Here | Route::HereAsFollower | Route::HereFromLeader => {
                Box::pin(self.inner.call(request))
            }
            Route::Leader => Box::pin(forward(Arc::clone(&self.gateway), request)),
            Route::Stores(ask) => Box::pin(stores(Arc::clone(&self.gateway), ask, request)),
            Route::Myself => Box::pin(myself(Arc::clone(&self.gateway), request)),
            Route::Refused(status) => {
                Box::pin(async move { Ok(nobody::refuse(status, request.into_body()).await) })
            }
            Route::Unknown => Box::pin(async move {
                let (head, body) = request.into_parts();
                Ok(nobody::unknown(head.uri.path(), body).await)
            }),
        }
    }
}

/// A call for which there is no handler: of one of PD's other services, or of none that there is.
pub(in crate::replica) async fn fallback(
    gateway: Arc<Gateway>,
    request: http::Request<Body>,
) -> http::Response<Body> {
    if route::is_forwarded(request.uri().path()) {
        if gateway.serving.is_closed() {
            return nobody::refuse(closed(), request.into_body()).await;
        }
        let Ok(answer) = forward(gateway, request).await;
        return answer;
    }
    let (head, body) = request.into_parts();
    nobody::unknown(head.uri.path(), body).await
}

async fn forward(
    gateway: Arc<Gateway>,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Infallible> {
    let answer = gateway.forward(request).await;
    Ok(answer.unwrap_or_else(Status::into_http))
}

async fn stores(
    gateway: Arc<Gateway>,
    ask: Ask,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Infallible> {
    Ok(gateway.stores(ask, request).await)
}

async fn myself(
    gateway: Arc<Gateway>,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Infallible> {
    Ok(Grpc::new(ProstCodec::default())
        .unary(Myself(gateway), request)
        .await)
}

struct Myself(Arc<Gateway>);

impl UnaryService<GetMembersRequest> for Myself {
    type Response = GetMembersResponse;
    type Future = Ready<Result<Response<GetMembersResponse>, Status>>;

    fn call(&mut self, _: Request<GetMembersRequest>) -> Self::Future {
        ready(self.0.myself().map(Response::new))
    }
}
