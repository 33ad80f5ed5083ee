//! A full sync's work: decoded frames, applied to an empty map.
//!
//! The regions come in random order. The map checks epochs and overlaps, keeps its index by id
//! and publishes each frame at once, to readers that never wait; the rivals insert the same
//! regions one by one and do none of that.

use std::collections::BTreeMap;

use tidegate_core::{Key, Region};

use crate::contender::{Contender, Ours, Plain};
use crate::fixture::Fixture;
use crate::round::{Lane, Row, Subject, Timing, alternate, timed};

/// Regions of one frame.
pub const FRAME: usize = 1_000;

/// Inserting into a `BTreeMap` by key.
pub const BTREEMAP: &str = "btreemap_insert";
/// The same, and into a `HashMap` by id.
pub const BTREEMAP_AND_HASHMAP: &str = "btreemap_hashmap_insert";

/// `apply_frames`, for one region.
#[must_use]
pub fn apply_frames(fixture: &Fixture, rounds: u64) -> Vec<Row> {
    let lanes = vec![
        Lane::new(Ours::NAME, |round| ours(fixture.shuffled(round))),
        Lane::new(BTREEMAP, |round| btreemap(fixture.shuffled(round))),
        Lane::new(BTREEMAP_AND_HASHMAP, |round| {
            btreemap_and_hashmap(fixture.shuffled(round))
        }),
    ];
    let subject = Subject {
        op: "apply_frames",
        regions: fixture.len(),
        threads: 1,
    };
    alternate(subject, rounds, lanes)
}

fn ours(regions: Vec<Region>) -> Timing {
    let count = regions.len();
    let mut regions = regions.into_iter();
    let mut frames = Vec::with_capacity(count.div_ceil(FRAME));
    while frames.len() < count.div_ceil(FRAME) {
        frames.push(regions.by_ref().take(FRAME).collect::<Vec<_>>());
    }
    let map = Ours::empty();
    let timing = timed(count, || {
        frames.into_iter().for_each(|frame| map.apply(frame))
    });
    assert_eq!(map.map().pin().len(), count, "every region is in the map");
    timing
}

fn btreemap(regions: Vec<Region>) -> Timing {
    let count = regions.len();
    let mut map: BTreeMap<Key, Box<Region>> = BTreeMap::new();
    let timing = timed(count, || {
        for region in regions {
            map.insert(region.start().clone(), Box::new(region));
        }
    });
    assert_eq!(map.len(), count, "every region is in the map");
    timing
}

fn btreemap_and_hashmap(regions: Vec<Region>) -> Timing {
    let count = regions.len();
    let mut map = Plain::default();
    let timing = timed(count, || {
        regions.into_iter().for_each(|region| map.insert(region))
    });
    assert_eq!(map.len(), count, "every region is in the map");
    timing
}
