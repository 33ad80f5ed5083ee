//! M5: lookups allocate nothing.

mod counting;
mod support;

use counting::calls_during;
use tidegate_core::{Batch, RegionMap};

use support::{Shape, region, stream};

#[test]
fn m5_get_prev_and_by_id_allocate_nothing() {
    const REGIONS: u32 = 5000;
    for shape in Shape::ALL {
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
        let keys: Vec<Vec<u8>> = (0..REGIONS).map(|number| shape.key(number)).collect();

        // The first guard of a thread registers it with the reclaimer.
        drop(map.pin());
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
        assert_eq!(counted, 0, "{shape:?}");
    }
}
