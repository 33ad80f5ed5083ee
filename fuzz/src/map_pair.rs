//! The map and its sequential model, side by side: every change goes to both, every answer is
//! compared.

use std::num::NonZeroUsize;
use std::sync::Arc;

use tidegate_core::oracle::SequentialMap;
use tidegate_core::{
    Batch, BulkLoad, Entry, EntryRef, Expect, InvalidReason, KeyRange, Moment, Outcome, Peer,
    PeerRole, Provenance, Region, RegionEpoch, RegionMap, SharedEntry, Snapshot,
};

use crate::bytes::Bytes;
use crate::key_space::KeySpace;

const IDS: u8 = 48;
const FIRST_TILE: u64 = 1_000;

/// What can be compared of an entry: the two sides hold entries of their own.
type Facts<'a> = (&'a Region, Provenance, Option<InvalidReason>, bool);

fn facts(entry: &Entry) -> Facts<'_> {
    (
        entry.region(),
        entry.provenance(),
        entry.word().reason(),
        entry.word().is_pinned(),
    )
}

/// One change, not yet bound to a side.
enum Change {
    Put(Region, Provenance, Expected),
    Remove(u64, Expected),
}

/// What a change expects to find; each side fills in the entry that it holds itself.
#[derive(Copy, Clone)]
enum Expected {
    Any,
    Absent,
    /// The live entry of this id; an entry of another map where there is none.
    Live(u64),
}

/// The map and the model.
pub struct MapPair {
    keys: KeySpace,
    map: Arc<RegionMap>,
    model: SequentialMap,
    generation: u64,
}

impl MapPair {
    /// Both empty.
    pub fn new(keys: KeySpace) -> Self {
        Self {
            keys,
            map: Arc::default(),
            model: SequentialMap::new(),
            generation: 0,
        }
    }

    /// The map.
    pub fn map(&self) -> &Arc<RegionMap> {
        &self.map
    }

    /// The model as it is now.
    pub fn model(&self) -> &SequentialMap {
        &self.model
    }

    /// One single change; says whether it was made.
    pub fn put(&mut self, bytes: &mut Bytes<'_>) -> bool {
        let Some((region, provenance)) = self.region(bytes) else {
            return false;
        };
        let ours = self.map.put(region.clone(), provenance);
        let theirs = self.model.put(region, provenance);
        assert_eq!(ours, theirs);
        !ours.is_refused()
    }

    /// Some changes of every kind at once.
    pub fn batch(&mut self, bytes: &mut Bytes<'_>) {
        let count = 1 + bytes.below(16);
        let changes: Vec<Change> = (0..count).filter_map(|_| self.change(bytes)).collect();
        self.apply(&changes);
    }

    /// Many regions side by side at once, as a frame of a full sync brings them: enough of them
    /// to fill nodes.
    pub fn tile(&mut self, bytes: &mut Bytes<'_>) {
        let (base, step) = (bytes.pair(), u16::from(bytes.byte()) + 1);
        let (count, version) = (u16::from(bytes.byte()), 1 + u64::from(bytes.below(8)));
        let backwards = bytes.byte() % 2 == 1;
        let at = |n: u16| base.checked_add(n.checked_mul(step)?);
        let mut changes: Vec<Change> = (0..count)
            .map_while(|n| Some((at(n)?, at(n + 1)?)))
            .filter_map(|(start, end)| {
                let range = KeyRange::new(self.keys.key(start), self.keys.key(end)).ok()?;
                let epoch = RegionEpoch {
                    conf_ver: 1,
                    version,
                };
                let region = Region::builder(FIRST_TILE + u64::from(start), range, epoch);
                let received = Provenance::Stream {
                    received_at: Moment::from_nanos(version),
                };
                Some(Change::Put(region.build().ok()?, received, Expected::Any))
            })
            .collect();
        if backwards {
            changes.reverse();
        }
        self.apply(&changes);
    }

    /// Many of the regions that [`Self::tile`] brought leave at once.
    pub fn clear_tiles(&mut self, bytes: &mut Bytes<'_>) {
        let (base, step) = (bytes.pair(), u16::from(bytes.byte()) + 1);
        let count = u16::from(bytes.byte());
        let changes: Vec<Change> = (0..count)
            .map_while(|n| base.checked_add(n.checked_mul(step)?))
            .map(|start| Change::Remove(FIRST_TILE + u64::from(start), Expected::Any))
            .collect();
        self.apply(&changes);
    }

    /// Marks an entry on both sides.
    pub fn mark(&mut self, bytes: &mut Bytes<'_>) {
        let (id, how) = (1 + u64::from(bytes.below(IDS)), bytes.byte());
        let snapshot = self.map.pin();
        let sides = (snapshot.by_id(id), self.model.by_id(id));
        if let (Some(ours), Some(theirs)) = sides {
            let (ours, theirs) = (ours.word(), theirs.word());
            match how % 4 {
                0 => assert_eq!(ours.pin_to_leader(), theirs.pin_to_leader()),
                1 => {
                    let at = Moment::from_nanos(1 + u64::from(bytes.byte()));
                    assert_eq!(ours.confirm(at), theirs.confirm(at));
                }
                2 => {
                    let reason = InvalidReason::EpochNotMatch;
                    assert_eq!(ours.invalidate(reason), theirs.invalidate(reason));
                }
                _ => {
                    let reason = InvalidReason::NoLeader;
                    assert_eq!(
                        ours.invalidate_and_pin(reason),
                        theirs.invalidate_and_pin(reason)
                    );
                }
            }
        }
    }

    /// Swaps the whole content for one that is built aside, or loaded at once.
    pub fn replace(&mut self, bytes: &mut Bytes<'_>) {
        self.generation += 1;
        let mut staged = if self.generation.is_multiple_of(2) {
            self.loaded(bytes)
        } else {
            Self::new(self.keys)
        };
        staged.tile(bytes);
        staged.batch(bytes);
        let Some(map) = Arc::into_inner(staged.map) else {
            unreachable!("nobody else has it")
        };
        self.map.replace_with(map, self.generation);
        self.model = staged.model;
        assert_eq!(self.map.generation(), self.generation);
    }

    /// Regions loaded all at once on one side, and one by one on the other.
    fn loaded(&self, bytes: &mut Bytes<'_>) -> Self {
        let (mut load, mut model) = (BulkLoad::new(), SequentialMap::new());
        let mut refused = Vec::new();
        for _ in 0..bytes.byte().into() {
            let (start, kind) = (bytes.pair(), bytes.byte());
            // Some meet others, by range or id; ids that lie far apart are not counted.
            let end = start.saturating_add(1 + u16::from(kind / 16));
            let spread = if kind.is_multiple_of(5) { 1 << 40 } else { 1 };
            let id = 1 + (u64::from(start) / u64::from(1 + kind % 3)) * spread;
            let Ok(range) = KeyRange::new(self.keys.key(start), self.keys.key(end)) else {
                continue;
            };
            let epoch = RegionEpoch {
                conf_ver: 1,
                version: u64::from(kind % 4),
            };
            let Ok(region) = Region::builder(id, range, epoch).build() else {
                continue;
            };
            let received = Provenance::Stream {
                received_at: Moment::from_nanos(u64::from(kind)),
            };
            if let Some(refusal) = model.put(region.clone(), received).refusal() {
                refused.push((load.len(), *refusal));
            }
            load.put(region, received);
        }
        let loaded = load.finish(0);
        assert_eq!(loaded.refused, refused);
        let pair = Self {
            keys: self.keys,
            map: Arc::new(loaded.map),
            model,
            generation: 0,
        };
        pair.compare();
        pair
    }

    /// Asks both sides about many keys and ids at once.
    pub fn ask_many(&self, bytes: &mut Bytes<'_>) {
        let snapshot = self.map.pin();
        let count = bytes.below(40);
        let keys: Vec<Vec<u8>> = (0..count).map(|_| self.keys.key(bytes.pair())).collect();
        let ids: Vec<u64> = (0..count).map(|_| u64::from(bytes.below(IDS))).collect();
        let ours = |entry: Option<EntryRef<'_>>| entry.map(|e| e.region().clone());
        let theirs = |entry: Option<&SharedEntry>| entry.map(|e| e.region().clone());
        let found = snapshot.get_many(&keys).map(ours);
        assert!(found.eq(keys.iter().map(|key| theirs(self.model.get(key)))));
        let found = snapshot.prev_many(&keys).map(ours);
        assert!(found.eq(keys.iter().map(|key| theirs(self.model.prev(key)))));
        let found = snapshot.by_id_many(&ids).map(ours);
        assert!(found.eq(ids.iter().map(|&id| theirs(self.model.by_id(id)))));
    }

    /// Walks over a range from both ends, then page by page while the map changes.
    pub fn walk(&mut self, bytes: &mut Bytes<'_>) {
        let (start, end) = (self.keys.key(bytes.pair()), self.keys.key(bytes.pair()));
        let map = Arc::clone(&self.map);
        self.compare_from_both_ends(&map.pin(), (&start, &end), bytes);

        let Ok(range) = KeyRange::new(start, end) else {
            return;
        };
        let size = NonZeroUsize::MIN.saturating_add(bytes.below(20).into());
        let mut pages = map.scan_pages(&range, size);
        let (mut from, mut moved) = (range.start().to_vec(), false);
        for _ in 0..8 {
            let mut found = Vec::new();
            let page = pages.next_page(|entry| found.push(entry.region().clone()));
            let expected = self.model.scan(&from, range.end());
            let expected = expected.into_iter().take(size.get());
            assert!(expected.map(|entry| entry.region()).eq(&found));
            assert_eq!(pages.is_one_moment(), !moved);
            let Some(page) = page else {
                assert!(found.is_empty());
                return;
            };
            assert_eq!(
                (page.regions.get(), page.is_one_moment),
                (found.len(), !moved)
            );
            let Some(last) = found.last() else {
                unreachable!("a page has regions")
            };
            let is_last = found.len() < size.get()
                || last.end().is_empty()
                || (!range.end().is_empty() && last.end() >= range.end());
            if is_last {
                assert_eq!(
                    pages.next_page(|_| unreachable!("the range has ended")),
                    None
                );
                return;
            }
            from = last.end().to_vec();
            if bytes.byte() % 4 == 1 {
                moved |= self.put(bytes);
            }
        }
    }

    /// A scan of which each bit of a number takes from one of its ends.
    fn compare_from_both_ends(
        &self,
        snapshot: &Snapshot<'_>,
        (start, end): (&[u8], &[u8]),
        bytes: &mut Bytes<'_>,
    ) {
        let turns = u64::from(bytes.pair());
        let mut ours = snapshot.scan(start, end).map(|entry| entry.id());
        let theirs = self.model.scan(start, end);
        let mut theirs = theirs.into_iter().map(|entry| entry.id());
        for turn in 0.. {
            let (found, expected) = if turns >> (turn % 16) & 1 == 0 {
                (ours.next(), theirs.next())
            } else {
                (ours.next_back(), theirs.next_back())
            };
            assert_eq!(found, expected);
            if expected.is_none() {
                break;
            }
        }
        assert_eq!((ours.next(), ours.next_back()), (None, None));

        let limit = usize::from(bytes.byte());
        let ours = snapshot.scan(start, end).rev().take(limit);
        let theirs = self.model.scan(start, end);
        let theirs = theirs.into_iter().rev().take(limit);
        assert!(ours.map(|e| e.id()).eq(theirs.map(|e| e.id())));
    }

    /// Asks both sides about a key, an id and a range.
    pub fn ask(&self, bytes: &mut Bytes<'_>) {
        let snapshot = self.map.pin();
        let key = self.keys.key(bytes.pair());
        let id = 1 + u64::from(bytes.below(IDS));
        let (start, end) = (self.keys.key(bytes.pair()), self.keys.key(bytes.pair()));
        let limit = usize::from(bytes.byte());

        let one = |entry: Option<&SharedEntry>| entry.map(|entry| entry.region().clone());
        let ours = |entry: Option<tidegate_core::EntryRef<'_>>| entry.map(|e| e.region().clone());
        assert_eq!(ours(snapshot.get(&key)), one(self.model.get(&key)));
        assert_eq!(ours(snapshot.prev(&key)), one(self.model.prev(&key)));
        assert_eq!(ours(snapshot.by_id(id)), one(self.model.by_id(id)));

        let scanned = snapshot.scan(&start, &end).take(limit);
        let expected = self.model.scan(&start, &end);
        let expected = expected.into_iter().take(limit);
        assert!(
            scanned
                .map(|e| e.region().clone())
                .eq(expected.map(|e| e.region().clone()))
        );

        if let Ok(range) = KeyRange::new(start, end) {
            let ours = snapshot.overlaps(&range);
            let theirs = self.model.overlaps(&range);
            assert!(
                ours.map(|e| e.region().clone())
                    .eq(theirs.into_iter().map(|e| e.region().clone()))
            );
        }
    }

    /// Compares everything, and counts again what is counted.
    pub fn compare(&self) {
        let snapshot = self.map.pin();
        if let Err(wrong) = snapshot.check_invariants() {
            panic!("{wrong}");
        }
        compare(&snapshot, &self.model);
    }

    fn apply(&mut self, changes: &[Change]) {
        let mut outcomes: Vec<Outcome> = self.map.apply(bind(changes, |id| {
            self.map.pin().by_id(id).map(|entry| entry.to_shared())
        }));
        let theirs = self
            .model
            .apply(&bind(changes, |id| self.model.by_id(id).cloned()));
        assert_eq!(outcomes.len(), theirs.len());
        for (ours, theirs) in outcomes.drain(..).zip(theirs) {
            assert_eq!(ours, theirs);
        }
    }

    fn change(&self, bytes: &mut Bytes<'_>) -> Option<Change> {
        let kind = bytes.byte();
        let expected = |id| match kind / 4 % 4 {
            0 | 1 => Expected::Any,
            2 => Expected::Live(id),
            _ => Expected::Absent,
        };
        if kind % 4 == 0 {
            let id = 1 + u64::from(bytes.below(IDS));
            return Some(Change::Remove(id, expected(id)));
        }
        let (region, provenance) = self.region(bytes)?;
        let expected = expected(region.id());
        Some(Change::Put(region, provenance, expected))
    }

    fn region(&self, bytes: &mut Bytes<'_>) -> Option<(Region, Provenance)> {
        let id = 1 + u64::from(bytes.below(IDS));
        let start = bytes.pair();
        // A short range more often than a long one; 0 is the end of the key space.
        let end = match bytes.byte() {
            0 => 0,
            short @ 1..=191 => start.saturating_add(u16::from(short)),
            _ => bytes.pair(),
        };
        let range = KeyRange::new(self.keys.key(start), self.keys.key(end)).ok()?;
        let epoch_and_leader = bytes.byte();
        let epoch = RegionEpoch {
            version: u64::from(epoch_and_leader & 7),
            conf_ver: u64::from(epoch_and_leader >> 3 & 3),
        };
        // Few enough to have room in the region, or too many.
        let count = if epoch.conf_ver == 3 { 5 } else { 3 };
        let peers = [1, 2, 3, 4, 5].map(|n| Peer {
            id: 10 * id + n,
            store_id: n,
            role: PeerRole::Voter,
            is_witness: false,
        });
        let leader = peers.get(usize::from(epoch_and_leader >> 5)).copied();
        let region = Region::builder(id, range, epoch)
            .peers(peers.into_iter().take(count))
            .leader(leader);
        let time = bytes.byte();
        let at = |nanos: u8| Moment::from_nanos(1 + u64::from(nanos));
        let provenance = match time % 4 {
            0 => Provenance::Follower { asked_at: at(time) },
            1 => Provenance::Leader {
                asked_at: at(time),
                answered_at: at(time.saturating_add(3)),
            },
            _ => Provenance::Stream {
                received_at: at(time),
            },
        };
        Some((region.build().ok()?, provenance))
    }
}

/// Asserts that the snapshot holds exactly what the model does.
pub fn compare(snapshot: &Snapshot<'_>, model: &SequentialMap) {
    assert_eq!(snapshot.len(), model.len());
    let mut expected = model.iter();
    for entry in snapshot.iter() {
        let Some(expected) = expected.next() else {
            panic!("more entries than in the model")
        };
        assert_eq!(facts(&entry), facts(expected));
        let by_id = snapshot.by_id(entry.id());
        assert!(by_id.is_some_and(|by_id| std::ptr::eq(by_id.as_entry(), entry.as_entry())));
    }
    assert!(expected.next().is_none(), "fewer entries than in the model");
}

/// Asserts that the snapshot holds the regions of the model: what the words say may have changed
/// since it was taken.
pub fn compare_regions(snapshot: &Snapshot<'_>, model: &SequentialMap) {
    assert!(
        snapshot
            .iter()
            .map(|e| e.region().clone())
            .eq(model.iter().map(|e| e.region().clone()))
    );
}

fn bind(changes: &[Change], live: impl Fn(u64) -> Option<SharedEntry>) -> Batch {
    let expect = |expected| match expected {
        Expected::Any => Expect::Any,
        Expected::Absent => Expect::Absent,
        Expected::Live(id) => live(id).map_or(Expect::Absent, Expect::Entry),
    };
    let mut batch = Batch::with_capacity(changes.len());
    for change in changes {
        match change {
            Change::Put(region, provenance, expected) => {
                batch.put_if(region.clone(), *provenance, expect(*expected));
            }
            Change::Remove(id, expected) => batch.remove(*id, expect(*expected)),
        }
    }
    batch
}
