//! The whole state for a follower that has none, or none that the history can complete.
//!
//! The snapshot is read page by page, each from the map as it is by then, so that no guard outlives a page. What changes
//! meanwhile is retained by the history, which grows for it within its limit, and sent after the last page; so it
//! does not matter that the pages are of different moments: every change since the start follows them.

use std::pin::pin;

use prost::Message;
use tidegate_core::history::Step;
use tidegate_core::{Key, SharedEntry};
use tokio::time::sleep;

use super::drain::{End, SyncStream};
use crate::proto::pdpb::SyncRegionResponse;
use crate::syncer::frame;

impl SyncStream<'_> {
    /// Sends the snapshot, what changed meanwhile and the frame that completes it.
    pub(super) async fn full_sync(&mut self) -> Result<(), End> {
        let from = self.next();
        // Kept until the stream is live: then its cursor stands for itself.
        let _retained = self
            .history()
            .retain(from)
            .map_err(|_not_here| End::Outgrown { from })?;
        let mut position = 0;
        let mut start = Some(Key::EMPTY);
        while let Some(key) = start {
            let page;
            (page, start) = self.page(&key);
            if page.is_empty() {
                break;
            }
            let frame = frame::regions(self.cluster_id(), position, page.iter());
            position += page.len() as u64;
            self.send_within_budget(frame).await?;
        }
        self.complete(position).await
    }

    /// Sends the changes since the stream was bound, behind a snapshot of `sent` regions, and the frame that completes
    /// the full sync.
    pub(super) async fn complete(&mut self, sent: u64) -> Result<(), End> {
        let from = self.next();
        let end = self.history().next_index();
        // After an empty snapshot a follower still has to see that this is a full sync: by an index that starts at 0.
        let mut index = if sent == 0 { 0 } else { from };
        while self.next() < end {
            let missing = usize::try_from(end - self.next()).unwrap_or(usize::MAX);
            let batch = self.cluster.config.max_batch.min(missing);
            let Step::Records { records, .. } = self.cursor.read(batch) else {
                return Err(End::Outgrown { from });
            };
            let frame = frame::regions(self.cluster_id(), index, records.iter());
            index += records.len() as u64;
            self.send(frame).await?;
        }
        self.send_empty().await
    }

    /// The regions from `start` on that fill a frame, and where the next page starts.
    fn page(&self, start: &Key) -> (Vec<SharedEntry>, Option<Key>) {
        let snapshot = self.cluster.regions.map().pin();
        let page: Vec<_> = snapshot
            .scan(start, &[])
            .take(self.cluster.config.max_batch)
            .map(|entry| entry.to_shared())
            .collect();
        let next = page
            .last()
            .map(|last| last.end().clone())
            .filter(|end| !end.is_empty());
        (page, next)
    }

    /// Waits for the budget that all full syncs share, then sends. Gives up at once when more changes meanwhile than the
    /// history can keep.
    async fn send_within_budget(&self, frame: SyncRegionResponse) -> Result<(), End> {
        let cost = frame.encoded_len() as u64;
        let wait = self.cluster.limiter.take(cost).map_err(End::TooLarge)?;
        let mut head = self.cluster.regions.subscribe();
        let work = async {
            self.unless_ended(async {
                sleep(wait).await;
                Ok(())
            })
            .await?;
            self.send(frame).await
        };
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = head.changed() => {}
            }
            let from = self.next();
            if self.history().first_index() > from {
                return Err(End::Outgrown { from });
            }
        }
    }
}
