use std::time::Duration;

use super::{Confirmed, InvalidReason, Invalidated, Pinned, State, StateWord, TIME_MAX};
use crate::clock::Moment;

const REASONS: [InvalidReason; 5] = [
    InvalidReason::NoLeader,
    InvalidReason::RegionNotFound,
    InvalidReason::EpochNotMatch,
    InvalidReason::StoreNotFound,
    InvalidReason::Other,
];

fn millis(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

#[test]
fn e1_the_first_reason_wins_and_stays() {
    for first in REASONS {
        let word = StateWord::new(None);
        assert_eq!(word.reason(), None);
        assert_eq!(word.invalidate(first), Invalidated::Done);
        for later in REASONS {
            assert_eq!(word.invalidate(later), Invalidated::Already(first));
            assert_eq!(word.reason(), Some(first));
        }
    }
}

#[test]
fn e2_a_confirmation_never_revives_an_invalid_entry() {
    let word = StateWord::new(Some(millis(5)));
    assert_eq!(word.confirm(millis(7)), Confirmed::Done);
    assert_eq!(word.invalidate(InvalidReason::NoLeader), Invalidated::Done);
    assert_eq!(
        word.confirm(millis(9)),
        Confirmed::Invalid(InvalidReason::NoLeader)
    );
    assert_eq!(word.reason(), Some(InvalidReason::NoLeader));
    assert_eq!(word.load().confirmed_at(), Some(millis(7)));
}

#[test]
fn e3_a_fresh_word_carries_no_pin_and_a_pin_is_never_cleared() {
    let word = StateWord::new(None);
    assert!(!word.is_pinned());
    assert_eq!(word.pin_to_leader(), Pinned::Done);
    assert_eq!(word.pin_to_leader(), Pinned::Already);
    assert_eq!(word.confirm(millis(1)), Confirmed::Done);
    assert_eq!(word.invalidate(InvalidReason::Other), Invalidated::Done);
    assert!(word.is_pinned());
}

#[test]
fn e3_a_pin_rides_on_the_mark_even_of_an_invalid_entry() {
    let word = StateWord::new(None);
    assert_eq!(
        word.invalidate_and_pin(InvalidReason::EpochNotMatch),
        Invalidated::Done
    );
    assert!(word.is_pinned());

    let word = StateWord::new(None);
    assert_eq!(word.invalidate(InvalidReason::NoLeader), Invalidated::Done);
    assert_eq!(
        word.invalidate_and_pin(InvalidReason::EpochNotMatch),
        Invalidated::Already(InvalidReason::NoLeader)
    );
    assert!(word.is_pinned());
}

#[test]
fn e3_a_superseded_word_tells_its_markers_and_changes_no_more() {
    let word = StateWord::new(None);
    assert!(!word.supersede(), "not pinned before");
    assert_eq!(word.pin_to_leader(), Pinned::Superseded);
    assert_eq!(
        word.invalidate_and_pin(InvalidReason::Other),
        Invalidated::Superseded
    );
    assert_eq!(word.confirm(millis(3)), Confirmed::Superseded);
    let state = word.load();
    assert!(state.is_superseded() && !state.is_pinned());
    assert_eq!((state.reason(), state.confirmed_at()), (None, None));

    let word = StateWord::new(None);
    assert_eq!(word.pin_to_leader(), Pinned::Done);
    assert!(word.supersede(), "the writer learns of the pin");
}

#[test]
fn an_inherited_pin_can_be_taken_back_until_publication() {
    let word = StateWord::new(Some(millis(8)));
    word.inherit_pin();
    assert!(word.is_pinned());
    word.disinherit_unpublished();
    assert!(!word.is_pinned());
    assert_eq!(word.load().confirmed_at(), Some(millis(8)));
}

#[test]
fn a_confirmation_only_grows_and_is_rounded_down() {
    let word = StateWord::new(None);
    assert_eq!(word.load().confirmed_at(), None);
    let at = Moment::from_nanos(3_999_999);
    assert_eq!(word.confirm(at), Confirmed::Done);
    assert_eq!(word.load().confirmed_at(), Some(millis(3)));
    assert_eq!(word.confirm(millis(2)), Confirmed::Already(millis(3)));
    assert_eq!(word.confirm(millis(3)), Confirmed::Already(millis(3)));
    assert_eq!(word.confirm(millis(4)), Confirmed::Done);
    assert_eq!(word.load().confirmed_at(), Some(millis(4)));
}

#[test]
fn the_first_millisecond_is_not_never() {
    let word = StateWord::new(None);
    assert_eq!(word.confirm(Moment::from_nanos(1)), Confirmed::Done);
    assert_eq!(word.load().confirmed_at(), Some(Moment::from_nanos(0)));
}

#[test]
fn parts_of_a_state_do_not_disturb_each_other() {
    let far = Moment::from_nanos(u64::MAX);
    for reason in REASONS {
        let state = State(0)
            .with_confirmed_at(far)
            .with_reason(reason)
            .with_pin();
        assert_eq!(state.reason(), Some(reason));
        assert!(state.is_pinned() && !state.is_superseded());
        let kept = state.confirmed_at().expect("confirmed");
        assert!(far.saturating_since(kept) < Duration::from_millis(1));
        assert!(state.0 >> super::TIME_SHIFT <= TIME_MAX);
    }
}
