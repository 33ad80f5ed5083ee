//! Regions on disk, so that a restart needs no full sync (`data-dir`).
//!
//! ```text
//!  apply --ids, index--> journal --taken--> writer --one transaction--> file
//!                                             |
//!                    map <--reads the regions-+
//! ```
//!
//! # What is kept
//! The regions, the next index, and what the two belong to: the cluster, the term of the leader and who that was. They
//! are written together, after 100 records or a second, whichever comes first; after a write the writer rests for as
//! long as the write took, so that it never takes more than half of what the disk can do. The applier leaves ids and
//! an index and never waits for the disk (`journal.rs`).
//!
//! # What a restart does
//! The file is opened before anything else: one of another cluster and one that another process has are refused.
//! When the leader is found and is still in the term that the file is of, the regions are loaded and the stream is
//! resumed at the index; in any other term the file's content is of no use, and the full sync replaces it. Loaded
//! regions answer nothing until a probe has proven them, as after any full sync. Regions on disk may be newer than the
//! index beside them, never older; the stream says again what is newer.
//!
//! Changes that the map took from a leader's answer and not from the stream are written like all others.
//!
//! # What can go wrong
//! - A crash, at any point: the file holds the last committed state.
//! - A file that is damaged, of another format, or none of ours: it is renamed, which is logged as an error, and the
//!   replica starts with a full sync. Damage is found by the checksums of all pages when the file is opened.
//! - A write that fails, such as on a full disk: it is counted and logged, tried again after a pause, and nothing else
//!   comes of it. Regions that wait to be written are ids until then, one for each region.
//!
//! # The store
//! redb, a copy-on-write B-tree in one file. Compared with fjall, the log-structured one among the pure Rust stores:
//! it builds cold in 6 s of processor time instead of 16 and brings no dependency but libc; its file is the state, with
//! no log to replay; and its storage is a trait, so that a crash between any two writes is a test. What it costs is
//! write amplification: a changed region rewrites a leaf of 4 KiB and its path. That is bounded by writing a region
//! that changed often once, and by not writing what is the same: flow statistics, which are most of what a leader
//! records, are left out. LMDB and RocksDB are C and C++.
//!
//! Measured with the store alone on a busy machine of two processors, a million records of 140 bytes: writing all
//! takes 8.6 s and 148 MB, the file then has 272 MB; 100, 1,000 and 10,000 records at random places take 16, 56 and
//! 364 ms and about 8 KB a record; opening it with all checksums compared takes 0.6 s, reading it 0.6 s.

mod backend;
mod disk;
mod journal;
mod record;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tidegate_core::{BulkLoad, Key, Moment, Provenance};
use tokio::task::spawn_blocking;

use crate::pd::Term;
use crate::proto::pdpb::Member;

use super::state::Shared;
use super::sync::Staged;
use disk::{Disk, OpenError};
use journal::Journal;

pub(super) use writer::spawn;

/// One reign of one leader: what an index belongs to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reign {
    /// The term.
    pub term: Term,
    /// The leader's member id.
    pub member_id: u64,
    /// The leader's name.
    pub member_name: String,
}

impl Reign {
    /// The reign of `leader` in `term`.
    #[must_use]
    pub fn new(term: Term, leader: &Member) -> Self {
        Self {
            term,
            member_id: leader.member_id,
            member_name: leader.name.clone(),
        }
    }

    /// Whether it is the same. A name may change; a member id belongs to one member of one cluster.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        (self.term, self.member_id) == (other.term, other.member_id)
    }
}

/// How far a map's content is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Mark {
    pub(super) reign: Reign,
    /// The next index to apply.
    pub(super) next_index: u64,
}

/// What a file's regions belong to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Kept {
    pub(super) cluster_id: u64,
    pub(super) mark: Mark,
}

/// A data directory that cannot be used. One line: what, and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// The directory or the file in it cannot be made, read or written.
    #[error("data-dir {}: {source}; give a directory that this user may write to", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What is to be the directory is something else.
    #[error("data-dir {} is no directory; give another, or one that is to be made", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// Where the file is to be stands something else.
    #[error("{}: {found}, and regions are to be kept there; move it away, or give another data-dir", path.display())]
    Occupied {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// A file that cannot be used cannot be moved out of the way either.
    #[error(
        "{} cannot be used ({reason}) and cannot be renamed to {}: {source}; move one of them away",
        path.display(),
        aside.display()
    )]
    NotSetAside {
        /// The file.
        path: PathBuf,
        /// What it was to be renamed to.
        aside: PathBuf,
        /// Why it cannot be used.
        reason: String,
        /// Why it cannot be renamed.
        source: io::Error,
    },
    /// Another process uses it.
    #[error("data-dir {} is used by another process; give each its own", path.display())]
    Taken {
        /// The directory.
        path: PathBuf,
    },
}

/// A data directory that holds the regions of another cluster.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "data-dir {} holds the regions of cluster {kept}, and the endpoints are of cluster {found}; give another \
     --data-dir, or endpoints of cluster {kept}",
    path.display()
)]
pub struct OtherCluster {
    /// The directory.
    pub path: PathBuf,
    /// The cluster of what is in it.
    pub kept: u64,
    /// The cluster that is followed.
    pub found: u64,
}

/// The regions on disk.
pub struct Persist {
    directory: PathBuf,
    journal: Journal,
    /// `None` while the file could not be opened again.
    disk: Mutex<Option<Disk>>,
    /// What was found at the start, until it is loaded or of no more use.
    found: Mutex<Option<Kept>>,
    counters: Counters,
    last_error: Mutex<Option<String>>,
    /// The file that could not be used, the last one.
    set_aside: Mutex<Option<SetAside>>,
    /// The file that was there had nothing to go on with: it was damaged, and the store went back to an older state of it,
    /// or it is of a start that never was in sync.
    had_nothing: bool,
}

/// A file that could not be used and was renamed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct SetAside {
    /// What it was called.
    pub from: String,
    /// What it is called now; it may be looked into, or removed.
    pub to: String,
    /// Why it could not be used.
    pub reason: String,
}

#[derive(Debug, Default)]
struct Counters {
    flushes: AtomicU64,
    rewrites: AtomicU64,
    records: AtomicU64,
    loaded: AtomicU64,
    errors: AtomicU64,
    set_aside: AtomicU64,
    written: AtomicU64,
    writing_nanos: AtomicU64,
    index: AtomicU64,
}

/// What the status page and the metrics tell about the regions on disk.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PersistStatus {
    /// The directory.
    pub path: String,
    /// The index that a restart would resume at; 0 when it would not.
    pub index: u64,
    /// Regions that were loaded at the start.
    pub loaded: u64,
    /// Regions that changed and wait to be written.
    pub waiting: u64,
    /// Transactions.
    pub flushes: u64,
    /// Times that all was written anew, after a full sync.
    pub rewrites: u64,
    /// Records written.
    pub records: u64,
    /// Bytes written to the file since the start.
    pub written_bytes: u64,
    /// Milliseconds that a thread was writing, waits for the disk included.
    pub writing_ms: u64,
    /// The size of the file.
    pub file_bytes: u64,
    /// Reads, writes and renames that failed.
    pub errors: u64,
    /// Files that could not be used and were renamed.
    pub set_aside: u64,
    /// The last of them.
    pub last_set_aside: Option<SetAside>,
    /// The last failure.
    pub last_error: Option<String>,
}

impl fmt::Debug for Persist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persist")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

impl Persist {
    /// Opens the directory, which is made if it is not there. A file that cannot be used is set aside.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub async fn open(directory: PathBuf) -> Result<Arc<Self>, DataDirError> {
        let path = directory.clone();
        let opened = match spawn_blocking(move || open(&path)).await {
            Ok(opened) => opened?,
            // The store panicked: it read what it took for its own.
            Err(panic) => {
                let reason = panic.to_string();
                let path = directory.clone();
                match spawn_blocking(move || begin_anew(&path, reason)).await {
                    Ok(opened) => opened?,
                    Err(panic) => {
                        return Err(DataDirError::Io {
                            path: directory,
                            source: io::Error::other(panic),
                        });
                    }
                }
            }
        };
        let Opened {
            disk,
            kept,
            had_nothing,
            set_aside,
        } = opened;
        let persist = Self {
            directory,
            journal: Journal::default(),
            disk: Mutex::new(Some(disk)),
            found: Mutex::new(kept),
            had_nothing,
            counters: Counters::default(),
            last_error: Mutex::new(None),
            set_aside: Mutex::new(None),
        };
        if let Some(found) = &*lock(&persist.found) {
            // Relaxed, as all of these: counts for display.
            persist.counters.index.store(found.mark.next_index, Relaxed);
        }
        if let Some(aside) = set_aside {
            persist.failed(&aside.reason);
            persist.note_set_aside(aside);
        }
        Ok(Arc::new(persist))
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Logs what [`open`](Self::open) had to set aside: that is done before anything is logged.
    pub(super) fn say_what_was_set_aside(&self) {
        if let Some(aside) = &*lock(&self.set_aside) {
            aside.log();
        }
        if self.had_nothing {
            tracing::warn!(
                file = %self.directory.join(disk::FILE).display(),
                "the file of regions holds none: it was damaged, or made by a start that never was in sync; a full \
                 sync fills it"
            );
        }
    }

    fn note_set_aside(&self, aside: SetAside) {
        self.counters.set_aside.fetch_add(1, Relaxed);
        *lock(&self.set_aside) = Some(aside);
    }

    /// Checks that what was found at the start is of the cluster `found`, if there was anything.
    ///
    /// # Errors
    /// [`OtherCluster`].
    pub fn check_cluster(&self, found: u64) -> Result<(), OtherCluster> {
        match &*lock(&self.found) {
            Some(kept) if kept.cluster_id != found => Err(OtherCluster {
                path: self.directory.clone(),
                kept: kept.cluster_id,
                found,
            }),
            _ => Ok(()),
        }
    }

    /// These regions changed in the map that answers.
    pub(super) fn changed(&self, ids: &[u64]) {
        self.journal.changed(ids, Vec::new());
    }

    /// The leader's own answer put the regions `ids` in the map that answers, and took away those that began at `gone`.
    pub(super) fn healed(&self, ids: &[u64], gone: Vec<Key>) {
        self.journal.changed(ids, gone);
    }

    /// Everything before `next_index` has been applied.
    pub(super) fn reached(&self, next_index: u64) {
        self.journal.reached(next_index);
    }

    /// A full sync in `reign` was published.
    pub(super) fn replaced(&self, generation: u64, reign: Option<Reign>, next_index: u64) {
        lock(&self.found).take();
        self.journal.replaced(generation, reign, next_index);
    }

    /// The own index means nothing any more.
    pub(super) fn distrusted(&self) {
        self.journal.distrusted();
    }

    /// Loads what was found at the start if it can be resumed in `reign`, lets it answer as soon as it is proven, and
    /// returns the next index. It is asked once for: what cannot be resumed now never can.
    pub(super) async fn load(self: &Arc<Self>, shared: &Arc<Shared>, reign: &Reign) -> Option<u64> {
        let kept = lock(&self.found).take()?;
        if kept.mark.next_index == 0 || !kept.mark.reign.is(reign) {
            tracing::info!(
                kept = ?kept.mark.reign,
                found = ?reign,
                "the regions on disk are of another term; a full sync replaces them"
            );
            return None;
        }
        let (this, loading) = (Arc::clone(self), Arc::clone(shared));
        let next_index = kept.mark.next_index;
        let loaded = spawn_blocking(move || this.load_into(&loading, kept.mark)).await;
        let reason = match loaded {
            Ok(Ok(regions)) => {
                self.counters.loaded.store(regions, Relaxed);
                tracing::info!(regions, next_index, "loaded the regions on disk");
                return Some(next_index);
            }
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic.to_string(),
        };
        let this = Arc::clone(self);
        // A failure here is counted there; the full sync that follows does not need the disk.
        let _ = spawn_blocking(move || this.replace_file(reason)).await;
        None
    }

    fn load_into(&self, shared: &Shared, mark: Mark) -> Result<u64, disk::LoadError> {
        let disk = lock(&self.disk);
        let Some(disk) = &*disk else { return Ok(0) };
        // Before anything that a leader may say.
        let received_at = Moment::from_nanos(0);
        let mut load = BulkLoad::new();
        let regions = disk.load(|regions| {
            let received = |region| (region, Provenance::Stream { received_at });
            load.extend(regions.into_iter().map(received));
        })?;
        let staged = Staged::loaded(shared, load);
        let generation = staged.generation();
        self.journal.loaded(generation, mark.clone());
        staged.publish(shared);
        if let Some(chain) = shared.chain() {
            chain.replaced(generation, Some(mark.reign), mark.next_index);
        }
        Ok(regions)
    }

    /// Sets the file aside and makes a new one.
    fn replace_file(&self, reason: String) {
        self.failed(&reason);
        let mut disk = lock(&self.disk);
        // Closed first: a file that is renamed stays locked.
        *disk = None;
        match begin_anew(&self.directory, reason) {
            Ok(opened) => {
                if let Some(aside) = opened.set_aside {
                    aside.log();
                    self.note_set_aside(aside);
                }
                *disk = Some(opened.disk);
            }
            Err(error) => {
                tracing::error!(%error, "the regions on disk cannot be used; nothing is kept for the next start");
                self.failed(&error.to_string());
            }
        }
    }

    fn failed(&self, reason: &str) {
        self.counters.errors.fetch_add(1, Relaxed);
        *lock(&self.last_error) = Some(reason.to_owned());
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> PersistStatus {
        let counters = &self.counters;
        PersistStatus {
            path: self.directory.display().to_string(),
            index: counters.index.load(Relaxed),
            loaded: counters.loaded.load(Relaxed),
            waiting: self.journal.waiting(),
            flushes: counters.flushes.load(Relaxed),
            rewrites: counters.rewrites.load(Relaxed),
            records: counters.records.load(Relaxed),
            written_bytes: counters.written.load(Relaxed),
            writing_ms: counters.writing_nanos.load(Relaxed) / 1_000_000,
            file_bytes: fs::metadata(self.directory.join(disk::FILE)).map_or(0, |file| file.len()),
            errors: counters.errors.load(Relaxed),
            set_aside: counters.set_aside.load(Relaxed),
            last_set_aside: lock(&self.set_aside).clone(),
            last_error: lock(&self.last_error).clone(),
        }
    }
}

/// A file that can be written to.
struct Opened {
    disk: Disk,
    kept: Option<Kept>,
    /// One was there, and has nothing that could be gone on with.
    had_nothing: bool,
    /// The one that was there, if it had to be set aside.
    set_aside: Option<SetAside>,
}

impl SetAside {
    fn log(&self) {
        let Self { from, to, reason } = self;
        tracing::error!(
            from,
            to,
            reason,
            "the regions on disk cannot be used and were set aside; a full sync takes their place"
        );
    }
}

fn open(directory: &Path) -> Result<Opened, DataDirError> {
    fs::create_dir_all(directory).map_err(|source| {
        let path = directory.to_owned();
        match fs::metadata(directory) {
            Ok(there) if !there.is_dir() => DataDirError::NotADirectory { path },
            _ => DataDirError::Io { path, source },
        }
    })?;
    let was_there = fs::metadata(directory.join(disk::FILE)).is_ok_and(|file| file.len() > 0);
    match Disk::open(directory) {
        Ok((disk, kept)) => Ok(Opened {
            disk,
            had_nothing: was_there && kept.is_none(),
            kept,
            set_aside: None,
        }),
        Err(OpenError::Unusable(reason)) => begin_anew(directory, reason),
        Err(error) => Err(refused(directory, error)),
    }
}

fn begin_anew(directory: &Path, reason: String) -> Result<Opened, DataDirError> {
    let (path, aside) = (directory.join(disk::FILE), directory.join(disk::SET_ASIDE));
    if let Err(source) = fs::rename(&path, &aside) {
        return Err(DataDirError::NotSetAside {
            path,
            aside,
            reason,
            source,
        });
    }
    let (disk, kept) = Disk::open(directory).map_err(|error| refused(directory, error))?;
    Ok(Opened {
        disk,
        kept,
        had_nothing: false,
        set_aside: Some(SetAside {
            from: path.display().to_string(),
            to: aside.display().to_string(),
            reason,
        }),
    })
}

fn refused(directory: &Path, error: OpenError) -> DataDirError {
    let path = directory.to_owned();
    match error {
        OpenError::Taken => DataDirError::Taken { path },
        OpenError::Occupied(found) => DataDirError::Occupied {
            path: directory.join(disk::FILE),
            found: found.to_string(),
        },
        OpenError::Io(source) => DataDirError::Io { path, source },
        OpenError::Unusable(reason) => DataDirError::Io {
            path,
            source: io::Error::other(reason),
        },
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
