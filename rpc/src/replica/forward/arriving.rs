//! Requests that are still arriving.
//!
//! A message is held until all of it is there, and a client may have any number of calls open: one that announces large
//! messages and never ends them would take all memory. So what is held of unfinished messages, beyond the little that
//! any call may have, is bounded for all callers together, and a message that has begun has to end within [`PATIENCE`].
//! Lookups are a few hundred bytes and never come near. Metadata beyond what HTTP/2 usually allows counts as well, until
//! its request has arrived: floors may fill 64 KiB.
//!
//! A message that announces more than the largest may have ends its call with ResourceExhausted, as gRPC's servers in Go
//! do, whose clients look for that: the codec behind this would say OutOfRange. What came before it on the same stream is
//! let through first.
//!
//! Calls that are passed on are not held here: their bytes go at the pace of the leader.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

/// What each call may have without being counted.
const FREE: usize = 4 << 10;
/// The same of metadata.
const USUAL: usize = 16 << 10;
/// What HTTP/2 adds to the length of each pair of metadata.
const PAIR: usize = 32;
/// How many of the largest messages may be arriving at once.
const LARGEST_AT_ONCE: usize = 16;
/// How long a message may take that is larger than what is free.
const PATIENCE: Duration = Duration::from_secs(30);
/// What gRPC puts before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// What all calls have together.
#[derive(Clone, Debug)]
pub(in crate::replica) struct Hall(Arc<Held>);

#[derive(Debug)]
struct Held {
    bytes: AtomicUsize,
    most: usize,
    /// Of one message.
    largest: usize,
}

impl Hall {
    /// For messages of so many bytes at most.
    pub(in crate::replica) fn new(largest: usize) -> Self {
        Self(Arc::new(Held {
            bytes: AtomicUsize::new(0),
            most: largest.saturating_mul(LARGEST_AT_ONCE),
            largest,
        }))
    }

    /// Counts what a call with these headers holds, and what its `body` brings.
    pub(super) fn let_in(&self, headers: &HeaderMap, body: Body) -> Body {
        let pairs = headers.iter();
        let size = pairs.map(|(name, value)| name.as_str().len() + value.len() + PAIR);
        Body::new(Arriving {
            body,
            metadata: Some(size.sum::<usize>())
                .filter(|size| *size > USUAL)
                .unwrap_or(0),
            message: Message::default(),
            taken: Taken {
                hall: self.clone(),
                bytes: 0,
            },
            deadline: None,
            end: None,
        })
    }
}

/// A service whose requests arrive in a hall.
#[derive(Clone, Debug)]
pub(in crate::replica) struct Arrivals<S> {
    inner: S,
    hall: Hall,
}

impl<S> Arrivals<S> {
    pub(in crate::replica) fn new(inner: S, hall: Hall) -> Self {
        Self { inner, hall }
    }
}

impl<S: NamedService> NamedService for Arrivals<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: Service<http::Request<Body>>> Service<http::Request<Body>> for Arrivals<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> S::Future {
        let (head, body) = request.into_parts();
        let body = self.hall.let_in(&head.headers, body);
        self.inner.call(http::Request::from_parts(head, body))
    }
}

/// What one call has of the hall; given back when it ends.
#[derive(Debug)]
struct Taken {
    hall: Hall,
    bytes: usize,
}

impl Taken {
    /// Has so many from now on; false if there is no room for them.
    fn set(&mut self, bytes: usize) -> bool {
        let Held {
            bytes: all, most, ..
        } = &*self.hall.0;
        // Relaxed: a sum by itself. A bound that is passed by what others take at the same moment is still one.
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            if all.fetch_add(more, Relaxed).saturating_add(more) > *most {
                all.fetch_sub(more, Relaxed);
                return false;
            }
        } else {
            all.fetch_sub(self.bytes - bytes, Relaxed);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// How far the message is that is arriving.
#[derive(Debug, Default)]
struct Message {
    prefix: [u8; PREFIX],
    /// How much of the prefix is there.
    known: usize,
    /// Bytes of the message that are missing.
    missing: usize,
    /// Bytes of it that are there.
    held: usize,
}

/// A message that is larger than one may be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct TooLarge {
    length: usize,
    /// How many bytes of the frame are of messages before it.
    before: usize,
}

impl Message {
    /// Follows the bytes of a frame, up to a message of more than `largest`.
    fn take(&mut self, frame: &[u8], largest: usize) -> Result<(), TooLarge> {
        let (mut data, mut before) = (frame, 0);
        while !data.is_empty() {
            if self.known < PREFIX {
                let count = data.len().min(PREFIX - self.known);
                self.prefix[self.known..self.known + count].copy_from_slice(&data[..count]);
                self.known += count;
                data.advance(count);
                if self.known == PREFIX {
                    self.missing = (&self.prefix[1..]).get_u32() as usize;
                    if self.missing > largest {
                        let length = self.missing;
                        return Err(TooLarge { length, before });
                    }
                }
            } else {
                let count = data.len().min(self.missing);
                self.held += count;
                self.missing -= count;
                data.advance(count);
            }
            if self.known == PREFIX && self.missing == 0 {
                (self.known, self.held) = (0, 0);
                before = frame.len() - data.len();
            }
        }
        Ok(())
    }
}

struct Arriving {
    body: Body,
    /// Bytes of metadata that count.
    metadata: usize,
    message: Message,
    taken: Taken,
    /// While a large message is arriving.
    deadline: Option<Pin<Box<Sleep>>>,
    /// What the call ends with, once what came before it has been let through.
    end: Option<Status>,
}

impl Arriving {
    /// Counts what is held now.
    fn count(&mut self) -> Result<(), Status> {
        let arriving = match self.message.held {
            0..=FREE => 0,
            held => held,
        };
        if arriving == 0 {
            self.deadline = None;
        } else if self.deadline.is_none() {
            self.deadline = Some(Box::pin(sleep(PATIENCE)));
        }
        if self.taken.set(self.metadata + arriving) {
            Ok(())
        } else {
            Err(Status::resource_exhausted(
                "too many large requests are arriving at once; send this one again, or a smaller one",
            ))
        }
    }
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(end) = self.end.take() {
            return Poll::Ready(Some(Err(end)));
        }
        if self.taken.bytes < self.metadata
            && let Err(status) = self.count()
        {
            return Poll::Ready(Some(Err(status)));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let largest = self.taken.hall.0.largest;
            if let Err(TooLarge { length, before }) = self.message.take(data, largest) {
                let status = Status::resource_exhausted(format!(
                    "grpc: received message larger than max ({length} vs. {largest})"
                ));
                if before == 0 {
                    return Poll::Ready(Some(Err(status)));
                }
                let data = data.slice(..before);
                self.end = Some(status);
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if let Err(status) = self.count() {
                return Poll::Ready(Some(Err(status)));
            }
        }
        if polled.is_pending()
            && let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            let late = format!("a request did not arrive within {PATIENCE:?}");
            return Poll::Ready(Some(Err(Status::deadline_exceeded(late))));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http_body::Body as _;
    use tokio::sync::mpsc::Sender;
    use tokio::time::Instant;
    use tonic::Code;

    use super::super::tests::fed;
    use super::*;

    const LARGEST: usize = 10_000;

    fn held(hall: &Hall) -> usize {
        hall.0.bytes.load(Relaxed)
    }

    async fn next(body: &mut Body) -> Option<Result<Frame<Bytes>, Status>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
    }

    /// Sends bytes through, and what came of them.
    async fn through(
        feed: &Sender<Frame<Bytes>>,
        body: &mut Body,
        bytes: Vec<u8>,
    ) -> Result<(), Code> {
        feed.send(Frame::data(bytes.into())).await.expect("open");
        match next(body).await {
            Some(Ok(_)) => Ok(()),
            Some(Err(status)) => Err(status.code()),
            None => panic!("ended"),
        }
    }

    fn message(length: usize, of: usize) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(length).expect("small").to_be_bytes());
        bytes.resize(PREFIX + of, b'x');
        bytes
    }

    #[tokio::test(start_paused = true)]
    async fn only_large_messages_that_are_not_whole_are_counted() {
        let hall = Hall::new(LARGEST);
        let (feed, body) = fed();
        let mut body = hall.let_in(&HeaderMap::new(), body);
        through(&feed, &mut body, message(FREE, FREE - 1))
            .await
            .expect("room");
        assert_eq!(held(&hall), 0, "as much as is free");
        through(&feed, &mut body, b"x".to_vec())
            .await
            .expect("room");
        // Two whole ones, and most of a third whose prefix comes in two.
        let mut many = [message(9_000, 9_000), message(3, 3)].concat();
        let third = message(9_000, 8_000);
        many.extend(&third[..3]);
        through(&feed, &mut body, many).await.expect("room");
        assert_eq!(held(&hall), 0);
        through(&feed, &mut body, third[3..].to_vec())
            .await
            .expect("room");
        assert_eq!(held(&hall), 8_000);
        through(&feed, &mut body, vec![b'x'; 1_000])
            .await
            .expect("room");
        assert_eq!(held(&hall), 0, "it is whole");
        through(&feed, &mut body, message(9_000, 8_000))
            .await
            .expect("room");
        drop(body);
        assert_eq!(held(&hall), 0, "given back with the call");
    }

    #[tokio::test(start_paused = true)]
    async fn what_finds_no_room_is_told_so_and_the_rest_goes_on() {
        let hall = Hall::new(LARGEST);
        let mut calls = Vec::new();
        for _ in 0..LARGEST_AT_ONCE {
            let (feed, body) = fed();
            let mut body = hall.let_in(&HeaderMap::new(), body);
            through(&feed, &mut body, message(LARGEST, LARGEST - 1))
                .await
                .expect("room");
            calls.push((feed, body));
        }
        let (feed, body) = fed();
        let mut body = hall.let_in(&HeaderMap::new(), body);
        let refused = through(&feed, &mut body, message(LARGEST, FREE + 100)).await;
        assert_eq!(refused, Err(Code::ResourceExhausted));
        let (small, body) = fed();
        let mut body = hall.let_in(&HeaderMap::new(), body);
        through(&small, &mut body, message(200, 200))
            .await
            .expect("lookups go on");
        calls.pop();
        let (feed, body) = fed();
        let mut body = hall.let_in(&HeaderMap::new(), body);
        through(&feed, &mut body, message(LARGEST, FREE + 100))
            .await
            .expect("room again");
    }

    #[tokio::test(start_paused = true)]
    async fn metadata_counts_where_it_is_more_than_usual_and_is_in_no_hurry() {
        let hall = Hall::new(LARGEST);
        let with = |length: usize| {
            let mut headers = HeaderMap::new();
            let floor = "x".repeat(length).parse().expect("a value");
            headers.insert("tidegate-floor", floor);
            headers
        };
        let usual = USUAL - PAIR - "tidegate-floor".len();
        let (feed, body) = fed();
        let mut body = hall.let_in(&with(usual), body);
        through(&feed, &mut body, message(100, 100))
            .await
            .expect("room");
        assert_eq!(held(&hall), 0);
        let mut calls = Vec::new();
        for _ in 0..LARGEST * LARGEST_AT_ONCE / (USUAL + 1) {
            let (feed, body) = fed();
            let mut body = hall.let_in(&with(usual + 1), body);
            through(&feed, &mut body, message(100, 50))
                .await
                .expect("room");
            calls.push((feed, body));
        }
        assert_eq!(held(&hall), calls.len() * (USUAL + 1));
        let (feed, body) = fed();
        let mut body = hall.let_in(&with(usual + 1), body);
        let refused = through(&feed, &mut body, message(100, 50)).await;
        assert_eq!(refused, Err(Code::ResourceExhausted));
        let (_, last) = calls.last_mut().expect("some");
        let silent = tokio::time::timeout(Duration::from_secs(3_600), next(last)).await;
        assert!(silent.is_err(), "it may go on for as long as it likes");
        drop(calls);
        assert_eq!(held(&hall), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_message_has_to_end() {
        let hall = Hall::new(LARGEST);
        let (feed, body) = fed();
        let mut body = hall.let_in(&HeaderMap::new(), body);
        through(&feed, &mut body, message(9_000, 8_000))
            .await
            .expect("room");
        let begun = Instant::now();
        let late = next(&mut body).await.expect("an end").expect_err("late");
        assert_eq!(
            (late.code(), begun.elapsed()),
            (Code::DeadlineExceeded, PATIENCE)
        );
        // A small one may be silent for as long as its call.
        let (feed, body) = fed();
        let mut body = hall.let_in(&HeaderMap::new(), body);
        through(&feed, &mut body, message(100, 50))
            .await
            .expect("room");
        let silent = tokio::time::timeout(Duration::from_secs(3_600), next(&mut body)).await;
        assert!(silent.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_announces_too_much_ends_its_call_behind_what_came_before_it() {
        let hall = Hall::new(LARGEST);
        let exhausted = Err(Code::ResourceExhausted);
        let (feed, body) = fed();
        let mut body = hall.let_in(&HeaderMap::new(), body);
        through(&feed, &mut body, message(LARGEST, LARGEST))
            .await
            .expect("as large as it may be");
        let whole = message(3, 3);
        let prefix = message(LARGEST + 1, 0);
        let both = [&whole[..], &prefix].concat();
        feed.send(Frame::data(both.into())).await.expect("open");
        let frame = next(&mut body).await.expect("a frame").expect("let in");
        assert_eq!(frame.data_ref().map(|data| &data[..]), Some(&whole[..]));
        assert!(!body.is_end_stream());
        let end = next(&mut body)
            .await
            .expect("an end")
            .expect_err("too large");
        assert_eq!(end.code(), Code::ResourceExhausted);
        assert!(end.message().contains("(10001 vs. 10000)"), "{end}");

        // Its prefix comes in two.
        let (feed, body) = fed();
        let mut body = hall.let_in(&HeaderMap::new(), body);
        let begun = [&whole[..], &prefix[..3]].concat();
        through(&feed, &mut body, begun)
            .await
            .expect("not known yet");
        assert_eq!(
            through(&feed, &mut body, prefix[3..].to_vec()).await,
            exhausted
        );
        assert_eq!(held(&hall), 0);
    }
}
