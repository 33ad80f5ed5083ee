//! Leases, by the clock.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// The longest time to live that etcd grants, in seconds.
const LONGEST: i64 = 9_000_000_000;

/// All leases.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    by_id: HashMap<i64, Lease>,
    last_id: i64,
}

#[derive(Clone, Debug)]
struct Lease {
    ttl: i64,
    expires: Instant,
}

impl Lease {
    fn renew(&mut self, now: Instant) {
        let ttl = Duration::from_secs(self.ttl.unsigned_abs());
        // A time that the clock cannot hold does not come.
        self.expires = now.checked_add(ttl).unwrap_or(self.expires);
    }
}

/// Why a lease was not granted. `Display` is etcd's text.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum GrantError {
    #[error("etcdserver: lease already exists")]
    Exists,
    #[error("etcdserver: too large lease TTL")]
    TooLong,
}

impl Leases {
    pub(super) fn has(&self, id: i64) -> bool {
        self.by_id.contains_key(&id)
    }

    /// A lease of `ttl` seconds, at least one; its id is `id`, or the next free one for 0.
    pub(super) fn grant(
        &mut self,
        id: i64,
        ttl: i64,
        now: Instant,
    ) -> Result<(i64, i64), GrantError> {
        if ttl > LONGEST {
            return Err(GrantError::TooLong);
        }
        if id != 0 && self.has(id) {
            return Err(GrantError::Exists);
        }
        let id = if id == 0 { self.free_id() } else { id };
        let ttl = ttl.max(1);
        let mut lease = Lease { ttl, expires: now };
        lease.renew(now);
        self.by_id.insert(id, lease);
        Ok((id, ttl))
    }

    fn free_id(&mut self) -> i64 {
        loop {
            self.last_id += 1;
            if !self.has(self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Gives a lease its whole time again, and tells it; 0 if there is none of that id.
    pub(super) fn renew(&mut self, id: i64, now: Instant) -> i64 {
        self.by_id.get_mut(&id).map_or(0, |lease| {
            lease.renew(now);
            lease.ttl
        })
    }

    pub(super) fn restart(&mut self, now: Instant) {
        self.by_id.values_mut().for_each(|lease| lease.renew(now));
    }

    pub(super) fn remove(&mut self, id: i64) -> bool {
        self.by_id.remove(&id).is_some()
    }

    /// Those whose time is over, the oldest id first.
    pub(super) fn expired(&self, now: Instant) -> Vec<i64> {
        let over = self.by_id.iter().filter(|(_, lease)| lease.expires <= now);
        let mut over: Vec<i64> = over.map(|(id, _)| *id).collect();
        over.sort_unstable();
        over
    }
}
