//! A map in a process that may not have as many addresses as it would reserve.
#![cfg(target_os = "linux")]

use std::process::Command;
use std::{env, thread};

use tidegate_core::{BulkLoad, KeyRange, Moment, Provenance, Region, RegionEpoch, RegionMap};

/// Set where there is a limit.
const LIMITED: &str = "TIDEGATE_TEST_LIMITED";
const KIBIBYTES: u64 = 2 << 20;

fn load(regions: u64) -> RegionMap {
    let mut load = BulkLoad::new();
    let received_at = Moment::from_nanos(1);
    for at in 0..regions {
        let range = KeyRange::new(&at.to_be_bytes()[..], &(at + 1).to_be_bytes()[..]);
        let range = range.expect("an ascending range");
        let region = Region::builder(at + 1, range, RegionEpoch::new(1, 1)).build();
        load.put(
            region.expect("a valid region"),
            Provenance::Stream { received_at },
        );
    }
    let loaded = load.finish(1);
    assert!(loaded.refused.is_empty());
    loaded.map
}

/// The test starts itself again under a limit.
#[test]
fn a_map_leaves_the_process_addresses_under_a_limit() {
    if env::var_os(LIMITED).is_some() {
        return use_maps_and_other_memory();
    }
    let program = env::current_exe().expect("a test has a program");
    let status = Command::new("sh")
        .args(["-c", "ulimit -v \"$1\" && exec \"$0\""])
        .arg(program)
        .arg(KIBIBYTES.to_string())
        .env(LIMITED, "1")
        .status();
    let status = status.expect("a shell is there");
    assert!(status.success(), "{status}");
}

fn use_maps_and_other_memory() {
    let map = load(100_000);
    let others: Vec<_> = (0..4)
        .map(|_| thread::spawn(|| load(20_000).pin().len()))
        .collect();
    let room = vec![1u8; 256 << 20];
    for other in others {
        assert_eq!(other.join().expect("no panic"), 20_000);
    }
    assert_eq!(
        room.iter().map(|&byte| u64::from(byte)).sum::<u64>(),
        256 << 20
    );
    assert_eq!(map.pin().len(), 100_000);
}
