//! A stream of questions that are answered one by one: timestamps, region queries, heartbeats.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::cluster::Cluster;
use crate::syncer::outlet::{Outflow, Outlet, outlet};

/// What follows a message.
#[derive(Debug)]
pub(super) enum Step<A> {
    /// Nothing; the next message is read.
    Silent,
    /// An answer, then the next message is read.
    Answer(A),
    /// An answer that ends the stream.
    Last(A),
    /// An end.
    End(Status),
}

/// Answers the messages of `questions` until either side ends, the leader stops or an answer finds no reader in time.
pub(super) fn converse<Q, A, S, F>(cluster: Arc<Cluster>, questions: S, answer: F) -> Outflow<A>
where
    Q: Send + 'static,
    A: Send + 'static,
    S: Stream<Item = Result<Q, Status>> + Send + Unpin + 'static,
    F: FnMut(&Cluster, Q) -> Step<A> + Send + 'static,
{
    let (answers, flow) = outlet(1);
    tokio::spawn(async move {
        if let Err(status) = serve(&cluster, &answers, questions, answer).await {
            answers.finish(status);
        }
    });
    flow
}

async fn serve<Q, A, S, F>(
    cluster: &Cluster,
    answers: &Outlet<A>,
    mut questions: S,
    mut answer: F,
) -> Result<(), Status>
where
    S: Stream<Item = Result<Q, Status>> + Unpin,
    F: FnMut(&Cluster, Q) -> Step<A>,
{
    let stopped = || Status::unavailable("server not started");
    loop {
        let question = tokio::select! {
            biased;
            () = cluster.stopping.cancelled() => return Err(stopped()),
            () = answers.closed() => return Ok(()),
            question = questions.next() => question,
        };
        let Some(question) = question else {
            return Ok(());
        };
        let (reply, last) = match answer(cluster, question?) {
            Step::Silent => continue,
            Step::End(status) => return Err(status),
            Step::Answer(reply) => (reply, false),
            Step::Last(reply) => (reply, true),
        };
        let sent = tokio::select! {
            biased;
            () = cluster.stopping.cancelled() => return Err(stopped()),
            sent = timeout(cluster.config.send_timeout, answers.send(reply)) => sent,
        };
        match sent {
            Err(_) => return Err(Status::unavailable("the answers are not being read")),
            Ok(Err(_)) => return Ok(()),
            Ok(Ok(())) if last => return Ok(()),
            Ok(Ok(())) => {}
        }
    }
}
