//! What became of calls that are the leader's to answer.

use serde::Serialize;

use crate::replica::state::Counter;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        #[derive(Debug, Default)]
        pub(in crate::replica) struct ForwardCounters { $($(#[$doc])* pub(super) $name: Counter,)* }

        /// The counts at one time. Each is exact; together they need not be of one instant.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
        pub struct ForwardCounts { $($(#[$doc])* pub $name: u64,)* }

        impl ForwardCounters {
            /// Reads all counts.
            pub(in crate::replica) fn read(&self) -> ForwardCounts {
                ForwardCounts { $($name: self.$name.get(),)* }
            }
        }

        impl ForwardCounts {
            /// Name and value of each count.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Handed to the leader, whatever it answered.
    forwarded,
    /// Handed to nobody: no leader is known, or the call may not be passed on.
    refused,
    /// The leader could not be reached, or the connection broke under the call.
    broken,
    /// Ended here because the leader was replaced.
    deposed,
}
