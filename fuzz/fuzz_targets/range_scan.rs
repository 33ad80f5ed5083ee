//! Changes and range scans, against the sequential model.
//!
//! A snapshot that is held through all that follows must still show what it showed.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tidegate_fuzz::bytes::Bytes;
use tidegate_fuzz::key_space::KeySpace;
use tidegate_fuzz::map_pair::{MapPair, compare_regions};

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let mut pair = MapPair::new(KeySpace::choose(bytes.byte()));
    let before = bytes.byte();
    for _ in 0..before {
        step(&mut pair, &mut bytes);
    }
    pair.compare();

    let map = Arc::clone(pair.map());
    let (snapshot, shown) = (map.pin(), pair.model().clone());
    while !bytes.is_empty() {
        step(&mut pair, &mut bytes);
    }
    pair.compare();
    compare_regions(&snapshot, &shown);
});

fn step(pair: &mut MapPair, bytes: &mut Bytes<'_>) {
    if bytes.is_empty() {
        return;
    }
    match bytes.byte() % 16 {
        0..=4 => {
            let _ = pair.put(bytes);
        }
        5..=7 => pair.batch(bytes),
        8 => pair.tile(bytes),
        9 => pair.clear_tiles(bytes),
        10 => pair.mark(bytes),
        11 => pair.replace(bytes),
        12 | 13 => pair.ask(bytes),
        14 => pair.ask_many(bytes),
        _ => pair.walk(bytes),
    }
}
