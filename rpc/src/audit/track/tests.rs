use super::super::compare::compare;
use super::super::compare::tests::{led, region};
use super::*;

const ID: u64 = 1;

/// A tracker that has seen `leader` and then `other`, and the moment of the leader's answer.
fn sighted(leader: &[Region], other: &[Region]) -> (Tracker, Instant) {
    let mut tracker = Tracker::new(10);
    let now = Instant::now();
    tracker.sight(compare(&KeyRange::all(), leader, other), now);
    (tracker, now)
}

fn after(start: Instant, millis: u64) -> Instant {
    start + Duration::from_millis(millis)
}

#[tokio::test(start_paused = true)]
async fn a_difference_that_is_gone_at_the_second_look_does_not_count() {
    let (old, new) = (region(ID, "", "", 1), region(ID, "", "", 2));
    let (mut tracker, start) = sighted(std::slice::from_ref(&new), &[old]);
    assert_eq!(tracker.due(start, 10), [0; 0]);
    assert_eq!(tracker.due(after(start, 50), 10), [ID]);
    let settled = tracker.look(ID, Some(&new), after(start, 50), Some(&new));
    assert_eq!(
        settled,
        Some(Settled {
            id: ID,
            kind: Kind::OlderEpoch,
            age: None
        })
    );
    assert!(tracker.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_age_runs_from_the_leaders_answer_to_the_last_question_that_was_answered_with_the_old()
{
    let (old, new) = (region(ID, "", "", 1), region(ID, "", "", 2));
    let (mut tracker, start) = sighted(std::slice::from_ref(&new), std::slice::from_ref(&old));
    for at in [50, 400, 2_000] {
        assert_eq!(
            tracker.look(ID, Some(&old), after(start, at), Some(&new)),
            None
        );
    }
    // An eighth of two seconds later.
    assert_eq!(tracker.next_due(), Some(after(start, 2_250)));
    let settled = tracker.look(ID, Some(&new), after(start, 2_250), Some(&new));
    assert_eq!(
        settled.and_then(|settled| settled.age),
        Some(Duration::from_secs(2))
    );
}

#[tokio::test(start_paused = true)]
async fn behind_is_older_than_what_the_leader_said_first_however_far_it_has_gone_on() {
    let versions: Vec<Region> = (0..5).map(|version| region(ID, "", "", version)).collect();
    let (mut tracker, start) = sighted(&versions[2..3], &versions[1..2]);
    assert_eq!(
        tracker.look(ID, Some(&versions[1]), after(start, 50), Some(&versions[3])),
        None
    );
    // It has caught up with what was seen; that the leader is further on is another difference.
    let settled = tracker.look(
        ID,
        Some(&versions[2]),
        after(start, 100),
        Some(&versions[4]),
    );
    assert_eq!(
        settled.and_then(|settled| settled.age),
        Some(Duration::from_millis(50))
    );
}

#[tokio::test(start_paused = true)]
async fn another_leader_counts_only_when_the_word_of_pd_is_the_same_before_and_after() {
    let by = |store| led(ID, "", "", 1, store);
    let (mut tracker, start) = sighted(&[by(1)], &[by(2)]);
    // The PD leader has gone on to what the other side has: that was ahead, not behind.
    let (mut ahead, _) = sighted(&[by(1)], &[by(2)]);
    let settled = ahead.look(ID, Some(&by(2)), after(start, 50), Some(&by(2)));
    assert_eq!(settled.and_then(|settled| settled.age), None);
    assert!(ahead.is_empty());
    // It has gone on elsewhere: nothing can be said.
    assert_eq!(
        tracker.look(ID, Some(&by(2)), after(start, 50), Some(&by(3))),
        None
    );
    assert_eq!(tracker.open().next().and_then(|(_, open)| open.age()), None);
    assert_eq!(
        tracker.look(ID, Some(&by(2)), after(start, 100), Some(&by(3))),
        None
    );
    assert_eq!(
        tracker.open().next().and_then(|(_, open)| open.age()),
        Some(Duration::from_millis(100))
    );
    // What PD said first is no older than what was seen first.
    let settled = tracker.look(ID, Some(&by(1)), after(start, 150), Some(&by(3)));
    assert_eq!(settled.map(|settled| settled.kind), Some(Kind::OtherLeader));
}

#[tokio::test(start_paused = true)]
async fn a_region_that_pd_has_removed_is_behind_until_it_is_gone() {
    let removed = region(7, "m", "", 3);
    let (mut tracker, start) = sighted(&[], std::slice::from_ref(&removed));
    assert_eq!(
        tracker.look(7, Some(&removed), after(start, 50), None),
        None
    );
    assert_eq!(
        tracker.open().next().map(|(_, open)| open.kind),
        Some(Kind::UnknownRegion)
    );
    let settled = tracker.look(7, None, after(start, 100), None);
    assert_eq!(
        settled.and_then(|settled| settled.age),
        Some(Duration::from_millis(50))
    );
    // One that was only born between the two answers is none.
    let (mut tracker, start) = sighted(&[], std::slice::from_ref(&removed));
    let settled = tracker.look(7, Some(&removed), after(start, 50), Some(&removed));
    assert_eq!(settled.map(|settled| settled.age), Some(None));
}

#[tokio::test(start_paused = true)]
async fn a_missing_region_that_is_merged_away_is_over() {
    let (mut tracker, start) = sighted(&[region(2, "m", "", 3)], &[]);
    assert_eq!(
        tracker.look(2, None, after(start, 50), Some(&region(2, "m", "", 3))),
        None
    );
    let settled = tracker.look(2, None, after(start, 100), None);
    assert_eq!(
        settled,
        Some(Settled {
            id: 2,
            kind: Kind::Hole,
            age: Some(Duration::from_millis(50))
        })
    );
}

#[tokio::test(start_paused = true)]
async fn newer_than_the_leader_counts_when_the_leader_is_asked_last() {
    let (old, new) = (region(ID, "", "", 1), region(ID, "", "", 2));
    let (mut tracker, start) = sighted(std::slice::from_ref(&old), std::slice::from_ref(&new));
    assert_eq!(
        tracker.look(ID, Some(&new), after(start, 50), Some(&old)),
        None
    );
    assert_eq!(
        tracker.open().next().and_then(|(_, open)| open.age()),
        Some(Duration::from_millis(50))
    );
    assert!(
        tracker
            .look(ID, Some(&new), after(start, 100), Some(&new))
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_followed_is_counted() {
    let leader: Vec<Region> = (1..=12)
        .map(|id| region(id, &format!("{id:02}"), &format!("{:02}", id + 1), 2))
        .collect();
    let (tracker, _) = sighted(&leader, &[]);
    assert_eq!((tracker.len(), tracker.overflow()), (10, 2));
}
