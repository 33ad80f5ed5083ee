//! The operations. Each function sets its lanes beside one another and returns their rows.

pub mod batch;
pub mod beside;
pub mod bulk;
pub mod decision;
pub mod floor;
pub mod frames;
pub mod lookup;
pub mod many;
pub mod marking;
pub mod resident;
pub mod ring;
pub mod split;
pub mod update;

use std::time::Duration;

/// How long a round goes on at most where threads are beside one another. A rival may keep a thread
/// from getting on at all (`TreeIndex` for minutes, once in some runs), and meanwhile from being
/// freed what another replaces (concurrent-map: all memory there is).
const LONGEST: Duration = Duration::from_millis(500);

/// How much to measure.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    /// Rounds that count.
    pub rounds: u64,
    /// Operations of a lane in a round.
    pub operations: usize,
}
