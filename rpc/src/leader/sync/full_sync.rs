//! The whole state for a follower that has none, or none that the history can complete.
//!
//! The snapshot is read page by page, each from the map as it is by then, so that no guard outlives a page. What changes
//! meanwhile is collected from the history while the frames wait for their turn, and sent after the last page; so it
//! does not matter that the pages are of different moments: every change since the start follows them.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use prost::Message;
use tidegate_core::history::Answer;
use tidegate_core::{Entry, Key};
use tokio::time::sleep;

use super::drain::{End, SyncStream};
use super::frame;
use crate::proto::pdpb::SyncRegionResponse;

/// What changed since a full sync began.
struct Retained {
    from: u64,
    next: u64,
    records: VecDeque<Arc<Entry>>,
}

impl SyncStream<'_> {
    /// Sends the snapshot, what changed meanwhile and the frame that completes it.
    pub(super) async fn full_sync(&mut self) -> Result<(), End> {
        let from = self.next;
        let mut retained = Retained {
            from,
            next: from,
            records: VecDeque::new(),
        };
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
            self.send_within_budget(frame, &mut retained).await?;
        }
        self.retain(&mut retained)?;
        self.complete(position, retained.records).await
    }

    /// Sends the `changes` since the stream was bound, behind a snapshot of `sent` regions, and the frame that
    /// completes the full sync.
    pub(super) async fn complete(
        &mut self,
        sent: u64,
        mut changes: VecDeque<Arc<Entry>>,
    ) -> Result<(), End> {
        // After an empty snapshot a follower still has to see that this is a full sync: by an index that starts at 0.
        let mut index = if sent == 0 { 0 } else { self.next };
        self.next += changes.len() as u64;
        while !changes.is_empty() {
            let batch = self.cluster.config.max_batch.min(changes.len());
            let records: Vec<_> = changes.drain(..batch).collect();
            let frame = frame::regions(self.cluster_id(), index, records.iter());
            index += records.len() as u64;
            self.send(frame).await?;
        }
        self.send_empty().await
    }

    /// The regions from `start` on that fill a frame, and where the next page starts.
    fn page(&self, start: &Key) -> (Vec<Arc<Entry>>, Option<Key>) {
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

    /// Waits for the budget that all full syncs share, then sends; collects what changes meanwhile.
    async fn send_within_budget(
        &mut self,
        frame: SyncRegionResponse,
        retained: &mut Retained,
    ) -> Result<(), End> {
        let cost = frame.encoded_len() as u64;
        let wait = self.cluster.limiter.take(cost).map_err(End::TooLarge)?;
        let mut head = self.cluster.regions.subscribe();
        self.retain(retained)?;
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
                _ = head.changed() => self.retain(retained)?,
            }
        }
    }

    /// Collects the records up to the newest, before the history overwrites them.
    fn retain(&self, retained: &mut Retained) -> Result<(), End> {
        let outgrown = End::Outgrown {
            from: retained.from,
        };
        loop {
            match self
                .history()
                .read(retained.next, self.cluster.config.max_batch)
            {
                Answer::Records { first, records } => {
                    retained.next = first + records.len() as u64;
                    retained.records.extend(records);
                    if retained.records.len() > self.cluster.config.catch_up_limit {
                        return Err(outgrown);
                    }
                }
                Answer::CaughtUp => return Ok(()),
                Answer::Gap { .. } | Answer::Ahead { .. } => return Err(outgrown),
            }
        }
    }
}
