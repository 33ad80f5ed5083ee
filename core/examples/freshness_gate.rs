//! A freshness gate: a replica of a region map answers only while it can prove that it is fresh.
//!
//!     cargo run -p tidegate-core --example freshness_gate
//!
//! The events of a sync stream are played by hand, on a clock that is moved by hand.

use std::error::Error;
use std::time::Duration;

use tidegate_core::clock::ManualClock;
use tidegate_core::gate::{Decision, Gate, Limits, RefuseReason, Served, Thresholds};
use tidegate_core::{Clock, KeyRange, Moment, Provenance, Region, RegionEpoch, RegionMap};

fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new(Moment::from_nanos(1));
    let replica = Replica {
        map: RegionMap::new(),
        gate: Gate::new(),
        limits: Thresholds::default().into(),
        clock: clock.clone(),
    };

    // An empty map must not say "no such region".
    replica.expect(Err(RefuseReason::NotProven), "before the first sync");

    // A full sync is built aside. Its generation is prepared in the gate, the map is swapped,
    // and only then is the generation published: never one's map on the other's proof.
    let generation = replica.gate.next_generation();
    replica.gate.begin(generation);
    let staged = RegionMap::new();
    let received_at = clock.now();
    let outcome = staged.put(region(5)?, Provenance::Stream { received_at });
    assert!(!outcome.is_refused());
    replica.gate.apply_finished(generation, 100, received_at);
    replica.map.replace_with(staged, generation);
    replica.gate.publish(generation);
    replica.expect(Err(RefuseReason::NotProven), "synced, but how old is it?");

    // A probe of the leader's head proves: all that the leader had recorded when it was sent is
    // in the map, since the head has been applied.
    let sent_at = clock.now();
    clock.advance(Duration::from_millis(20));
    replica.gate.probe_answered(generation, sent_at, 100);
    replica.expect(Ok(Duration::from_millis(20)), "proven");

    // The age counts from the send of the probe, and a leader that falls silent does not stop it.
    clock.advance(Duration::from_secs(9));
    replica.expect(Ok(Duration::from_millis(9_020)), "nine seconds later");
    clock.advance(Duration::from_secs(1));
    replica.expect(Err(RefuseReason::Age), "ten seconds later");

    // A probe that finds a higher head proves nothing yet: the records up to it are still to come.
    let sent_at = clock.now();
    replica.gate.probe_answered(generation, sent_at, 101);
    replica.expect(Err(RefuseReason::Age), "a record is missing");
    let received_at = clock.now();
    replica.gate.apply_started(generation, received_at);
    let outcome = replica
        .map
        .put(region(6)?, Provenance::Stream { received_at });
    assert!(!outcome.is_refused());
    replica.gate.apply_finished(generation, 101, received_at);
    replica.expect(Ok(Duration::ZERO), "the record has been applied");
    Ok(())
}

struct Replica {
    map: RegionMap,
    gate: Gate,
    limits: Limits,
    clock: ManualClock,
}

impl Replica {
    /// Answers with the region that holds `key`, if there is one, and the age of that answer.
    fn get(&self, key: &[u8]) -> Result<(Option<Region>, Duration), RefuseReason> {
        let generation = self.map.generation();
        let at = self.clock.now();
        let age = match self.gate.decide(generation, at, &self.limits) {
            Decision::Serve { age } => age,
            Decision::Refuse(refusal) => return Err(refusal.reason),
        };
        let snapshot = self.map.pin();
        let found = snapshot.get(key).map(|entry| entry.region().clone());
        // The thread may have been stopped in between, for a second or for a minute.
        let served = Served {
            generation,
            at,
            age,
        };
        let now = self.clock.now();
        match self
            .gate
            .recheck(&served, snapshot.generation(), now, &self.limits)
        {
            Decision::Serve { age } => Ok((found, age)),
            Decision::Refuse(refusal) => Err(refusal.reason),
        }
    }

    fn expect(&self, expected: Result<Duration, RefuseReason>, when: &str) {
        let answer = self.get(b"k");
        match &answer {
            Ok((Some(region), age)) => println!("{when}: {} at {age:?}", region.epoch()),
            Ok((None, age)) => println!("{when}: no region, at {age:?}"),
            Err(reason) => println!("{when}: refused, {}", reason.as_str()),
        }
        assert_eq!(answer.map(|(_, age)| age), expected, "{when}");
    }
}

fn region(version: u64) -> Result<Region, Box<dyn Error>> {
    Ok(Region::builder(1, KeyRange::all(), RegionEpoch::new(1, version)).build()?)
}

#[test]
fn runs() {
    main().expect("the example runs");
}
