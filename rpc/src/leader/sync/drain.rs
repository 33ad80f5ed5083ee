//! One stream: its cursor, the task that moves it, and every way in which it can end.

use std::fmt;

use tidegate_core::SharedEntry;
use tidegate_core::history::{Cursor, History, Step};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tonic::Status;

use crate::syncer::frame;

use crate::leader::cluster::{Cluster, Counters};
use crate::leader::limiter::TooLarge;
use crate::proto::pdpb::SyncRegionResponse;
use crate::syncer::outlet::{Gone, Outlet};
use crate::syncer::registry::Seat;

/// Why a stream ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// The follower closed it.
    Left,
    /// The leader stops.
    Stopped,
    /// Another stream took the name.
    Replaced,
    /// A frame found no reader in time.
    Blocked,
    /// The history no longer holds what comes next.
    Overflowed { next: u64, first: u64 },
    /// More changed during a full sync than is kept for it.
    Outgrown { from: u64 },
    /// A frame of a full sync that no budget allows.
    TooLarge(TooLarge),
}

/// An open stream.
pub(super) struct SyncStream<'a> {
    pub(super) cluster: &'a Cluster,
    frames: &'a Outlet<SyncRegionResponse>,
    seat: &'a Seat,
    head: watch::Receiver<u64>,
    /// Stands at the first record that was not sent. The history grows, within its limit, to keep that one.
    pub(super) cursor: Cursor<SharedEntry>,
}

impl<'a> SyncStream<'a> {
    /// Binds the stream to the history: every record from the current index on will be seen.
    pub(super) fn new(
        cluster: &'a Cluster,
        frames: &'a Outlet<SyncRegionResponse>,
        seat: &'a Seat,
    ) -> Self {
        // Subscribed before the index is read: a record in between wakes the stream for nothing, and none is missed.
        let head = cluster.regions.subscribe();
        Self {
            cluster,
            frames,
            seat,
            head,
            cursor: cluster
                .regions
                .history()
                .cursor(cluster.regions.next_index()),
        }
    }

    /// Serves the stream to its end.
    pub(super) async fn run(&mut self, start_index: u64) -> End {
        match self.serve(start_index).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn serve(&mut self, start_index: u64) -> Result<std::convert::Infallible, End> {
        let bound = self.next();
        if (1..bound).contains(&start_index) {
            self.cluster.regions.wanted(start_index);
        }
        let held = self.history().first_index()..=bound;
        if start_index == 0 || !held.contains(&start_index) {
            Counters::count(&self.cluster.counters.full_syncs, 1);
            self.full_sync().await?;
        } else if start_index == bound {
            self.send_empty().await?;
        } else {
            self.cursor.seek(start_index);
        }
        let keepalive = self.cluster.config.keepalive;
        let mut tick = interval_at(Instant::now() + keepalive, keepalive);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.drain().await?;
        loop {
            let due = tokio::select! {
                biased;
                () = self.cluster.stopping.cancelled() => return Err(End::Stopped),
                () = self.seat.taken.cancelled() => return Err(End::Replaced),
                () = self.frames.closed() => return Err(End::Left),
                _ = tick.tick() => true,
                _ = self.head.changed() => false,
            };
            // A keepalive says that nothing is waiting: it never precedes a record, and where this wake-up sent one, that
            // is sign of life enough.
            let sent = self.drain().await?;
            if due && sent == 0 {
                self.send_empty().await?;
            }
        }
    }

    /// Sends all records up to the newest and returns how many.
    async fn drain(&mut self) -> Result<usize, End> {
        let mut sent = 0;
        loop {
            match self.cursor.read(self.cluster.config.max_batch) {
                Step::Records { first, records } => {
                    let frame = frame::regions(self.cluster_id(), first, records.iter());
                    sent += records.len();
                    self.send(frame).await?;
                }
                Step::CaughtUp => return Ok(sent),
                Step::Lagged { from: next, first } => return Err(End::Overflowed { next, first }),
                Step::Ahead { next: first } | Step::Reset { first } => {
                    let next = self.next();
                    return Err(End::Overflowed { next, first });
                }
            }
        }
    }

    /// The index of the first record that was not sent.
    pub(super) fn next(&self) -> u64 {
        self.cursor.next_index()
    }

    pub(super) fn history(&self) -> &History<SharedEntry> {
        self.cluster.regions.history()
    }

    pub(super) fn cluster_id(&self) -> u64 {
        self.cluster.config.cluster_id
    }

    pub(super) async fn send_empty(&self) -> Result<(), End> {
        self.send(frame::empty(self.cluster_id(), self.next()))
            .await
    }

    pub(super) async fn send(&self, frame: SyncRegionResponse) -> Result<(), End> {
        self.unless_ended(async {
            match timeout(self.cluster.config.send_timeout, self.frames.send(frame)).await {
                Err(_) => Err(End::Blocked),
                Ok(Err(Gone)) => Err(End::Left),
                Ok(Ok(())) => Ok(()),
            }
        })
        .await
    }

    /// Waits for `work`, but not longer than the stream lives.
    pub(super) async fn unless_ended(
        &self,
        work: impl Future<Output = Result<(), End>>,
    ) -> Result<(), End> {
        tokio::select! {
            biased;
            () = self.cluster.stopping.cancelled() => Err(End::Stopped),
            () = self.seat.taken.cancelled() => Err(End::Replaced),
            () = self.frames.closed() => Err(End::Left),
            done = work => done,
        }
    }
}

impl End {
    /// What the follower is told; nothing when it has left.
    pub(super) fn status(&self) -> Option<Status> {
        let text = self.to_string();
        match self {
            Self::Left => None,
            Self::Stopped | Self::Replaced | Self::Blocked | Self::Overflowed { .. } => {
                Some(Status::unavailable(text))
            }
            Self::Outgrown { .. } | Self::TooLarge(_) => Some(Status::resource_exhausted(text)),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("the follower left"),
            Self::Stopped => f.write_str("region syncer stopped"),
            Self::Replaced | Self::Blocked => f.write_str("region syncer stream closed"),
            Self::Overflowed { next, first } => write!(
                f,
                "region syncer stream closed: record {next} is next, the history starts at {first}"
            ),
            Self::Outgrown { from } => write!(
                f,
                "history records from full sync start index {from} are no longer available"
            ),
            Self::TooLarge(error) => error.fmt(f),
        }
    }
}
