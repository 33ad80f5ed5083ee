//! One follower's stream: its cursor, the task that moves it, and every way in which it can end.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use tidegate_core::history::{Cursor, Step};
use tidegate_core::{Key, SharedEntry};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Status;

use crate::pd::told::STOPPING;
use crate::proto::pdpb::SyncRegionResponse;
use crate::replica::state::Shared;
use crate::syncer::frame;
use crate::syncer::outlet::{Gone, Outlet};
use crate::syncer::registry::Seat;

use super::Chain;
use super::ring::{At, Ring};
use super::serve::{MAX_BATCH, is_open};

/// A send that finds no reader for so long ends the stream, as PD's do.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// A keepalive that has waited for longer is not passed on: to the follower it would be as fresh as it came.
const STALE_BEAT: Duration = Duration::from_secs(1);

/// Why a stream ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// The follower closed it.
    Left,
    /// This replica stops.
    Stopped,
    /// Another stream took the name.
    Replaced,
    /// A frame found no reader in time.
    Blocked,
    /// Another map answers here.
    Renewed,
    /// The follower is further than this replica.
    Ahead { next: u64 },
    /// The ring no longer holds what comes next.
    Overflowed { next: u64, first: u64 },
    /// More changed during a full sync than is kept for it.
    Outgrown { from: u64 },
}

/// An open stream.
pub(super) struct Downstream<'a> {
    pub(super) shared: &'a Shared,
    pub(super) chain: &'a Chain,
    pub(super) ring: &'a Ring,
    pub(super) frames: &'a Outlet<SyncRegionResponse>,
    pub(super) seat: &'a Seat,
    pub(super) cluster_id: u64,
    pub(super) at: watch::Receiver<At>,
    /// The generation that the stream tells of.
    pub(super) generation: u64,
    /// Stands at the first record that was not sent. The ring grows, within its limit, to keep that one.
    pub(super) cursor: Cursor<SharedEntry>,
}

impl Downstream<'_> {
    /// Serves the stream to its end.
    pub(super) async fn run(&mut self, start_index: u64) -> End {
        match self.serve(start_index).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn serve(&mut self, start_index: u64) -> Result<Infallible, End> {
        // The cursor was made after the generation was looked at: if that is still in force, it is of that ring.
        self.same_generation()?;
        let bound = self.next();
        let first = self.ring.history().first_index();
        if start_index == bound {
            self.send(frame::empty(self.cluster_id, bound)).await?;
        } else if start_index > bound {
            return Err(End::Ahead { next: bound });
        } else {
            if start_index > 0 {
                self.ring.wanted(start_index);
            }
            if start_index > 0 && start_index >= first {
                self.cursor.seek(start_index);
            } else {
                self.full_sync().await?;
            }
        }
        self.drain().await?;
        // A keepalive from before the stream says nothing about it.
        let mut beat = self.at.borrow_and_update().beat;
        loop {
            let changed = async {
                // The sender outlives the stream.
                let _ = self.at.changed().await;
            };
            tokio::select! {
                biased;
                () = self.chain.stopping.cancelled() => return Err(End::Stopped),
                () = self.seat.taken.cancelled() => return Err(End::Replaced),
                () = self.frames.closed() => return Err(End::Left),
                () = changed => {}
            }
            let latest = self.at.borrow_and_update().beat;
            // Before a keepalive all that it says to be there; where this wake-up sent records, they are sign enough.
            let sent = self.drain().await?;
            let news = latest.filter(|_| latest > beat);
            beat = beat.max(latest);
            if let Some(received) = news
                && sent == 0
                && self.shared.clock.now().saturating_since(received) <= STALE_BEAT
                && is_open(self.shared)
            {
                self.send(frame::empty(self.cluster_id, self.next()))
                    .await?;
            }
        }
    }

    /// Sends the map, what was recorded meanwhile and the frame that completes it.
    async fn full_sync(&mut self) -> Result<(), End> {
        let permit = self.chain.full_syncs.acquire();
        let permit = self.unless_ended(async { Ok(permit.await.ok()) }).await?;
        // What was recorded while it waited is in the map.
        let from = self.ring.history().next_index();
        self.cursor.seek(from);
        // Kept until the stream is live: then its cursor stands for itself.
        let _retained = self
            .ring
            .history()
            .retain(from)
            .map_err(|_not_here| End::Outgrown { from })?;
        self.same_generation()?;
        let mut position = 0;
        let mut start = Some(Key::EMPTY);
        while let Some(key) = start {
            let page;
            (page, start) = self.page(&key)?;
            if page.is_empty() {
                break;
            }
            let frame = frame::regions(self.cluster_id, position, page.iter());
            position += page.len() as u64;
            self.send(frame).await?;
            if self.ring.history().first_index() > from {
                return Err(End::Outgrown { from });
            }
        }
        drop(permit);
        self.catch_up(position).await
    }

    /// Sends what was recorded since the map was looked at, behind `sent` regions, and the completing frame.
    async fn catch_up(&mut self, sent: u64) -> Result<(), End> {
        let from = self.next();
        let end = self.ring.history().next_index();
        // After an empty map a follower still has to see that this is a full sync: by an index that starts at 0.
        let mut index = if sent == 0 { 0 } else { from };
        while self.next() < end {
            let missing = usize::try_from(end - self.next()).unwrap_or(usize::MAX);
            match self.cursor.read(MAX_BATCH.min(missing)) {
                Step::Records { records, .. } => {
                    let frame = frame::regions(self.cluster_id, index, records.iter());
                    index += records.len() as u64;
                    self.send(frame).await?;
                }
                Step::Reset { .. } => return Err(End::Renewed),
                _ => return Err(End::Outgrown { from }),
            }
        }
        // The pages and records are of one generation only if that is still in force.
        self.same_generation()?;
        self.send(frame::empty(self.cluster_id, self.next())).await
    }

    /// Sends all records up to the newest and returns how many.
    async fn drain(&mut self) -> Result<usize, End> {
        let mut sent = 0;
        loop {
            match self.cursor.read(MAX_BATCH) {
                Step::Records { first, records } => {
                    let frame = frame::regions(self.cluster_id, first, records.iter());
                    sent += records.len();
                    self.send(frame).await?;
                }
                Step::CaughtUp => {
                    self.same_generation()?;
                    return Ok(sent);
                }
                Step::Lagged { from: next, first } => return Err(End::Overflowed { next, first }),
                Step::Ahead { .. } | Step::Reset { .. } => return Err(End::Renewed),
            }
        }
    }

    /// The regions from `start` on that fill a frame, and where the next page starts.
    fn page(&self, start: &Key) -> Result<(Vec<SharedEntry>, Option<Key>), End> {
        let page = self.shared.page(self.generation, start, MAX_BATCH);
        page.ok_or(End::Renewed)
    }

    fn same_generation(&self) -> Result<(), End> {
        let same = self.at.borrow().generation == self.generation
            && self.shared.map.generation() == self.generation;
        if same { Ok(()) } else { Err(End::Renewed) }
    }

    /// The index of the first record that was not sent.
    fn next(&self) -> u64 {
        self.cursor.next_index()
    }

    async fn send(&self, frame: SyncRegionResponse) -> Result<(), End> {
        self.unless_ended(async {
            match timeout(SEND_TIMEOUT, self.frames.send(frame)).await {
                Err(_) => Err(End::Blocked),
                Ok(Err(Gone)) => Err(End::Left),
                Ok(Ok(())) => Ok(()),
            }
        })
        .await
    }

    /// Waits for `work`, but not longer than the stream lives.
    async fn unless_ended<T>(&self, work: impl Future<Output = Result<T, End>>) -> Result<T, End> {
        tokio::select! {
            biased;
            () = self.chain.stopping.cancelled() => Err(End::Stopped),
            () = self.seat.taken.cancelled() => Err(End::Replaced),
            () = self.frames.closed() => Err(End::Left),
            done = work => done,
        }
    }
}

impl End {
    /// What the follower is told.
    pub(super) fn status(&self) -> Status {
        let text = self.to_string();
        match self {
            Self::Outgrown { .. } => Status::resource_exhausted(text),
            _ => Status::unavailable(text),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("the follower left"),
            Self::Stopped => f.write_str(STOPPING),
            Self::Replaced => f.write_str("region syncer stream closed: another took its name"),
            Self::Blocked => {
                f.write_str("region syncer stream closed: a frame was not read in time")
            }
            Self::Renewed => {
                f.write_str("region syncer stream closed: this replica has synced anew")
            }
            Self::Ahead { next } => write!(
                f,
                "this replica is at index {next} and behind its follower; follow PD or another replica"
            ),
            Self::Overflowed { next, first } => write!(
                f,
                "region syncer stream closed: record {next} is next, the history starts at {first}"
            ),
            Self::Outgrown { from } => write!(
                f,
                "history records from full sync start index {from} are no longer available"
            ),
        }
    }
}
