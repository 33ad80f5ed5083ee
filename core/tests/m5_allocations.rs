//! M5: lookups allocate nothing.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tidegate_core::{Batch, RegionMap};

use support::{Shape, region, stream};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting what this thread asks of it.
struct Counting;

// SAFETY: hands every call on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: by the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by the caller's word.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(f: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

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
        let counted = allocations(|| {
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
    assert!(allocations(|| drop(vec![1u8])) > 0, "the counter counts");
}
