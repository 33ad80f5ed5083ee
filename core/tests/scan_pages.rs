//! Walks that take a new snapshot for each page.

mod support;

use std::num::NonZeroUsize;

use tidegate_core::{Batch, KeyRange, RegionMap};

use support::{Shape, region, stream};

const SHAPE: Shape = Shape::Record;

fn size(regions: usize) -> NonZeroUsize {
    NonZeroUsize::new(regions).expect("above 0")
}

/// Regions of the given boundaries, with their start as id.
fn map_of(ranges: &[(u32, u32)]) -> RegionMap {
    let map = RegionMap::new();
    let mut batch = Batch::new();
    for &(start, end) in ranges {
        batch.put(
            region(u64::from(start), SHAPE.range(start, Some(end)), 1),
            stream(1),
        );
    }
    assert!(map.apply(batch).iter().all(|outcome| !outcome.is_refused()));
    map
}

#[test]
fn every_region_comes_once_whatever_the_size_of_a_page() {
    let ranges: Vec<(u32, u32)> = (1..200)
        .filter(|n| n % 7 != 0)
        .map(|n| (n, n + 1))
        .collect();
    let map = map_of(&ranges);
    for (from, to) in [
        (0, None),
        (7, Some(8)),
        (6, Some(30)),
        (20, Some(147)),
        (150, None),
    ] {
        let range = SHAPE.range(from, to);
        let expected: Vec<u64> = map.pin().overlaps(&range).map(|entry| entry.id()).collect();
        for regions in [1, 2, 3, 5, 64, 1000] {
            let mut pages = map.scan_pages(&range, size(regions));
            let mut found = Vec::new();
            while let Some(page) = pages.next_page(|entry| found.push(entry.id())) {
                assert!(page.regions.get() <= regions && page.is_one_moment);
            }
            assert_eq!(found, expected, "{range}, {regions} a page");
            assert!(pages.is_one_moment());
            assert_eq!(pages.next_page(|_| unreachable!("no more")), None);
        }
    }
}

#[test]
fn no_guard_is_held_between_pages_and_a_page_visits_no_more_than_its_size() {
    let map = map_of(&[(1, 2), (2, 3), (3, 4), (4, 5)]);
    let before = map.stats();
    let mut pages = map.scan_pages(&KeyRange::all(), size(2));
    let page = pages.next_page(|_| ()).expect("two regions");
    assert_eq!((page.regions.get(), page.generation), (2, 0));
    // All that the change gives up is freed while the walk is in the middle; other
    // tests of this process pin for moments only.
    assert!(
        !map.put(region(1, SHAPE.range(1, Some(2)), 2), stream(2))
            .is_refused()
    );
    let waits = |stats: tidegate_core::MapStats| stats.retired - stats.freed;
    for _ in 0..1_000_000 {
        tidegate_core::sync::reclaim::pin().flush();
        if waits(map.stats()) <= waits(before) {
            break;
        }
        std::thread::yield_now();
    }
    assert!(waits(map.stats()) <= waits(before), "held back by the walk");
    assert_eq!(
        pages.next_page(|_| ()).map(|page| page.regions.get()),
        Some(2)
    );
}

#[test]
fn a_change_between_pages_is_said_from_then_on() {
    let map = map_of(&[(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]);
    let mut pages = map.scan_pages(&KeyRange::all(), size(2));
    let mut found = Vec::new();
    assert!(
        pages
            .next_page(|entry| found.push(entry.id()))
            .expect("full")
            .is_one_moment
    );
    // A refused change publishes nothing.
    assert!(
        map.put(region(9, SHAPE.range(1, Some(6)), 0), stream(2))
            .is_refused()
    );
    assert!(
        pages
            .next_page(|entry| found.push(entry.id()))
            .expect("full")
            .is_one_moment
    );
    // A merge across the place where the walk stands: the range is covered, and a
    // part of it twice.
    assert!(
        !map.put(region(4, SHAPE.range(4, Some(6)), 2), stream(3))
            .is_refused()
    );
    let page = pages
        .next_page(|entry| found.push(entry.id()))
        .expect("one");
    assert!(!page.is_one_moment);
    assert_eq!(found, [1, 2, 3, 4, 4]);
    assert!(!pages.is_one_moment());
    assert_eq!(pages.next_page(|_| ()), None);
}

#[test]
fn another_map_with_the_same_content_is_another_moment() {
    let ranges = [(1, 2), (2, 3)];
    let map = map_of(&ranges);
    let mut pages = map.scan_pages(&KeyRange::all(), size(1));
    let first = pages.next_page(|_| ()).expect("one");
    map.replace_with(map_of(&ranges), 3);
    let second = pages.next_page(|_| ()).expect("one");
    assert_eq!((first.generation, second.generation), (0, 3));
    assert!(first.is_one_moment && !second.is_one_moment);
}
