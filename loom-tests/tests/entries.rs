//! Entries and those who own them.
#![cfg(tidegate_loom)]

mod regions;

use loom::thread;
use tidegate_core::{Entry, SharedEntry};
use tidegate_loom_tests::model;

use regions::{STREAM, region};

/// Defends the Release of a count that is given up and the Acquire of the last one: what an owner
/// reads, it reads before the entry ends.
#[test]
fn the_last_owner_of_two_ends_the_entry() {
    model("entries::the_last_owner_of_two_ends_the_entry", || {
        let first = SharedEntry::new(Entry::new(region(1, "a", "z", 1), STREAM));
        let second = first.clone();
        let thread = thread::spawn(move || {
            // By a third pointer, whose count is neither the first nor, always, the last.
            let third = second.clone();
            drop(second);
            assert_eq!(third.id(), 1);
        });
        assert_eq!(first.id(), 1);
        drop(first);
        thread.join().unwrap();
    });
}
