//! The records of the stream, kept for those who follow.
//!
//! The indexes are the PD leader's, so that a follower can go from one replica to another, or to PD itself, within a
//! term. A full sync begins the ring anew: what was read before it is of another map.

use std::sync::{Mutex, PoisonError};

use tidegate_core::history::{Appender, Capacity, History, adaptive_history};
use tidegate_core::{Moment, SharedEntry};
use tokio::sync::watch;

use crate::replica::persist::Reign;

/// Where the ring is; each change wakes the streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct At {
    /// The generation of the map that the records lead on from; 0 before the first.
    pub(super) generation: u64,
    /// What the indexes belong to; `None` when nobody may follow them.
    pub(super) reign: Option<Reign>,
    /// The index of the next record.
    pub(super) next: u64,
    /// When the last frame that said "nothing new" was received.
    pub(super) beat: Option<Moment>,
}

#[derive(Debug)]
pub(super) struct Ring {
    history: History<SharedEntry>,
    appender: Mutex<Appender<SharedEntry>>,
    at: watch::Sender<At>,
}

impl Ring {
    pub(super) fn new() -> Self {
        let (appender, history) = adaptive_history(Capacity::default(), 0);
        Self {
            history,
            appender: Mutex::new(appender),
            at: watch::Sender::new(At::default()),
        }
    }

    pub(super) fn history(&self) -> &History<SharedEntry> {
        &self.history
    }

    /// Subscribe before the first look at the history, or records may pass unseen.
    pub(super) fn subscribe(&self) -> watch::Receiver<At> {
        self.at.subscribe()
    }

    pub(super) fn at(&self) -> At {
        self.at.borrow().clone()
    }

    /// Another map answers, and its next record will have the index `next`.
    pub(super) fn replaced(&self, generation: u64, reign: Option<Reign>, next: u64) {
        let mut appender = self.appender();
        appender.reset_with_index(next);
        self.at.send_replace(At {
            generation,
            reign,
            next,
            beat: None,
        });
    }

    /// Records that the map shows already, the first under the index `first`.
    pub(super) fn append(&self, first: u64, records: impl IntoIterator<Item = SharedEntry>) {
        let mut appender = self.appender();
        if appender.next_index() != first {
            // The applier skips no index. Should it, those who follow learn that there is a break.
            appender.reset_with_index(first);
        }
        let next = appender.append_all(records).end;
        self.at.send_modify(|at| at.next = next);
    }

    /// A frame without records was received at `at`, and nothing is waiting before it.
    pub(super) fn beat(&self, at: Moment) {
        self.at.send_modify(|now| now.beat = Some(at));
    }

    /// A follower wants the records from `index` on, whether they are here or not.
    pub(super) fn wanted(&self, index: u64) {
        self.appender().observe(index);
    }

    /// To be called every five minutes: gives back what the ring has grown by once nobody needs it.
    pub(super) fn maintain(&self) {
        self.appender().maintain();
    }

    fn appender(&self) -> std::sync::MutexGuard<'_, Appender<SharedEntry>> {
        self.appender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
