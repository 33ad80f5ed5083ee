//! M6: a thread that stops, at whatever atomic access, stops nobody.
//!
//! Each test lets one thread act and stops it before its first access of an atomic, then before its
//! second, and so on until it gets through. While it stands still the others do what they do, on a
//! thread that may make only so many accesses itself: one that waited for the stopped one would spin
//! past that, or run into the deadline. Then the stopped thread goes on, and what came of it is
//! looked at.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::clock::Moment;
use crate::entry::{InvalidReason, ReloadTicket, Ttl};
use crate::epoch::RegionEpoch;
use crate::gate::{Gate, Thresholds};
use crate::history::{Answer, Appender, Capacity, History, adaptive_history, history};
use crate::map::{Batch, Expect, RegionMap};
use crate::provenance::Provenance;
use crate::range::KeyRange;
use crate::region::Region;
use crate::sync::steps::before_each_step;

/// Accesses that the others may make: many times what they need.
const PATIENCE: usize = 100_000;
/// How long the others may take: for those who would sleep instead of spinning.
const DEADLINE: Duration = Duration::from_secs(60);

const STREAM: Provenance = Provenance::Stream {
    received_at: Moment::from_nanos(1),
};

/// Stops `act` before each of its steps while `others` run; returns how many steps it has.
fn stopped_anywhere<W: Send + Sync + 'static>(
    make: impl Fn() -> W,
    act: fn(&W),
    others: fn(&W),
    after: impl Fn(&W),
) -> usize {
    for step in 0.. {
        let world = Arc::new(make());
        let (stands, stopped) = channel();
        let (go, gone) = channel::<()>();
        let acting = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let mut left: Option<usize> = Some(step);
                let _hooked = before_each_step(move || {
                    left = left.and_then(|left| {
                        if left == 0 {
                            let _ = stands.send(());
                            // Until the other end goes.
                            let _ = gone.recv();
                        }
                        left.checked_sub(1)
                    });
                });
                act(&world);
            })
        };
        // An error says that the thread came to its end.
        let is_stopped = stopped.recv().is_ok();
        run_others(Arc::clone(&world), others, step);
        drop(go);
        acting.join().expect("what was stopped goes on");
        after(&world);
        if !is_stopped {
            return step;
        }
    }
    unreachable!("some thread gets through");
}

fn run_others<W: Send + Sync + 'static>(world: Arc<W>, others: fn(&W), step: usize) {
    let (done, ended) = channel();
    let running = thread::spawn(move || {
        let mut left = PATIENCE;
        let _hooked = before_each_step(move || {
            left -= 1;
            assert!(left > 0, "the others spin while one is stopped");
        });
        others(&world);
        drop(done);
    });
    let end: Result<(), RecvTimeoutError> = ended.recv_timeout(DEADLINE);
    assert_eq!(
        end,
        Err(RecvTimeoutError::Disconnected),
        "the others wait for one that is stopped before its step {step}"
    );
    running.join().expect("the others get on");
}

fn region(id: u64, start: &str, end: &str, version: u64) -> Region {
    let range = KeyRange::new(start, end).expect("start before end");
    let epoch = RegionEpoch::new(2, version);
    Region::builder(id, range, epoch).build().expect("an id")
}

/// Two dozen regions of one letter each, id 1 at "a"; some memory waits in the pools.
fn some_map() -> RegionMap {
    let map = RegionMap::with_generation(1);
    for version in 1..=2 {
        let mut batch = Batch::new();
        for (id, letter) in (1..).zip(b'a'..b'y') {
            let (start, end) = ([letter], [letter + 1]);
            let (start, end) = (str(&start), str(&end));
            batch.put(region(id, start, end, version), STREAM);
        }
        let _ = map.apply(batch);
    }
    map
}

fn str(key: &[u8; 1]) -> &str {
    std::str::from_utf8(key).expect("a letter")
}

/// Everything that readers, markers and other writers do.
fn use_map(map: &RegionMap) {
    let snapshot = map.pin();
    snapshot.check_invariants().expect("a whole map");
    assert_eq!(snapshot.iter().count(), snapshot.len());
    assert_eq!(snapshot.prev(b"m").map(|entry| entry.id()), Some(12));
    assert_eq!(snapshot.by_id(20).map(|entry| entry.start()[0]), Some(b't'));
    if let Some(entry) = snapshot.get(b"a") {
        let _ = entry.word().invalidate_and_pin(InvalidReason::NoLeader);
    }
    let kept = snapshot.get(b"c").map(|entry| entry.to_shared());
    drop(snapshot);

    let mut split = Batch::new();
    split.put(region(10, "j", "jm", 5), STREAM);
    split.put(region(100, "jm", "k", 5), STREAM);
    let outcomes = map.apply(split);
    assert!(outcomes.iter().all(|outcome| !outcome.is_refused()));
    let replaced = map.put(region(3, "c", "d", 5), STREAM);
    assert!(!replaced.is_refused());
    let mut removal = Batch::new();
    removal.remove(20, Expect::Any);
    let _ = map.apply(removal);
    assert!(map.pin().by_id(20).is_none());
    assert!(map.stats().regions >= 24);
    drop(kept);
    // Of the memory that these writers need, some is in the stopped one's hands.
    for version in 6..40 {
        assert!(!map.put(region(3, "c", "d", version), STREAM).is_refused());
    }
}

fn is_whole(map: &RegionMap) {
    map.pin().check_invariants().expect("a whole map");
    assert_eq!(
        map.pin().by_id(3).map(|entry| entry.epoch().version),
        Some(39)
    );
    assert!(map.pin().by_id(100).is_some());
    assert!(map.pin().by_id(20).is_none());
}

#[test]
fn m6_a_writer_stopped_anywhere_stops_nobody() {
    let update = |map: &RegionMap| {
        // Marked by the others, so that a pin has to be handed down.
        assert!(!map.put(region(1, "a", "b", 2), STREAM).is_refused());
    };
    let steps = stopped_anywhere(some_map, update, use_map, |map| {
        is_whole(map);
        let entry = map.pin().by_id(1).map(|entry| entry.to_shared());
        let entry = entry.expect("region 1");
        // The mark met the old entry or the new one; its pin came along, but for a moment in which
        // the new one was to be seen without it.
        assert!(entry.word().is_pinned());
    });
    assert!(steps >= 4, "pools, root, swap, hand-over: {steps}");

    let batch = |map: &RegionMap| {
        let mut batch = Batch::new();
        batch.put(region(5, "e", "em", 3), STREAM);
        batch.put(region(200, "em", "f", 3), STREAM);
        batch.remove(7, Expect::Any);
        let _ = map.apply(batch);
    };
    let _ = stopped_anywhere(some_map, batch, use_map, |map| {
        is_whole(map);
        let snapshot = map.pin();
        assert!(snapshot.by_id(200).is_some() && snapshot.by_id(7).is_none());
    });
}

#[test]
fn m6_a_writer_that_swaps_the_content_stops_nobody() {
    let swap = |map: &RegionMap| {
        let staged = some_map();
        map.replace_with(staged, 2);
    };
    let _ = stopped_anywhere(some_map, swap, use_map, |map| {
        map.pin().check_invariants().expect("a whole map");
        assert_eq!(map.generation(), 2);
    });
}

#[test]
fn m6_a_reader_stopped_anywhere_stops_no_writer() {
    let read = |map: &RegionMap| {
        let snapshot = map.pin();
        assert_eq!(snapshot.get(b"b").map(|entry| entry.id()), Some(2));
        assert_eq!(snapshot.by_id(2).map(|entry| entry.start()[0]), Some(b'b'));
    };
    let _ = stopped_anywhere(some_map, read, use_map, is_whole);
}

#[test]
fn e1_a_marker_stopped_anywhere_stops_nobody() {
    let mark = |map: &RegionMap| {
        let entry = map.pin().by_id(3).map(|entry| entry.to_shared());
        let entry = entry.expect("region 3");
        let word = entry.word();
        let _ = word.confirm(Moment::from_nanos(1_000_000_000));
        let _ = word.reload_on_access();
        drop(ReloadTicket::take(&entry));
        let _ = word.delay_reload();
        let _ = word.ripen_delayed_reload();
        let _ = word.renew(Moment::from_nanos(1), Ttl::DEFAULT, || 0);
        let _ = word.invalidate_and_pin(InvalidReason::EpochNotMatch);
    };
    let steps = stopped_anywhere(some_map, mark, use_map, is_whole);
    assert!(steps > 10, "each of the marks is at least a step: {steps}");
}

type Ring = (Mutex<Appender<u64>>, History<u64>);

/// A history that grows; two records of the first segment are retained, and a cursor stands there.
fn some_ring() -> Ring {
    let capacity = Capacity::growing(64, 1 << 12);
    let (mut appender, reader) = adaptive_history(capacity, 1);
    let _ = appender.append_all(0..64);
    (Mutex::new(appender), reader)
}

fn append(ring: &Ring, count: u64) {
    let mut appender = ring.0.lock().expect("one appender");
    for record in 0..count {
        let _ = appender.append(record);
    }
}

fn read_ring((_, reader): &Ring) {
    let first = reader.first_index();
    let answer = reader.read(first, 10);
    assert!(!matches!(answer, Answer::Ahead { .. }), "{answer:?}");
    let mut cursor = reader.cursor(first);
    let _ = cursor.read(10);
    let retained = reader.retain(reader.next_index().saturating_sub(1));
    assert!(reader.capacity() >= 64);
    drop((retained, cursor));
    assert!(reader.indexes().end >= 65);
}

#[test]
fn an_appender_stopped_anywhere_stops_no_reader() {
    // Over several segments: opens, evicts, grows for a cursor, shrinks, begins anew.
    let fill = |ring: &Ring| {
        append(ring, 130);
        let cursor = ring.1.cursor(ring.1.next_index());
        append(ring, 200);
        drop(cursor);
        let mut appender = ring.0.lock().expect("one appender");
        for _ in 0..8 {
            let _ = appender.maintain();
        }
        appender.reset_with_index(1_000);
        let _ = appender.append(1);
    };
    let steps = stopped_anywhere(some_ring, fill, read_ring, |ring| {
        assert_eq!(ring.1.indexes(), 1_000..1_001);
    });
    assert!(steps > 330, "each record is a step: {steps}");
}

#[test]
fn a_reader_stopped_anywhere_stops_no_appender() {
    let follow = |ring: &Ring| read_ring(ring);
    let fill = |ring: &Ring| {
        append(ring, 300);
        read_ring(ring);
    };
    let _ = stopped_anywhere(some_ring, follow, fill, |ring| {
        assert_eq!(ring.1.next_index(), 365);
    });
    // One that stopped while it entered its pin may have kept records; nobody lost any.
    let (mut appender, reader) = history::<u64>(64, 1);
    let _ = appender.append(1);
    assert_eq!(reader.next_index(), 2);
}

fn seconds(seconds: u64) -> Moment {
    Moment::from_nanos(seconds * 1_000_000_000)
}

/// A gate that serves generation 1, with a probe that waits for index 9.
fn some_gate() -> Gate {
    let gate = Gate::new();
    gate.begin(1);
    gate.apply_finished(1, 5, seconds(1));
    gate.probe_answered(1, seconds(1), 5);
    gate.publish(1);
    gate.probe_answered(1, seconds(2), 9);
    gate
}

fn ask(gate: &Gate) {
    let generation = gate.generation();
    let _ = gate.decide(generation, seconds(3), &Thresholds::default().into());
    assert!(gate.view().generation >= 1);
    assert!(gate.next_generation() >= 2);
}

#[test]
fn whoever_tells_the_gate_something_stops_nobody() {
    let apply = |gate: &Gate| {
        gate.apply_started(1, seconds(2));
        gate.gap(1, true);
        gate.apply_finished(1, 9, seconds(2));
        gate.gap(1, false);
    };
    let probe = |gate: &Gate| {
        gate.probe_answered(1, seconds(3), 9);
        ask(gate);
    };
    let proven = |gate: &Gate| assert_eq!(gate.view().proven_at, Some(seconds(3)));
    let _ = stopped_anywhere(some_gate, apply, probe, proven);
    let _ = stopped_anywhere(some_gate, probe, apply, proven);

    let change = |gate: &Gate| {
        gate.begin(2);
        gate.apply_finished(2, 7, seconds(3));
        gate.probe_answered(2, seconds(3), 7);
        gate.publish(2);
    };
    let old = |gate: &Gate| {
        gate.apply_finished(1, 9, seconds(2));
        ask(gate);
    };
    let _ = stopped_anywhere(some_gate, change, old, |gate| {
        let view = gate.view();
        assert_eq!((view.generation, view.applied), (2, 7));
    });
}
