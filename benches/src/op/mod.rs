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

/// How much to measure.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    /// Rounds that count.
    pub rounds: u64,
    /// Operations of a lane in a round.
    pub operations: usize,
}
