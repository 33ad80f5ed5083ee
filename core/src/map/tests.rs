use super::batch::{Batch, Change};
use super::root::Root;
use super::transaction::Transaction;
use super::{Outcome, RegionMap};
use crate::epoch::RegionEpoch;
use crate::provenance::Provenance;
use crate::range::KeyRange;
use crate::region::Region;
use crate::sync::reclaim;

const STREAM: Provenance = Provenance::Stream {
    received_at: crate::clock::Moment::from_nanos(1),
};

fn region(id: u64, start: &str, end: &str) -> Region {
    let range = KeyRange::new(start, end).expect("start before end");
    let epoch = RegionEpoch::new(2, 2);
    Region::builder(id, range, epoch).build().expect("an id")
}

#[test]
fn m6_a_writer_that_stops_before_its_swap_stops_nobody() {
    let map = RegionMap::new();
    let _ = map.put(region(1, "a", "b"), STREAM);

    // A writer that has done everything but the swap, and then stands still.
    let guard = reclaim::pin();
    let base = map.load(&guard);
    let mut batch = Batch::new();
    batch.put(region(2, "b", "c"), STREAM);
    let changes: Vec<Change> = batch.into_changes();
    // SAFETY: loaded under `guard`, which outlives it.
    let base_root: &Root = unsafe { base.as_ref() };
    let mut stopped = Transaction::new(base_root, map.recycling.take(1));
    let outcome = stopped.apply_first(&changes[0]);
    assert_eq!(outcome, Outcome::Inserted { displaced: 0 });

    // Readers and writers go on, and nobody sees its work.
    for id in 3..200 {
        let start = format!("k{id:03}");
        let end = format!("k{id:03}x");
        assert_eq!(
            map.put(region(id, &start, &end), STREAM),
            Outcome::Inserted { displaced: 0 }
        );
        assert!(map.pin().by_id(2).is_none());
        assert!(map.pin().get(b"a").is_some());
    }

    // When it goes on, it finds that it has lost, and leaves nothing behind.
    let root = stopped.place_root();
    assert!(map.swing(base, root).is_err());
    let mut bag = stopped.abandon();
    // SAFETY: from `place_root`, never published.
    unsafe { bag.displace(root) };
    map.recycling.give(bag);
    let snapshot = map.pin();
    snapshot.check_invariants().expect("sound");
    assert_eq!(snapshot.len(), 198);
}

#[test]
fn refused_changes_publish_nothing() {
    let map = RegionMap::new();
    let _ = map.put(region(1, "a", "b"), STREAM);
    let retired = map.stats().retired;
    let old = Region::builder(1, KeyRange::all(), RegionEpoch::new(1, 2));
    let refused = map.put(old.build().expect("an id"), STREAM);
    assert!(refused.is_refused());
    assert_eq!(map.apply(Batch::new()), []);
    assert_eq!(map.stats().retired, retired);
}
