//! Between receive and apply: a queue bounded by frames and by bytes.
//!
//! It holds tens of seconds of the busiest stream. When it is full the receiver does not wait, because with it HTTP/2's
//! flow control would fill and the leader's send block, which on release 8.5 holds up every other follower: the session
//! ends, what it has is drained, and the next one opens the stream again at the index that has been applied, or gets a
//! full sync if the leader's ring has moved on. Only the frames of a full sync wait for room: the leader sends them to
//! nobody else, and they come as fast as they are taken.
//!
//! What a frame says about time and head is taken before it waits here: a frame that was queued for 8 s is 8 s old when it is
//! applied, and the head that it shows is known at once. Of what is still at the leader only a probe can tell.

use std::mem::size_of;
use std::sync::Arc;

use tidegate_core::Moment;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::proto::metapb::{Buckets, Peer, Region};
use crate::proto::pdpb::{RegionStat, SyncRegionResponse};

use super::frame::Kind;

/// A classified frame on its way to be applied.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) kind: Kind,
    pub(super) frame: SyncRegionResponse,
    pub(super) at: Moment,
}

/// A frame in the queue, with its share of the bytes.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) received: Received,
    _share: OwnedSemaphorePermit,
}

/// The receiver's end.
#[derive(Debug)]
pub(super) struct Intake {
    frames: mpsc::Sender<Queued>,
    bytes: Arc<Semaphore>,
    capacity: u32,
}

/// The applier has gone away.
#[derive(Debug)]
pub(super) struct Gone;

/// Why a frame was not queued.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NotQueued {
    /// There is no room.
    Full,
    /// The applier has gone away.
    Gone,
}

/// A queue of at most `frames` frames and about `bytes` bytes. A single frame may be larger than that.
pub(super) fn queue(frames: usize, bytes: usize) -> (Intake, mpsc::Receiver<Queued>) {
    let capacity = u32::try_from(bytes.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
    let (sender, receiver) = mpsc::channel(frames.max(1));
    let intake = Intake {
        frames: sender,
        bytes: Arc::new(Semaphore::new(capacity as usize)),
        capacity,
    };
    (intake, receiver)
}

impl Intake {
    /// Queues a frame unless the queue is full.
    pub(super) fn offer(&self, received: Received) -> Result<(), NotQueued> {
        let share = self.share(&received);
        let share = Arc::clone(&self.bytes)
            .try_acquire_many_owned(share)
            .map_err(|_| NotQueued::Full)?;
        let queued = Queued {
            received,
            _share: share,
        };
        self.frames
            .try_send(queued)
            .map_err(|refused| match refused {
                mpsc::error::TrySendError::Full(_) => NotQueued::Full,
                mpsc::error::TrySendError::Closed(_) => NotQueued::Gone,
            })
    }

    fn share(&self, received: &Received) -> u32 {
        u32::try_from(weight(&received.frame))
            .unwrap_or(u32::MAX)
            .min(self.capacity)
    }

    /// Queues a frame; waits while the queue is full.
    pub(super) async fn put(&self, received: Received) -> Result<(), Gone> {
        let share = self.share(&received);
        let share = Arc::clone(&self.bytes).acquire_many_owned(share);
        let share = tokio::select! {
            share = share => share.map_err(|_| Gone)?,
            () = self.frames.closed() => return Err(Gone),
        };
        let queued = Queued {
            received,
            _share: share,
        };
        self.frames.send(queued).await.map_err(|_| Gone)
    }
}

/// About how many bytes a decoded frame holds: the elements of all its lists and what they own. An element that is two
/// bytes on the wire counts as large as it has become.
#[must_use]
pub(super) fn weight(frame: &SyncRegionResponse) -> usize {
    let regions: usize = frame
        .regions
        .iter()
        .map(|region| {
            let keys = region.start_key.len() + region.end_key.len();
            size_of::<Region>() + keys + region.peers.len() * size_of::<Peer>()
        })
        .sum();
    let leaders = frame.region_leaders.len() * size_of::<Peer>();
    let stats = frame.region_stats.len() * size_of::<RegionStat>();
    let buckets: usize = frame
        .buckets
        .iter()
        .map(|buckets| {
            let keys: usize = buckets
                .keys
                .iter()
                .map(|key| size_of_val(key) + key.len())
                .sum();
            size_of::<Buckets>() + keys
        })
        .sum();
    size_of::<SyncRegionResponse>() + regions + leaders + stats + buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(regions: usize) -> Received {
        Received {
            kind: Kind::Records,
            frame: SyncRegionResponse {
                regions: vec![Region::default(); regions],
                ..SyncRegionResponse::default()
            },
            at: Moment::from_nanos(1),
        }
    }

    #[tokio::test]
    async fn the_receiver_waits_for_frames_and_for_bytes() {
        for (frames, bytes) in [(1, usize::MAX), (64, 1_000)] {
            let (intake, mut applier) = queue(frames, bytes);
            intake.put(received(5)).await.unwrap();
            let second = intake.put(received(5));
            tokio::pin!(second);
            tokio::select! {
                biased;
                _ = &mut second => panic!("{frames} frames, {bytes} bytes: the queue is full"),
                () = tokio::task::yield_now() => {}
            }
            drop(applier.recv().await.unwrap());
            second.await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_offered_does_not_wait() {
        for (frames, bytes) in [(1, usize::MAX), (64, 1_000)] {
            let (intake, mut applier) = queue(frames, bytes);
            assert_eq!(intake.offer(received(5)), Ok(()));
            assert_eq!(intake.offer(received(5)), Err(NotQueued::Full));
            drop(applier.recv().await.unwrap());
            assert_eq!(intake.offer(received(5)), Ok(()));
            drop(applier.recv().await.unwrap());
            drop(applier);
            assert_eq!(intake.offer(received(5)), Err(NotQueued::Gone));
        }
    }

    #[test]
    fn every_list_of_a_frame_weighs_what_its_elements_hold() {
        const COUNT: usize = 1_000;
        let key = bytes::Bytes::from_static(&[7; 100]);
        let empty = SyncRegionResponse::default();
        let peers = vec![Peer::default(); COUNT];
        let region = |region: Region| SyncRegionResponse {
            regions: vec![region],
            ..SyncRegionResponse::default()
        };
        let bucket = |keys: usize| SyncRegionResponse {
            buckets: vec![Buckets {
                keys: vec![key.clone(); keys],
                ..Buckets::default()
            }],
            ..SyncRegionResponse::default()
        };
        let heavy = [
            (
                received(COUNT).frame,
                empty.clone(),
                COUNT * size_of::<Region>(),
            ),
            (
                SyncRegionResponse {
                    region_leaders: peers.clone(),
                    ..empty.clone()
                },
                empty.clone(),
                COUNT * size_of::<Peer>(),
            ),
            (
                SyncRegionResponse {
                    region_stats: vec![RegionStat::default(); COUNT],
                    ..empty.clone()
                },
                empty.clone(),
                COUNT * size_of::<RegionStat>(),
            ),
            (
                SyncRegionResponse {
                    buckets: vec![Buckets::default(); COUNT],
                    ..empty.clone()
                },
                empty,
                COUNT * size_of::<Buckets>(),
            ),
            (
                region(Region {
                    peers,
                    ..Region::default()
                }),
                region(Region::default()),
                COUNT * size_of::<Peer>(),
            ),
            (
                region(Region {
                    start_key: key.clone(),
                    end_key: key.clone(),
                    ..Region::default()
                }),
                region(Region::default()),
                2 * key.len(),
            ),
            (
                bucket(COUNT),
                bucket(0),
                COUNT * (size_of::<bytes::Bytes>() + key.len()),
            ),
        ];
        for (with, without, difference) in heavy {
            assert_eq!(weight(&with) - weight(&without), difference);
        }
    }

    #[tokio::test]
    async fn a_frame_larger_than_the_whole_queue_still_passes() {
        let (intake, mut applier) = queue(4, 100);
        intake.put(received(50)).await.unwrap();
        assert_eq!(
            applier.recv().await.unwrap().received.frame.regions.len(),
            50
        );
    }

    #[tokio::test]
    async fn a_waiting_receiver_is_told_when_the_applier_goes_away() {
        let (intake, applier) = queue(4, 1_000);
        intake.put(received(5)).await.unwrap();
        let second = intake.put(received(5));
        drop(applier);
        assert!(second.await.is_err());
    }
}
