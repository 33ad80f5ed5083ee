//! G5: a decision allocates nothing.
#![cfg(not(tidegate_loom))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use tidegate_core::clock::{BootClock, Clock, Moment};
use tidegate_core::gate::{Decision, Gate, RefuseReason, Served, Thresholds};

thread_local! {
    /// Calls to the allocator made by this thread.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn calls_during(f: impl FnOnce()) -> u64 {
    let before = CALLS.with(Cell::get);
    f();
    CALLS.with(Cell::get) - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(calls_during(|| drop(std::hint::black_box(Box::new(7)))), 2);
}

#[test]
fn g5_a_decision_and_its_clock_reading_allocate_nothing() {
    let gate = Gate::new();
    let thresholds = Thresholds::default();
    let start = BootClock.now();
    gate.begin(1);
    gate.apply_finished(1, 5, start);
    gate.publish(1);
    let calls = calls_during(|| {
        assert_eq!(
            gate.decide(1, BootClock.now(), &thresholds).refused(),
            Some(RefuseReason::NotProven)
        );
        gate.probe_answered(1, start, 5);
        for _ in 0..1_000 {
            // Judged at a time of the test's own, so that a paused machine changes nothing.
            let _reading: Moment = BootClock.now();
            let at = start.saturating_add(Duration::from_secs(1));
            let Decision::Serve { age } = gate.decide(1, at, &thresholds) else {
                panic!("refused");
            };
            let served = Served {
                generation: 1,
                at,
                age,
            };
            assert!(gate.recheck(&served, 1, at, &thresholds).is_serve());
        }
        let late = start.saturating_add(Duration::from_secs(11));
        assert_eq!(
            gate.decide(1, late, &thresholds).refused(),
            Some(RefuseReason::Age)
        );
    });
    assert_eq!(calls, 0);
}
