//! Reading and changing keys.

use std::ops::Bound;

use bytes::Bytes;
use tokio::time::Instant;
use tonic::Status;

use super::Keys;
use crate::proto::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
};
use crate::proto::mvccpb::KeyValue;

/// The keys that a request names, in etcd's reading: without an end the one key, with a single zero byte all from it on.
pub(super) fn range_of(key: &Bytes, end: &Bytes) -> (Bound<Bytes>, Bound<Bytes>) {
    match &end[..] {
        [] => (Bound::Included(key.clone()), Bound::Included(key.clone())),
        [0] => (Bound::Included(key.clone()), Bound::Unbounded),
        // An empty range must not be one that the map refuses.
        _ if end <= key => (Bound::Included(key.clone()), Bound::Excluded(key.clone())),
        _ => (Bound::Included(key.clone()), Bound::Excluded(end.clone())),
    }
}

impl Keys {
    /// Answers from what is there now; of an older revision nothing is known.
    pub(super) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Status> {
        if request.key.is_empty() {
            return Err(Status::invalid_argument("etcdserver: key is not provided"));
        }
        if request.revision > self.revision {
            let text = "etcdserver: mvcc: required revision is a future revision";
            return Err(Status::out_of_range(text));
        }
        let found = self.kvs.range(range_of(&request.key, &request.range_end));
        let mut kvs: Vec<KeyValue> = found.map(|(_, kv)| kv.clone()).collect();
        let count = kvs.len() as i64;
        if request.count_only {
            kvs.clear();
        }
        let limit = usize::try_from(request.limit).unwrap_or(0);
        let more = limit > 0 && kvs.len() > limit;
        if more {
            kvs.truncate(limit);
        }
        if request.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        Ok(RangeResponse {
            header: None,
            kvs,
            more,
            count,
        })
    }

    /// Whether a put can be made.
    pub(super) fn check_put(&self, request: &PutRequest) -> Result<(), Status> {
        if request.key.is_empty() {
            return Err(Status::invalid_argument("etcdserver: key is not provided"));
        }
        if request.lease != 0 && !self.leases.has(request.lease) {
            return Err(Status::not_found("etcdserver: requested lease not found"));
        }
        let keeps = request.ignore_value || request.ignore_lease;
        if keeps && !self.kvs.contains_key(&request.key) {
            return Err(Status::invalid_argument("etcdserver: key not found"));
        }
        Ok(())
    }

    /// A put that [`check_put`](Self::check_put) has let through.
    pub(super) fn put(&mut self, revision: i64, request: PutRequest) -> PutResponse {
        let before = self.kvs.get(&request.key).cloned();
        let (mut value, mut lease) = (request.value, request.lease);
        if let Some(before) = &before {
            if request.ignore_value {
                value = before.value.clone();
            }
            if request.ignore_lease {
                lease = before.lease;
            }
        }
        self.put_at(revision, request.key, value, lease);
        PutResponse {
            header: None,
            prev_kv: before.filter(|_| request.prev_kv),
        }
    }

    pub(super) fn put_at(&mut self, revision: i64, key: Bytes, value: Bytes, lease: i64) {
        let before = self.kvs.get(&key);
        // What is kept for long must not hold the frame that it came in.
        let (key, value) = (Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value));
        let kv = KeyValue {
            create_revision: before.map_or(revision, |kv| kv.create_revision),
            version: before.map_or(0, |kv| kv.version) + 1,
            mod_revision: revision,
            key: key.clone(),
            value,
            lease,
        };
        self.kvs.insert(key, kv);
    }

    pub(super) fn delete(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let range = range_of(&request.key, &request.range_end);
        let doomed: Vec<Bytes> = self.kvs.range(range).map(|(key, _)| key.clone()).collect();
        let removed: Vec<KeyValue> = doomed
            .iter()
            .filter_map(|key| self.kvs.remove(key))
            .collect();
        DeleteRangeResponse {
            header: None,
            deleted: removed.len() as i64,
            prev_kvs: if request.prev_kv { removed } else { Vec::new() },
        }
    }

    /// Removes the leases that have expired by `now`, each with its keys and a revision of its own.
    pub(super) fn expire(&mut self, now: Instant) {
        for lease in self.leases.expired(now) {
            self.end_lease(lease);
        }
    }

    /// Ends a lease; false if there is none of that id.
    pub(super) fn end_lease(&mut self, lease: i64) -> bool {
        if !self.leases.remove(lease) {
            return false;
        }
        let before = self.kvs.len();
        self.kvs.retain(|_, kv| kv.lease != lease);
        if self.kvs.len() < before {
            self.revision += 1;
        }
        true
    }
}
