//! The judge: what the leader had when, and how far behind it an answer is.
//!
//! Every state that a region has ever had is kept, with the time at which the leader was seen to have the next one. An
//! answer has to be one of those states; it is behind by the time from then to the question. The leader may have had
//! the next state earlier than it was seen to, so an age is a lower bound and a verdict of staleness is certain.
//!
//! A state that came back, as a leader that moved away and returned, counts by its latest stay.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::Found;

/// What an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What the leader has, as far as it was seen.
    Current,
    /// What the leader had until so long before the question.
    Behind(Duration),
    /// What the leader never had, or not what was asked for.
    Wrong(String),
}

#[derive(Clone, Debug)]
struct Stay {
    state: Found,
    superseded: Option<Instant>,
}

/// All states of all regions.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    regions: HashMap<u64, Vec<Stay>>,
}

impl Ledger {
    /// A region is reported to the leader in this state.
    pub fn report(&mut self, state: Found) {
        self.regions.entry(state.id).or_default().push(Stay {
            state,
            superseded: None,
        });
    }

    /// The leader was seen to have the last reported state of the region.
    pub fn confirm(&mut self, id: u64, at: Instant) {
        let stays = self.regions.get_mut(&id).map(Vec::as_mut_slice);
        if let Some([before @ .., _last]) = stays {
            for stay in before {
                stay.superseded.get_or_insert(at);
            }
        }
    }

    /// The regions of which the leader was seen to have something new since `at`, the latest last.
    pub fn changed_since(&self, at: Instant) -> Vec<u64> {
        let mut changed: Vec<_> = self
            .regions
            .iter()
            .filter_map(|(id, stays)| {
                let superseded = stays.iter().rev().find_map(|stay| stay.superseded)?;
                (superseded >= at).then_some((superseded, *id))
            })
            .collect();
        changed.sort_unstable();
        changed.into_iter().map(|(_, id)| id).collect()
    }

    /// The last reported state of a region.
    pub fn last(&self, id: u64) -> Option<&Found> {
        Some(&self.regions.get(&id)?.last()?.state)
    }

    /// Judges an answer to a question that was asked at `asked`, for the region of `key` or for an id.
    pub fn judge(&self, about: &About, answer: &Found, asked: Instant) -> Verdict {
        let fits = match about {
            About::Key(key) => answer.start <= *key && (answer.end.is_empty() || *key < answer.end),
            About::Id(id) => answer.id == *id,
        };
        if !fits {
            return Verdict::Wrong(format!("{about:?} is answered with {answer:?}"));
        }
        let stays = self.regions.get(&answer.id).map_or(&[][..], Vec::as_slice);
        match stays.iter().rev().find(|stay| stay.state == *answer) {
            None => Verdict::Wrong(format!("never reported: {answer:?}")),
            Some(stay) => match stay.superseded {
                Some(at) if at < asked => Verdict::Behind(asked - at),
                _ => Verdict::Current,
            },
        }
    }
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// The region that covers a key.
    Key(Vec<u8>),
    /// The region of an id.
    Id(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(version: u64, leader: u64) -> Found {
        Found {
            id: 7,
            start: b"b".to_vec(),
            end: b"d".to_vec(),
            version,
            conf_ver: 1,
            peers: vec![(70, 1, 0, false)],
            leader,
        }
    }

    #[test]
    fn an_answer_is_behind_from_when_the_leader_was_seen_with_the_next() {
        let zero = Instant::now();
        let at = |s| zero + Duration::from_secs(s);
        let key = About::Key(b"c".to_vec());
        let mut ledger = Ledger::default();
        ledger.report(state(1, 1));
        ledger.report(state(2, 1));
        // Reported, and not yet seen: either is right.
        assert_eq!(ledger.judge(&key, &state(1, 1), at(9)), Verdict::Current);
        assert_eq!(ledger.judge(&key, &state(2, 1), at(9)), Verdict::Current);
        ledger.confirm(7, at(10));
        assert_eq!(ledger.judge(&key, &state(1, 1), at(10)), Verdict::Current);
        let three = Duration::from_secs(3);
        assert_eq!(
            ledger.judge(&key, &state(1, 1), at(13)),
            Verdict::Behind(three)
        );
        assert_eq!(ledger.judge(&key, &state(2, 1), at(13)), Verdict::Current);
    }

    #[test]
    fn a_state_that_came_back_is_not_old() {
        let zero = Instant::now();
        let mut ledger = Ledger::default();
        for leader in [1, 2, 1] {
            ledger.report(state(1, leader));
            ledger.confirm(7, zero);
        }
        let later = zero + Duration::from_secs(1);
        let about = About::Id(7);
        assert_eq!(ledger.judge(&about, &state(1, 1), later), Verdict::Current);
        assert_eq!(
            ledger.judge(&about, &state(1, 2), later),
            Verdict::Behind(Duration::from_secs(1))
        );
    }

    #[test]
    fn what_was_never_reported_or_not_asked_for_is_wrong() {
        let mut ledger = Ledger::default();
        ledger.report(state(1, 1));
        let now = Instant::now();
        let wrong = |about: &About, answer: &Found| {
            matches!(ledger.judge(about, answer, now), Verdict::Wrong(_))
        };
        assert!(wrong(&About::Key(b"c".to_vec()), &state(3, 1)));
        assert!(wrong(&About::Key(b"d".to_vec()), &state(1, 1)));
        assert!(wrong(&About::Key(b"a".to_vec()), &state(1, 1)));
        assert!(wrong(&About::Id(8), &state(1, 1)));
        assert!(!wrong(&About::Key(b"b".to_vec()), &state(1, 1)));
    }
}
