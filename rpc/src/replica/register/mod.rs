//! Registration as one of PD's routers, so that stock clients find this replica by themselves.
//!
//! A router is a key in PD's etcd, `/ms/{cluster_id}/router/registry/{address}`, whose value is an [`Entry`] in JSON and
//! which lives under a lease of [`TTL`]. Clients read the keys through PD's MetaStorage, and then ask each router's
//! health once a second.
//!
//! # When the key is there
//! Only while lookups are answered. It is put when they are for the first time, and taken away when they have not been
//! for [`UNREADY`], or at a stop; clients notice a shorter pause by the health check. The lease is kept alive three
//! times in its life. Where that fails, at another member or after a loss of etcd, everything begins again with a new
//! lease, every [`RETRY`]; the key of the one before is taken over or expires.
//!
//! What is taken away is the lease, and with it only a key that still belongs to it: a process that has started at the
//! same address since keeps its own.

mod entry;
mod etcd;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

pub(super) use self::entry::Entry;
use self::etcd::{Lease, RegisterError};
use super::serve::Serving;
use crate::pd::Remote;

/// The life of a lease that is not kept alive; PD's routers have the same.
pub(super) const TTL: Duration = Duration::from_secs(5);
/// How long lookups may go unanswered before the key is taken away.
const UNREADY: Duration = Duration::from_secs(5);
/// How often it is looked whether lookups are answered.
const LOOK: Duration = Duration::from_millis(500);
/// The pause after a failure; PD's routers have the same.
const RETRY: Duration = Duration::from_millis(2_500);
/// How long a stop waits for the key to be gone. It expires by itself otherwise.
const FAREWELL: Duration = Duration::from_secs(1);

/// Whether clients find us, and if not, why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RegistrationStatus {
    /// The key under which we are registered now; `None` while we are not.
    pub key: Option<String>,
    /// Why the last attempt failed, or the last registration was lost; `None` when neither has happened.
    pub last_error: Option<String>,
}

/// Keeps one replica registered.
#[derive(Debug)]
pub(super) struct Registrar {
    entry: Entry,
    serving: Arc<Serving>,
    remote: Arc<Remote>,
    status: Mutex<RegistrationStatus>,
}

/// How a registration ended.
enum End {
    Stopped,
    Unready,
    Lost(RegisterError),
}

/// The task that keeps a replica registered.
#[derive(Debug)]
pub(super) struct Registering {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Registering {
    /// Takes the key away; at most [`FAREWELL`].
    pub(super) async fn end(self) {
        self.stop.cancel();
        let _ = timeout(FAREWELL, self.task).await;
    }
}

impl Registrar {
    pub(super) fn new(entry: Entry, serving: Arc<Serving>, remote: Arc<Remote>) -> Self {
        Self {
            entry,
            serving,
            remote,
            status: Mutex::default(),
        }
    }

    pub(super) fn status(&self) -> RegistrationStatus {
        self.status
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn spawn(self: Arc<Self>) -> Registering {
        let stop = CancellationToken::new();
        let task = tokio::spawn(self.keep(stop.clone()));
        Registering { stop, task }
    }

    async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut attempt = 0;
        loop {
            let Some(key) = self.ready(&stop).await else {
                return;
            };
            let end = self.hold(attempt, &key, &stop).await;
            self.note(|status| status.key = None);
            match end {
                End::Stopped => return,
                End::Unready => tracing::info!(
                    key,
                    "no longer registered as a router: lookups are not answered"
                ),
                End::Lost(error) => {
                    let error = error.to_string();
                    let again = self.status().last_error.as_ref() == Some(&error);
                    if !again {
                        tracing::warn!(key, %error, "not registered as a router; trying again");
                    }
                    self.note(|status| status.last_error = Some(error));
                    attempt += 1;
                    let pause = sleep_until(Instant::now() + RETRY);
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = pause => {}
                    }
                }
            }
        }
    }

    /// The key, once lookups are answered; `None` at a stop.
    async fn ready(&self, stop: &CancellationToken) -> Option<String> {
        loop {
            if self.serving.is_serving()
                && let Some(cluster_id) = self.serving.shared.cluster_id()
            {
                return Some(self.entry.key(cluster_id));
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Registers and stays registered as long as it goes.
    async fn hold(&self, attempt: usize, key: &str, stop: &CancellationToken) -> End {
        // Any member's etcd will do.
        let members = self.serving.members_known();
        let Some(url) = members.get(attempt % members.len().max(1)) else {
            return End::Lost(RegisterError::NoMember);
        };
        let mut lease = match Lease::put(&self.remote, url, TTL, key, &self.entry.json()).await {
            Ok(lease) => lease,
            Err(error) => return End::Lost(error),
        };
        tracing::info!(key, member = url, "registered as a router");
        self.note(|status| {
            status.key = Some(key.to_owned());
            status.last_error = None;
        });
        let mut renew = Instant::now() + TTL / 3;
        let mut unready_since = None;
        loop {
            let look = Instant::now() + LOOK;
            tokio::select! {
                () = stop.cancelled() => {
                    lease.revoke().await;
                    return End::Stopped;
                }
                () = sleep_until(renew.min(look)) => {}
            }
            let now = Instant::now();
            if now >= renew {
                if let Err(error) = lease.renew(TTL / 3).await {
                    return End::Lost(error);
                }
                renew = now + TTL / 3;
            }
            if self.serving.is_serving() {
                unready_since = None;
            } else if now.duration_since(*unready_since.get_or_insert(now)) >= UNREADY {
                lease.revoke().await;
                return End::Unready;
            }
        }
    }

    fn note(&self, change: impl FnOnce(&mut RegistrationStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests;
