//! Whether all entries that an answer rests on have been confirmed by the leader lately enough.
//!
//! Such an answer is good whatever the gate says: the leader itself has said each of its regions, within `max-age`. They
//! need not have been true at one moment; nor are those of PD's own QueryRegion, which looks a few at a time up.

use tidegate_core::{EntryRef, Moment, Snapshot};

/// What an answer rests on, as far as it has been looked at.
#[derive(Debug)]
pub(super) struct Evidence {
    since: Moment,
    /// `None` once something is missing.
    oldest: Option<Moment>,
}

impl Evidence {
    /// Nothing looked at yet; what was confirmed before `since` does not count.
    pub(super) fn since(since: Moment, now: Moment) -> Self {
        Self {
            since,
            oldest: Some(now),
        }
    }

    /// The oldest confirmation, if all is confirmed.
    pub(super) fn oldest(&self) -> Option<Moment> {
        self.oldest
    }

    pub(super) fn rests_on(&mut self, entry: Option<EntryRef<'_>>) {
        let confirmed = entry.and_then(|entry| entry.confirmed_at());
        let confirmed = confirmed.filter(|at| *at >= self.since);
        self.oldest = self
            .oldest
            .zip(confirmed)
            .map(|(oldest, at)| oldest.min(at));
    }

    /// A scan rests on all its regions, and on there being no hole between them.
    pub(super) fn rests_on_scan(
        &mut self,
        snapshot: &Snapshot<'_>,
        start: &[u8],
        end: &[u8],
        limit: usize,
    ) {
        let mut reached = start;
        let mut taken = 0;
        for entry in snapshot.scan(start, end).take(limit) {
            let region = entry.as_entry().region();
            if region.start().as_bytes() > reached {
                self.oldest = None;
            }
            self.rests_on(Some(entry));
            if self.oldest.is_none() {
                return;
            }
            if region.end().is_empty() || (!end.is_empty() && region.end().as_bytes() >= end) {
                return;
            }
            reached = region.end();
            taken += 1;
        }
        if taken < limit {
            // There is nothing more in the map; whether there is at the leader, nobody has confirmed.
            self.oldest = None;
        }
    }
}
