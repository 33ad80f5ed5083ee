//! The stores of the cluster: what they say of themselves and when they were last heard of.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::proto::metapb::{NodeState, Store, StoreState};
use crate::proto::pdpb::{ErrorType, StoreStats};

/// A store and its last heartbeat.
#[derive(Clone, Debug, Default)]
pub(super) struct StoreRecord {
    pub(super) store: Store,
    pub(super) stats: Option<StoreStats>,
}

/// All stores by id.
#[derive(Debug, Default)]
pub(super) struct Stores {
    records: Mutex<BTreeMap<u64, StoreRecord>>,
}

/// Why a store was refused. `Display` is PD's text.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store has left the cluster for good.
    #[error("store is tombstone")]
    Tombstone,
    /// The request names no store.
    #[error("invalid put store")]
    Absent,
    /// No store has this id; a lookup.
    #[error("invalid store ID {0}, not found")]
    Unknown(u64),
    /// No store has this id; a heartbeat.
    #[error("store {0} not found")]
    Stranger(u64),
    /// Another store, still alive, has the same address.
    #[error("duplicated store address: {address}, already registered by store {owner}")]
    DuplicateAddress {
        /// The address in question.
        address: String,
        /// The store that has it.
        owner: u64,
    },
}

impl StoreError {
    /// The type PD gives it in the header.
    pub(super) fn error_type(&self) -> ErrorType {
        match self {
            Self::Tombstone => ErrorType::StoreTombstone,
            _ => ErrorType::Unknown,
        }
    }
}

impl Stores {
    pub(super) fn new(records: Vec<StoreRecord>) -> Self {
        let records = records
            .into_iter()
            .map(|record| (record.store.id, record))
            .collect();
        Self {
            records: Mutex::new(records),
        }
    }

    pub(super) fn all(&self) -> Vec<StoreRecord> {
        self.records().values().cloned().collect()
    }

    pub(super) fn get(&self, id: u64) -> Result<StoreRecord, StoreError> {
        self.records()
            .get(&id)
            .cloned()
            .ok_or(StoreError::Unknown(id))
    }

    /// Adds a store, or replaces what it said of itself before.
    pub(super) fn put(&self, store: Store) -> Result<(), StoreError> {
        if store.id == 0 {
            return Err(StoreError::Absent);
        }
        let mut records = self.records();
        if records
            .get(&store.id)
            .is_some_and(|record| is_tombstone(&record.store))
        {
            return Err(StoreError::Tombstone);
        }
        let twin = records.values().map(|record| &record.store).find(|other| {
            other.id != store.id && other.address == store.address && !is_tombstone(other)
        });
        if let (Some(twin), false) = (twin, store.address.is_empty()) {
            let owner = twin.id;
            return Err(StoreError::DuplicateAddress {
                address: store.address,
                owner,
            });
        }
        let record = records.entry(store.id).or_default();
        let last_heartbeat = record.store.last_heartbeat.max(store.last_heartbeat);
        record.store = Store {
            last_heartbeat,
            ..store
        };
        Ok(())
    }

    /// Takes a heartbeat and returns the state that the store is to take.
    pub(super) fn heartbeat(
        &self,
        stats: StoreStats,
        unix_nanos: i64,
    ) -> Result<NodeState, StoreError> {
        let mut records = self.records();
        let record = records
            .get_mut(&stats.store_id)
            .ok_or(StoreError::Stranger(stats.store_id))?;
        if is_tombstone(&record.store) {
            return Err(StoreError::Tombstone);
        }
        record.store.last_heartbeat = unix_nanos;
        record.stats = Some(stats);
        Ok(record.store.node_state())
    }

    /// Whether heartbeats of regions led by this store count: `false` for a store that has left.
    pub(super) fn is_alive(&self, id: u64) -> Result<bool, StoreError> {
        let records = self.records();
        let record = records.get(&id).ok_or(StoreError::Unknown(id))?;
        Ok(!is_tombstone(&record.store))
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<u64, StoreRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the store has left the cluster for good, by either of the two fields that say so.
fn is_tombstone(store: &Store) -> bool {
    store.state() == StoreState::Tombstone || store.node_state() == NodeState::Removed
}
