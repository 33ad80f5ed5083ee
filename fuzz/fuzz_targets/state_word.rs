//! The state word of an entry against its sequential model.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tidegate_core::entry::model::{ModelWord, Step};
use tidegate_core::entry::{Reload, Ttl};
use tidegate_core::{Entry, InvalidReason, KeyRange, Moment, Provenance, Region, RegionEpoch};
use tidegate_fuzz::bytes::Bytes;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let (base, band) = (u64::from(bytes.byte()), u64::from(bytes.byte() / 8));
    let ttl = Ttl::new(Duration::from_millis(base), Duration::from_millis(band));
    let (entry, mut model) = born(&mut bytes);
    while !bytes.is_empty() {
        let before = entry.word().load();
        let step = step(&mut bytes);
        assert_eq!(step.run(&entry, ttl), model.run(step, ttl), "{step:?}");
        let after = entry.word().load();
        model.assert_equals(after, moment(&mut bytes));
        if before.reason().is_some() {
            assert_eq!(after.reason(), before.reason(), "E1");
            assert_eq!(after.deadline(), before.deadline(), "E2");
            assert_eq!(after.confirmed_at(), before.confirmed_at(), "E2");
        }
        assert!(after.is_pinned() || !before.is_pinned(), "E3");
    }
});

/// An entry of one of the kinds that there are, and its model.
fn born(bytes: &mut Bytes<'_>) -> (Entry, ModelWord) {
    let (kind, at) = (bytes.byte() % 4, moment(bytes));
    let provenance = match kind {
        0 => Provenance::Leader {
            asked_at: at,
            answered_at: at,
        },
        _ => Provenance::Follower { asked_at: at },
    };
    let region = Region::builder(1, KeyRange::all(), RegionEpoch::new(1, 2)).build();
    let entry = Entry::new(region.expect("its id is not zero"), provenance);
    match kind {
        0 => (entry, ModelWord::new(Some(at))),
        1 => (entry, ModelWord::new(None)),
        2 => (
            entry.with_fixed_deadline(at),
            ModelWord::with_deadline(at, true),
        ),
        _ => (entry.with_deadline(at), ModelWord::with_deadline(at, false)),
    }
}

fn step(bytes: &mut Bytes<'_>) -> Step {
    let reason = |byte: u8| InvalidReason::ALL[usize::from(byte) % InvalidReason::ALL.len()];
    match bytes.byte() % 16 {
        0 => Step::Invalidate(reason(bytes.byte())),
        1 => Step::InvalidateAndPin(reason(bytes.byte())),
        2 => Step::PinToLeader,
        3 => Step::Confirm(moment(bytes)),
        4 => Step::ExpireAfterTtl,
        5 => Step::ReloadOnAccess,
        6 => Step::DelayReload,
        7 => Step::RipenDelayedReload,
        8 | 9 => Step::TakeReload,
        10 => Step::RestoreReload(match bytes.byte() % 2 {
            0 => Reload::OnAccess,
            _ => Reload::Delayed,
        }),
        11 => Step::Supersede,
        12 => Step::InheritPin,
        _ => Step::Renew {
            now: moment(bytes),
            jitter: u32::from(bytes.pair()) << 16,
        },
    }
}

/// Tenths of a millisecond, so that rounding matters; or the end of time.
fn moment(bytes: &mut Bytes<'_>) -> Moment {
    match bytes.pair() {
        u16::MAX => Moment::from_nanos(u64::MAX),
        tenths => Moment::from_nanos(1 + u64::from(tenths) * 100_000 / 4),
    }
}
