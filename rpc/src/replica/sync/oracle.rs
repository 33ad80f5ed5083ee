//! A session against a model of its leader, driven by bytes: for fuzzers and property tests.
//!
//! The leader is a list of everything that it ever recorded, its map, and a ring that forgets; it answers as either
//! dialect does, loses what its dialect loses, and changes while it is being followed. The replica is the pure part of
//! a session. The bytes decide what happens next: a change, a frame sent, received or applied, a part of what is fetched
//! beside the stream, a lost connection, and in hostile runs frames that no leader sends.
//!
//! What must hold: nothing panics. Against an honest leader, no region is ever answered that the leader's map has not
//! held since the index that the replica claims, and a replica at the leader's head without a gap holds the leader's
//! map. However long the bytes made it suffer, it gets there in the end.

mod leader;
mod replica;

use crate::pd::Dialect;

use leader::Leader;
use replica::Replica;

/// The bytes that decide.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.next().unwrap_or(0)) % bound.max(1)
    }
}

/// Plays what `bytes` say.
///
/// # Panics
///
/// If a promise of the session is broken.
pub fn play(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let setup = choices.next().unwrap_or(0);
    let dialect = if setup & 1 == 0 {
        Dialect::Release85
    } else {
        Dialect::Master
    };
    let hostile = setup & 2 != 0;
    // Some regions were loaded from storage and never recorded; the history may begin at 0 all the same.
    let first_index = if setup & 4 == 0 { 0 } else { 100 };
    let ring = [2, 4, 64][usize::from(setup >> 3) % 3];
    let mut leader = Leader::new(dialect, first_index, ring);
    let mut replica = Replica::new();
    while let Some(choice) = choices.next() {
        match choice % 12 {
            0..=2 => leader.change(choices.next().unwrap_or(0)),
            3 | 4 => leader.record_some(usize::from(choice) % 5 + 1),
            5 => replica.send(&leader, choices.below(3)),
            6 | 7 => replica.receive(&leader),
            8 | 9 => replica.apply(),
            10 => replica.fetch(&leader),
            _ if hostile => replica.inject(&mut choices),
            _ if choice > 200 => replica.lose(),
            _ => replica.connect(&leader),
        }
        replica.tick();
        if !hostile {
            replica.check(&leader);
        }
    }
    if hostile {
        return;
    }
    for _ in 0..64 {
        leader.record_some(usize::MAX);
        replica.connect(&leader);
        for _ in 0..64 {
            replica.send(&leader, u64::MAX);
            replica.keepalive(&leader);
            replica.receive(&leader);
            replica.apply();
            replica.fetch(&leader);
            replica.tick();
            replica.check(&leader);
            if replica.is_at_head(&leader) {
                return;
            }
        }
    }
    panic!("it never gets there: {}", replica.stands());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    /// The map ends up with a region that the leader did not hold at the applied index.
    #[test]
    #[ignore = "fails: found by chance, not understood yet"]
    fn nothing_is_older_than_the_index_after_this_sequence() {
        play(&[
            232, 59, 12, 195, 0, 10, 16, 15, 173, 0, 6, 60, 243, 0, 182, 18, 183, 36, 147, 216,
            106, 41, 0, 54, 36, 0, 136, 164, 6, 150, 70, 39, 12, 0, 164, 0,
        ]);
    }

    proptest! {
        // The same sequences each time; `fuzz/run 30 sync_stream` looks for others.
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(20),
            ..ProptestConfig::with_cases(512)
        })]
        #[test]
        fn no_answer_is_older_than_the_index_claims_whatever_happens(
            bytes in proptest::collection::vec(any::<u8>(), 0..400)
        ) {
            play(&bytes);
        }
    }
}
