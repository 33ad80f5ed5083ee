//! Replicas that follow this one (`upstream` there, `max-downstreams` here).
//!
//! ```text
//!  PD leader --> replica --SyncRegions--> replica --SyncRegions--> replica
//!            <--probe---         <--probe---           <--probe---
//! ```
//!
//! # What is served
//! `pdpb.PD/SyncRegions` as PD master serves it, from the map and a ring of the records that the map was made of, under
//! the PD leader's own indexes. A follower that has been away resumes at its own index, here or at any other replica of
//! the same term, or at PD. What a replica tells beside the frames (the term that its indexes are of, and who is between
//! it and PD) is in the response's metadata: see [`Told`].
//!
//! | a follower asks at `S`, an index of this replica's term | it gets |
//! |---|---|
//! | 0, or older than the ring; any index of another term | a full sync: the map page by page, then what was recorded meanwhile, then an empty frame |
//! | within the ring | the records from `S` on |
//! | the next index | an empty frame |
//! | beyond the next index | an error: this replica is behind, and would take the follower back in time |
//!
//! A full sync of this replica ends all streams, which then sync anew. So does a change of term, which is one.
//!
//! # Freshness, end to end
//! A follower's proof is worth what it is worth to the PD leader. Three rules see to it:
//!
//! - A probe is answered with how much earlier than the question the latest proof of this replica is, and the follower
//!   counts from that much before it asked. So the age of what it holds is counted from a question that the PD leader
//!   answered, however many replicas are in between, and no two clocks are compared. When the proof is older than the
//!   question, this replica first asks its own leader, at once, and waits for a second at most.
//! - A replica whose gate is shut answers no probe, opens no stream and sends no keepalive.
//! - A keepalive is passed on when it comes, and only when it has not waited here for a second; this replica makes none
//!   of its own. Silence of the leader is silence all the way down. What waits before it is sent first.
//!
//! Of what this replica learnt from the leader's own answers (read-through, audit) only full syncs tell: the stream is
//! what the leader recorded. Each replica compares its map with the leader's itself.
//!
//! # No circles
//! Every process has an id. A follower is refused when it is on the path that this replica's data takes, and a follower
//! leaves when it finds itself on the path that it is told; both look at each probe, so that a circle that was closed
//! from two sides at once is found at the next one. Until then nothing in it is proven: there is no leader to ask.

mod asking;
mod ring;
mod serve;
mod stream;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::{Moment, SharedEntry};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::pd::Told;
use crate::syncer::registry::Registry;

use super::persist::Reign;
use asking::Asking;
use ring::Ring;

pub(in crate::replica) use serve::open;

/// Full syncs that are sent at once; further ones wait.
const FULL_SYNCS: usize = 2;

/// This replica's place in a chain.
#[derive(Debug)]
pub struct Chain {
    id: String,
    /// `None` when nobody may follow.
    ring: Option<Ring>,
    downstreams: usize,
    streams: Registry,
    full_syncs: Semaphore,
    probes: Semaphore,
    asking: Asking,
    /// The ids of the replicas that this one's data comes through, the nearest first; none when it follows PD.
    path: Mutex<Vec<String>>,
    stopping: CancellationToken,
}

impl Chain {
    /// A process that goes by `id` and has at most `downstreams` followers, whose streams end at `stopping`.
    #[must_use]
    pub fn new(id: &str, downstreams: usize, stopping: CancellationToken) -> Self {
        Self {
            id: id.to_owned(),
            ring: (downstreams > 0).then(Ring::new),
            downstreams,
            streams: Registry::default(),
            full_syncs: Semaphore::new(FULL_SYNCS),
            // A follower has one probe under way.
            probes: Semaphore::new(downstreams.saturating_mul(2).min(Semaphore::MAX_PERMITS)),
            asking: Asking::default(),
            path: Mutex::default(),
            stopping,
        }
    }

    /// What this process is known by in a chain.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How many followers there are.
    #[must_use]
    pub fn followers(&self) -> usize {
        self.streams.len()
    }

    /// Through whom the data comes, the nearest first; empty when it comes from PD.
    #[must_use]
    pub fn path(&self) -> Vec<String> {
        self.locked_path().clone()
    }

    /// The data now comes from PD, or from a replica that told this.
    pub(super) fn comes_from(&self, told: Option<&Told>) {
        *self.locked_path() = told.map_or_else(Vec::new, |told| told.path.clone());
    }

    fn locked_path(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn asking(&self) -> &Asking {
        &self.asking
    }

    /// Another map answers.
    pub(super) fn replaced(&self, generation: u64, reign: Option<Reign>, next: u64) {
        if let Some(ring) = &self.ring {
            ring.replaced(generation, reign, next);
        }
    }

    /// Whether records are to be handed to [`append`](Self::append).
    pub(super) fn keeps_records(&self) -> bool {
        self.ring.is_some()
    }

    /// Records that the map shows, the first under the index `first`. Before the gate is told that they are applied: a
    /// proof that counts them finds them here.
    pub(super) fn append(&self, first: u64, records: impl IntoIterator<Item = SharedEntry>) {
        if let Some(ring) = &self.ring {
            ring.append(first, records);
        }
    }

    /// A frame that said "nothing new" was received at `at`, and everything before it has been applied.
    pub(super) fn beat(&self, at: Moment) {
        if let Some(ring) = &self.ring {
            ring.beat(at);
        }
    }

    /// Gives back what the ring has grown by, every five minutes, until the end.
    pub(super) async fn maintain(self: Arc<Self>) {
        const INTERVAL: std::time::Duration = std::time::Duration::from_secs(5 * 60);
        let Some(ring) = &self.ring else { return };
        loop {
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = tokio::time::sleep(INTERVAL) => ring.maintain(),
            }
        }
    }
}
