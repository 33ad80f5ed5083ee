//! A client's region cache: entries with a time to live, marks that heal it, and reloads that
//! one caller does for all.
//!
//!     cargo run -p tidegate-core --example region_cache
//!
//! What the cache asks is a stand-in for PD: a leader that knows the truth, and a follower that
//! lags behind it. A real client sends requests there; everything else would look the same.

use std::cell::Cell;
use std::error::Error;
use std::time::Duration;

use tidegate_core::clock::ManualClock;
use tidegate_core::entry::{Invalidated, Reload, ReloadTicket, Renewed, Ttl};
use tidegate_core::{
    Batch, Clock, Entry, EntryRef, Expect, InvalidReason, KeyRange, Moment, Provenance, Region,
    RegionEpoch, RegionMap, SharedEntry,
};

fn main() -> Result<(), Box<dyn Error>> {
    let pd = Pd::new()?;
    let clock = ManualClock::new(Moment::from_nanos(1));
    let cache = RegionCache::new(&pd, clock.clone());

    // The first access loads, the next ones hit. Hits write nothing while the deadline is in its
    // band, and move it on once it is not: what is in use stays.
    for _ in 0..100 {
        assert_eq!(cache.locate(b"k")?.id(), 1);
        clock.advance(Duration::from_secs(30));
    }
    println!("100 accesses over 50 minutes: {}", pd.asked());
    assert_eq!((pd.follower.get(), pd.leader.get()), (1, 0));

    // The region is split, and a store says so. The cached entry is wrong from now on, for
    // everyone, and the follower that gave it away may not know better yet: the mark pins the
    // next load to the leader.
    pd.is_split.set(true);
    let wrong = cache.locate(b"k")?;
    let marked = wrong
        .word()
        .invalidate_and_pin(InvalidReason::EpochNotMatch);
    assert_eq!(marked, Invalidated::Done);
    let right = cache.locate(b"k")?;
    println!("after the split: region {}, {}", right.id(), pd.asked());
    assert_eq!((right.id(), pd.leader.get()), (2, 1));

    // The first reason stays. Whoever still holds the old entry learns that it has left the map,
    // and that what is there now is not to blame.
    let again = wrong.word().invalidate(InvalidReason::Other);
    assert_eq!(again, Invalidated::Superseded);
    assert_eq!(wrong.word().reason(), Some(InvalidReason::EpochNotMatch));

    // A reload that fails is asked for again, and the entry still answers meanwhile.
    let _ = right.word().reload_on_access();
    pd.is_down.set(true);
    assert_eq!(cache.locate(b"k")?.id(), 2);
    assert_eq!(right.word().load().reload(), Some(Reload::OnAccess));
    pd.is_down.set(false);
    assert_eq!(cache.locate(b"k")?.id(), 2);
    println!("a failed reload and one that succeeds: {}", pd.asked());
    assert_eq!(pd.leader.get(), 3);

    // What nobody asks for expires.
    clock.advance(Duration::from_secs(3600));
    let cached = cache.map.pin().get(b"k").map(EntryRef::to_shared);
    assert!(cached.is_some_and(|entry| entry.word().load().is_expired(clock.now())));
    Ok(())
}

struct RegionCache<'p> {
    map: RegionMap,
    ttl: Ttl,
    clock: ManualClock,
    pd: &'p Pd,
}

impl<'p> RegionCache<'p> {
    fn new(pd: &'p Pd, clock: ManualClock) -> Self {
        Self {
            map: RegionMap::new(),
            ttl: Ttl::DEFAULT,
            clock,
            pd,
        }
    }

    /// The entry to route a request for `key` by.
    fn locate(&self, key: &[u8]) -> Result<SharedEntry, PdIsDown> {
        loop {
            // The snapshot ends with the statement: a guard is not held while PD is asked.
            let Some(entry) = self.map.pin().get(key).map(EntryRef::to_shared) else {
                return self.load(key, false);
            };
            match entry.word().renew(self.clock.now(), self.ttl, jitter) {
                renewed if renewed.is_good() => {}
                Renewed::Superseded => continue,
                _ => return self.load(key, entry.word().is_pinned()),
            }
            // Of many who come by, one gets the ticket; the others go on with the entry. If the
            // load fails, the ticket is dropped, and the flag set again.
            let Some(ticket) = ReloadTicket::take(&entry) else {
                return Ok(entry);
            };
            return match self.load(key, true) {
                Ok(reloaded) => {
                    ticket.done();
                    Ok(reloaded)
                }
                Err(PdIsDown) => Ok(entry),
            };
        }
    }

    fn load(&self, key: &[u8], mut from_leader: bool) -> Result<SharedEntry, PdIsDown> {
        loop {
            let asked_at = self.clock.now();
            let region = self.pd.ask(key, from_leader)?;
            let answered_at = self.clock.now();
            let provenance = if from_leader {
                Provenance::Leader {
                    asked_at,
                    answered_at,
                }
            } else {
                Provenance::Follower { asked_at }
            };
            let deadline = self.ttl.deadline(answered_at, jitter());
            let entry = Entry::new(region, provenance).with_deadline(deadline);
            let mut batch = Batch::with_capacity(1);
            batch.put_entry(entry, Expect::Any);
            let outcome = self.map.apply(batch);

            let found = self.map.pin().get(key).map(EntryRef::to_shared);
            match found.filter(|entry| entry.word().load().is_usable(answered_at)) {
                Some(entry) => return Ok(entry),
                // What is there is newer than the answer and no good, or the answer left a hole
                // at the key: the leader knows more.
                None if !from_leader => from_leader = true,
                None => unreachable!("the leader's answer holds the key: {outcome:?}"),
            }
        }
    }
}

/// A client draws this from its generator of random numbers.
fn jitter() -> u32 {
    u32::MAX / 3
}

/// One region, which is split into two at some time. The follower does not notice.
struct Pd {
    whole: Region,
    halves: [Region; 2],
    is_split: Cell<bool>,
    is_down: Cell<bool>,
    leader: Cell<u32>,
    follower: Cell<u32>,
}

#[derive(Debug)]
struct PdIsDown;

impl Pd {
    fn new() -> Result<Self, Box<dyn Error>> {
        let region = |id, range, version| Region::builder(id, range, RegionEpoch::new(1, version));
        Ok(Self {
            whole: region(1, KeyRange::all(), 5).build()?,
            halves: [
                region(1, KeyRange::new("", "g")?, 6).build()?,
                region(2, KeyRange::new("g", "")?, 6).build()?,
            ],
            is_split: Cell::new(false),
            is_down: Cell::new(false),
            leader: Cell::new(0),
            follower: Cell::new(0),
        })
    }

    fn ask(&self, key: &[u8], leader: bool) -> Result<Region, PdIsDown> {
        let count = if leader { &self.leader } else { &self.follower };
        count.set(count.get() + 1);
        if self.is_down.get() {
            return Err(PdIsDown);
        }
        let half = self.halves.iter().find(|half| half.range().contains(key));
        match half {
            Some(half) if leader && self.is_split.get() => Ok(half.clone()),
            _ => Ok(self.whole.clone()),
        }
    }

    fn asked(&self) -> String {
        let (leader, follower) = (self.leader.get(), self.follower.get());
        format!("the leader was asked {leader} times, the follower {follower} times")
    }
}

impl std::fmt::Display for PdIsDown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PD is down")
    }
}

impl Error for PdIsDown {}

#[test]
fn runs() {
    main().expect("the example runs");
}
