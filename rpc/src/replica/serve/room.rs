//! Room for heavy work.
//!
//! A scan of everything takes up to seconds and hundreds of megabytes, and any number may be asked
//! for at once. So only a few are made at a time; who finds no room waits a little, and is then
//! told that there is none, in a status that clients take to another server. Light lookups need
//! no room. Scans and batches have rooms of their own: a batch is done in milliseconds and should
//! not wait for a scan.
//!
//! A request is held while it waits, and as a message it takes several times the bytes that it arrived in. So what waits,
//! for all rooms together, is bounded as well; whoever would be too much is told so at once.
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

/// Bytes of the requests that may wait at once.
pub(super) const MOST_WAITING: usize = 256 << 20;

/// What a permit of the queue stands for.
const PERMIT: usize = 1 << 10;

/// A place in a room; `None` for light work.
pub(super) type Place = Option<OwnedSemaphorePermit>;

/// Those who wait, before whichever room.
#[derive(Clone, Debug)]
pub(super) struct Queue(Arc<Semaphore>);

impl Queue {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MOST_WAITING / PERMIT)))
    }

    /// A place in the queue with a request of so many bytes, if there is one.
    fn stand(&self, size: usize) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(size / PERMIT + 1).ok()?;
        Arc::clone(&self.0).try_acquire_many_owned(permits).ok()
    }
}

/// A few places.
#[derive(Clone, Debug)]
pub(super) struct Room {
    places: Arc<Semaphore>,
    queue: Queue,
}

impl Room {
    pub(super) fn new(places: usize, queue: &Queue) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
            queue: queue.clone(),
        }
    }

    /// Waits for a place, to be kept while the work is done, with a request that takes `size` bytes meanwhile. Cancel
    /// safe.
    pub(super) fn enter(
        &self,
        weight: Weight,
        size: usize,
    ) -> impl Future<Output = Result<Place, Rejected>> + Send + use<> {
        let Self { places, queue } = self.clone();
        async move {
            if weight == Weight::Light {
                return Ok(None);
            }
            if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                return Ok(Some(place));
            }
            let Some(_waiting) = queue.stand(size) else {
                return Err((Rejection::Busy, refusal::busy()));
            };
            match timeout(PATIENCE, places.acquire_owned()).await {
                Ok(Ok(place)) => Ok(Some(place)),
                // Nobody closes the semaphore.
                Ok(Err(_)) | Err(_) => Err((Rejection::Busy, refusal::busy())),
            }
        }
    }
}
