//! Readers beside writers on real threads: what the models check on a few
//! regions, on many.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tidegate_core::{Batch, KeyRange, RegionMap};

use support::{Shape, region, stream};

const PARENTS: u32 = 200;
const WIDTH: u32 = 8;
const ROUNDS: u32 = 3000;
const SHAPE: Shape = Shape::Record;

/// Parent `number` covers `WIDTH` boundaries, the last one all that follows.
fn parent(number: u32) -> KeyRange {
    let end = (number + 1 < PARENTS).then_some((number + 1) * WIDTH);
    SHAPE.range(number * WIDTH, end)
}

fn child_id(number: u32) -> u64 {
    u64::from(PARENTS + number) * 3
}

/// Splits a parent in two, in one batch.
fn split(map: &RegionMap, number: u32, version: u64) {
    let middle = SHAPE.key(number * WIDTH + 3);
    let whole = parent(number);
    let left = KeyRange::new(whole.start().clone(), middle.clone()).expect("a left half");
    let right = KeyRange::new(middle, whole.end().clone()).expect("a right half");
    let mut batch = Batch::new();
    batch.put(region(u64::from(number) + 1, left, version), stream(1));
    batch.put(region(child_id(number), right, version), stream(1));
    let outcomes = map.apply(batch);
    assert!(
        outcomes.iter().all(|outcome| !outcome.is_refused()),
        "{outcomes:?}"
    );
}

/// Merges the two again.
fn merge(map: &RegionMap, number: u32, version: u64) {
    let outcome = map.put(
        region(u64::from(number) + 1, parent(number), version),
        stream(1),
    );
    assert!(!outcome.is_refused(), "{outcome:?}");
}

#[test]
fn m2_readers_beside_two_writers_see_no_hole_and_no_half() {
    let map = RegionMap::new();
    for number in 0..PARENTS {
        merge(&map, number, 1);
    }
    let done = AtomicBool::new(false);
    let write = |first: u32| {
        for round in 0..ROUNDS {
            // The two writers own different regions and share all nodes.
            let number = (first + round * 14) % PARENTS;
            let version = u64::from(round) * 2 + 2;
            split(&map, number, version);
            merge(&map, number, version + 1);
        }
    };
    let read = || {
        let mut looked = 0u32;
        while !done.load(Ordering::Acquire) || looked < 100 {
            let snapshot = map.pin();
            let number = looked.wrapping_mul(7919) % PARENTS;
            let left = snapshot.get(&SHAPE.key(number * WIDTH)).expect("no hole");
            let right = snapshot
                .get(&SHAPE.key(number * WIDTH + 5))
                .expect("no hole");
            assert_eq!(left.epoch(), right.epoch(), "half a split");
            assert_eq!(
                snapshot.by_id(child_id(number)).is_some(),
                left.id() != right.id()
            );
            if looked.is_multiple_of(64) {
                let mut end = Vec::new();
                let mut count = 0;
                for entry in &snapshot {
                    assert_eq!(entry.start().as_bytes(), end, "a hole or an overlap");
                    end = entry.end().to_vec();
                    count += 1;
                }
                assert!(end.is_empty(), "the last region ends the key space");
                assert_eq!(count, snapshot.len());
            }
            looked += 1;
        }
    };
    thread::scope(|scope| {
        scope.spawn(read);
        let writers = [scope.spawn(|| write(0)), scope.spawn(|| write(1))];
        for writer in writers {
            writer.join().expect("the writers get on");
        }
        // Release: for the Acquire of the reader, so that it ends after them.
        done.store(true, Ordering::Release);
    });
    let snapshot = map.pin();
    snapshot.check_invariants().expect("sound");
    assert_eq!(snapshot.len(), PARENTS as usize);
}
