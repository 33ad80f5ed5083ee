//! A full sync in the making: a map of its own, under the next generation.
//!
//! The map that answers is not touched until the new one is complete. A sync that is given up leaves nothing behind but
//! its generation's number, which is not used again. The two share no entry, not even one that says the same in both: what
//! a change in one map marks in an entry (superseded) would be false in the other, where the leader's word could then not
//! confirm it any more. So a full sync takes the memory of a second map until the first is freed.
//!
//! A map without a proof answers nothing. So while the old map answers, the new one is probed before it is swapped in,
//! and takes over with the proof in hand.

use tidegate_core::{
    Batch, BulkLoad, Entry, Key, Moment, Outcome, Provenance, Region, RegionMap, Snapshot,
};

use crate::replica::state::Shared;

/// What the session feeds: the applier says so, and the watch probes accordingly.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Feed {
    /// Nothing that a probe could prove.
    Aside,
    /// A full sync that is complete and not swapped in: the map that it will replace still answers.
    Complete {
        /// The generation of the full sync.
        generation: u64,
        /// The next index to apply in it.
        index: u64,
    },
    /// The map that answers.
    Answering,
}

/// Where regions for a staged map come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Source {
    /// The stream, whose order is the authority.
    Stream,
    /// A copy of the leader's map of an unknown moment: it yields to what the stream has said under the same epoch.
    Copy,
    /// The leader's answer to a question that was sent then.
    Leader(Moment),
}

#[derive(Debug)]
pub(in crate::replica) struct Staged {
    map: RegionMap,
    generation: u64,
    /// The next index, once the stream is at indexes; and when the last frame before it was received.
    pub(super) next: u64,
    pub(super) heard_at: Moment,
}

impl Staged {
    /// An empty map for a generation that the gate has begun, at a time not after the first frame's.
    pub(super) fn new(generation: u64, at: Moment) -> Self {
        Self {
            map: RegionMap::with_generation(generation),
            generation,
            next: 0,
            heard_at: at,
        }
    }

    /// An empty map for the next generation, which begins.
    pub(in crate::replica) fn begin(shared: &Shared) -> Self {
        let generation = shared.gate.next_generation();
        shared.gate.begin(generation);
        Self::new(generation, shared.clock.now())
    }

    /// The regions of an earlier life, as the next generation, which begins.
    pub(in crate::replica) fn loaded(shared: &Shared, load: BulkLoad) -> Self {
        let staged = Self::begin(shared);
        // What is refused lost to what came with it, as it would have one by one.
        let map = load.finish(staged.generation).map;
        Self { map, ..staged }
    }

    /// Puts what was received at `at`.
    pub(super) fn put(&self, regions: Vec<Region>, source: Source, at: Moment) -> Vec<Outcome> {
        let mut batch = Batch::with_capacity(regions.len());
        {
            let own = self.map.pin();
            for region in regions {
                if source != Source::Stream && yields(&own, &region, source) {
                    continue;
                }
                batch.put(region, provenance(source, at));
            }
        }
        self.map.apply(batch)
    }

    pub(super) fn map(&self) -> &RegionMap {
        &self.map
    }

    pub(in crate::replica) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether every key belongs to a region: what a leader lists in an unknown part is complete then.
    pub(super) fn is_without_holes(&self) -> bool {
        let snapshot = self.map.pin();
        let mut reached = Some(Key::EMPTY);
        for entry in snapshot.iter() {
            if reached.as_ref() != Some(entry.start()) {
                return false;
            }
            reached = Some(entry.end().clone()).filter(|end| !end.is_empty());
        }
        reached.is_none()
    }

    /// Lets the staged map answer in place of the old one. Between the two steps root and word carry different
    /// generations, and the gate refuses.
    pub(in crate::replica) fn publish(self, shared: &Shared) {
        shared.map.replace_with(self.map, self.generation);
        shared.gate.publish(self.generation);
    }
}

/// Whether `region`, which is not from the stream, has to give way to what is there.
///
/// Under equal epochs a copy does; an answer is ordered by its time. And a region that looks recreated, to which the
/// map lets newer ones give way, is here the state before them: a recreation comes with the stream.
fn yields(own: &Snapshot<'_>, region: &Region, source: Source) -> bool {
    let newer = |entry: &Entry| {
        let (held, new) = (entry.epoch(), region.epoch());
        if entry.id() == region.id() {
            held.version > new.version || held.conf_ver > new.conf_ver
        } else {
            held.version > new.version
        }
    };
    let same = own.by_id(region.id());
    if source == Source::Copy
        && same
            .as_ref()
            .is_some_and(|entry| entry.epoch() == region.epoch())
    {
        return true;
    }
    region.is_recreated()
        && (same.is_some_and(|entry| newer(&entry))
            || own.overlaps(region.range()).any(|entry| newer(&entry)))
}

fn provenance(source: Source, received_at: Moment) -> Provenance {
    match source {
        Source::Stream | Source::Copy => Provenance::Stream { received_at },
        Source::Leader(asked_at) => Provenance::Leader {
            asked_at,
            answered_at: received_at,
        },
    }
}
