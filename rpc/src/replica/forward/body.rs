//! The two bodies of a forwarded call.
//!
//! Frames go through as they are and only when the other side takes them, so that a caller who does not read makes
//! the leader wait and nobody else. A connection that breaks in the middle becomes trailers with a status: cut without
//! them, the caller would have to guess. When the answer has ended, the question ends too, although its caller may have
//! left it open: nobody hears it any more.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tonic::body::Body;
use tonic::{Code, Status};

use super::Gateway;
use super::leader::Reign;
use crate::replica::state::PdView;

/// How long a call may go on once the replica stops.
const LAST_WORD: Duration = Duration::from_millis(500);

/// Why a call ends here although the leader has not ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Another reign has begun.
    Deposed,
    /// This replica stops.
    Stopping,
}

/// Waits for a reason to end a call.
pub(super) struct Ending(Pin<Box<dyn Future<Output = End> + Send>>);

impl Ending {
    pub(super) fn new(
        reign: Reign,
        mut pd: watch::Receiver<Option<Arc<PdView>>>,
        draining: CancellationToken,
    ) -> Self {
        let deposed = async move {
            // An error means that nobody watches PD any more; stopping has its own sign.
            if pd
                .wait_for(|pd| reign.is_over(pd.as_deref()))
                .await
                .is_err()
            {
                std::future::pending::<()>().await;
            }
        };
        let stopping = async move {
            draining.cancelled().await;
            tokio::time::sleep(LAST_WORD).await;
        };
        Self(Box::pin(async move {
            tokio::select! {
                () = deposed => End::Deposed,
                () = stopping => End::Stopping,
            }
        }))
    }

    /// Not to be called again after it has returned. Cancel safe.
    pub(super) async fn wait(&mut self) -> End {
        self.0.as_mut().await
    }
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").finish_non_exhaustive()
    }
}

/// The body of an answer that is passed back.
#[derive(Debug)]
pub(super) struct Passing {
    /// `None` once it has ended.
    body: Option<Body>,
    ending: Ending,
    /// Ends the question.
    question: Option<DropGuard>,
    gateway: Arc<Gateway>,
    url: String,
}

impl Passing {
    pub(super) fn new(
        body: Body,
        ending: Ending,
        question: DropGuard,
        gateway: Arc<Gateway>,
        url: String,
    ) -> Self {
        Self {
            body: Some(body),
            ending,
            question: Some(question),
            gateway,
            url,
        }
    }

    fn end(&mut self) {
        self.body = None;
        self.question = None;
    }

    /// Ends the body with a status.
    fn end_with(&mut self, status: &Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.end();
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(match status.add_header(&mut trailers) {
            Ok(()) => Ok(Frame::trailers(trailers)),
            Err(status) => Err(status),
        }))
    }
}

impl http_body::Body for Passing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(end) = this.ending.0.as_mut().poll(cx) {
            let status = this.gateway.ended(end);
            return this.end_with(&status);
        }
        match Pin::new(body).poll_frame(cx) {
            Poll::Ready(Some(Err(status))) => {
                this.gateway.counters.broken.add(1);
                let status = broken(&this.url, status);
                this.end_with(&status)
            }
            Poll::Ready(None) => {
                this.end();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(frame))) => {
                if frame.is_trailers() {
                    this.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

/// The body of a question that is passed on; it breaks off when the answer has ended.
#[derive(Debug)]
pub(super) struct Asking {
    body: Body,
    answered: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Asking {
    /// The body and what ends it when dropped.
    pub(super) fn new(body: Body) -> (Self, DropGuard) {
        let answered = CancellationToken::new();
        let question = Self {
            body,
            answered: Box::pin(answered.clone().cancelled_owned()),
        };
        (question, answered.drop_guard())
    }
}

impl http_body::Body for Asking {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.answered.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(Status::cancelled("the call has ended"))));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The status of a call whose connection failed. What the other side said itself stays; what nobody said is that it
/// cannot be reached.
pub(super) fn broken(url: &str, status: Status) -> Status {
    match status.code() {
        // The transport's word for a deadline that passed.
        Code::Cancelled if status.message() == "Timeout expired" => {
            Status::deadline_exceeded("the PD leader did not answer in time")
        }
        Code::Unknown | Code::Internal | Code::Unavailable => Status::unavailable(format!(
            "no leader: the connection to {url} failed: {}",
            status.message()
        )),
        _ => status,
    }
}
