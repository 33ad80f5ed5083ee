//! Room for heavy work.
//!
//! A scan of everything takes up to seconds and hundreds of megabytes, and any number may be asked
//! for at once. So only a few are made at a time; who finds no room waits a little, and is then
//! told that there is none, in a status that clients take to another server. Light lookups need
//! no room. Scans and batches have rooms of their own: a batch is done in milliseconds and should
//! not wait for a scan.
//!
//! A caller that goes away, or whose deadline passes, leaves the queue.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::checks::Rejected;
use super::counters::Rejection;
use super::{Weight, refusal};

/// How long a place is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// A place in a room; `None` for light work.
pub(super) type Place = Option<OwnedSemaphorePermit>;

/// A few places.
#[derive(Clone, Debug)]
pub(super) struct Room(Arc<Semaphore>);

impl Room {
    pub(super) fn new(places: usize) -> Self {
        Self(Arc::new(Semaphore::new(places)))
    }

    /// Waits for a place, to be kept while the work is done. Cancel safe.
    pub(super) fn enter(
        &self,
        weight: Weight,
    ) -> impl Future<Output = Result<Place, Rejected>> + Send + use<> {
        let room = Arc::clone(&self.0);
        async move {
            if weight == Weight::Light {
                return Ok(None);
            }
            match timeout(PATIENCE, room.acquire_owned()).await {
                Ok(Ok(place)) => Ok(Some(place)),
                // Nobody closes the semaphore.
                Ok(Err(_)) | Err(_) => Err((Rejection::Busy, refusal::busy())),
            }
        }
    }
}
