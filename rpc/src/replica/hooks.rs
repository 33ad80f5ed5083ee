//! Places where the playground and tests reach into a replica. A served replica has none of them set.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tidegate_core::clock::Clock;

use crate::pd::Redial;

/// What to install in a replica; the default installs nothing.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Runs between the receipt of each message and its apply.
    pub apply_layer: Option<Arc<dyn ApplyLayer>>,
    /// Serve whatever the map holds, whatever the gate says. Only to show that a check of staleness can fail.
    pub serve_regardless: bool,
    /// The replica's clock; the boot-time clock when absent.
    pub clock: Option<Arc<dyn Clock>>,
    /// Gives the address to dial for a PD member's address, such as a relay that limits bytes.
    pub redial: Option<Redial>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("apply_layer", &self.apply_layer.is_some())
            .field("serve_regardless", &self.serve_regardless)
            .field("clock", &self.clock)
            .field("redial", &self.redial.is_some())
            .finish()
    }
}

/// A layer between receive and apply.
pub trait ApplyLayer: Send + Sync {
    /// Awaited before each message is applied, when the apply has been stamped as started: while it does not return,
    /// the apply stands still and the gate sees that it does. Dropped when the replica stops or leaves the stream.
    fn before_apply(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
