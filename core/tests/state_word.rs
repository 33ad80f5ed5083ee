//! The state word against its sequential model: whatever is done in whatever order, each step is
//! answered alike and leaves alike what can be asked.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::entry::model::{ModelWord, Step};
use tidegate_core::entry::{Pinned, Reload, Ttl};
use tidegate_core::{
    Batch, Entry, Expect, InvalidReason, KeyRange, Moment, Provenance, Region, RegionEpoch,
    RegionMap,
};

const MILLI: u64 = 1_000_000;

/// How an entry begins.
#[derive(Clone, Copy, Debug)]
enum Birth {
    Unconfirmed,
    Confirmed(Moment),
    Leased(Moment),
    Fixed(Moment),
}

impl Birth {
    fn pair(self) -> (Entry, ModelWord) {
        let region = Region::builder(1, KeyRange::all(), RegionEpoch::new(1, 2));
        let region = region.build().expect("an id");
        let asked_at = Moment::from_nanos(1);
        let follower = Entry::new(region.clone(), Provenance::Follower { asked_at });
        match self {
            Self::Unconfirmed => (follower, ModelWord::new(None)),
            Self::Confirmed(asked_at) => {
                let answered_at = asked_at;
                let leader = Provenance::Leader {
                    asked_at,
                    answered_at,
                };
                (Entry::new(region, leader), ModelWord::new(Some(asked_at)))
            }
            Self::Leased(at) => (
                follower.with_deadline(at),
                ModelWord::with_deadline(at, false),
            ),
            Self::Fixed(at) => (
                follower.with_fixed_deadline(at),
                ModelWord::with_deadline(at, true),
            ),
        }
    }
}

/// Moments around which deadlines lie, and the ends of time.
fn moment() -> impl Strategy<Value = Moment> {
    let nanos = prop_oneof![
        8 => 1..400 * MILLI,
        4 => (1..400u64).prop_map(|millis| millis * MILLI),
        1 => Just(u64::MAX),
        1 => Just(1u64),
    ];
    nanos.prop_map(Moment::from_nanos)
}

fn birth() -> impl Strategy<Value = Birth> {
    prop_oneof![
        1 => Just(Birth::Unconfirmed),
        1 => moment().prop_map(Birth::Confirmed),
        3 => moment().prop_map(Birth::Leased),
        1 => moment().prop_map(Birth::Fixed),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let reason = || prop::sample::select(&InvalidReason::ALL[..]);
    let reload = prop_oneof![Just(Reload::OnAccess), Just(Reload::Delayed)];
    prop_oneof![
        1 => reason().prop_map(Step::Invalidate),
        1 => reason().prop_map(Step::InvalidateAndPin),
        2 => Just(Step::PinToLeader),
        4 => moment().prop_map(Step::Confirm),
        8 => (moment(), any::<u32>()).prop_map(|(now, jitter)| Step::Renew { now, jitter }),
        1 => Just(Step::ExpireAfterTtl),
        4 => Just(Step::ReloadOnAccess),
        4 => Just(Step::DelayReload),
        4 => Just(Step::RipenDelayedReload),
        6 => Just(Step::TakeReload),
        3 => reload.prop_map(Step::RestoreReload),
        1 => Just(Step::Supersede),
        1 => Just(Step::InheritPin),
    ]
}

#[test]
fn a_deadline_hides_no_word_of_the_leader() {
    let at = Moment::from_nanos(7 * MILLI);
    let (entry, _) = Birth::Confirmed(at).pair();
    assert_eq!(entry.confirmed_at(), Some(at));
    let entry = entry.with_deadline(Moment::from_nanos(99 * MILLI));
    assert_eq!(entry.confirmed_at(), Some(at));
    assert_eq!(entry.word().load().confirmed_at(), None);
}

#[test]
fn e3_a_pin_that_is_set_before_publication_is_there_afterwards() {
    let map = RegionMap::new();
    for _ in 0..2 {
        let (entry, _) = Birth::Leased(Moment::from_nanos(99 * MILLI)).pair();
        assert_eq!(entry.word().pin_to_leader(), Pinned::Done);
        let mut batch = Batch::new();
        batch.put_entry(entry, Expect::Any);
        assert!(!map.apply(batch)[0].is_refused());
        let snapshot = map.pin();
        let state = snapshot.by_id(1).map(|entry| entry.word().load());
        assert!(state.is_some_and(|state| state.is_pinned() && state.is_leased()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn e1_e2_e3_the_word_and_its_model_agree(
        birth in birth(),
        steps in prop::collection::vec(step(), 1..60),
        (base, band) in (0..200u64, 0..40u64),
        now in moment(),
    ) {
        let ttl = Ttl::new(Duration::from_millis(base), Duration::from_millis(band));
        let (entry, mut model) = birth.pair();
        model.assert_equals(entry.word().load(), now);
        for step in steps {
            let before = entry.word().load();
            prop_assert_eq!(step.run(&entry, ttl), model.run(step, ttl), "{:?}", step);
            let after = entry.word().load();
            model.assert_equals(after, now);
            // What no step may do, whatever the two agree on.
            if let Some(reason) = before.reason() {
                prop_assert_eq!(after.reason(), Some(reason), "E1");
                prop_assert_eq!(after.deadline(), before.deadline(), "E2");
                prop_assert_eq!(after.confirmed_at(), before.confirmed_at(), "E2");
            }
            prop_assert!(after.is_pinned() || !before.is_pinned(), "E3");
            prop_assert!(after.deadline() >= before.deadline());
            prop_assert!(after.confirmed_at() >= before.confirmed_at());
            prop_assert_eq!(after.is_leased(), before.is_leased());
        }
    }
}
