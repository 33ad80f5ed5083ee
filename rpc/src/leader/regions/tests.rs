use std::sync::Mutex;

use tidegate_core::clock::ManualClock;
use tidegate_core::history::{Answer, Capacity};
use tidegate_core::{Moment, Peer, PeerRole};

use super::*;

/// Writes down what it hears, and whether the map had it at that time.
#[derive(Debug, Default)]
struct Diary {
    map: Option<Arc<RegionMap>>,
    lines: Mutex<Vec<String>>,
}

impl Diary {
    fn write(&self, what: &str, change: &Change<'_>) {
        let displaced: Vec<u64> = change.displaced.iter().map(|old| old.id()).collect();
        let map = self.map.as_ref().expect("the map under test");
        let visible = map
            .pin()
            .by_id(change.put.id())
            .is_some_and(|now| now.region() == change.put);
        let line = format!(
            "{what} {}: {} for {displaced:?}, visible {visible}",
            change.sequence,
            change.put.id()
        );
        self.lines.lock().unwrap().push(line);
    }

    fn read(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

impl ChangeObserver for Diary {
    fn changing(&self, change: &Change<'_>) {
        self.write("changing", change);
    }

    fn changed(&self, change: &Change<'_>) {
        self.write("changed", change);
    }
}

fn regions() -> (Regions, Arc<Diary>) {
    let map = Arc::new(RegionMap::new());
    let diary = Arc::new(Diary {
        map: Some(Arc::clone(&map)),
        ..Diary::default()
    });
    let seed = Seed {
        map,
        next_index: 0,
        sequence: 0,
        observer: Some(Arc::<Diary>::clone(&diary)),
        clock: Arc::new(ManualClock::new(Moment::from_nanos(1))),
    };
    (
        Regions::new(seed, Capacity::fixed(16), Dialect::Master),
        diary,
    )
}

fn region(id: u64, start: &str, end: &str, version: u64) -> Region {
    with_leader(id, start, end, version, id * 10)
}

fn with_leader(id: u64, start: &str, end: &str, version: u64, leader: u64) -> Region {
    let peer = Peer {
        id: leader,
        store_id: 1,
        role: PeerRole::Voter,
        is_witness: false,
    };
    Region::builder(
        id,
        KeyRange::new(start, end).unwrap(),
        RegionEpoch {
            conf_ver: 1,
            version,
        },
    )
    .peers([peer])
    .leader(Some(peer))
    .build()
    .unwrap()
}

fn records(regions: &Regions) -> Vec<u64> {
    match regions.history().read(0, 100) {
        Answer::Records { records, .. } => records.iter().map(|entry| entry.id()).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn a_report_goes_to_the_map_the_history_and_the_observer() {
    let (regions, diary) = regions();
    let reported = regions.report(region(1, "a", "m", 2), 0).unwrap();
    assert_eq!(reported, Reported { index: Some(0) });
    assert_eq!(regions.next_index(), 1);
    assert_eq!(records(&regions), [1]);
    assert_eq!(
        diary.read(),
        [
            "changing 1: 1 for [], visible false",
            "changed 1: 1 for [], visible true"
        ]
    );
}

#[test]
fn the_same_report_again_is_no_change() {
    let (regions, diary) = regions();
    let _ = regions.report(region(1, "a", "m", 2), 0).unwrap();
    let _ = diary.read();
    assert_eq!(
        regions.report(region(1, "a", "m", 2), 0).unwrap().index,
        None
    );
    assert_eq!(diary.read(), [""; 0]);
    assert_eq!(regions.next_index(), 1);
}

#[test]
fn a_leader_move_under_the_same_epoch_is_a_change_and_a_record() {
    let (regions, diary) = regions();
    let _ = regions.report(region(1, "a", "m", 2), 0).unwrap();
    let _ = diary.read();
    let moved = regions.report(with_leader(1, "a", "m", 2, 77), 0).unwrap();
    assert_eq!(moved.index, Some(1));
    assert_eq!(diary.read()[1], "changed 2: 1 for [1], visible true");
}

#[test]
fn a_merge_displaces_the_merged_away_region() {
    let (regions, diary) = regions();
    let _ = regions.report_all(vec![region(1, "a", "m", 2), region(2, "m", "z", 4)]);
    let _ = diary.read();
    regions.report(region(1, "a", "z", 5), 0).unwrap();
    assert_eq!(diary.read()[1], "changed 3: 1 for [1, 2], visible true");
    assert!(regions.map().pin().by_id(2).is_none());
}

#[test]
fn both_halves_of_a_split_become_visible_together() {
    let (regions, diary) = regions();
    regions.report(region(1, "a", "z", 2), 0).unwrap();
    let _ = diary.read();
    let results = regions.report_all(vec![region(1, "a", "m", 3), region(2, "m", "z", 3)]);
    assert_eq!(
        results,
        [
            Ok(Reported { index: Some(1) }),
            Ok(Reported { index: Some(2) })
        ]
    );
    assert_eq!(
        diary.read(),
        [
            "changing 2: 1 for [1], visible false",
            "changing 3: 2 for [], visible false",
            "changed 2: 1 for [1], visible true",
            "changed 3: 2 for [], visible true",
        ]
    );
}

#[test]
fn reports_that_touch_each_other_are_taken_one_after_the_other() {
    let (regions, _) = regions();
    let results = regions.report_all(vec![
        region(1, "a", "m", 2),
        region(1, "a", "k", 3),
        region(1, "a", "j", 2),
        region(2, "b", "c", 4),
        region(3, "k", "m", 3),
    ]);
    assert!(results[0].is_ok() && results[1].is_ok() && results[3].is_ok() && results[4].is_ok());
    assert_eq!(
        results[2].unwrap_err().origin_epoch.version,
        3,
        "the third is older by then"
    );
    assert_eq!(records(&regions), [1, 1, 2, 3]);
    let snapshot = regions.map().pin();
    assert!(snapshot.by_id(1).is_none(), "region 2 took its keys");
    assert_eq!(snapshot.len(), 2);
}

#[test]
fn a_report_behind_what_is_known_is_stale() {
    let (regions, diary) = regions();
    let _ = regions.report_all(vec![region(1, "a", "m", 5), region(2, "m", "z", 5)]);
    let _ = diary.read();
    let older = regions.report(region(1, "a", "m", 4), 0).unwrap_err();
    assert_eq!((older.origin_id, older.origin_epoch.version), (1, 5));
    let over = regions.report(region(3, "k", "n", 4), 0).unwrap_err();
    assert_eq!(over.origin_epoch.version, 5);
    assert_eq!(
        over.to_string(),
        "region is stale: region id:3 region_epoch:<conf_ver:1 version:4> \
         origin id:1 region_epoch:<conf_ver:1 version:5>"
    );
    assert_eq!(diary.read(), [""; 0], "a refused report changes nothing");
    assert_eq!(regions.next_index(), 2);
}

#[test]
fn a_recreated_region_is_taken_whatever_it_overlaps() {
    let (regions, _) = regions();
    regions.report(region(1, "a", "m", 5), 0).unwrap();
    assert!(regions.report(region(9, "b", "c", 1), 0).is_ok());
    assert!(regions.map().pin().by_id(1).is_none());
}

#[test]
fn an_earlier_raft_term_is_stale_under_the_same_epoch() {
    let (regions, _) = regions();
    regions.report(with_leader(1, "a", "m", 2, 10), 7).unwrap();
    assert!(regions.report(with_leader(1, "a", "m", 2, 11), 6).is_err());
    assert!(
        regions.report(with_leader(1, "a", "m", 2, 11), 0).is_ok(),
        "unknown is no term"
    );
    assert!(regions.report(with_leader(1, "a", "m", 2, 12), 8).is_ok());
}

#[test]
fn a_loaded_region_makes_no_record() {
    let (regions, diary) = regions();
    regions.load(region(1, "", "", 1)).unwrap();
    assert_eq!(regions.next_index(), 0);
    assert_eq!(diary.read().len(), 2);
}

#[tokio::test]
async fn a_record_wakes_and_an_unpublished_change_does_not() {
    let (regions, _) = regions();
    let mut head = regions.subscribe();
    regions.report(region(1, "a", "m", 2), 0).unwrap();
    assert!(head.has_changed().unwrap());
    head.mark_unchanged();
    let flow = tidegate_core::Details {
        stats: tidegate_core::RegionStats {
            bytes_read: 1,
            ..Default::default()
        },
        ..Default::default()
    };
    let noise = region(1, "a", "m", 2)
        .to_builder()
        .details(flow)
        .build()
        .unwrap();
    assert_eq!(regions.report(noise, 0).unwrap().index, None);
    assert!(!head.has_changed().unwrap());
}
