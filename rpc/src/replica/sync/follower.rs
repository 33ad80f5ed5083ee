//! What a session does with what it receives, without its tasks and without waiting: maps, indexes and the gate in,
//! what to do next out.
//!
//! A frame is one batch, so a reader sees all of it or nothing. The next index advances by the frame's length, however
//! many of its regions the map refused as stale: the leader counts records, not effects.
//!
//! A full sync is complete when its leader says so, which only master does. Otherwise the stream is followed into the
//! staged map from the first frame on that carries an index, and what was before that frame is fetched beside it: a
//! copy of the leader's map, which is younger than the frame and therefore holds or exceeds all that was recorded
//! before it. Where the copy leaves keys without a region the leader is asked for them, since it may have sent its
//! history instead of its map. Nothing is lost in between: the stream was heard before the copy was asked for, and is
//! applied all the while.

use std::sync::Arc;

use tidegate_core::{Batch, Moment, Outcome, Provenance, Region, SharedEntry};

use crate::proto::convert::Malformed;
use crate::proto::pdpb::SyncRegionResponse;
use crate::replica::persist::Reign;
use crate::replica::state::{Shared, StreamState};

use super::decode;
use super::displaced;
use super::frame::Kind;
use super::gap::Gap;
use super::queue::Received;
use super::spoken::Spoken;
use super::staging::{Source, Staged};

/// How far a session got.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Progress {
    /// The next index to apply in the map that answers; 0 when there is none.
    pub(super) next: u64,
    /// While a gap is open in that map: the index that closes it. As the session found it; its end brings it up to date.
    pub(super) gap_until: Option<u64>,
    /// A full sync was published.
    pub(super) published: bool,
    /// At least one frame was applied whole.
    pub(super) applied_any: bool,
}

/// What to fetch beside the stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Want {
    /// Nothing.
    #[default]
    Nothing,
    /// A copy of the leader's map, as it sends it for index 0.
    Copy,
    /// All regions, by asking for them range by range.
    Scan,
}

/// Something that was fetched beside the stream.
#[derive(Debug)]
pub(super) enum Fetched {
    /// Some of the regions.
    Part {
        frame: SyncRegionResponse,
        /// When they were asked for; `None` for a copy, whose moment is not known.
        asked_at: Option<Moment>,
        at: Moment,
    },
    /// That was all of it.
    End,
}

/// What follows from what was applied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Then {
    Nothing,
    /// The map that answers is fed.
    Answering,
    /// The staged map is complete.
    Complete,
    Fetch(Want),
}

#[derive(Debug)]
pub(super) struct Follower {
    pub(super) shared: Arc<Shared>,
    pub(super) progress: Progress,
    /// Present until the full sync of this session is published.
    pub(super) staged: Option<Staged>,
    /// The gap of the generation that this session feeds.
    pub(super) gap: Arc<Gap>,
    pub(super) spoken: Arc<Spoken>,
    /// What the stream's indexes belong to; `None` when its term could not be read.
    pub(super) reign: Option<Reign>,
    /// What is being fetched.
    pub(super) wanted: Want,
    /// The last frame said that there is nothing new.
    pub(super) quiet: bool,
    pub(super) batch_limit: u64,
}

impl Follower {
    pub(super) fn generation(&self) -> u64 {
        match &self.staged {
            Some(staged) => staged.generation(),
            None => self.shared.gate.generation(),
        }
    }

    /// Applies a frame of the stream.
    pub(super) fn take(&mut self, received: &Received) -> Result<Then, Malformed> {
        let Received { kind, frame, at } = received;
        self.quiet = matches!(kind, Kind::InSync | Kind::Keepalive);
        let records = self.put(frame, Source::Stream, *at)?;
        let (start, count) = (frame.start_index, frame.regions.len() as u64);
        let end = start.saturating_add(count);
        self.progress.applied_any |= !matches!(kind, Kind::Gap { .. });
        if let Some(staged) = &mut self.staged {
            if !matches!(kind, Kind::Gap { .. }) {
                staged.next = end;
                staged.heard_at = *at;
            }
            return Ok(self.staging(*kind));
        }
        Ok(match kind {
            Kind::Records => {
                if let Some(chain) = self.shared.chain() {
                    chain.append(start, records);
                }
                self.advance(end, count)
            }
            Kind::InSync | Kind::Keepalive => self.live(),
            // Of a gap the index waits for what is missing; the session has ended. The receiver ends the stream at
            // those that no leader sends, and a session that finds a full sync has a staged map.
            _ => Then::Nothing,
        })
    }

    fn staging(&mut self, kind: Kind) -> Then {
        match kind {
            Kind::Snapshot => self.shared.set_stream(StreamState::Snapshot),
            Kind::CatchUp => self.shared.set_stream(StreamState::CatchUp),
            Kind::Completion if self.spoken.is_master() => return Then::Complete,
            // The frame may as well be the broadcast of a release 8.5 whose first records looked like a snapshot.
            Kind::Completion => return self.complete_if_whole(),
            Kind::Joined => {
                self.shared.set_stream(StreamState::Snapshot);
                self.wanted = Want::Copy;
                return Then::Fetch(Want::Copy);
            }
            _ => {}
        }
        Then::Nothing
    }

    /// Applies what was fetched beside the stream.
    pub(super) fn add(&mut self, fetched: &Fetched) -> Result<Then, Malformed> {
        self.quiet = false;
        match fetched {
            Fetched::Part {
                frame,
                asked_at,
                at,
            } => {
                self.put(frame, asked_at.map_or(Source::Copy, Source::Leader), *at)?;
                Ok(Then::Nothing)
            }
            Fetched::End => Ok(match self.wanted {
                Want::Nothing => Then::Nothing,
                Want::Copy => self.complete_if_whole(),
                // What has no region now has none at the leader either.
                Want::Scan => {
                    self.wanted = Want::Nothing;
                    Then::Complete
                }
            }),
        }
    }

    fn complete_if_whole(&mut self) -> Then {
        match &self.staged {
            Some(staged) if !staged.is_without_holes() => {
                self.wanted = Want::Scan;
                Then::Fetch(Want::Scan)
            }
            Some(_) => {
                self.wanted = Want::Nothing;
                Then::Complete
            }
            None => Then::Nothing,
        }
    }

    /// Tells the gate where the complete staged map stands, so that it can be proven; its generation and index.
    pub(super) fn ready(&self) -> Option<(u64, u64)> {
        let staged = self.staged.as_ref()?;
        let (generation, next) = (staged.generation(), staged.next);
        self.shared
            .gate
            .apply_finished(generation, next, staged.heard_at);
        Some((generation, next))
    }

    /// Swaps the staged map in.
    pub(super) fn publish(&mut self) -> Then {
        let Some(staged) = self.staged.take() else {
            return Then::Nothing;
        };
        self.progress = Progress {
            next: staged.next,
            gap_until: None,
            published: true,
            applied_any: true,
        };
        let generation = staged.generation();
        staged.publish(&self.shared);
        if let Some(persist) = self.shared.persist() {
            persist.replaced(generation, self.reign.clone(), self.progress.next);
        }
        if let Some(chain) = self.shared.chain() {
            chain.replaced(generation, self.reign.clone(), self.progress.next);
        }
        self.shared.counters.full_syncs_published.add(1);
        self.live()
    }

    /// Ends an apply. A staged map has no index before it is complete, and a generation into which nothing was applied
    /// has no stamp.
    pub(super) fn finished(&self, last: Option<Moment>) {
        if let (None, Some(at)) = (&self.staged, last) {
            self.shared
                .gate
                .apply_finished(self.generation(), self.progress.next, at);
            if let Some(persist) = self.shared.persist() {
                persist.reached(self.progress.next);
            }
            if let Some(chain) = self.shared.chain().filter(|_| self.quiet) {
                chain.beat(at);
            }
        }
    }

    fn advance(&mut self, next: u64, records: u64) -> Then {
        self.progress.next = next;
        self.gap.applied(&self.shared.gate, next);
        if records < self.batch_limit || self.shared.stream() == StreamState::Live {
            self.live()
        } else {
            self.shared.set_stream(StreamState::CatchUp);
            Then::Answering
        }
    }

    fn live(&self) -> Then {
        self.shared.set_stream(StreamState::Live);
        Then::Answering
    }

    /// Puts the regions of a frame, those that can be used even if not all can. The records for those who follow this
    /// replica, if there may be any.
    fn put(
        &mut self,
        frame: &SyncRegionResponse,
        source: Source,
        at: Moment,
    ) -> Result<Vec<SharedEntry>, Malformed> {
        let (regions, fault) = decode::regions(frame);
        let count = regions.len();
        let mut entries = Vec::new();
        if count > 0 {
            let outcomes = match &self.staged {
                Some(staged) => staged.put(regions, source, at),
                None => {
                    let outcomes;
                    (outcomes, entries) = self.answer_with(regions, at);
                    outcomes
                }
            };
            let refused = outcomes
                .iter()
                .filter(|outcome| outcome.is_refused())
                .count();
            if refused > 0 {
                self.take_out_displaced(frame);
            }
            self.shared.counters.regions.add(count as u64);
            self.shared.counters.stale_skips.add(refused as u64);
        }
        match fault {
            Some(malformed) => {
                self.shared.counters.malformed.add(1);
                Err(malformed)
            }
            None => Ok(entries),
        }
    }
}

impl Follower {
    /// Takes out what a frame's regions displaced at the leader, those that were refused here: the others have done so.
    fn take_out_displaced(&self, frame: &SyncRegionResponse) {
        let (regions, _) = decode::regions(frame);
        match &self.staged {
            Some(staged) => {
                displaced::remove(staged.map(), &regions);
            }
            None => {
                let gone = displaced::remove(&self.shared.map, &regions);
                if let Some(persist) = self.shared.persist().filter(|_| !gone.is_empty()) {
                    persist.healed(&[], gone);
                }
            }
        }
    }

    /// Puts records into the map that answers, and tells what keeps it on disk.
    fn answer_with(&self, regions: Vec<Region>, at: Moment) -> (Vec<Outcome>, Vec<SharedEntry>) {
        let kept = self
            .shared
            .persist()
            .map(|persist| (persist, regions.iter().map(Region::id).collect::<Vec<_>>()));
        let batch = records(regions, at);
        let passed_on = self
            .shared
            .chain()
            .is_some_and(|chain| chain.keeps_records());
        let entries = match passed_on {
            true => batch.entries().cloned().collect(),
            false => Vec::new(),
        };
        let outcomes = self.shared.map.apply(batch);
        if let Some((persist, ids)) = kept {
            persist.changed(&ids);
        }
        (outcomes, entries)
    }
}

fn records(regions: Vec<Region>, received_at: Moment) -> Batch {
    regions
        .into_iter()
        .map(|region| (region, Provenance::Stream { received_at }))
        .collect()
}
