//! Answers to heavy scans that their readers have not taken.
//!
//! Such an answer lies in memory until its reader's window has let it through. So there are places for a few, and an
//! answer keeps its place until its body has ended or its caller has gone: readers that stand still do not pile up
//! memory. The place travels from the lookup to the body in the extensions of the response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use tonic::body::Body;

/// The place of an answer.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    _place: Arc<OwnedSemaphorePermit>,
}

impl Unread {
    pub(super) fn new(place: OwnedSemaphorePermit) -> Self {
        Self {
            _place: Arc::new(place),
        }
    }
}

/// Lets a body keep the place that its response has, if it has one.
pub(super) fn keep_place(mut response: http::Response<Body>) -> http::Response<Body> {
    match response.extensions_mut().remove::<Unread>() {
        Some(place) => response.map(|body| {
            Body::new(Kept {
                body,
                _place: place,
            })
        }),
        None => response,
    }
}

struct Kept {
    body: Body,
    _place: Unread,
}

impl http_body::Body for Kept {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
