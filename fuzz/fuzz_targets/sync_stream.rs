//! A replica's sync session against a model of its leader, in either dialect: see `tidegate::replica::sync::oracle`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    tidegate::replica::sync::oracle::play(bytes);
});
