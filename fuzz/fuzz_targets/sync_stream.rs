//! A replica's sync session against a model of its leader, in either dialect, and its proofs against a leader of release
//! 8.5 whose changes have times: see `tidegate::replica::sync::oracle`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    tidegate::replica::sync::oracle::play(bytes);
    tidegate::replica::sync::oracle::time::play(bytes);
});
