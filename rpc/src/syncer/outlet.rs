//! The sending end of a server stream, with the status that ends it.
//!
//! The status does not queue behind the messages: it is left beside them, so that a stream whose reader is stuck can be
//! ended at once. The reader gets it after the messages that were already on their way.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

/// The sending end. Dropping it ends the stream: with success unless [`Outlet::finish`] said otherwise.
#[derive(Debug)]
pub(crate) struct Outlet<T> {
    messages: mpsc::Sender<T>,
    end: Arc<OnceLock<Status>>,
}

/// The stream that tonic sends.
#[derive(Debug)]
pub(crate) struct Outflow<T> {
    messages: mpsc::Receiver<T>,
    end: Arc<OnceLock<Status>>,
    ended: bool,
}

/// The reader is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Gone;

/// A stream that holds up to `waiting` messages that were not yet sent.
pub(crate) fn outlet<T>(waiting: usize) -> (Outlet<T>, Outflow<T>) {
    let (sender, receiver) = mpsc::channel(waiting);
    let end = Arc::new(OnceLock::new());
    let flow = Outflow {
        messages: receiver,
        end: Arc::clone(&end),
        ended: false,
    };
    (
        Outlet {
            messages: sender,
            end,
        },
        flow,
    )
}

impl<T> Outlet<T> {
    /// Waits until there is room, for as long as the reader takes: give it a deadline.
    pub(crate) async fn send(&self, message: T) -> Result<(), Gone> {
        self.messages.send(message).await.map_err(|_| Gone)
    }

    /// Another end that can send; the stream does not end while it lives.
    pub(crate) fn tap(&self) -> mpsc::Sender<T> {
        self.messages.clone()
    }

    /// Resolves when the reader is gone.
    pub(crate) async fn closed(&self) {
        self.messages.closed().await;
    }

    /// Ends the stream with `status`.
    pub(crate) fn finish(self, status: Status) {
        // Only this end sets it, and gives itself up for it.
        let _ = self.end.set(status);
    }
}

impl<T> Stream for Outflow<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match self.messages.poll_recv(cx) {
            Poll::Ready(Some(message)) => Poll::Ready(Some(Ok(message))),
            Poll::Ready(None) => {
                self.ended = true;
                Poll::Ready(self.end.get().cloned().map(Err))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    #[tokio::test]
    async fn the_status_follows_what_was_already_sent() {
        let (sender, mut flow) = outlet(1);
        sender.send(7).await.unwrap();
        sender.finish(Status::unavailable("closed"));
        assert_eq!(flow.next().await.unwrap().unwrap(), 7);
        assert_eq!(flow.next().await.unwrap().unwrap_err().message(), "closed");
        assert!(flow.next().await.is_none());
    }

    #[tokio::test]
    async fn without_a_status_the_stream_ends_well() {
        let (sender, mut flow) = outlet::<u8>(1);
        drop(sender);
        assert!(flow.next().await.is_none());
    }

    #[tokio::test]
    async fn a_reader_that_left_is_noticed() {
        let (sender, flow) = outlet(1);
        drop(flow);
        assert_eq!(sender.send(1).await, Err(Gone));
        sender.closed().await;
    }
}
