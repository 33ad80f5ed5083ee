//! The leader's side of PD's region synchronisation.
//!
//! What follows is master's dialect; release 8.5's is told in `release85.rs`.
//!
//! A follower opens `SyncRegions` and says once who it is and the index `S` of the first change that it has not seen.
//! The leader has records `[first, E)` in its history and answers:
//!
//! | `S` | answer |
//! |---|---|
//! | 0 | a full sync |
//! | `E` | one empty frame with `start_index = E` |
//! | `first <= S < E` | the records from `S` on, up to `max_batch` a frame, `start_index` being the index of a frame's first record |
//! | older than `first`, or beyond `E` | a full sync |
//!
//! A full sync is the snapshot (frames whose `start_index` counts the regions sent so far and is no index), then what
//! changed meanwhile (`start_index` is an index again), then one empty frame with the index that is next.
//!
//! From there on the stream is live: records as they come, and an empty frame with the stream's own position when
//! nothing was sent for a keepalive's time.
//!
//! Each stream has one cursor into the history and one task that moves it, so no record is skipped or sent twice, and a
//! slow reader delays nobody else. One that falls out of the history is dropped, as is one that does not read.
//!
//! The name of the member is the identity of its stream: a second stream under a name ends the first.

mod broadcast;
mod drain;
mod full_sync;
mod release85;

use std::sync::Arc;

use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

pub(super) use self::broadcast::{Audience, broadcast};
use self::drain::{End, SyncStream};
use self::release85::Release85Stream;
use super::cluster::Cluster;
use crate::pd::Dialect;
use crate::proto::pdpb::{SyncRegionRequest, SyncRegionResponse};
use crate::syncer::outlet::{Outflow, outlet};
use crate::syncer::{frame, handshake};

/// Serves one stream in a task of its own. Only the first request counts; later ones are not read.
pub(super) fn open<S>(cluster: Arc<Cluster>, mut requests: S) -> Outflow<SyncRegionResponse>
where
    S: Stream<Item = Result<SyncRegionRequest, Status>> + Send + Unpin + 'static,
{
    let (frames, flow) = outlet(1);
    tokio::spawn(async move {
        let request = tokio::select! {
            biased;
            () = cluster.stopping.cancelled() => Err(Status::unavailable("server not started")),
            () = frames.closed() => return,
            first = timeout(cluster.config.handshake_timeout, requests.next()) => match first {
                Err(_) => Err(Status::deadline_exceeded("no sync request came")),
                // The follower left before it said anything.
                Ok(None) => return,
                Ok(Some(request)) => request,
            },
        };
        let handshake = request.and_then(|request| {
            let name = handshake(cluster.config.cluster_id, &request)?;
            Ok((name, request.start_index))
        });
        let (name, start_index) = match handshake {
            Ok(handshake) => handshake,
            Err(status) => return frames.finish(status),
        };
        let seat = cluster.streams.sit(&name);
        tracing::debug!(%name, start_index, "region sync stream opened");
        let end = match cluster.config.dialect {
            Dialect::Master => {
                let mut stream = SyncStream::new(&cluster, &frames, &seat);
                stream.run(start_index).await
            }
            Dialect::Release85 => {
                let stream = Release85Stream::new(&cluster, &frames, &seat);
                stream.run(start_index).await
            }
        };
        cluster.streams.leave(&name, &seat);
        tracing::debug!(%name, %end, "region sync stream ended");
        if matches!(end, End::Stopped) {
            // Best effort: whoever does not read it in time gets the status alone.
            let farewell = frames.send(frame::stopped(cluster.config.cluster_id));
            let _ = timeout(cluster.config.stop_grace, farewell).await;
        }
        if let Some(status) = end.status() {
            frames.finish(status);
        }
        // The requests are kept until here: to drop them would tell the follower to stop.
        drop(requests);
    });
    flow
}

#[cfg(test)]
mod tests;
