//! Release 8.5: one broadcaster feeds all streams.
//!
//! It takes the changes that wait, gives them their indexes, and sends the same message to every stream in turn, with a
//! send that blocks: a follower that does not read holds up all others, and the history with them. The timer of the
//! keepalives waits at the same place, so under load they come when they can.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;

use crate::leader::cluster::Cluster;
use crate::proto::pdpb::SyncRegionResponse;
use crate::syncer::frame;
use crate::syncer::registry::Seat;

/// The streams that hear the broadcaster.
#[derive(Debug, Default)]
pub(in crate::leader) struct Audience(Mutex<Vec<Listener>>);

/// A stream that hears the broadcaster.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    pub(super) seat: Seat,
    pub(super) frames: mpsc::Sender<SyncRegionResponse>,
    /// Cancelled when the broadcaster gives the stream up.
    pub(super) dropped: CancellationToken,
}

impl Audience {
    pub(super) fn bind(&self, listener: Listener) {
        self.listeners().push(listener);
    }

    pub(super) fn unbind(&self, seat: &Seat) {
        self.listeners()
            .retain(|listener| listener.seat.number != seat.number);
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Broadcasts until the leader stops.
pub(in crate::leader) async fn broadcast(cluster: Arc<Cluster>) {
    let mut head = cluster.regions.subscribe();
    // What waits already is not news.
    head.mark_changed();
    let keepalive = cluster.config.keepalive;
    let mut tick = interval_at(Instant::now() + keepalive, keepalive);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // The first of a message, and what else waits.
    let most = cluster.config.max_batch.saturating_add(1);
    loop {
        // In no order of preference, as PD's: a keepalive may overtake changes that have no index yet.
        let due = tokio::select! {
            () = cluster.stopping.cancelled() => return,
            _ = tick.tick() => true,
            _ = head.changed() => false,
        };
        let frame = if due {
            frame::empty(cluster.config.cluster_id, cluster.regions.next_index())
        } else {
            let Some((first, records)) = cluster.regions.record_waiting(most) else {
                continue;
            };
            if records.len() == most {
                // More may wait.
                head.mark_changed();
            }
            frame::regions(cluster.config.cluster_id, first, records.iter())
        };
        send_to_all(&cluster, &frame).await;
    }
}

async fn send_to_all(cluster: &Cluster, frame: &SyncRegionResponse) {
    let listeners = cluster.audience.listeners().clone();
    for listener in listeners {
        let sent = tokio::select! {
            biased;
            () = cluster.stopping.cancelled() => return,
            // Replaced, or gone: nobody waits for it any more.
            () = listener.seat.taken.cancelled() => continue,
            sent = timeout(cluster.config.send_timeout, listener.frames.send(frame.clone())) => sent,
        };
        if !matches!(sent, Ok(Ok(()))) {
            cluster.audience.unbind(&listener.seat);
            listener.dropped.cancel();
        }
    }
}
