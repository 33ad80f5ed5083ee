//! Regions and random changes for the tests of the map.
#![allow(dead_code, reason = "each test file uses a part of it")]

use proptest::prelude::*;
use tidegate_core::{KeyRange, Moment, Provenance, Region, RegionEpoch};

/// How a boundary's number becomes a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// Two bytes: keys that differ early.
    Short,
    /// As TiKV's record keys: a long common beginning, inline.
    Record,
    /// Longer than what a key holds inline and a node remembers.
    Long,
    /// Of differing lengths, many a prefix of the next, with zeros.
    Ragged,
}

impl Shape {
    pub(crate) const ALL: [Self; 4] = [Self::Short, Self::Record, Self::Long, Self::Ragged];

    /// The key of a boundary; ascending in `number`. Number 0 is minus infinity.
    pub(crate) fn key(self, number: u32) -> Vec<u8> {
        let bytes = number.to_be_bytes();
        if number == 0 {
            return Vec::new();
        }
        match self {
            Self::Short => bytes[2..].to_vec(),
            Self::Record => [b"t\x80\0\0\0\0\0\0\xff\x45_r\x80\0\0\0\0\xff", &bytes[..]].concat(),
            Self::Long => [&[0x74; 60][..], &bytes, &[1; 9]].concat(),
            Self::Ragged => {
                let mut key = bytes[1..=2].to_vec();
                key.resize(2 + usize::from(bytes[3]), 0);
                key
            }
        }
    }

    /// The range between two boundaries; `None` as an end is plus infinity.
    pub(crate) fn range(self, start: u32, end: Option<u32>) -> KeyRange {
        let end = end.map_or_else(Vec::new, |end| self.key(end));
        KeyRange::new(self.key(start), end).expect("boundaries ascend")
    }
}

pub(crate) fn region(id: u64, range: KeyRange, version: u64) -> Region {
    let epoch = RegionEpoch::new(version.max(2), version);
    Region::builder(id, range, epoch)
        .build()
        .expect("a valid region")
}

pub(crate) fn stream(received_at: u64) -> Provenance {
    Provenance::Stream {
        received_at: Moment::from_nanos(received_at),
    }
}

pub(crate) fn leader(asked_at: u64) -> Provenance {
    Provenance::Leader {
        asked_at: Moment::from_nanos(asked_at),
        answered_at: Moment::from_nanos(asked_at + 5),
    }
}

pub(crate) fn follower(asked_at: u64) -> Provenance {
    Provenance::Follower {
        asked_at: Moment::from_nanos(asked_at),
    }
}

pub(crate) fn any_provenance() -> impl Strategy<Value = Provenance> {
    prop_oneof![
        4 => (1..20u64).prop_map(stream),
        2 => (1..20u64).prop_map(leader),
        1 => (1..20u64).prop_map(follower),
    ]
}
