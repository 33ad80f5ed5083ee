//! One stream as PD speaks it up to release 8.5.
//!
//! A follower asks for the records from `S` on; the leader has `[first, E)` and answers:
//!
//! | `S` | answer |
//! |---|---|
//! | `E`, which may be 0 | one empty frame with `start_index = E`, even where there are regions and `E` is 0 |
//! | `first <= S < E` | all records from `S` on in one frame |
//! | 0, and the history begins later | a full sync: the snapshot in frames whose `start_index` counts regions, and no end marker |
//! | anything else | nothing at all |
//!
//! Only then is the stream bound to the broadcaster. What is broadcast between the answer and the binding is lost to
//! this stream, for a full sync all that changed while it was sent.

use prost::Message;
use tidegate_core::SharedEntry;
use tidegate_core::history::Answer;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::broadcast::Listener;
use super::drain::End;
use crate::leader::cluster::{Cluster, Counters};
use crate::proto::pdpb::SyncRegionResponse;
use crate::syncer::frame;
use crate::syncer::outlet::{Gone, Outlet};
use crate::syncer::registry::Seat;

/// An open stream.
pub(super) struct Release85Stream<'a> {
    cluster: &'a Cluster,
    frames: &'a Outlet<SyncRegionResponse>,
    seat: &'a Seat,
}

impl<'a> Release85Stream<'a> {
    pub(super) fn new(
        cluster: &'a Cluster,
        frames: &'a Outlet<SyncRegionResponse>,
        seat: &'a Seat,
    ) -> Self {
        Self {
            cluster,
            frames,
            seat,
        }
    }

    /// Serves the stream to its end.
    pub(super) async fn run(&self, start_index: u64) -> End {
        if let Err(end) = self.unless_ended(self.answer(start_index)).await {
            return end;
        }
        let dropped = CancellationToken::new();
        self.cluster.audience.bind(Listener {
            seat: self.seat.clone(),
            frames: self.frames.tap(),
            dropped: dropped.clone(),
        });
        let end = self.unless_ended(async {
            dropped.cancelled().await;
            Err(End::Blocked)
        });
        let end = end.await.err().unwrap_or(End::Left);
        self.cluster.audience.unbind(self.seat);
        end
    }

    async fn answer(&self, start_index: u64) -> Result<(), End> {
        let id = self.cluster.config.cluster_id;
        match self.cluster.regions.history().read(start_index, usize::MAX) {
            Answer::Records { first, records } if first == start_index => {
                self.send(frame::regions(id, first, records.iter())).await
            }
            Answer::CaughtUp => self.send(frame::empty(id, start_index)).await,
            _ if start_index == 0 => self.snapshot().await,
            _ => {
                tracing::debug!(start_index, "no history from this index: nothing is sent");
                Ok(())
            }
        }
    }

    async fn snapshot(&self) -> Result<(), End> {
        Counters::count(&self.cluster.counters.full_syncs, 1);
        let mut regions: Vec<SharedEntry> = {
            let snapshot = self.cluster.regions.map().pin();
            snapshot.iter().map(|entry| entry.to_shared()).collect()
        };
        // In no order of keys: PD walks a hash map.
        regions.sort_unstable_by_key(|entry| entry.id().wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut position = 0;
        for part in regions.chunks(self.cluster.config.max_batch) {
            let frame = frame::regions(self.cluster.config.cluster_id, position, part.iter());
            position += part.len() as u64;
            let cost = frame.encoded_len() as u64;
            sleep(self.cluster.limiter.take(cost).map_err(End::TooLarge)?).await;
            self.send(frame).await?;
        }
        Ok(())
    }

    async fn send(&self, frame: SyncRegionResponse) -> Result<(), End> {
        match timeout(self.cluster.config.send_timeout, self.frames.send(frame)).await {
            Err(_) => Err(End::Blocked),
            Ok(Err(Gone)) => Err(End::Left),
            Ok(Ok(())) => Ok(()),
        }
    }

    /// Waits for `work`, but not longer than the stream lives.
    async fn unless_ended(&self, work: impl Future<Output = Result<(), End>>) -> Result<(), End> {
        tokio::select! {
            biased;
            () = self.cluster.stopping.cancelled() => Err(End::Stopped),
            () = self.seat.taken.cancelled() => Err(End::Replaced),
            () = self.frames.closed() => Err(End::Left),
            done = work => done,
        }
    }
}
