//! What a stream's first frame begins: going on at the own index, or a full sync.

use std::sync::Arc;

use tidegate_core::Moment;

use crate::pd::Dialect;
use crate::proto::pdpb::SyncRegionResponse;
use crate::replica::persist::Reign;
use crate::replica::state::Shared;

use super::ending::Ending;
use super::follower::{Follower, Progress, Want};
use super::frame::{BEYOND_ALL, Kind, Phase};
use super::gap::Gap;
use super::proof::Drained;
use super::queue::Received;
use super::receive::Reader;
use super::spoken::Spoken;
use super::staging::Staged;

/// What was asked, of whom.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) cluster_id: u64,
    pub(super) start_index: u64,
    pub(super) progress: Progress,
    pub(super) spoken: Arc<Spoken>,
    /// What the stream's indexes belong to; `None` when its term could not be read.
    pub(super) reign: Option<Reign>,
    pub(super) batch_limit: u64,
}

/// A session whose first frame counts and has not been applied.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) reader: Reader,
    pub(super) follower: Follower,
    pub(super) first: Received,
}

/// Whether an index asks for everything.
pub(super) fn asks_for_everything(start_index: u64) -> bool {
    matches!(start_index, 0 | BEYOND_ALL)
}

/// The index to ask for: the own one, where it means something to the leader, else everything.
///
/// An own index of 0 asks for everything too, and that a leader of release 8.5 would answer with a part of it.
pub(super) fn start_index(own: Option<u64>, dialect: Dialect) -> u64 {
    match (own, dialect) {
        (Some(next), _) if next != 0 => next,
        (_, Dialect::Master) => 0,
        (_, Dialect::Release85) => BEYOND_ALL,
    }
}

/// Begins with the first frame, received at `at`. The term has been confirmed.
pub(super) fn begin(
    shared: &Arc<Shared>,
    asked: Asked,
    frame: SyncRegionResponse,
    at: Moment,
) -> Result<Begun, Ending> {
    let Asked {
        cluster_id,
        start_index,
        mut progress,
        spoken,
        reign,
        batch_limit,
    } = asked;
    let generation = shared.gate.generation();
    let mut reader = Reader {
        shared: Arc::clone(shared),
        cluster_id,
        phase: Phase::Asked { index: start_index },
        generation,
        gap: Arc::new(Gap::new(generation, progress.gap_until)),
        spoken: Arc::clone(&spoken),
        batch_limit,
        drained: Drained::default(),
    };
    let kind = reader.peek(&frame);
    // The leader cannot be at an index below one that it has shown in this term.
    if kind == Kind::InSync && shared.gate.view().head > start_index {
        return Err(Ending::Regressed);
    }
    if kind == Kind::Joined && !asks_for_everything(start_index) {
        shared.counters.unanswered.add(1);
        let until = frame.start_index.saturating_add(frame.regions.len() as u64);
        // The map that answers lacks what is between.
        reader.gap.open(&shared.gate, until);
        progress.gap_until = reader.gap.until();
    }
    let staged = kind.is_full_sync().then(|| {
        let staged = Staged::begin(shared);
        shared.counters.full_syncs.add(1);
        reader.generation = staged.generation();
        reader.gap = Arc::new(Gap::new(staged.generation(), None));
        staged
    });
    let first = reader.take(frame, at).map_err(|last| last.ending)?;
    let follower = Follower {
        shared: Arc::clone(shared),
        progress,
        staged,
        gap: Arc::clone(&reader.gap),
        spoken,
        reign,
        wanted: Want::Nothing,
        quiet: false,
        batch_limit,
    };
    Ok(Begun {
        reader,
        follower,
        first,
    })
}
