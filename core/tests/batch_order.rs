//! Changes of a batch that meet, in every order, among many that meet nothing.

mod support;

use tidegate_core::oracle::SequentialMap;
use tidegate_core::{Batch, Entry, Region, RegionMap};

use support::{Shape, region, stream};

const SHAPE: Shape = Shape::Record;

fn put(id: u64, start: u32, end: u32, version: u64) -> Region {
    region(id, SHAPE.range(start, Some(end)), version)
}

/// Calls `visit` with the numbers below `chosen.len()` in every order.
fn every_order(chosen: &mut [usize], from: usize, visit: &mut impl FnMut(&[usize])) {
    if from == chosen.len() {
        return visit(chosen);
    }
    for next in from..chosen.len() {
        chosen.swap(from, next);
        every_order(chosen, from + 1, visit);
        chosen.swap(from, next);
    }
}

/// Regions that meet nothing in the batch: unknown ones, known ones with the
/// same range, and one that displaces something of the map.
fn apart() -> Vec<Region> {
    let mut apart: Vec<Region> = (0..20)
        .map(|n| put(100 + n, 200 + 2 * n as u32, 201 + 2 * n as u32, 5))
        .collect();
    apart.extend((0..20).map(|n| put(50 + n, 300 + 2 * n as u32, 301 + 2 * n as u32, 6)));
    apart.push(put(140, 400, 404, 7));
    apart
}

fn check(before: &[Region], meeting: &[Region]) {
    let mut order: Vec<usize> = (0..meeting.len()).collect();
    every_order(&mut order, 0, &mut |order| {
        let (map, mut oracle) = (RegionMap::new(), SequentialMap::new());
        let known = (0..20).map(|n| put(50 + n, 300 + 2 * n as u32, 301 + 2 * n as u32, 5));
        let displaced = (0..2).map(|n| put(90 + n, 401 + n as u32, 402 + n as u32, 5));
        let known = known.chain(displaced).chain(before.iter().cloned());
        for region in known {
            let mut batch = Batch::new();
            batch.put(region, stream(1));
            assert_eq!(oracle.apply(&batch), map.apply(batch));
        }

        let mut batch = Batch::new();
        let mut fillers = apart().into_iter();
        for &index in order {
            batch.put(meeting[index].clone(), stream(2));
            for filler in fillers.by_ref().take(7) {
                batch.put(filler, stream(2));
            }
        }
        for filler in fillers {
            batch.put(filler, stream(2));
        }
        let expected = oracle.apply(&batch);
        assert_eq!(map.apply(batch), expected, "in the order {order:?}");
        let snapshot = map.pin();
        snapshot.check_invariants().expect("sound");
        let live: Vec<*const Entry> = snapshot
            .iter()
            .map(|entry| std::ptr::from_ref(entry.as_entry()))
            .collect();
        let expected: Vec<*const Entry> = oracle
            .iter()
            .map(|entry| std::ptr::from_ref(&**entry))
            .collect();
        assert_eq!(live, expected, "in the order {order:?}");
    });
}

#[test]
fn m3_regions_of_one_batch_that_overlap_are_judged_in_the_order_given() {
    check(
        &[],
        &[
            put(1, 10, 20, 5),
            put(2, 15, 25, 5),
            put(3, 24, 30, 4),
            put(4, 12, 13, 6),
            put(5, 30, 31, 5),
        ],
    );
}

#[test]
fn m3_one_id_twice_in_a_batch_is_judged_in_the_order_given() {
    check(
        &[put(1, 10, 20, 5)],
        &[
            put(1, 10, 20, 6),
            put(1, 10, 15, 7),
            put(2, 15, 20, 7),
            put(3, 40, 41, 5),
            put(3, 42, 43, 6),
        ],
    );
}

#[test]
fn m1_what_meets_only_through_a_live_region_is_judged_in_the_order_given() {
    // Disjoint in the batch, but all of them about the range of region 1.
    check(
        &[put(1, 10, 20, 5), put(2, 20, 30, 5)],
        &[
            put(1, 60, 70, 6),
            put(3, 10, 12, 4),
            put(4, 13, 15, 5),
            put(5, 16, 22, 6),
            put(2, 23, 24, 6),
        ],
    );
}
