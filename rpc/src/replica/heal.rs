//! Healing the map with what the PD leader said, without undoing what the stream has brought meanwhile.
//!
//! A question remembers the entries that it is about ([`Asked`]); the answer ([`Said`]) changes the map only where
//! those very entries still are. The stream's order stays the authority (M3):
//!
//! | the live entry of a region that the leader described | then |
//! |---|---|
//! | is the one that the question saw, and says the same | it is confirmed, in place |
//! | is the one that the question saw, and says something else | it is replaced, confirmed |
//! | came from the stream while the question was under way | it stays, unconfirmed |
//! | came from an answer to another question | that of the later question stands |
//! | was not looked at by the question, but was received before it was sent | as the one that the question saw |
//! | is newer by its epoch | it stays, unconfirmed |
//!
//! Confirmed is as of the moment at which the question was sent: the leader said it at that moment or later. A record of
//! the stream that replaces a confirmed entry makes a new entry, which nobody has confirmed.
//!
//! # No holes
//! A description may displace more than it describes: the left half of a region that has been split leaves the right
//! half to nobody. A hole that the leader does not have would be worse than an old region, because a scan skips it. So
//! a change that would uncover keys about which the answer says nothing is held back, and the range is handed back to
//! be asked about ([`Healed::unsettled`]); an answer about that range settles it. In the same way a region that the
//! leader does not know any more is removed only if the answer covers its keys.
//!
//! What a concurrent change of the stream displaces between the look and the apply is not looked at again: one
//! expectation guards each change, and the order of epochs all of them.

use std::collections::{HashMap, HashSet};
use std::fmt;

use tidegate_core::{
    Batch, Entry, EntryRef, Expect, Key, KeyRange, Moment, Outcome, Provenance, Region,
    SharedEntry, Snapshot,
};

use super::state::{Counter, Shared};

mod covered;

#[cfg(test)]
mod tests;

use covered::Covered;

/// How many changes are published at once, unless one of them displaces something: a writer that is overtaken repeats
/// its work.
const CHANGES_AT_ONCE: usize = 512;

/// A question to the PD leader, as far as the map is concerned: to be made right before it is sent.
#[derive(Debug)]
pub struct Asked {
    generation: u64,
    at: Moment,
    seen: HashMap<u64, SharedEntry>,
}

impl Asked {
    /// A question about the entries of `snapshot` that `seen` gives, sent at once. Reads the clock after the look.
    pub fn about<'s>(
        shared: &Shared,
        snapshot: &'s Snapshot<'_>,
        seen: impl IntoIterator<Item = EntryRef<'s>>,
    ) -> Self {
        let seen = seen
            .into_iter()
            .map(|entry| (entry.id(), entry.to_shared()));
        Self {
            generation: snapshot.generation(),
            seen: seen.collect(),
            at: shared.clock.now(),
        }
    }

    /// When it was sent.
    #[must_use]
    pub fn at(&self) -> Moment {
        self.at
    }

    /// The generation of the map that it is about.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The entries that it is about.
    pub fn seen(&self) -> impl Iterator<Item = &SharedEntry> {
        self.seen.values()
    }

    /// Whether `live` was there when the question was sent.
    fn knew(&self, live: &Entry) -> bool {
        let seen = self.seen.get(&live.id());
        if seen.is_some_and(|seen| std::ptr::eq::<Entry>(live, &**seen)) {
            return true;
        }
        match live.provenance() {
            // Of two answers the one to the later question stands, whichever came first.
            Provenance::Leader { asked_at, .. } => asked_at <= self.at,
            // Not looked at, so that its stamp has to tell.
            Provenance::Stream { received_at } => seen.is_none() && received_at <= self.at,
            Provenance::Follower { .. } => true,
        }
    }
}

/// What the PD leader answered.
#[derive(Debug, Default)]
pub struct Said {
    /// The regions that it described.
    pub regions: Vec<Region>,
    /// Whether it told their buckets.
    pub with_buckets: bool,
    /// Ranges of which it told every region.
    pub whole: Vec<KeyRange>,
    /// Ids that it does not know.
    pub unknown_ids: Vec<u64>,
    /// Keys that lie in none of its regions.
    pub unknown_keys: Vec<Key>,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// What became of one thing that the leader said.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum Kind { $($(#[$doc])* $variant,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name in metrics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

kinds! {
    /// The map said the same.
    Confirmed => "confirmed",
    /// The map said something else of the region in this range.
    Replaced => "replaced",
    /// The map did not have the region, or in another range.
    Inserted => "inserted",
    /// The map had a region that the leader does not know.
    Removed => "removed",
    /// The map had changed since the question was sent.
    Overtaken => "overtaken",
    /// The map had something newer.
    Older => "older",
    /// Keys would have been uncovered of which the leader has not told.
    HeldBack => "held_back",
    /// A full sync had replaced the map since the question was sent.
    OtherGeneration => "other_generation",
}

/// How often each thing happened.
#[derive(Debug, Default)]
pub struct HealCounters([Counter; Kind::ALL.len()]);

impl HealCounters {
    /// The count of one kind.
    pub fn get(&self, kind: Kind) -> u64 {
        self.0[kind as usize].get()
    }

    /// Name and value of each count.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Kind::ALL
            .into_iter()
            .map(|kind| (kind.as_str(), self.get(kind)))
    }

    fn add(&self, healed: &Healed) {
        for kind in Kind::ALL {
            self.0[kind as usize].add(healed.of(kind));
        }
    }
}

/// What became of an answer.
#[derive(Clone, Default, Eq, PartialEq)]
#[must_use = "what is unsettled is to be asked about"]
pub struct Healed {
    counts: [u64; Kind::ALL.len()],
    /// Ranges about which more has to be asked: something there is out of date.
    pub unsettled: Vec<KeyRange>,
}

impl Healed {
    /// How often that happened.
    #[must_use]
    pub fn of(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    fn add(&mut self, kind: Kind) {
        self.counts[kind as usize] += 1;
    }

    fn hold_back(&mut self, range: &KeyRange) {
        self.add(Kind::HeldBack);
        if !self.unsettled.contains(range) {
            self.unsettled.push(range.clone());
        }
    }
}

impl fmt::Debug for Healed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for kind in Kind::ALL.into_iter().filter(|kind| self.of(*kind) > 0) {
            map.entry(&kind.as_str(), &self.of(kind));
        }
        map.entry(&"unsettled", &self.unsettled).finish()
    }
}

/// Heals the map with what the leader said, and counts what became of it.
///
/// The caller has made sure that it was the leader who answered, in the term that the map follows.
pub fn heal(shared: &Shared, asked: &Asked, said: Said, answered_at: Moment) -> Healed {
    let mut healed = Healed::default();
    let mut plan = Plan {
        shared,
        asked,
        provenance: Provenance::Leader {
            asked_at: asked.at,
            answered_at,
        },
        displaced: HashSet::new(),
        batch: Batch::new(),
        put: Vec::new(),
        gone: Vec::new(),
    };
    plan.follow(said, &mut healed);
    shared.heals.add(&healed);
    healed
}

struct Plan<'a> {
    shared: &'a Shared,
    asked: &'a Asked,
    provenance: Provenance,
    /// Ids of entries that the changes so far take away.
    displaced: HashSet<u64>,
    batch: Batch,
    /// What the batch touches, for what is kept on disk: the regions that it puts, and where those begin that it takes
    /// away.
    put: Vec<u64>,
    gone: Vec<Key>,
}

impl Plan<'_> {
    fn follow(&mut self, said: Said, healed: &mut Healed) {
        let covered = Covered::by(said.regions.iter().map(Region::range).chain(&said.whole));
        let told: HashSet<u64> = said.regions.iter().map(Region::id).collect();
        let with_buckets = said.with_buckets;
        let mut regions = said.regions.into_iter().peekable();
        while regions.peek().is_some() {
            let snapshot = self.shared.map.pin();
            if !self.is_of(&snapshot, regions.len(), healed) {
                return;
            }
            let mut taken = 0;
            // What displaces something is published with all that takes its place.
            while taken < CHANGES_AT_ONCE || !self.displaced.is_empty() {
                let Some(region) = regions.next() else { break };
                taken += 1;
                self.put(&snapshot, region, with_buckets, &covered, healed);
            }
            drop(snapshot);
            self.publish(healed);
        }
        let snapshot = self.shared.map.pin();
        if !self.is_of(&snapshot, 0, healed) {
            return;
        }
        for range in &said.whole {
            for live in snapshot.overlaps(range) {
                if !told.contains(&live.id()) {
                    self.remove(live, &covered, healed);
                }
            }
        }
        for live in said.unknown_ids.iter().filter_map(|&id| snapshot.by_id(id)) {
            self.remove(live, &covered, healed);
        }
        for live in said.unknown_keys.iter().filter_map(|key| snapshot.get(key)) {
            if !told.contains(&live.id()) {
                self.remove(live, &covered, healed);
            }
        }
        drop(snapshot);
        self.publish(healed);
    }

    fn is_of(&self, snapshot: &Snapshot<'_>, regions: usize, healed: &mut Healed) -> bool {
        let same = snapshot.generation() == self.asked.generation;
        if !same {
            (0..regions).for_each(|_| healed.add(Kind::OtherGeneration));
        }
        same
    }

    fn put(
        &mut self,
        snapshot: &Snapshot<'_>,
        region: Region,
        with_buckets: bool,
        covered: &Covered,
        healed: &mut Healed,
    ) {
        let own = snapshot.by_id(region.id());
        if let Some(own) = own
            && own.region().range() == region.range()
            && !self.displaced.contains(&own.id())
        {
            self.renew(own, region, with_buckets, healed);
            return;
        }
        let others = snapshot
            .overlaps(region.range())
            .filter(|other| other.id() != region.id());
        let in_the_way: Vec<EntryRef<'_>> = own.into_iter().chain(others).collect();
        for live in &in_the_way {
            if !self.asked.knew(live) {
                healed.add(Kind::Overtaken);
                return;
            }
            if !covered.holds(live.region().range()) {
                healed.hold_back(live.region().range());
                return;
            }
        }
        // An entry that an earlier change of this batch takes away is not there any more by then.
        let there = |live: &&EntryRef<'_>| !self.displaced.contains(&live.id());
        let expect = match in_the_way.iter().find(there) {
            Some(live) => Expect::Entry(live.to_shared()),
            None => Expect::Absent,
        };
        self.displaced
            .extend(in_the_way.iter().map(|live| live.id()));
        self.gone
            .extend(in_the_way.iter().map(|live| live.start().clone()));
        self.put.push(region.id());
        let region = own.map_or_else(
            || region.clone(),
            |own| completed(&region, own.region(), with_buckets),
        );
        self.batch.put_if(region, self.provenance, expect);
    }

    /// The leader described a region that the map has in the same range.
    fn renew(
        &mut self,
        own: EntryRef<'_>,
        region: Region,
        with_buckets: bool,
        healed: &mut Healed,
    ) {
        if !self.asked.knew(&own) {
            healed.add(Kind::Overtaken);
        } else if says_the_same(own.region(), &region, with_buckets) {
            use tidegate_core::entry::Confirmed;
            healed.add(match own.word().confirm(self.asked.at) {
                Confirmed::Done | Confirmed::Already(_) => Kind::Confirmed,
                Confirmed::Superseded | Confirmed::Leased | Confirmed::Invalid(_) => {
                    Kind::Overtaken
                }
            });
        } else {
            let region = completed(&region, own.region(), with_buckets);
            self.put.push(region.id());
            self.batch
                .put_if(region, self.provenance, Expect::Entry(own.to_shared()));
        }
    }

    fn remove(&mut self, live: EntryRef<'_>, covered: &Covered, healed: &mut Healed) {
        if !self.asked.knew(&live) {
            healed.add(Kind::Overtaken);
        } else if !covered.holds(live.region().range()) {
            healed.hold_back(live.region().range());
        } else if self.displaced.insert(live.id()) {
            self.gone.push(live.start().clone());
            self.batch
                .remove(live.id(), Expect::Entry(live.to_shared()));
        }
    }

    fn publish(&mut self, healed: &mut Healed) {
        self.displaced.clear();
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        for outcome in self.shared.map.apply(batch) {
            healed.add(kind_of(outcome));
        }
        let (put, gone) = (
            std::mem::take(&mut self.put),
            std::mem::take(&mut self.gone),
        );
        if let Some(persist) = self.shared.persist() {
            persist.healed(&put, gone);
        }
    }
}

fn kind_of(outcome: Outcome) -> Kind {
    use tidegate_core::map::RefusalReason;
    match outcome {
        Outcome::Inserted { .. } => Kind::Inserted,
        Outcome::Removed => Kind::Removed,
        Outcome::Refused(refusal) => match refusal.reason {
            RefusalReason::OlderEpoch
            | RefusalReason::OlderTruth
            | RefusalReason::OverlapsNewer => Kind::Older,
            _ => Kind::Overtaken,
        },
        _ => Kind::Replaced,
    }
}

/// Whether two descriptions look the same to a client.
fn says_the_same(known: &Region, told: &Region, with_buckets: bool) -> bool {
    let details = |region: &Region| region.details().cloned().unwrap_or_default();
    let (known_details, told_details) = (details(known), details(told));
    known.epoch() == told.epoch()
        && known.range() == told.range()
        && known.leader() == told.leader()
        && known.peers() == told.peers()
        && known_details.flashback == told_details.flashback
        && known_details.down_peers == told_details.down_peers
        && known_details.pending_peers == told_details.pending_peers
        && (!with_buckets || known_details.buckets == told_details.buckets)
}

/// What the leader told, with what only the stream tells.
fn completed(told: &Region, known: &Region, with_buckets: bool) -> Region {
    let Some(known_details) = known.details() else {
        return told.clone();
    };
    let mut details = told.details().cloned().unwrap_or_default();
    details.stats = known_details.stats;
    if !with_buckets && known.epoch() == told.epoch() {
        details.buckets.clone_from(&known_details.buckets);
    }
    let completed = told.to_builder().details(details).build();
    completed.unwrap_or_else(|_| told.clone())
}
