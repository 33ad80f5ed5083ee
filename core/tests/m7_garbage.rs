//! M7: how much garbage there is at most, without a guard that stalls and beside one.

mod support;

use tidegate_core::sync::reclaim;
use tidegate_core::{Batch, RegionMap};

use support::{Shape, region, stream};

const REGIONS: u32 = 2_000;
const CHANGES: u32 = 20_000;
const SHAPE: Shape = Shape::Record;

fn change(map: &RegionMap, change: u32) {
    let number = change.wrapping_mul(7919) % REGIONS;
    let range = SHAPE.range(number, Some(number + 1));
    let version = 2 + u64::from(change);
    let outcome = map.put(region(u64::from(number) + 1, range, version), stream(1));
    assert!(!outcome.is_refused(), "{outcome:?}");
}

// One test: the reclaimer is shared by the process, and a guard of another test would hold back what
// this one counts.
#[test]
fn m7_garbage_is_bounded_without_a_stalled_guard_and_counted_beside_one() {
    let map = RegionMap::new();
    for first in (0..REGIONS).step_by(10) {
        let mut batch = Batch::new();
        for number in first..first + 10 {
            let range = SHAPE.range(number, Some(number + 1));
            batch.put(region(u64::from(number) + 1, range, 1), stream(1));
        }
        let _ = map.apply(batch);
    }

    // Readers come and go, as they should.
    for n in 0..CHANGES {
        change(&map, n);
        assert!(map.pin().get(&SHAPE.key(n % REGIONS)).is_some());
    }
    let calm = map.stats();
    assert!(calm.retired > 4 * u64::from(CHANGES), "{calm:?}");
    assert!(calm.most_garbage < 1_000, "{calm:?}");
    assert!(calm.garbage() <= calm.most_garbage);

    // One stands still: garbage grows with what is changed, and by no more than that.
    let stalled = map.pin();
    for n in CHANGES..CHANGES + 1_000 {
        change(&map, n);
    }
    let stats = map.stats();
    assert!(stats.garbage() >= 4 * 1_000, "held back: {stats:?}");
    assert!(stats.garbage() < 1_000 + 8 * 1_000, "{stats:?}");
    assert!(stats.most_garbage >= stats.garbage());
    assert!(stalled.get(&SHAPE.key(7)).is_some());
    drop(stalled);

    for n in 0..CHANGES {
        change(&map, CHANGES + 1_000 + n);
    }
    reclaim::pin().flush();
    let after = map.stats();
    assert!(after.garbage() < 1_000, "gone with its guard: {after:?}");
    let mark = after.most_garbage;
    assert!(mark >= stats.most_garbage, "the mark stays: {after:?}");
    assert!(mark < stats.most_garbage + 1_000, "{after:?}");
}
