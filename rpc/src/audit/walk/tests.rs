use std::sync::{Arc, Mutex};

use super::super::compare::Kind;
use super::super::compare::tests::region;
use super::*;

/// A source that answers from a list, and from what the list becomes.
#[derive(Clone, Debug, Default)]
struct Script(Arc<Mutex<Vec<Region>>>);

impl Script {
    fn of(regions: Vec<Region>) -> Self {
        Self(Arc::new(Mutex::new(regions)))
    }

    fn set(&self, regions: Vec<Region>) {
        *self.0.lock().expect("not poisoned") = regions;
    }
}

impl Source for Script {
    async fn scan(&self, ranges: &[KeyRange], limit: usize) -> Result<Vec<Region>, AskError> {
        let regions = self.0.lock().expect("not poisoned");
        let within = |region: &&Region| ranges.iter().any(|range| range.overlaps(region.range()));
        Ok(regions.iter().filter(within).take(limit).cloned().collect())
    }

    async fn by_ids(&self, ids: &[u64]) -> Result<Vec<Option<Region>>, AskError> {
        let regions = self.0.lock().expect("not poisoned");
        Ok(ids
            .iter()
            .map(|id| regions.iter().find(|region| region.id() == *id).cloned())
            .collect())
    }
}

/// Regions 1 to `count` over all keys.
fn whole(count: u64, version: u64) -> Vec<Region> {
    let bound = |at: u64| {
        if at == 0 || at == count {
            String::new()
        } else {
            format!("{at:05}")
        }
    };
    (1..=count)
        .map(|id| region(id, &bound(id - 1), &bound(id), version))
        .collect()
}

const FAST: Pace = Pace {
    share: 1.0,
    rate: 1_000_000,
};

async fn one_pass(walk: &mut Walk<Script, Script>) {
    let passes = walk.passes();
    while walk.passes() == passes {
        let pause = walk.step().await.expect("an answer");
        tokio::time::sleep(pause).await;
    }
}

async fn for_seconds(walk: &mut Walk<Script, Script>, seconds: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        walk.step().await.expect("an answer");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn f2_a_pass_compares_every_region_once() {
    let leader = Script::of(whole(3_000, 2));
    let mut walk = Walk::new(leader.clone(), leader, FAST);
    one_pass(&mut walk).await;
    assert_eq!(walk.tally.compared, 3_000);
    assert_eq!(
        (
            walk.tally.leader_holes,
            walk.tally.overlaps,
            walk.tracker.len()
        ),
        (0, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn f2_a_page_is_cut_where_the_other_side_has_many_more_regions() {
    // One region of the leader's where the other side has ten thousand.
    let mut walk = Walk::new(
        Script::of(vec![region(100_000, "", "", 9)]),
        Script::of(whole(10_000, 2)),
        FAST,
    );
    one_pass(&mut walk).await;
    let kinds: std::collections::HashSet<Kind> =
        walk.tracker.open().map(|(_, open)| open.kind).collect();
    assert_eq!(kinds, [Kind::Missing, Kind::UnknownRegion].into());
    assert_eq!(walk.tracker.len() as u64 + walk.tracker.overflow(), 10_001);
}

#[tokio::test(start_paused = true)]
async fn f2_staleness_is_told_in_milliseconds() {
    let (leader, other) = (Script::of(whole(100, 2)), Script::of(whole(100, 2)));
    let mut walk = Walk::new(leader.clone(), other.clone(), FAST);
    one_pass(&mut walk).await;
    let mut changed = whole(100, 2);
    changed[40] = changed[40]
        .to_builder()
        .epoch(tidegate_core::RegionEpoch::new(1, 3))
        .build()
        .expect("a region");
    leader.set(changed.clone());
    for_seconds(&mut walk, 8).await;
    other.set(changed);
    for_seconds(&mut walk, 8).await;
    assert!(walk.tracker.is_empty());
    let ages = &walk.tally.ages[&Kind::OlderEpoch];
    let [age] = ages[..] else { panic!("{ages:?}") };
    assert!(
        age >= Duration::from_secs(6) && age <= Duration::from_secs(8),
        "{age:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn f2_holes_and_removed_regions_are_found() {
    let mut leader = whole(10, 2);
    let mut other = whole(10, 2);
    // Region 4 is gone at the leader, region 8 on the other side.
    leader.remove(3);
    other.remove(7);
    let mut walk = Walk::new(Script::of(leader), Script::of(other), FAST);
    for_seconds(&mut walk, 2).await;
    let mut open: Vec<_> = walk
        .tracker
        .open()
        .map(|(id, open)| (id, open.kind))
        .collect();
    open.sort_unstable();
    assert_eq!(open, [(4, Kind::UnknownRegion), (8, Kind::Hole)]);
    assert!(
        walk.tracker
            .open()
            .all(|(_, open)| open.age() > Some(Duration::from_secs(1)))
    );
    assert!(walk.tally.leader_holes > 0);
}

#[tokio::test(start_paused = true)]
async fn f2_an_empty_leader_is_a_pass_too() {
    let mut walk = Walk::new(Script::default(), Script::of(whole(2, 1)), FAST);
    one_pass(&mut walk).await;
    assert_eq!((walk.tally.compared, walk.tracker.len()), (0, 2));
}
