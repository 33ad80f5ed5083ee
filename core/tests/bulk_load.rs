//! A bulk load and its model, which is given the same regions one by one.

mod support;

use proptest::prelude::*;
use tidegate_core::map::Refusal;
use tidegate_core::oracle::SequentialMap;
use tidegate_core::{
    Batch, BulkLoad, Entry, Expect, Loaded, Moment, Provenance, Region, RegionEpoch, RegionMap,
};

use support::{Shape, any_provenance, region, stream};

type Given = (Region, Provenance);

/// Regions over `boundaries` boundaries, with as many ids as that times `spread`.
fn given(shape: Shape, boundaries: u32, widest: u32, spread: u64) -> impl Strategy<Value = Given> {
    let epoch =
        (1..3u64, 1..5u64).prop_map(|(conf_ver, version)| RegionEpoch { conf_ver, version });
    (
        0..boundaries,
        1..=widest,
        0..u64::from(boundaries),
        epoch,
        any_provenance(),
    )
        .prop_map(move |(start, width, id, epoch, provenance)| {
            let end = Some(start + width).filter(|end| *end < boundaries);
            let region = Region::builder(1 + id * spread, shape.range(start, end), epoch);
            (region.build().expect("an id above 0"), provenance)
        })
}

fn shape() -> impl Strategy<Value = Shape> {
    prop::sample::select(Shape::ALL.to_vec())
}

fn one_by_one(given: &[Given]) -> (SequentialMap, Vec<(usize, Refusal)>) {
    let mut model = SequentialMap::new();
    let outcomes = given
        .iter()
        .map(|(region, provenance)| model.put(region.clone(), *provenance));
    let outcomes: Vec<_> = outcomes.enumerate().collect();
    let refused = outcomes
        .into_iter()
        .filter_map(|(place, outcome)| Some((place, *outcome.refusal()?)));
    let refused = refused.collect();
    (model, refused)
}

fn same(map: &RegionMap, model: &SequentialMap) -> Result<(), TestCaseError> {
    let snapshot = map.pin();
    snapshot.check_invariants().map_err(TestCaseError::fail)?;
    let facts = |entry: &Entry| {
        (
            entry.region().clone(),
            entry.provenance(),
            entry.word().load(),
        )
    };
    let found: Vec<_> = snapshot.iter().map(|entry| facts(&entry)).collect();
    let expected: Vec<_> = model.iter().map(|entry| facts(entry)).collect();
    prop_assert_eq!(found, expected);
    Ok(())
}

fn compare(given: &[Given]) -> Result<(), TestCaseError> {
    let loaded: Loaded = given.iter().cloned().collect::<BulkLoad>().finish(7);
    let (mut model, refused) = one_by_one(given);
    prop_assert_eq!(&loaded.refused, &refused);
    prop_assert_eq!(loaded.map.generation(), 7);
    same(&loaded.map, &model)?;

    // The map is as any other: it takes changes, and lets everything go.
    let changes = || {
        let mut batch = Batch::new();
        for (region, _) in given.iter().step_by(3) {
            let epoch = RegionEpoch {
                version: 9,
                ..region.epoch()
            };
            let newer = region
                .to_builder()
                .epoch(epoch)
                .build()
                .expect("an id above 0");
            batch.put(newer, stream(30));
        }
        for (region, _) in given.iter().step_by(2) {
            batch.remove(region.id(), Expect::Any);
        }
        batch
    };
    prop_assert_eq!(loaded.map.apply(changes()), model.apply(&changes()));
    same(&loaded.map, &model)?;
    let mut rest = Batch::new();
    model
        .iter()
        .for_each(|entry| rest.remove(entry.id(), Expect::Any));
    prop_assert!(
        loaded
            .map
            .apply(rest)
            .iter()
            .all(|outcome| !outcome.is_refused())
    );
    let stats = loaded.map.stats();
    prop_assert_eq!((stats.regions, stats.nodes, stats.pages), (0, 0, 0));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Most meet another one, by range or by id.
    #[test]
    fn crowded(
        given in shape().prop_flat_map(|shape| prop::collection::vec(given(shape, 30, 6, 1), 0..40)),
    ) {
        compare(&given)?;
    }

    /// Some do; ids that lie far apart are sorted, not counted.
    #[test]
    fn sparse(
        given in (shape(), prop::sample::select(vec![1u64, 1 << 40])).prop_flat_map(
            |(shape, spread)| prop::collection::vec(given(shape, 1500, 2, spread), 0..500)
        ),
    ) {
        compare(&given)?;
    }
}

proptest! {
    // Each case is thousands of regions.
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// None does, in the order of the keys or not; sizes around those of full nodes.
    #[test]
    fn disjoint(
        shape in shape(),
        count in prop_oneof![0..4u32, 54..60u32, 110..115u32, 3100..3300u32],
        stride in prop::sample::select(vec![1u32, 7, 1009]),
        spread in prop::sample::select(vec![1u64, 3, 64, 1 << 40]),
        twice in any::<Option<prop::sample::Index>>(),
    ) {
        // Coprime to the count, or all in order.
        let stride = if count.is_multiple_of(stride) { 1 } else { stride };
        let mut given: Vec<Given> = (0..count)
            .map(|n| n * stride % count)
            .map(|n| {
                let end = Some(n + 1).filter(|end| end % 50 != 0 || *end != count);
                (region(1 + u64::from(n) * spread, shape.range(n, end), 1), stream(1))
            })
            .collect();
        if let Some(index) = twice
            && !given.is_empty()
        {
            given.push(index.get(&given).clone());
        }
        compare(&given)?;
    }
}

#[test]
fn an_entry_keeps_the_state_that_it_came_with() {
    let mut load = BulkLoad::with_capacity(2);
    let range = |n| Shape::Record.range(n, Some(n + 1));
    let deadline = Moment::from_nanos(5_000_000_000);
    load.put_entry(Entry::new(region(2, range(2), 1), stream(1)).with_deadline(deadline));
    let pinned = Entry::new(region(1, range(1), 1), stream(1));
    let _ = pinned.word().pin_to_leader();
    load.put_entry(pinned);
    assert_eq!(load.len(), 2);
    let loaded = load.finish(0);
    let snapshot = loaded.map.pin();
    let state = |id| snapshot.by_id(id).expect("there").word().load();
    assert!(state(1).is_pinned() && !state(1).is_leased());
    assert!(!state(2).is_pinned() && state(2).is_leased());
}
