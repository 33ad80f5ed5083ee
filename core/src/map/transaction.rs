//! One or more changes on their way to becoming a root.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::admission::{admit_expected, admit_over_other_id, admit_over_same_id};
use super::bag::Bag;
use super::batch::{Change, Expect};
use super::order::{Order, newcomer};
use super::outcome::{Outcome, Refusal, RefusalReason};
use super::root::Root;
use crate::entry::{Entry, EntryPtr, SharedEntry};
use crate::id_index;
use crate::pool::Pooled;
use crate::sync::Canary;
use crate::tree::{self, Finger, Placed, Spot};

/// Changes whose memory is asked for at a time.
const PREFETCHED: usize = 12;

/// Changes that start from one root; nobody sees them yet. The root and the
/// changes outlive it.
pub(super) struct Transaction<'g> {
    version: u64,
    generation: u64,
    tree: tree::Edit,
    ids: id_index::Edit,
    /// Bytes of all entries that are live now.
    entry_bytes: usize,
    /// Without what the two edits have of it.
    bag: Pooled<Bag>,
    alive: PhantomData<&'g Root>,
}

/// A live entry that has lost its place.
#[derive(Debug)]
pub(super) struct Displaced {
    pub(super) entry: EntryPtr,
    /// The new entry of the same region, if there is one.
    pub(super) heir: Option<EntryPtr>,
}

/// The ways to the place of a change, and what stands there by its id.
struct Trails<'k> {
    start: tree::Trail<'k>,
    /// `None` if there is no such id.
    known: Option<(id_index::Trail, EntryPtr)>,
}

impl<'g> Transaction<'g> {
    pub(super) fn new(base: &'g Root, mut bag: Pooled<Bag>) -> Self {
        base.canary.check();
        let tag = base.next_tag();
        let nodes = bag.tree.take().unwrap_or_else(tree::Means::new);
        let pages = bag.ids.take().unwrap_or_else(id_index::Means::new);
        Self {
            version: tag.0,
            generation: base.generation,
            tree: tree::Edit::new(base.tree, tag, nodes),
            ids: id_index::Edit::new(base.ids, tag, pages),
            entry_bytes: base.entry_bytes,
            bag,
            alive: PhantomData,
        }
    }

    /// Applies all changes, to the same effect as one by one in the order given, and
    /// fills in their outcomes.
    pub(super) fn apply_all(
        &mut self,
        changes: &'g [Change],
        order: Option<&Order>,
        outcomes: &mut [Option<Outcome>],
    ) {
        if let [first, rest @ ..] = changes
            && rest.len() <= 1
        {
            // A split, at most: the second region is beside the first.
            for change in rest {
                self.ids.prefetch(change.id());
            }
            outcomes[0] = Some(self.apply_first(first));
            for (change, outcome) in rest.iter().zip(&mut outcomes[1..]) {
                *outcome = Some(self.apply(change));
            }
            return;
        }
        outcomes.fill(None);
        if let Some(order) = order {
            self.settle(changes, order, outcomes);
        }
        for (changes, outcomes) in changes
            .chunks(PREFETCHED)
            .zip(outcomes.chunks_mut(PREFETCHED))
        {
            let open = || {
                changes
                    .iter()
                    .zip(&*outcomes)
                    .filter(|(_, it)| it.is_none())
            };
            self.prefetch(open().map(|(change, _)| change));
            for (change, outcome) in changes.iter().zip(outcomes) {
                if outcome.is_none() {
                    *outcome = Some(self.apply(change));
                }
            }
        }
    }

    /// Asks for the memory that `changes` will need, before they are applied: the
    /// trips to memory of several changes then overlap.
    fn prefetch<'c>(&self, changes: impl Iterator<Item = &'c Change> + Clone) {
        for change in changes.clone() {
            self.ids.prefetch(change.id());
            if let Change::Put { entry, .. } = change {
                self.tree.read().prefetch(entry.start());
            }
        }
        for change in changes {
            if let Some(entry) = self.ids.get(change.id()) {
                entry.prefetch_whole();
            } else if let Change::Put { entry, .. } = change {
                self.tree.read().prefetch_neighbours(entry.start());
            }
        }
    }

    /// Applies those changes of `order` that are settled; see `order.rs`.
    fn settle(&mut self, changes: &'g [Change], order: &Order, outcomes: &mut [Option<Outcome>]) {
        let mut known: Vec<Option<EntryPtr>> = vec![None; changes.len()];
        for ahead in order.by_id.chunks(PREFETCHED) {
            for &(id, _) in ahead {
                self.ids.prefetch(id);
            }
            for &(id, index) in ahead {
                known[index as usize] = self.ids.get(id);
            }
        }

        let mut finger = Finger::new();
        let mut spots: Vec<(usize, Spot)> = Vec::with_capacity(PREFETCHED);
        let mut open = &order.by_start[..];
        while !open.is_empty() {
            spots.clear();
            for &index in open.iter().take(PREFETCHED) {
                let index = index as usize;
                let Some((entry, _)) = newcomer(&changes[index]) else {
                    continue;
                };
                let Some(spot) = self.tree.spot(&mut finger, entry.start()) else {
                    break;
                };
                if let Some(known) = known[index] {
                    known.prefetch_whole();
                }
                spots.push((index, spot));
            }
            if spots.is_empty() {
                // An empty tree has no spots yet: the first region makes one.
                let index = open[0] as usize;
                outcomes[index] = Some(self.apply(&changes[index]));
                open = &open[1..];
                continue;
            }
            for (index, spot) in &mut spots {
                if let Some((entry, _)) = newcomer(&changes[*index]) {
                    self.tree.locate(spot, entry.start());
                }
            }
            let mut done = 0;
            for (index, spot) in &spots {
                done += 1;
                let change = &changes[*index];
                let (outcome, split) = self.settle_one(&mut finger, spot, change, known[*index]);
                outcomes[*index] = outcome;
                if split {
                    break;
                }
            }
            open = &open[done..];
        }

        for &(id, index) in &order.by_id {
            let index = index as usize;
            let applied = outcomes[index].is_some_and(|outcome| !outcome.is_refused());
            if let Some((_, pointer)) = newcomer(&changes[index]).filter(|_| applied) {
                self.ids.set(id, pointer);
            }
        }
    }

    /// Applies the first change. The trips to memory for its place in the tree and in
    /// the index overlap.
    pub(super) fn apply_first(&mut self, change: &'g Change) -> Outcome {
        let result = match change {
            Change::Put { entry, expect } => {
                let mut id = self.ids.trail(entry.id());
                let start = self.tree.read().trail(entry.start());
                let known = id.as_mut().and_then(|trail| self.ids.entry_at(trail));
                if let Some(known) = known {
                    known.prefetch_whole();
                }
                let known = id.zip(known);
                self.put(entry, expect, Some(&Trails { start, known }))
            }
            Change::Remove { id, expect } => self.remove(*id, expect),
        };
        result.unwrap_or_else(Outcome::Refused)
    }

    /// Applies one change to what the ones before it have left.
    fn apply(&mut self, change: &'g Change) -> Outcome {
        let result = match change {
            Change::Put { entry, expect } => self.put(entry, expect, None),
            Change::Remove { id, expect } => self.remove(*id, expect),
        };
        result.unwrap_or_else(Outcome::Refused)
    }

    /// The root that the changes lead to, in memory of its own.
    pub(super) fn place_root(&mut self) -> NonNull<Root> {
        let root = Root {
            version: self.version,
            generation: self.generation,
            tree: self.tree.tree(),
            ids: self.ids.index(),
            entry_bytes: self.entry_bytes,
            canary: Canary::new(),
        };
        self.bag.place(root)
    }

    /// Ends the transaction, whose root has been published. All that it took out of
    /// the map is noted in the bag.
    pub(super) fn publish(self) -> Pooled<Bag> {
        let mut bag = self.bag;
        bag.tree = Some(self.tree.publish());
        bag.ids = Some(self.ids.publish());
        bag
    }

    /// Frees what the transaction has made, but for a root. That has not been
    /// published.
    pub(super) fn abandon(self) -> Pooled<Bag> {
        let mut bag = self.bag;
        bag.tree = Some(self.tree.abandon());
        bag.ids = Some(self.ids.abandon());
        bag.displaced.clear();
        bag
    }

    /// Puts an entry; `trails` are those in the tree and in the index as they are now.
    fn put(
        &mut self,
        newcomer: &'g SharedEntry,
        expect: &Expect,
        trails: Option<&Trails<'_>>,
    ) -> Result<Outcome, Refusal> {
        let pointer = EntryPtr::of(newcomer);
        let trail = trails.map(|trails| &trails.start);
        let by_id = trails.and_then(|trails| trails.known.as_ref());
        let known = match trails {
            Some(_) => by_id.map(|&(_, pointer)| pointer),
            None => self.ids.get(newcomer.id()),
        };
        // SAFETY: as in `live`.
        let known = known.map(|pointer| (pointer, unsafe { pointer.as_ref::<'g>() }));
        admit_expected(expect, newcomer.id(), |id| self.entry(id))?;
        if let Some((_, entry)) = known {
            admit_over_same_id(newcomer, entry)?;
        }
        let same_range =
            |(_, entry): (EntryPtr, &Entry)| entry.region().range() == newcomer.region().range();

        let outcome = if known.is_some_and(same_range) {
            // Live ranges are disjoint, so nothing else can overlap this one.
            match trail {
                Some(trail) => self.tree.replace_along(trail, pointer),
                None => self.tree.replace(pointer),
            }
            self.set_id(newcomer.id(), pointer, by_id);
            Outcome::Replaced
        } else {
            let shrinks = |(_, entry): (EntryPtr, &Entry)| {
                entry.region().range().covers(newcomer.region().range())
            };
            // Where a live range was, no other one is.
            let others = if known.is_some_and(shrinks) {
                let mut none = std::mem::take(&mut self.bag.overlapped);
                none.clear();
                none
            } else {
                self.overlapped(newcomer, trail)?
            };
            let own = known.map(|(pointer, _)| pointer);
            let displaced = others.len() + usize::from(own.is_some());
            // Before the others' ids leave the index, where the way is still the one found.
            self.set_id(newcomer.id(), pointer, by_id);
            self.displace(pointer, newcomer, own, &others, trail);
            self.bag.overlapped = others;
            Outcome::Inserted { displaced }
        };

        self.bequeath(newcomer, known);
        Ok(outcome)
    }

    /// Points to the entry of a region by its id: along the way there, if that is known.
    fn set_id(&mut self, id: u64, entry: EntryPtr, by_id: Option<&(id_index::Trail, EntryPtr)>) {
        match by_id {
            Some((trail, _)) => self.ids.replace_along(trail, entry),
            None => self.ids.set(id, entry),
        }
    }

    /// Applies a change that is apart, unless it is not settled, but for the index
    /// of ids; and says whether spots are to be sought again.
    fn settle_one(
        &mut self,
        finger: &mut Finger,
        spot: &Spot,
        change: &'g Change,
        known: Option<EntryPtr>,
    ) -> (Option<Outcome>, bool) {
        let Some((newcomer, pointer)) = newcomer(change) else {
            return (None, false);
        };
        let (placed, outcome) = match known {
            None => {
                let placed = self.tree.place_new(finger, spot, pointer);
                (placed, Outcome::Inserted { displaced: 0 })
            }
            Some(old) => {
                // SAFETY: live in the root that the transaction started from.
                let entry: &Entry = unsafe { old.as_ref() };
                if entry.region().range() != newcomer.region().range() {
                    return (None, false);
                }
                if let Err(refusal) = admit_over_same_id(newcomer, entry) {
                    return (Some(Outcome::Refused(refusal)), false);
                }
                let placed = self.tree.place_known(finger, spot, old, pointer);
                (placed, Outcome::Replaced)
            }
        };
        if placed == Placed::No {
            return (None, false);
        }
        // SAFETY: as above.
        let known = known.map(|old| (old, unsafe { old.as_ref::<'g>() }));
        self.bequeath(newcomer, known);
        (Some(outcome), placed == Placed::Split)
    }

    /// The regions with other ids that `newcomer` would displace, all of which
    /// have to admit it.
    fn overlapped(
        &mut self,
        newcomer: &Entry,
        trail: Option<&tree::Trail<'_>>,
    ) -> Result<Vec<EntryPtr>, Refusal> {
        let mut others = std::mem::take(&mut self.bag.overlapped);
        others.clear();
        self.tree
            .overlapping(newcomer.region().range(), trail, &mut others);
        let mut refused = None;
        others.retain(|pointer| {
            // SAFETY: in the tree of this transaction, see `entry`.
            let entry: &Entry = unsafe { pointer.as_ref() };
            if entry.id() == newcomer.id() {
                return false;
            }
            refused = refused.or(admit_over_other_id(newcomer, entry).err());
            true
        });
        match refused {
            Some(refusal) => {
                self.bag.overlapped = others;
                Err(refusal)
            }
            None => Ok(others),
        }
    }

    /// Puts `newcomer` into the tree in the place of `own`, the region's former
    /// entry, and `others`.
    fn displace(
        &mut self,
        pointer: EntryPtr,
        newcomer: &Entry,
        own: Option<EntryPtr>,
        others: &[EntryPtr],
        trail: Option<&tree::Trail<'_>>,
    ) {
        let start_of = |old: EntryPtr| {
            // SAFETY: in the tree of this transaction, see `entry`.
            let entry: &'g Entry = unsafe { old.as_ref() };
            entry.start()
        };
        let slot_is_taken = own
            .iter()
            .chain(others)
            .any(|&old| start_of(old) == newcomer.start());
        // First, since what it displaces besides is probably beside it.
        match trail {
            Some(trail) if slot_is_taken => self.tree.replace_along(trail, pointer),
            None if slot_is_taken => self.tree.replace(pointer),
            _ => {}
        }
        for &old in own.iter().chain(others) {
            if start_of(old) != newcomer.start() {
                self.tree.remove(start_of(old));
            }
        }
        if !slot_is_taken {
            self.tree.insert(pointer);
        }
        for &other in others {
            // SAFETY: as above.
            let entry: &Entry = unsafe { other.as_ref() };
            self.ids.remove(entry.id());
            self.note_displaced(other, entry, None);
        }
    }

    /// Notes that `entry`, which `pointer` points to, is no longer live.
    fn note_displaced(&mut self, pointer: EntryPtr, entry: &Entry, heir: Option<EntryPtr>) {
        self.entry_bytes -= entry.bytes();
        self.bag.displaced.push(Displaced {
            entry: pointer,
            heir,
        });
    }

    /// Notes that `newcomer` is live in the place of the region's former entry, and
    /// hands that one's pin over, as far as it is set by now (E3; the second half of the hand-over follows the publication).
    fn bequeath(&mut self, newcomer: &SharedEntry, known: Option<(EntryPtr, &Entry)>) {
        self.entry_bytes += newcomer.bytes();
        let mut inherits = false;
        if let Some((pointer, former)) = known {
            let heir = former
                .hands_pin_to(newcomer)
                .then(|| EntryPtr::of(newcomer));
            inherits = heir.is_some() && former.word().is_pinned();
            self.note_displaced(pointer, former, heir);
        }
        if inherits {
            // Not published yet, so that nobody can have superseded it.
            let _ = newcomer.word().inherit_pin();
        } else if newcomer.word().is_pinned() {
            // An earlier attempt to publish may have met another entry here.
            newcomer.word().disinherit_unpublished();
        }
    }

    fn remove(&mut self, id: u64, expect: &Expect) -> Result<Outcome, Refusal> {
        admit_expected(expect, id, |id| self.entry(id))?;
        let Some((pointer, entry)) = self.live(id) else {
            return Err(Refusal {
                reason: RefusalReason::UnknownId,
                lost_to: None,
            });
        };
        self.tree.remove(entry.start());
        self.ids.remove(id);
        self.note_displaced(pointer, entry, None);
        Ok(Outcome::Removed)
    }

    fn live(&self, id: u64) -> Option<(EntryPtr, &'g Entry)> {
        let pointer = self.ids.get(id)?;
        // SAFETY: an entry in the index belongs to the root that the transaction
        // started from or to one of its changes; both outlive `'g`.
        Some((pointer, unsafe { pointer.as_ref() }))
    }

    fn entry(&self, id: u64) -> Option<&'g Entry> {
        self.live(id).map(|(_, entry)| entry)
    }
}
