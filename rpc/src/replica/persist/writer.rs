//! The writer: takes what the journal holds and puts it on disk, again and again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_core::{Key, SharedEntry};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::replica::state::Shared;

use super::disk::{Disk, DiskError};
use super::journal::Work;
use super::{Kept, Mark, Persist, Reign, lock};
use crate::pd::Term;

/// Records after which a write is due.
const RECORDS: u64 = 100;
/// The longest that a change waits to be written.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest rest after a write, and after a failure.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// Regions that are looked up, or read in order, under one guard.
const PAGE: usize = 4_096;

/// Starts to write; ends some time after `stop`, when what waited then has been written.
pub(in crate::replica) fn spawn(
    persist: Arc<Persist>,
    shared: Arc<Shared>,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(run(persist, shared, stop))
}

async fn run(persist: Arc<Persist>, shared: Arc<Shared>, stop: CancellationToken) {
    let mut failures = 0;
    loop {
        let due = async {
            persist.journal.something().await;
            let _ = timeout(INTERVAL, persist.journal.many(RECORDS)).await;
        };
        let stopping = tokio::select! {
            () = due => false,
            () = stop.cancelled() => true,
        };
        if let Some(work) = persist.journal.take() {
            let begun = Instant::now();
            let (this, map) = (Arc::clone(&persist), Arc::clone(&shared));
            let done = spawn_blocking(move || this.perform(&map, work)).await;
            let rest = match done {
                Ok(true) => {
                    failures = 0;
                    begun.elapsed().min(LONGEST_REST)
                }
                // Counted and logged where it happened; a panic of the store is as good as a failure.
                Ok(false) | Err(_) if stopping => return,
                Ok(false) | Err(_) => {
                    failures = (failures + 1).min(6);
                    INTERVAL * (1 << failures)
                }
            };
            if !stopping {
                tokio::select! {
                    () = sleep(rest.min(LONGEST_REST)) => {}
                    () = stop.cancelled() => {}
                }
                continue;
            }
        }
        if stopping {
            return;
        }
    }
}

/// Why a write was not done.
#[derive(Debug, thiserror::Error)]
enum Undone {
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Another full sync has taken over; its content is written next.
    #[error("the map is another one by now")]
    Overtaken,
}

impl Persist {
    /// Whether the work is done, or need not be any more.
    fn perform(&self, shared: &Shared, work: Work) -> bool {
        let mut disk = lock(&self.disk);
        if disk.is_none() {
            match Disk::open(&self.directory) {
                Ok((opened, _)) => *disk = Some(opened),
                Err(error) => {
                    self.journal.give_back(work);
                    self.report(&format!("the file cannot be opened: {error}"));
                    return false;
                }
            }
        }
        let Some(open) = disk.as_mut() else {
            return false;
        };
        let (before, begun) = (open.written(), shared.clock.now());
        let done = self.write(open, shared, &work);
        let took = shared.clock.now().saturating_since(begun).as_nanos();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        self.counters.writing_nanos.fetch_add(took, Relaxed);
        self.counters
            .written
            .fetch_add(open.written().saturating_sub(before), Relaxed);
        match done {
            Ok(next_index) => {
                self.counters.flushes.fetch_add(1, Relaxed);
                self.counters.index.store(next_index, Relaxed);
                true
            }
            Err(Undone::Overtaken) => true,
            Err(Undone::Disk(error)) => {
                // After a failure the store takes no more writes until it is opened again.
                *disk = None;
                self.journal.give_back(work);
                self.report(&error.to_string());
                false
            }
        }
    }

    fn report(&self, reason: &str) {
        self.failed(reason);
        // No more often than the pauses between attempts allow.
        tracing::error!(
            reason,
            directory = %self.directory.display(),
            "regions could not be written to disk; trying again"
        );
    }

    /// Writes, and returns the index that a restart would resume at.
    fn write(&self, disk: &mut Disk, shared: &Shared, work: &Work) -> Result<u64, Undone> {
        let Some(cluster_id) = shared.cluster_id() else {
            return Err(Undone::Overtaken);
        };
        let kept = |mark: &Mark| Kept {
            cluster_id,
            mark: mark.clone(),
        };
        match work {
            Work::Flush {
                mark,
                generation,
                ids,
                gone,
            } => {
                let regions = read(shared, *generation, ids.iter().copied())?;
                let regions = regions.iter().map(|entry| entry.region());
                let gone = gone_from(shared, *generation, gone)?;
                let records = disk.flush(&kept(mark), &gone, regions)?;
                self.counters.records.fetch_add(records, Relaxed);
                Ok(mark.next_index)
            }
            Work::Rewrite { mark, generation } => {
                let mut start = Some(Key::EMPTY);
                let records = disk.rewrite(&kept(mark), || {
                    let Some(from) = start.take() else {
                        return Ok(None);
                    };
                    let page;
                    let next = shared.page(*generation, &from, PAGE);
                    (page, start) = next.ok_or(Undone::Overtaken)?;
                    Ok::<_, Undone>((!page.is_empty()).then_some(page))
                })?;
                self.counters.rewrites.fetch_add(1, Relaxed);
                self.counters.records.fetch_add(records, Relaxed);
                Ok(mark.next_index)
            }
            Work::Forget => {
                let nothing = Mark {
                    reign: Reign {
                        term: Term::from_create_revision(0),
                        member_id: 0,
                        member_name: String::new(),
                    },
                    next_index: 0,
                };
                disk.flush(&kept(&nothing), &[], [])?;
                Ok(0)
            }
        }
    }
}

/// The live ones of the regions `ids`. One that is gone has been displaced by others, which are among them or will be.
fn read(
    shared: &Shared,
    generation: u64,
    ids: impl Iterator<Item = u64>,
) -> Result<Vec<SharedEntry>, Undone> {
    let ids: Vec<u64> = ids.collect();
    let mut entries = Vec::with_capacity(ids.len());
    for ids in ids.chunks(PAGE) {
        let snapshot = shared.map.pin();
        if snapshot.generation() != generation {
            return Err(Undone::Overtaken);
        }
        let live = ids.iter().filter_map(|&id| snapshot.by_id(id));
        entries.extend(live.map(|entry| entry.to_shared()));
    }
    // In the order of the file, so that neighbours share their pages.
    entries.sort_unstable_by(|one, other| one.start().cmp(other.start()));
    Ok(entries)
}

/// Those of the keys at which no region begins any more.
fn gone_from(shared: &Shared, generation: u64, keys: &HashSet<Key>) -> Result<Vec<Key>, Undone> {
    let snapshot = shared.map.pin();
    if snapshot.generation() != generation {
        return Err(Undone::Overtaken);
    }
    let begins = |key: &Key| snapshot.get(key).is_some_and(|live| live.start() == key);
    Ok(keys.iter().filter(|key| !begins(key)).cloned().collect())
}
