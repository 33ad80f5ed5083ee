//! The map and its sequential model get the same changes and must give the same
//! answers.

mod support;

use proptest::prelude::*;
use tidegate_core::oracle::SequentialMap;
use tidegate_core::{
    Batch, Entry, EntryRef, Expect, KeyRange, Outcome, Peer, PeerRole, Provenance, Region,
    RegionEpoch, RegionMap, SharedEntry, Snapshot,
};

use support::{Shape, any_provenance, region, stream};

#[derive(Clone, Debug)]
enum Wish {
    Any,
    /// The live entry of this id, if there is one.
    Live(u64),
    /// An entry that was live once.
    Gone(prop::sample::Index),
    Absent,
}

#[derive(Clone, Debug)]
enum Step {
    Put {
        id: u64,
        start: u32,
        width: u32,
        epoch: RegionEpoch,
        provenance: Provenance,
        wish: Wish,
    },
    Remove {
        id: u64,
        wish: Wish,
    },
    /// Invalidate and pin what is live.
    Pin {
        id: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Space {
    boundaries: u32,
    ids: u64,
    widest: u32,
}

fn wish(space: Space) -> impl Strategy<Value = Wish> {
    prop_oneof![
        12 => Just(Wish::Any),
        2 => (1..=space.ids).prop_map(Wish::Live),
        1 => any::<prop::sample::Index>().prop_map(Wish::Gone),
        1 => Just(Wish::Absent),
    ]
}

fn step(space: Space) -> impl Strategy<Value = Step> {
    let epoch =
        (1..4u64, 1..6u64).prop_map(|(conf_ver, version)| RegionEpoch::new(conf_ver, version));
    let place = (1..=space.ids, 0..space.boundaries, 1..=space.widest);
    let put = (place, epoch, any_provenance(), wish(space)).prop_map(
        |((id, start, width), epoch, provenance, wish)| Step::Put {
            id,
            start,
            width,
            epoch,
            provenance,
            wish,
        },
    );
    let remove = (1..=space.ids, wish(space)).prop_map(|(id, wish)| Step::Remove { id, wish });
    let pin = (1..=space.ids).prop_map(|id| Step::Pin { id });
    prop_oneof![10 => put, 2 => remove, 1 => pin]
}

/// A put whose outcome no expectation decides.
fn plain_put(space: Space) -> impl Strategy<Value = Step> {
    step(space).prop_filter_map("not a put", |step| match step {
        Step::Put {
            id,
            start,
            width,
            epoch,
            provenance,
            ..
        } => Some(Step::Put {
            id,
            start,
            width,
            epoch,
            provenance,
            wish: Wish::Any,
        }),
        Step::Remove { .. } | Step::Pin { .. } => None,
    })
}

struct Pair {
    map: RegionMap,
    oracle: SequentialMap,
    once_live: Vec<SharedEntry>,
    shape: Shape,
    space: Space,
}

impl Pair {
    fn new(shape: Shape, space: Space) -> Self {
        Self {
            map: RegionMap::new(),
            oracle: SequentialMap::new(),
            once_live: Vec::new(),
            shape,
            space,
        }
    }

    fn range(&self, start: u32, width: u32) -> KeyRange {
        let end = start + width;
        self.shape
            .range(start, (end < self.space.boundaries).then_some(end))
    }

    fn expect(&self, wish: &Wish) -> Expect {
        match wish {
            Wish::Any => Expect::Any,
            Wish::Absent => Expect::Absent,
            Wish::Live(id) => self
                .oracle
                .by_id(*id)
                .cloned()
                .map_or(Expect::Any, Expect::Entry),
            Wish::Gone(index) if self.once_live.is_empty() => {
                let _ = index;
                Expect::Any
            }
            Wish::Gone(index) => Expect::Entry(index.get(&self.once_live).clone()),
        }
    }

    fn apply(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        let mut batch = Batch::new();
        for step in steps {
            match step {
                Step::Put {
                    id,
                    start,
                    width,
                    epoch,
                    provenance,
                    wish,
                } => {
                    let range = self.range(*start, *width);
                    // Of different sizes, so that each one's bytes count: with peers that
                    // have room in the region, and with too many.
                    let peer = Peer {
                        id: *id,
                        store_id: 1,
                        role: PeerRole::Voter,
                        is_witness: false,
                    };
                    let peers = [0, 3, 5, 8][(epoch.version % 4) as usize];
                    let region = Region::builder(*id, range, *epoch)
                        .peers(std::iter::repeat_n(peer, peers))
                        .leader((epoch.conf_ver % 2 == 0).then_some(peer))
                        .build()
                        .expect("id above 0");
                    batch.put_if(region, *provenance, self.expect(wish));
                }
                Step::Remove { id, wish } => batch.remove(*id, self.expect(wish)),
                Step::Pin { id } => {
                    if let Some(entry) = self.oracle.by_id(*id) {
                        let _ = entry.word().pin_to_leader();
                        self.once_live.push(entry.clone());
                    }
                }
            }
        }
        let expected = self.oracle.apply(&batch);
        // Both apply to the very same entries, and the oracle has superseded
        // some of them already; the outcomes do not depend on that.
        let outcomes = self.map.apply(batch);
        prop_assert_eq!(outcomes, expected);
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let snapshot = self.map.pin();
        snapshot.check_invariants().map_err(TestCaseError::fail)?;
        let all: Vec<*const Entry> = snapshot
            .iter()
            .map(|entry| std::ptr::from_ref(entry.as_entry()))
            .collect();
        let expected: Vec<*const Entry> = self
            .oracle
            .iter()
            .map(|entry| std::ptr::from_ref(&**entry))
            .collect();
        prop_assert_eq!(all, expected);
        prop_assert_eq!(snapshot.len(), self.oracle.len());
        Ok(())
    }

    /// A scan of which `whole` is the answer, taken backwards, cut short, and from
    /// both ends at once.
    fn compare_from_both_ends(
        &self,
        snapshot: &Snapshot<'_>,
        start: &[u8],
        end: &[u8],
        whole: &[u64],
    ) -> Result<(), TestCaseError> {
        let scan = || snapshot.scan(start, end).map(|entry| entry.id());
        let backwards = whole.iter().rev().copied();
        prop_assert!(
            scan().rev().eq(backwards.clone()),
            "back {:x?} {:x?}",
            start,
            end
        );
        let limit = whole.len() / 2;
        prop_assert!(scan().rev().take(limit).eq(backwards.take(limit)));
        for turns in [0b01u64, 0b011, 0b0001, 0b1110_0110, u64::MAX << 7] {
            let (mut left, mut scan) = (whole.iter().copied(), scan());
            for turn in 0..whole.len() + 2 {
                let (found, expected) = if turns >> (turn % 64) & 1 == 0 {
                    (scan.next(), left.next())
                } else {
                    (scan.next_back(), left.next_back())
                };
                prop_assert_eq!(found, expected, "turn {} of {:b}", turn, turns);
            }
        }
        Ok(())
    }

    /// Lookups of many keys and ids at once: those between two boundaries and around
    /// an id, in no order, more than one group of them.
    fn compare_many(
        &self,
        snapshot: &Snapshot<'_>,
        number: u32,
        other: u32,
        id: u64,
    ) -> Result<(), TestCaseError> {
        let numbers = (0..number.abs_diff(other).min(40)).map(|n| number.min(other) + n * 7 % 40);
        let keys: Vec<Vec<u8>> = numbers
            .flat_map(|number| {
                let exact = self.shape.key(number);
                let inside = [&exact[..], &[0]].concat();
                [exact, inside]
            })
            .collect();
        let ids: Vec<u64> = (0..u64::from(other % 40))
            .map(|n| (id + n * 11) % 2200)
            .collect();
        let address = |entry: Option<EntryRef<'_>>| entry.map(|e| std::ptr::from_ref(e.as_entry()));
        let expected =
            |entry: Option<&SharedEntry>| entry.map(|entry| std::ptr::from_ref(&**entry));
        prop_assert!(
            snapshot
                .get_many(&keys)
                .map(address)
                .eq(keys.iter().map(|key| expected(self.oracle.get(key))))
        );
        prop_assert!(
            snapshot
                .prev_many(&keys)
                .map(address)
                .eq(keys.iter().map(|key| expected(self.oracle.prev(key))))
        );
        prop_assert!(
            snapshot
                .by_id_many(&ids)
                .map(address)
                .eq(ids.iter().map(|&id| expected(self.oracle.by_id(id))))
        );
        prop_assert_eq!(snapshot.get_many(&keys).len(), keys.len());
        Ok(())
    }

    fn compare_at(&self, number: u32, other: u32, id: u64) -> Result<(), TestCaseError> {
        let snapshot = self.map.pin();
        let same = |found: Option<&Entry>, expected: Option<&SharedEntry>| {
            found.map(std::ptr::from_ref) == expected.map(|entry| std::ptr::from_ref(&**entry))
        };
        let exact = self.shape.key(number);
        let mut inside = exact.clone();
        inside.push(0);
        for key in [&exact, &inside] {
            let found = snapshot.get(key).map(|entry| entry.as_entry());
            prop_assert!(same(found, self.oracle.get(key)), "get {:x?}", key);
            let found = snapshot.prev(key).map(|entry| entry.as_entry());
            prop_assert!(same(found, self.oracle.prev(key)), "prev {:x?}", key);
            let end = self.shape.key(other);
            let scanned: Vec<u64> = snapshot.scan(key, &end).map(|entry| entry.id()).collect();
            let expected: Vec<u64> = self
                .oracle
                .scan(key, &end)
                .iter()
                .map(|entry| entry.id())
                .collect();
            prop_assert_eq!(&scanned, &expected, "scan {:x?} {:x?}", key, end);
            self.compare_from_both_ends(&snapshot, key, &end, &expected)?;
            if let Ok(range) = KeyRange::new(key.as_slice(), end.as_slice()) {
                let mut expected: Vec<u64> = self
                    .oracle
                    .overlaps(&range)
                    .iter()
                    .map(|entry| entry.id())
                    .collect();
                let found = snapshot.overlaps(&range).map(|entry| entry.id());
                prop_assert!(found.eq(expected.iter().copied()), "overlaps {}", range);
                expected.reverse();
                let found = snapshot.overlaps(&range).rev().map(|entry| entry.id());
                prop_assert!(
                    found.eq(expected.iter().copied()),
                    "overlaps {}, back",
                    range
                );
            }
        }
        if (number + other).is_multiple_of(5) {
            self.compare_many(&snapshot, number, other, id)?;
        }
        let found = snapshot.by_id(id).map(|entry| entry.as_entry());
        prop_assert!(same(found, self.oracle.by_id(id)), "by id {}", id);
        Ok(())
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    prop::sample::select(Shape::ALL.to_vec())
}

const CROWDED: Space = Space {
    boundaries: 24,
    ids: 12,
    widest: 8,
};
/// Room enough that of a batch most regions meet none of the others.
const SPARSE: Space = Space {
    boundaries: 600,
    ids: 500,
    widest: 3,
};
const WIDE: Space = Space {
    boundaries: 1500,
    ids: 2000,
    widest: 40,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Batches of puts that expect nothing, which the map may reorder: some meet
    /// others of the batch or of the map, most do not.
    #[test]
    fn sparse(
        shape in shape(),
        batches in prop::collection::vec(prop::collection::vec(plain_put(SPARSE), 8..120), 1..12),
    ) {
        let mut pair = Pair::new(shape, SPARSE);
        for batch in &batches {
            pair.apply(batch)?;
            pair.compare()?;
        }
    }

    /// Few keys and ids: everything overlaps everything.
    #[test]
    fn crowded(
        shape in shape(),
        batches in prop::collection::vec(prop::collection::vec(step(CROWDED), 1..8), 1..30),
    ) {
        let mut pair = Pair::new(shape, CROWDED);
        for batch in &batches {
            pair.apply(batch)?;
            pair.compare()?;
        }
        for number in 0..CROWDED.boundaries {
            for other in 0..CROWDED.boundaries {
                pair.compare_at(number, other, u64::from(number))?;
            }
        }
    }

}

proptest! {
    // Each case is thousands of changes.
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Enough regions for nodes to split, then changes that make them merge.
    #[test]
    fn wide(
        shape in shape(),
        order in any::<u32>(),
        batches in prop::collection::vec(prop::collection::vec(step(WIDE), 1..60), 1..20),
        sought in prop::collection::vec((0..WIDE.boundaries, 0..WIDE.boundaries, 1..2100u64), 30),
        removed in 0..WIDE.boundaries,
    ) {
        let mut pair = Pair::new(shape, WIDE);
        let mut batch = Batch::new();
        // Coprime to the count, so that every boundary comes once.
        let stride = [1, 7, 611, 1499][order as usize % 4];
        for index in 0..WIDE.boundaries {
            let start = (index * stride + order % 1000) % WIDE.boundaries;
            batch.put(region(u64::from(start) + 1, pair.range(start, 1), 1), stream(1));
        }
        let expected = pair.oracle.apply(&batch);
        prop_assert_eq!(pair.map.apply(batch), expected);
        pair.compare()?;
        for batch in &batches {
            pair.apply(batch)?;
        }
        pair.compare()?;
        for (number, other, id) in sought {
            pair.compare_at(number, other, id)?;
        }

        let mut batch = Batch::new();
        for id in 0..removed {
            batch.remove(u64::from(id), Expect::Any);
        }
        let expected = pair.oracle.apply(&batch);
        prop_assert_eq!(pair.map.apply(batch), expected);
        pair.compare()?;
        let mut batch = Batch::new();
        for id in removed..3000 {
            batch.remove(u64::from(id), Expect::Any);
        }
        let outcomes = pair.map.apply(batch);
        let gone = outcomes.iter().filter(|outcome| **outcome == Outcome::Removed).count();
        prop_assert_eq!(gone, pair.oracle.len());
        prop_assert!(pair.map.pin().is_empty());
        let stats = pair.map.stats();
        prop_assert_eq!((stats.nodes, stats.pages), (0, 0), "an empty map has no nodes");
    }
}
