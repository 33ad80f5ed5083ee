//! A change feed: one writer changes a region map and records each change in a history, followers
//! rebuild the map from it.
//!
//!     cargo run -p tidegate-core --example change_feed
//!
//! A follower that is too slow is told so (a gap, never silence), copies the whole map from one
//! snapshot and goes on from there.

use std::error::Error;
use std::thread;

use tidegate_core::history::{Answer, Appender, History, history};
use tidegate_core::{Batch, KeyRange, Moment, Provenance, Region, RegionEpoch, RegionMap};

const REGIONS: u64 = 64;
const CHANGES: u64 = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let source = RegionMap::new();
    // Small enough for a follower to fall behind now and then.
    let (mut appender, history) = history::<Region>(256, 1);
    let first: Vec<Region> = (0..REGIONS)
        .map(|number| region(number, 1))
        .collect::<Result<_, _>>()?;
    record(&source, &mut appender, first);

    let followers = thread::scope(|scope| {
        let followers = [1, 50].map(|limit| {
            let (source, history) = (&source, history.clone());
            scope.spawn(move || Follower::new(limit).follow(source, &history))
        });
        for change in 0..CHANGES {
            let changed = region(change % REGIONS, 2 + change / REGIONS);
            record(&source, &mut appender, changed.into_iter().collect());
        }
        followers.map(|follower| follower.join())
    });

    for follower in followers {
        let follower = follower.map_err(|_panic| "a follower has failed")?;
        let theirs = follower.map.pin();
        let ours = source.pin();
        assert_eq!(theirs.len(), ours.len());
        for (theirs, ours) in theirs.iter().zip(ours.iter()) {
            assert_eq!(theirs.region(), ours.region());
        }
        println!(
            "{} at a time: {} records, {} full copies; the same map in the end",
            follower.limit, follower.records, follower.copies
        );
    }
    Ok(())
}

/// Changes the map first and records then: who finds a record finds it applied.
fn record(source: &RegionMap, appender: &mut Appender<Region>, regions: Vec<Region>) {
    let mut batch = Batch::with_capacity(regions.len());
    for region in &regions {
        batch.put(region.clone(), RECEIVED);
    }
    let outcomes = source.apply(batch);
    let applied = regions.into_iter().zip(outcomes);
    // A refused change is no change.
    let applied = applied.filter(|(_, outcome)| !outcome.is_refused());
    appender.append_all(applied.map(|(region, _)| region));
}

struct Follower {
    map: RegionMap,
    limit: usize,
    records: u64,
    copies: u64,
}

impl Follower {
    fn new(limit: usize) -> Self {
        Self {
            map: RegionMap::new(),
            limit,
            records: 0,
            copies: 0,
        }
    }

    /// Follows until the last change.
    fn follow(mut self, source: &RegionMap, history: &History<Region>) -> Self {
        let mut next = 1;
        while next <= REGIONS + CHANGES {
            match history.read(next, self.limit) {
                Answer::Records { first, records } => {
                    next = first + records.len() as u64;
                    self.records += records.len() as u64;
                    let mut batch = Batch::with_capacity(records.len());
                    for region in records {
                        batch.put(region, RECEIVED);
                    }
                    // Refused is what a full copy has brought already.
                    let _ = self.map.apply(batch);
                }
                Answer::CaughtUp => thread::yield_now(),
                Answer::Gap { .. } | Answer::Ahead { .. } => {
                    next = self.copy(source, history);
                }
            }
        }
        self
    }

    /// Starts over from one snapshot of the source. Returns the index to go on from: it is read
    /// before the snapshot is taken, so that nothing is missed between the two.
    fn copy(&mut self, source: &RegionMap, history: &History<Region>) -> u64 {
        self.copies += 1;
        let next = history.next_index();
        let snapshot = source.pin();
        let mut batch = Batch::with_capacity(snapshot.len());
        for entry in snapshot.iter() {
            batch.put(entry.region().clone(), RECEIVED);
        }
        // Built aside and swapped in whole: who reads the follower's map meanwhile sees the old
        // one, and then the new one.
        let staged = RegionMap::new();
        let _ = staged.apply(batch);
        self.map.replace_with(staged, self.copies);
        next
    }
}

const RECEIVED: Provenance = Provenance::Stream {
    received_at: Moment::from_nanos(1),
};

/// Region `number`, the `version`-th time that it has changed.
fn region(number: u64, version: u64) -> Result<Region, Box<dyn Error>> {
    let boundary = |number: u64| match number {
        0 | REGIONS => Vec::new(),
        inner => inner.to_be_bytes().to_vec(),
    };
    let range = KeyRange::new(boundary(number), boundary(number + 1))?;
    let epoch = RegionEpoch::new(2, version);
    Ok(Region::builder(number + 1, range, epoch).build()?)
}

#[test]
fn runs() {
    main().expect("the example runs");
}
