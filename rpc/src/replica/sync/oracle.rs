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
pub mod time;

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

    use super::*;

    /// A history in the place of the copy ends between the records of a split's halves, and the records that the stream
    /// brings after it are older: one of them finds room where the other half belongs.
    #[test]
    fn a_record_that_found_room_goes_with_the_one_that_ended_it() {
        play(&[
            232, 59, 12, 195, 0, 10, 16, 15, 173, 0, 6, 60, 243, 0, 182, 18, 183, 36, 147, 216,
            106, 41, 0, 54, 36, 0, 136, 164, 6, 150, 70, 39, 12, 0, 164, 0,
        ]);
    }

    /// The copy's regions, or the pages of a scan, are of different moments: what they ended goes, whatever told of it.
    #[test]
    fn what_was_ended_goes_whatever_told_of_it() {
        play(&[
            40, 156, 62, 39, 35, 185, 0, 78, 78, 128, 12, 227, 238, 106, 0, 59, 238, 84, 123, 36,
            134, 119, 80, 96, 4, 36, 3, 60, 203, 243, 185, 0, 5, 11, 0, 0, 3, 60, 110, 65, 0, 238,
            0, 0, 246, 84, 0,
        ]);
        play(&[
            208, 0, 36, 51, 132, 62, 255, 59, 156, 27, 89, 0, 180, 20, 36, 242, 180, 182, 6, 0,
            170, 5, 0, 72, 154, 5, 0, 108, 82, 87, 132, 56, 18, 15, 185, 0, 8, 120, 238, 0, 0, 58,
            0, 16, 35, 0, 11, 0, 0, 156, 4, 3, 125, 0, 0, 126, 30, 60, 222, 166, 36, 27, 12, 2, 10,
            0, 27, 132, 59, 0, 0, 59, 11, 0, 106, 0,
        ]);
        play(&[
            184, 0, 4, 126, 36, 26, 87, 72, 110, 42, 84, 130, 72, 0, 72, 27, 48, 11, 159, 183, 35,
            173, 0, 84, 14, 195, 0, 0, 29, 0, 17, 0, 36, 0, 162, 32, 5, 0, 154, 78,
        ]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn no_answer_is_older_than_the_index_claims_whatever_happens(
            bytes in proptest::collection::vec(any::<u8>(), 0..400)
        ) {
            play(&bytes);
        }
    }
}
