//! The file: what is in it, and how it changes.
//!
//! | table | key | value |
//! |---|---|---|
//! | `state` | `state` | a [`Mark`] with the cluster's id, the format and the number of the table of regions, as JSON |
//! | `regions-0`, `regions-1` | start key | a region (`record.rs`) |
//!
//! One of the two tables of regions is in force. A flush changes that one, and the state with it, in one transaction. A
//! rewrite fills the other one in portions that need not be durable, and the last transaction, which is, puts it into
//! force and deletes the first. So at any point the file holds the last state that was committed, whole.
//!
//! The ranges of a table are disjoint, as they are in the map: a record that is put takes away the records that begin
//! within its range, and the one before it if that reaches into it. So nothing has to be said about regions that
//! vanish; what displaced them is put in their place.

use std::fs;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageBackend,
    StorageError, Table, TableDefinition, TableError,
};
use serde::{Deserialize, Serialize};
use tidegate_core::{Key, Region};

use super::backend::Counted;
use super::{Kept, Mark, record};
use crate::regular_file::{self, NotAFile};

/// The name of the file in the data directory.
pub(super) const FILE: &str = "regions.redb";
/// What a file that cannot be used is renamed to; the last one is kept.
pub(super) const SET_ASIDE: &str = "regions.redb.unusable";
/// The format of what this version writes.
const FORMAT: u32 = 1;
/// Pages that the store keeps in memory. What else it reads comes from the system's cache.
const CACHE: usize = 32 << 20;

const STATE: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("state");
const REGIONS: [TableDefinition<'static, &[u8], &[u8]>; 2] = [
    TableDefinition::new("regions-0"),
    TableDefinition::new("regions-1"),
];

type Regions<'t> = Table<'t, &'static [u8], &'static [u8]>;

/// An open file. Nobody else can open it meanwhile.
#[derive(Debug)]
pub(super) struct Disk {
    database: Database,
    written: Arc<AtomicU64>,
    /// The table in force.
    table: usize,
}

/// Why a file could not be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// Another process has it.
    #[error("another process uses it")]
    Taken,
    /// Something other than a file has its name.
    #[error("{0}")]
    Occupied(NotAFile),
    /// The directory or the file cannot be used.
    #[error("{0}")]
    Io(io::Error),
    /// It was opened and is no file of ours, or damaged.
    #[error("{0}")]
    Unusable(String),
}

/// A change or a read of an open file failed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) struct DiskError(#[from] redb::Error);

#[derive(Deserialize, Serialize)]
struct State {
    format: u32,
    cluster_id: u64,
    term: i64,
    member_id: u64,
    member_name: String,
    /// 0 when the regions belong to no index that could be resumed.
    next_index: u64,
    table: usize,
}

impl Disk {
    /// Opens or makes the file in `directory`, and reads what is kept in it.
    pub(super) fn open(directory: &Path) -> Result<(Self, Option<Kept>), OpenError> {
        let path = directory.join(FILE);
        let file = regular_file::open(
            &path,
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false),
        );
        let file = file.map_err(|error| match regular_file::not_a_file(&error) {
            Some(other) => OpenError::Occupied(other),
            None => OpenError::Io(error),
        })?;
        let backend = redb::backends::FileBackend::new(file)?;
        Self::open_in(backend)
    }

    pub(super) fn open_in(backend: impl StorageBackend) -> Result<(Self, Option<Kept>), OpenError> {
        let written = Arc::default();
        let backend = Counted::new(backend, Arc::clone(&written));
        let database = Database::builder()
            .set_cache_size(CACHE)
            // Every page is compared with its checksum, once at each start: what the medium has garbled is found
            // before anything is answered from it.
            .set_check_integrity_on_open(true)
            .create_with_backend(backend)?;
        let unusable = |error: redb::Error| match error {
            redb::Error::Io(error) => OpenError::Io(error),
            error => OpenError::Unusable(error.to_string()),
        };
        let kept = state(&database).map_err(|DiskError(error)| unusable(error))?;
        let kept = match kept {
            None => None,
            Some(text) => {
                let state: State = serde_json::from_slice(&text)
                    .map_err(|error| OpenError::Unusable(format!("its state: {error}")))?;
                if state.format != FORMAT || state.table >= REGIONS.len() {
                    let what = format!("it is of format {}, not {FORMAT}", state.format);
                    return Err(OpenError::Unusable(what));
                }
                Some(state)
            }
        };
        let disk = Self {
            database,
            written,
            table: kept.as_ref().map_or(0, |state| state.table),
        };
        Ok((disk, kept.map(State::into_kept)))
    }

    /// Bytes written to the file since it was opened.
    pub(super) fn written(&self) -> u64 {
        // Relaxed: a count for display.
        self.written.load(Relaxed)
    }

    /// Gives all regions to `take`, in the order of their keys, in portions.
    pub(super) fn load(&self, mut take: impl FnMut(Vec<Region>)) -> Result<u64, LoadError> {
        const PORTION: usize = 8_192;
        let mut regions = 0;
        let read = self.database.begin_read().map_err(DiskError::from_any)?;
        let table = match read.open_table(REGIONS[self.table]) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(0),
            Err(error) => return Err(DiskError::from_any(error).into()),
        };
        let mut portion = Vec::with_capacity(PORTION);
        for pair in table.iter().map_err(DiskError::from_any)? {
            let (key, value) = pair.map_err(DiskError::from_any)?;
            portion.push(record::region(key.value(), value.value())?);
            regions += 1;
            if portion.len() == PORTION {
                take(std::mem::replace(&mut portion, Vec::with_capacity(PORTION)));
            }
        }
        take(portion);
        Ok(regions)
    }

    /// Removes what begins at `gone`, puts regions and what they belong to, in one transaction. Returns how many records were other than before.
    pub(super) fn flush<'r>(
        &self,
        kept: &Kept,
        gone: &[Key],
        regions: impl IntoIterator<Item = &'r Region>,
    ) -> Result<u64, DiskError> {
        let write = self.database.begin_write().map_err(DiskError::from_any)?;
        let mut changed = 0;
        {
            let mut table = write
                .open_table(REGIONS[self.table])
                .map_err(DiskError::from_any)?;
            for key in gone {
                let key: &[u8] = key;
                let old = table.remove(key).map_err(DiskError::from_any)?;
                changed += u64::from(old.is_some());
            }
            for region in regions {
                changed += u64::from(put(&mut table, region)?);
            }
        }
        put_state(&write, kept, self.table)?;
        write.commit().map_err(DiskError::from_any)?;
        Ok(changed)
    }

    /// Replaces all regions by what `pages` gives, page by page in the order of keys, and what they belong to.
    pub(super) fn rewrite<E: From<DiskError>>(
        &mut self,
        kept: &Kept,
        mut next_page: impl FnMut() -> Result<Option<Vec<tidegate_core::SharedEntry>>, E>,
    ) -> Result<u64, E> {
        let other = 1 - self.table;
        let begin = || {
            self.database
                .begin_write()
                .map_err(|error| E::from(DiskError::from_any(error)))
        };
        // What an earlier rewrite left that did not get to its end.
        let write = begin()?;
        write
            .delete_table(REGIONS[other])
            .map_err(DiskError::from_any)?;
        write.commit().map_err(DiskError::from_any)?;
        let mut regions = 0;
        while let Some(page) = next_page()? {
            let mut write = begin()?;
            write
                .set_durability(Durability::None)
                .map_err(DiskError::from_any)?;
            {
                let mut table = write
                    .open_table(REGIONS[other])
                    .map_err(DiskError::from_any)?;
                for entry in &page {
                    put(&mut table, entry.region())?;
                }
            }
            write.commit().map_err(DiskError::from_any)?;
            regions += page.len() as u64;
        }
        let write = begin()?;
        write
            .delete_table(REGIONS[self.table])
            .map_err(DiskError::from_any)?;
        put_state(&write, kept, other)?;
        write.commit().map_err(DiskError::from_any)?;
        self.table = other;
        Ok(regions)
    }
}

/// Why regions could not be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Record(#[from] record::Unreadable),
}

/// Puts one region in the place of what it overlaps; false when it is there already.
fn put(table: &mut Regions<'_>, region: &Region) -> Result<bool, DiskError> {
    let (start, end) = (region.start().as_ref(), region.end().as_ref());
    let value = record::value(region);
    let error = DiskError::from_any::<StorageError>;
    let mut displaced: Vec<Vec<u8>> = Vec::new();
    {
        let mut before = table
            .range::<&[u8]>((Bound::Unbounded, Bound::Excluded(start)))
            .map_err(error)?;
        if let Some(left) = before.next_back() {
            let (key, value) = left.map_err(error)?;
            let reaches =
                record::end_key(value.value()).is_none_or(|left| left.is_empty() || left > start);
            if reaches {
                displaced.push(key.value().to_vec());
            }
        }
        let until = if end.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Excluded(end)
        };
        let within = table
            .range::<&[u8]>((Bound::Excluded(start), until))
            .map_err(error)?;
        for pair in within {
            displaced.push(pair.map_err(error)?.0.value().to_vec());
        }
    }
    for key in &displaced {
        table.remove(key.as_slice()).map_err(error)?;
    }
    let same = table
        .get(start)
        .map_err(error)?
        .is_some_and(|old| old.value() == value);
    if !same {
        table.insert(start, value.as_slice()).map_err(error)?;
    }
    Ok(!same || !displaced.is_empty())
}

fn put_state(write: &redb::WriteTransaction, kept: &Kept, table: usize) -> Result<(), DiskError> {
    let Mark { reign, next_index } = &kept.mark;
    let state = State {
        format: FORMAT,
        cluster_id: kept.cluster_id,
        term: reign.term.create_revision(),
        member_id: reign.member_id,
        member_name: reign.member_name.clone(),
        next_index: *next_index,
        table,
    };
    let text = serde_json::to_vec(&state)
        .map_err(|error| DiskError(redb::Error::Io(io::Error::other(error))))?;
    write
        .open_table(STATE)
        .map_err(DiskError::from_any)?
        .insert("state", text.as_slice())
        .map_err(DiskError::from_any)?;
    Ok(())
}

fn state(database: &Database) -> Result<Option<Vec<u8>>, DiskError> {
    let read = database.begin_read().map_err(DiskError::from_any)?;
    let table = match read.open_table(STATE) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(DiskError::from_any(error)),
    };
    let state = table.get("state").map_err(DiskError::from_any)?;
    Ok(state.map(|state| state.value().to_vec()))
}

impl State {
    fn into_kept(self) -> Kept {
        Kept {
            cluster_id: self.cluster_id,
            mark: Mark {
                reign: super::Reign {
                    term: crate::pd::Term::from_create_revision(self.term),
                    member_id: self.member_id,
                    member_name: self.member_name,
                },
                next_index: self.next_index,
            },
        }
    }
}

impl DiskError {
    fn from_any<E: Into<redb::Error>>(error: E) -> Self {
        Self(error.into())
    }
}

impl From<DatabaseError> for OpenError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => Self::Taken,
            // This is how the store says that a file is none of its own.
            DatabaseError::Storage(StorageError::Io(error))
                if error.kind() == io::ErrorKind::InvalidData =>
            {
                Self::Unusable(error.to_string())
            }
            DatabaseError::Storage(StorageError::Io(error)) => Self::Io(error),
            error => Self::Unusable(error.to_string()),
        }
    }
}
