//! The comparison itself: page after page through all keys, and again and again to what differed.
//!
//! A page is asked of the leader first and of the other side after it, within the same keys; a difference is asked for
//! again the other way round (`track.rs` says why). Between two questions to the leader is the pause that the pace asks
//! for.

use std::time::Duration;

use tidegate_core::{Key, KeyRange, Region};
use tokio::time::Instant;

use super::compare::compare;
use super::pace::Pace;
use super::source::{AskError, Source};
use super::tally::{Side, Tally};
use super::track::Tracker;

/// Regions of a page.
const PAGE: usize = 512;
/// How many times a page the other side may have in the same keys; where it has more, the page is cut.
const WIDER: usize = 4;
/// Differences that are asked for again at a time.
const LOOKS: usize = 32;
/// Differences that are followed at a time.
const FOLLOWED: usize = 4_096;

/// A comparison of two sources.
#[derive(Debug)]
pub struct Walk<A, B> {
    pub(super) leader: A,
    other: B,
    pace: Pace,
    /// Where the next page begins.
    cursor: Key,
    /// A step looks at a page, the next one at what is due.
    page_next: bool,
    pub(super) tracker: Tracker,
    pub(super) tally: Tally,
}

/// A question that has no answer.
#[derive(Debug)]
pub struct Unanswered {
    /// Who has none.
    pub side: Side,
    /// Why.
    pub error: AskError,
}

impl<A: Source, B: Source> Walk<A, B> {
    /// A comparison that has not begun.
    #[must_use]
    pub fn new(leader: A, other: B, pace: Pace) -> Self {
        Self {
            leader,
            other,
            pace,
            cursor: Key::default(),
            page_next: true,
            tracker: Tracker::new(FOLLOWED),
            tally: Tally::default(),
        }
    }

    /// Whole passes over all keys.
    #[must_use]
    pub fn passes(&self) -> u64 {
        self.tally.passes
    }

    /// One page, or one look at what differed. Tells how long to wait before the next.
    ///
    /// # Errors
    ///
    /// A question that was not answered; the next step asks it again.
    pub async fn step(&mut self) -> Result<Duration, Unanswered> {
        let due = self.tracker.due(Instant::now(), LOOKS);
        let page = std::mem::replace(&mut self.page_next, true) || due.is_empty();
        let (took, regions) = if page {
            let paged = self.page().await?;
            self.page_next = false;
            paged
        } else {
            self.look(&due).await?
        };
        Ok(self.pace.pause(took, regions))
    }

    async fn page(&mut self) -> Result<(Duration, usize), Unanswered> {
        let from = self.cursor.clone();
        let rest = range(from.clone(), Key::default());
        let (known, took, received) = self.ask_leader(&[rest]).await?;
        let end = known
            .last()
            .map_or_else(Key::default, |last| last.end().clone());
        let within = range(from.clone(), end.clone());
        let most = PAGE * WIDER;
        let seen = self.ask_other(&[within], most).await?;
        let cut = match seen.last() {
            Some(last) if seen.len() >= most && before(last.end(), &end) => {
                Some(last.end().clone())
            }
            _ => None,
        };
        let next = match &cut {
            // What is not whole on this side of the cut comes with the next page.
            Some(cut) => match known.iter().rev().find(|region| !before(cut, region.end())) {
                Some(whole) => whole.end().clone(),
                None => cut.clone(),
            },
            None => end,
        };
        let within = range(from, next.clone());
        let compared = known
            .iter()
            .filter(|region| region.range().overlaps(&within))
            .count();
        self.tally.page(&within, &known, &seen, compared);
        self.tracker
            .sight(compare(&within, &known, &seen), received);
        if next.is_empty() {
            self.tally.passes += 1;
        }
        self.cursor = next;
        Ok((took, compared))
    }

    async fn look(&mut self, due: &[u64]) -> Result<(Duration, usize), Unanswered> {
        let asked = Instant::now();
        let other = self.other.by_ids(due).await.map_err(|error| Unanswered {
            side: Side::Other,
            error,
        })?;
        self.tally.answered(Side::Other, due.len(), asked.elapsed());
        let sent = Instant::now();
        let leader = self.leader.by_ids(due).await.map_err(|error| Unanswered {
            side: Side::Leader,
            error,
        })?;
        let took = sent.elapsed();
        self.tally.answered(Side::Leader, due.len(), took);
        for ((id, other), leader) in due.iter().zip(&other).zip(&leader) {
            if let Some(settled) = self
                .tracker
                .look(*id, other.as_ref(), asked, leader.as_ref())
            {
                self.tally.settle(settled);
            }
        }
        Ok((took, due.len()))
    }

    async fn ask_leader(
        &mut self,
        ranges: &[KeyRange],
    ) -> Result<(Vec<Region>, Duration, Instant), Unanswered> {
        let sent = Instant::now();
        let regions = self
            .leader
            .scan(ranges, PAGE)
            .await
            .map_err(|error| Unanswered {
                side: Side::Leader,
                error,
            })?;
        let received = Instant::now();
        let took = received.saturating_duration_since(sent);
        self.tally.answered(Side::Leader, 1, took);
        Ok((regions, took, received))
    }

    async fn ask_other(
        &mut self,
        ranges: &[KeyRange],
        limit: usize,
    ) -> Result<Vec<Region>, Unanswered> {
        let sent = Instant::now();
        let regions = self
            .other
            .scan(ranges, limit)
            .await
            .map_err(|error| Unanswered {
                side: Side::Other,
                error,
            })?;
        self.tally.answered(Side::Other, 1, sent.elapsed());
        Ok(regions)
    }

    /// Goes on with another leader. What has been seen of the one before says nothing about this one.
    pub fn change_leader(&mut self, leader: A) {
        self.leader = leader;
        self.tally.leader_changes += 1;
        let open: Vec<u64> = self.tracker.open().map(|(id, _)| id).collect();
        for id in open {
            if let Some(settled) = self.tracker.close(id) {
                self.tally.settle(settled);
            }
        }
    }
}

/// Whether the end `one` comes before the end `other`; an empty end comes after all.
fn before(one: &Key, other: &Key) -> bool {
    !one.is_empty() && (other.is_empty() || one < other)
}

/// A range whose ends are known to be in order.
fn range(start: Key, end: Key) -> KeyRange {
    KeyRange::new(start, end).unwrap_or_else(|_| KeyRange::all())
}

#[cfg(test)]
mod tests;
