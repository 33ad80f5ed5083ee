use std::time::Duration;

use super::{
    Confirmed, Flagged, Invalidated, Pinned, Reload, Renewed, Ripened, State, StateWord, Taken, Ttl,
};
use crate::clock::Moment;
use crate::entry::InvalidReason;

const REASONS: [InvalidReason; 5] = InvalidReason::ALL;
const TTL: Ttl = Ttl::new(Duration::from_millis(100), Duration::from_millis(10));

fn millis(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

fn fresh() -> StateWord {
    StateWord::new(State::FRESH)
}

fn confirmed(at: Moment) -> StateWord {
    StateWord::new(State::FRESH.with_confirmed_at(at))
}

fn leased(until: Moment) -> StateWord {
    StateWord::new(State::FRESH.with_deadline(until))
}

/// Jitter that must not be drawn.
fn undrawn() -> u32 {
    panic!("drawn although nothing is written")
}

#[test]
fn e1_the_first_reason_wins_and_stays() {
    for first in REASONS {
        let word = fresh();
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
    let word = confirmed(millis(5));
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
    let word = fresh();
    assert!(!word.is_pinned());
    assert_eq!(word.pin_to_leader(), Pinned::Done);
    assert_eq!(word.pin_to_leader(), Pinned::Already);
    assert_eq!(word.confirm(millis(1)), Confirmed::Done);
    assert_eq!(word.invalidate(InvalidReason::Other), Invalidated::Done);
    assert!(word.is_pinned());
}

#[test]
fn e3_a_pin_rides_on_the_mark_even_of_an_invalid_entry() {
    let word = fresh();
    assert_eq!(
        word.invalidate_and_pin(InvalidReason::EpochNotMatch),
        Invalidated::Done
    );
    assert!(word.is_pinned());

    let word = fresh();
    assert_eq!(word.invalidate(InvalidReason::NoLeader), Invalidated::Done);
    assert_eq!(
        word.invalidate_and_pin(InvalidReason::EpochNotMatch),
        Invalidated::Already(InvalidReason::NoLeader)
    );
    assert!(word.is_pinned());
}

#[test]
fn e3_a_superseded_word_tells_its_markers_and_changes_no_more() {
    let word = fresh();
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

    let word = fresh();
    assert_eq!(word.pin_to_leader(), Pinned::Done);
    assert!(word.supersede(), "the writer learns of the pin");
}

#[test]
fn an_inherited_pin_can_be_taken_back_until_publication() {
    let word = confirmed(millis(8));
    assert!(!word.inherit_pin(), "not superseded");
    assert!(word.is_pinned());
    word.disinherit_unpublished();
    assert!(!word.is_pinned());
    assert_eq!(word.load().confirmed_at(), Some(millis(8)));
}

#[test]
fn a_confirmation_only_grows_and_is_rounded_down() {
    let word = fresh();
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
    let word = fresh();
    assert_eq!(word.confirm(Moment::from_nanos(1)), Confirmed::Done);
    assert_eq!(word.load().confirmed_at(), Some(Moment::from_nanos(0)));
}

#[test]
fn parts_of_a_state_do_not_disturb_each_other() {
    let far = Moment::from_nanos(u64::MAX);
    for reason in REASONS {
        let state = State::FRESH
            .with_confirmed_at(far)
            .with_reason(reason)
            .with_pin();
        assert_eq!(state.reason(), Some(reason));
        assert!(state.is_pinned() && !state.is_superseded());
        assert!(!state.is_leased() && !state.is_fixed() && state.reload().is_none());
        let kept = state.confirmed_at().expect("confirmed");
        assert!(far.saturating_since(kept) < Duration::from_millis(1));

        let state = State::FRESH.with_deadline(far).with_reason(reason);
        assert_eq!(state.deadline(), Some(far));
        assert_eq!((state.confirmed_at(), state.is_pinned()), (None, false));
    }
}

#[test]
fn a_pin_of_its_own_outlives_an_inheritance_that_came_to_nothing() {
    let word = fresh();
    assert_eq!(word.pin_to_leader(), Pinned::Done);
    assert!(!word.inherit_pin(), "not superseded");
    word.disinherit_unpublished();
    assert!(word.is_pinned());
}

#[test]
fn an_inherited_pin_is_not_set_twice() {
    let word = fresh();
    assert!(!word.inherit_pin());
    assert_eq!(word.pin_to_leader(), Pinned::Already);
    let reason = InvalidReason::NoLeader;
    assert_eq!(word.invalidate(reason), Invalidated::Done);
    assert_eq!(
        word.invalidate_and_pin(reason),
        Invalidated::Already(reason)
    );
    assert!(word.supersede(), "an inherited pin is one");
    assert!(word.inherit_pin(), "superseded: the pin has to go further");
}

#[test]
fn a_renewal_writes_at_most_once_per_band() {
    let word = leased(TTL.deadline(millis(1), 0));
    let mut writes = Vec::new();
    for now in 1..200 {
        let drawn = std::cell::Cell::new(false);
        let jitter = || {
            drawn.set(true);
            u32::MAX
        };
        match word.renew(millis(now), TTL, jitter) {
            Renewed::InBand => assert!(!drawn.get()),
            Renewed::Extended => writes.push(now),
            other => panic!("{other:?} at {now}"),
        }
    }
    // The band after the load, then a band and the jitter (of almost one) each.
    assert_eq!(writes[..3], [12, 33, 54]);
    assert!(writes.windows(2).all(|pair| pair[1] - pair[0] > 10));
}

#[test]
fn a_deadline_that_has_passed_does_not_come_back() {
    let word = leased(millis(50));
    assert_eq!(word.renew(millis(51), TTL, undrawn), Renewed::Expired);
    assert_eq!(word.load().deadline(), Some(millis(50)));
    assert!(word.load().is_expired(millis(51)) && !word.load().is_expired(millis(50)));
    assert!(!word.load().is_usable(millis(51)));
}

#[test]
fn e2_a_renewal_never_revives_an_invalid_entry() {
    let word = leased(millis(50));
    let reason = InvalidReason::EpochNotMatch;
    assert_eq!(word.invalidate(reason), Invalidated::Done);
    let renewed = word.renew(millis(1), TTL, undrawn);
    assert_eq!(renewed, Renewed::Invalid(reason));
    assert_eq!(word.load().deadline(), Some(millis(50)));
    assert!(!word.load().is_usable(millis(1)));
}

#[test]
fn expiring_after_the_ttl_stops_renewals_and_nothing_else() {
    let word = leased(millis(50));
    assert_eq!(word.expire_after_ttl(), Flagged::Done);
    assert_eq!(word.expire_after_ttl(), Flagged::Already);
    assert_eq!(word.renew(millis(50), TTL, undrawn), Renewed::Fixed);
    assert!(word.load().is_usable(millis(50)));
    assert_eq!(word.renew(millis(51), TTL, undrawn), Renewed::Expired);
}

#[test]
fn a_confirmation_and_a_deadline_keep_apart() {
    let word = leased(millis(50));
    assert_eq!(word.confirm(millis(60)), Confirmed::Leased);
    assert_eq!(word.load().deadline(), Some(millis(50)));

    let word = confirmed(millis(50));
    assert_eq!(word.renew(millis(999), TTL, undrawn), Renewed::Unleased);
    assert_eq!(word.load().confirmed_at(), Some(millis(50)));
    assert!(!word.load().is_expired(millis(999)));
}

#[test]
fn a_reload_is_taken_once_and_restored() {
    let word = fresh();
    assert_eq!(word.take_reload(), Taken::Nothing);
    assert_eq!(word.reload_on_access(), Flagged::Done);
    assert_eq!(word.reload_on_access(), Flagged::Already);
    assert!(!word.load().is_usable(millis(1)));
    assert_eq!(word.take_reload(), Taken::Reload(Reload::OnAccess));
    assert_eq!(word.take_reload(), Taken::Nothing);
    assert!(word.load().is_usable(millis(1)), "the others go on with it");
    assert_eq!(word.restore_reload(Reload::OnAccess), Flagged::Done);
    assert_eq!(word.restore_reload(Reload::OnAccess), Flagged::Already);
    assert_eq!(word.take_reload(), Taken::Reload(Reload::OnAccess));
}

#[test]
fn a_delayed_reload_waits_for_the_sweeper() {
    let word = fresh();
    assert_eq!(word.ripen_delayed_reload(), Ripened::NotPending);
    assert_eq!(word.delay_reload(), Flagged::Done);
    assert_eq!(word.delay_reload(), Flagged::Already);
    assert_eq!(word.take_reload(), Taken::Nothing);
    assert_eq!(word.ripen_delayed_reload(), Ripened::Done);
    assert_eq!(word.ripen_delayed_reload(), Ripened::NotPending);
    assert_eq!(word.delay_reload(), Flagged::Already);
    assert!(word.load().is_usable(millis(1)));
    assert_eq!(word.take_reload(), Taken::Reload(Reload::Delayed));
}

#[test]
fn the_more_urgent_reload_stands_for_both() {
    let word = fresh();
    assert_eq!(word.delay_reload(), Flagged::Done);
    assert_eq!(word.ripen_delayed_reload(), Ripened::Done);
    assert_eq!(word.reload_on_access(), Flagged::Done);
    assert_eq!(word.take_reload(), Taken::Reload(Reload::OnAccess));
    assert_eq!(word.take_reload(), Taken::Nothing);
}

#[test]
fn flags_of_an_invalid_or_superseded_entry_do_not_move() {
    let reason = InvalidReason::Other;
    let word = leased(millis(50));
    assert_eq!(word.reload_on_access(), Flagged::Done);
    assert_eq!(word.delay_reload(), Flagged::Already);
    assert_eq!(word.invalidate(reason), Invalidated::Done);
    let before = word.load();
    for flagged in [
        word.reload_on_access(),
        word.delay_reload(),
        word.expire_after_ttl(),
        word.restore_reload(Reload::Delayed),
    ] {
        assert_eq!(flagged, Flagged::Invalid(reason));
    }
    assert_eq!(word.ripen_delayed_reload(), Ripened::Invalid(reason));
    assert_eq!(word.take_reload(), Taken::Invalid(reason));
    assert_eq!(word.load(), before);

    assert!(!word.supersede());
    let before = word.load();
    assert_eq!(word.delay_reload(), Flagged::Superseded);
    assert_eq!(word.ripen_delayed_reload(), Ripened::Superseded);
    assert_eq!(word.take_reload(), Taken::Superseded);
    let renewed = word.renew(millis(1), TTL, undrawn);
    assert_eq!(renewed, Renewed::Superseded);
    assert_eq!(word.load(), before);
}

#[test]
fn every_reason_has_a_name_and_a_code_of_its_own() {
    for reason in REASONS {
        assert_eq!(InvalidReason::from_code(reason.code()), Some(reason));
        assert_eq!(reason.to_string(), reason.as_str());
    }
    assert_eq!(InvalidReason::from_code(0), None);
}
