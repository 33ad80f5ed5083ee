//! M5: lookups and scans allocate nothing.

mod counting;
mod support;

use counting::calls_during;
use tidegate_core::{Batch, RegionMap};

use support::{Shape, region, stream};

const REGIONS: u32 = 5000;

/// A map without holes, and the starts of its regions; this thread is known to the
/// reclaimer, which the first guard of a thread sees to.
fn filled(shape: Shape) -> (RegionMap, Vec<Vec<u8>>) {
    let map = RegionMap::new();
    let mut batch = Batch::new();
    for number in 0..REGIONS {
        let end = (number + 1 < REGIONS).then_some(number + 1);
        batch.put(
            region(u64::from(number) + 1, shape.range(number, end), 1),
            stream(1),
        );
    }
    let _ = map.apply(batch);
    drop(map.pin());
    (map, (0..REGIONS).map(|number| shape.key(number)).collect())
}

// One test: the reclaimer is shared by the process, and would have this thread free
// what another test has given up.
#[test]
fn m5_lookups_and_scans_allocate_nothing() {
    for shape in Shape::ALL {
        let (map, keys) = filled(shape);
        let mut found = 0;
        let counted = calls_during(|| {
            for (id, key) in (1..).zip(&keys) {
                let snapshot = map.pin();
                found += usize::from(snapshot.get(key).is_some_and(|entry| entry.id() == id));
                found += usize::from(snapshot.prev(key).is_some_and(|entry| entry.id() + 1 == id));
                found += usize::from(snapshot.by_id(id).is_some_and(|entry| entry.id() == id));
            }
        });
        assert_eq!(
            found,
            3 * keys.len() - 1,
            "all found; the first has no previous"
        );
        assert_eq!(counted, 0, "lookups, {shape:?}");

        found = 0;
        let ids: Vec<u64> = (1..=u64::from(REGIONS)).collect();
        let counted = calls_during(|| {
            let snapshot = map.pin();
            found += snapshot.get_many(&keys).flatten().count();
            found += snapshot.prev_many(&keys).flatten().count();
            found += snapshot.by_id_many(&ids).flatten().count();
        });
        assert_eq!(found, 3 * keys.len() - 1);
        assert_eq!(counted, 0, "many lookups, {shape:?}");

        found = 0;
        let counted = calls_during(|| {
            for (from, to) in (0..).zip(200..keys.len()).step_by(100) {
                let snapshot = map.pin();
                found += snapshot.scan(&keys[from], &keys[to]).count();
                found += snapshot.scan(&keys[from], &keys[to]).rev().count();
                found += snapshot.scan(&keys[from], &[]).rev().take(200).count();
            }
        });
        assert_eq!(found, 48 * 3 * 200);
        assert_eq!(counted, 0, "scans, {shape:?}");
    }
}
