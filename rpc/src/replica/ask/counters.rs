//! What was asked.

use serde::Serialize;

use super::AskError;
use crate::replica::state::Counter;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What was asked since the replica started.
        #[derive(Debug, Default)]
        pub struct AskCounters {
            $($(#[$doc])* pub $name: Counter,)*
            errors: [Counter; AskError::ALL.len()],
        }

        /// The counts at one time.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
        pub struct AskCounts {
            $($(#[$doc])* pub $name: u64,)*
            /// Waiters turned away: too much was asked already.
            pub overflow: u64,
            /// Questions without a leader to ask.
            pub no_leader: u64,
            /// Waiters whose deadline came first.
            pub deadline: u64,
            /// Questions that the leader could not be asked.
            pub failed: u64,
            /// Questions to which the leader answered something else.
            pub unfit: u64,
        }

        impl AskCounters {
            /// Reads all counts; each is exact, together they need not be of one instant.
            pub fn read(&self) -> AskCounts {
                let error = |error: AskError| self.errors[error as usize].get();
                AskCounts {
                    $($name: self.$name.get(),)*
                    overflow: error(AskError::Overflow),
                    no_leader: error(AskError::NoLeader),
                    deadline: error(AskError::Deadline),
                    failed: error(AskError::Failed),
                    unfit: error(AskError::Unfit),
                }
            }
        }

        impl AskCounts {
            /// Name and value of each count.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [
                    $((stringify!($name), self.$name),)*
                    ("overflow", self.overflow),
                    ("no_leader", self.no_leader),
                    ("deadline", self.deadline),
                    ("failed", self.failed),
                    ("unfit", self.unfit),
                ].into_iter()
            }
        }
    };
}

counts! {
    /// Questions of lookups, before equal ones became one.
    asked,
    /// Of these, how many found an equal one to wait for.
    coalesced,
    /// Calls of QueryRegion.
    batches,
    /// Questions that went out in them.
    batched,
    /// Lookups that went out one by one.
    unary,
    /// Scans that went out.
    scans,
    /// Looks at the leader key.
    looks,
    /// Answers that nobody can vouch for: whoever gave them leads no more, or never did.
    disowned,
}

impl AskCounters {
    pub(super) fn failed(&self, error: AskError, by: u64) {
        self.errors[error as usize].add(by);
    }
}
