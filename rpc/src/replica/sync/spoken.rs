//! Which dialect a session's leader speaks, as far as its stream has shown.
//!
//! It is not kept on disk: a restart that resumes asks with its own index in either dialect, and one in another term, or
//! with another binary at the leader, must find out anew in any case.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use tokio::sync::Notify;

use crate::pd::Dialect;

const UNKNOWN: u8 = 0;
const RELEASE_85: u8 = 1;
const MASTER: u8 = 2;

/// Release 8.5's until master's has been seen.
#[derive(Debug)]
pub(super) struct Spoken {
    shown: AtomicU8,
    news: Notify,
}

impl Spoken {
    /// Master's, or not known.
    pub(super) fn new(known: Dialect) -> Self {
        let shown = match known {
            Dialect::Master => MASTER,
            Dialect::Release85 => UNKNOWN,
        };
        Self {
            shown: AtomicU8::new(shown),
            news: Notify::new(),
        }
    }

    pub(super) fn dialect(&self) -> Dialect {
        // Relaxed: one value, which changes once. Whoever misses the change does what is right for either dialect.
        match self.shown.load(Relaxed) {
            MASTER => Dialect::Master,
            _ => Dialect::Release85,
        }
    }

    pub(super) fn is_master(&self) -> bool {
        self.dialect() == Dialect::Master
    }

    /// Whether either has been shown.
    pub(super) fn is_known(&self) -> bool {
        // Relaxed: see `dialect`.
        self.shown.load(Relaxed) != UNKNOWN
    }

    pub(super) fn shown_master(&self) {
        // Relaxed: see `dialect`.
        self.shown.store(MASTER, Relaxed);
        self.news.notify_waiters();
    }

    /// The leader was silent where master answers.
    pub(super) fn shown_release85(&self) {
        // Relaxed: see `dialect`. What shows master is not taken back.
        let _ = self
            .shown
            .compare_exchange(UNKNOWN, RELEASE_85, Relaxed, Relaxed);
    }

    /// Returns once master has been shown.
    pub(super) async fn master(&self) {
        loop {
            // Made before the look, so that what is shown in between wakes it.
            let news = self.news.notified();
            if self.is_master() {
                return;
            }
            news.await;
        }
    }
}
