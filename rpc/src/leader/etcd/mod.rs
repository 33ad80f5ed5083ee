//! The part of etcd that PD's client port answers here: keys with revisions, transactions, and leases that expire by
//! the clock.
//!
//! Each change has the next revision; a transaction has one for all of its changes. A lease that is not kept alive for
//! its time takes its keys with it. What has expired is removed before anything is looked at, so that nobody sees it.
//!
//! The leader key is put when the leader starts: its create revision is the term.

mod keys;
mod lease;
mod service;
mod txn;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::time::Instant;

use self::lease::Leases;
use crate::proto::etcdserverpb::ResponseHeader;
use crate::proto::mvccpb::KeyValue;

/// The keys, behind a lock.
#[derive(Debug)]
pub(super) struct Etcd {
    cluster_id: u64,
    member_id: u64,
    state: Mutex<Keys>,
}

/// The keys at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    kvs: BTreeMap<Bytes, KeyValue>,
    revision: i64,
    leases: Leases,
}

impl Etcd {
    pub(super) fn new(cluster_id: u64, member_id: u64, mut keys: Keys) -> Self {
        // A member that has just become the leader gives every lease its time again.
        keys.leases.restart(Instant::now());
        Self {
            cluster_id,
            member_id,
            state: Mutex::new(keys),
        }
    }

    /// What the next leader starts with.
    pub(super) fn keys(&self) -> Keys {
        self.now().clone()
    }

    /// The keys without what has expired.
    fn now(&self) -> MutexGuard<'_, Keys> {
        // A poisoned map is still a map: each change is made of whole steps.
        let mut keys = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        keys.expire(Instant::now());
        keys
    }

    fn header(&self, keys: &Keys) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: self.member_id,
            revision: keys.revision,
            raft_term: 1,
        })
    }
}

impl Keys {
    /// No keys yet, at this revision.
    pub(super) fn at(revision: i64) -> Self {
        Self {
            revision,
            ..Self::default()
        }
    }

    /// Removes a key that ends with a leader's reign, and puts it anew: two revisions.
    pub(super) fn begin_reign(&mut self, key: Bytes, value: Bytes) -> i64 {
        self.kvs.remove(&key);
        self.revision = self.revision.saturating_add(2);
        self.put_at(self.revision, key, value, 0);
        self.revision
    }

    /// Puts a key unless it is there.
    pub(super) fn settle(&mut self, key: Bytes, value: Bytes) {
        if !self.kvs.contains_key(&key) {
            self.put_at(1, key, value, 0);
        }
    }
}

#[cfg(test)]
mod tests;
