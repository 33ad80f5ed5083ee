//! Which dialect a session's leader speaks, as far as its stream has shown.
//!
//! It is not kept on disk: a restart that resumes asks with its own index in either dialect, and one in another term, or
//! with another binary at the leader, must find out anew in any case.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::pd::Dialect;

/// Release 8.5's until master's has been seen.
#[derive(Debug)]
pub(super) struct Spoken(AtomicBool);

impl Spoken {
    pub(super) fn new(known: Dialect) -> Self {
        Self(AtomicBool::new(known == Dialect::Master))
    }

    pub(super) fn dialect(&self) -> Dialect {
        // Relaxed: one flag that is only ever raised. Whoever misses the change does what is right for either dialect.
        if self.0.load(Relaxed) {
            Dialect::Master
        } else {
            Dialect::Release85
        }
    }

    pub(super) fn is_master(&self) -> bool {
        self.dialect() == Dialect::Master
    }

    pub(super) fn shown_master(&self) {
        // Relaxed: see `dialect`.
        self.0.store(true, Relaxed);
    }
}
