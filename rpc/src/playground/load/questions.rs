//! What the clients ask: every kind of lookup, half of them about what changed last.

use rand::Rng;
use rand::rngs::SmallRng;
use tidegate_core::KeyRange;

use crate::playground::churn::REGION_WIDTH;
use crate::playground::judge::{Ledger, Question};
use crate::playground::keys::{key_at, position_of};

/// How many of the latest changes count as recent: of two such questions one is about the former, which shows the
/// least delay, the other about the latter, which reach back to where an answer would be stale.
const RECENT: [usize; 2] = [256, 2_048];
const SCAN_LIMIT: usize = 6;
const BATCH_RANGES: u64 = 3;
const BATCH_LIMIT: usize = 12;

/// A source of questions about a cluster whose keys have the positions `0..span`.
#[derive(Debug)]
pub struct Questions {
    rng: SmallRng,
    span: u64,
}

impl Questions {
    /// Questions that are the same for the same `rng` and the same changes.
    pub fn new(rng: SmallRng, span: u64) -> Self {
        Self {
            rng,
            span: span.max(1),
        }
    }

    /// The next question.
    pub fn next(&mut self, ledger: &Ledger) -> Question {
        match self.rng.random_range(0..100) {
            0..30 => Question::Get(key_at(self.position(ledger))),
            30..45 => Question::Previous(key_at(self.position(ledger))),
            45..60 => Question::ById(self.id(ledger)),
            60..75 => {
                let start = self.position(ledger);
                self.range(start, 4 * REGION_WIDTH).map_or_else(
                    || Question::Get(key_at(start)),
                    |range| Question::Scan {
                        range,
                        limit: SCAN_LIMIT,
                    },
                )
            }
            75..85 => self.batch(ledger),
            _ => Question::Query {
                keys: (0..3).map(|_| key_at(self.position(ledger))).collect(),
                previous: (0..2).map(|_| key_at(self.position(ledger))).collect(),
                ids: (0..2).map(|_| self.id(ledger)).collect(),
            },
        }
    }

    /// Ranges that ascend and do not touch, so that no rule for touching ranges applies.
    fn batch(&mut self, ledger: &Ledger) -> Question {
        let mut start = self.position(ledger);
        let mut ranges = Vec::new();
        for _ in 0..BATCH_RANGES {
            let Some(range) = self.range(start, REGION_WIDTH) else {
                break;
            };
            ranges.push(range);
            start = start.saturating_add(self.rng.random_range(REGION_WIDTH + 1..3 * REGION_WIDTH));
        }
        if ranges.is_empty() {
            return Question::Get(key_at(start.min(self.span - 1)));
        }
        Question::BatchScan {
            ranges,
            limit: BATCH_LIMIT,
        }
    }

    fn range(&mut self, start: u64, widest: u64) -> Option<KeyRange> {
        let end = start.checked_add(self.rng.random_range(1..=widest))?;
        // Behind the span there are no keys of ours, but the last region reaches there.
        (start < self.span)
            .then(|| KeyRange::new(key_at(start), key_at(end)).ok())
            .flatten()
    }

    /// Half of the time in a region that one of the latest changes put in, otherwise anywhere.
    fn position(&mut self, ledger: &Ledger) -> u64 {
        let recent = self.recent(ledger).and_then(|back| {
            let (region, _) = ledger.recent(back)?;
            let start = if region.start().is_empty() {
                0
            } else {
                position_of(region.start())?
            };
            let end = if region.end().is_empty() {
                self.span
            } else {
                position_of(region.end())?
            };
            Some((start, end))
        });
        match recent {
            Some((start, end)) if start < end => self.rng.random_range(start..end),
            _ => self.rng.random_range(0..self.span),
        }
    }

    /// Half of the time an id of one of the latest changes, at times one that a merge took away.
    fn id(&mut self, ledger: &Ledger) -> u64 {
        let gone = self.rng.random_range(0..8) == 0;
        let recent = self.recent(ledger).and_then(|back| {
            let (added, removed) = ledger.recent(back)?;
            let merged_away = removed.iter().find(|old| gone && old.id() != added.id());
            Some(merged_away.unwrap_or(added).id())
        });
        recent.unwrap_or_else(|| {
            let key = key_at(self.rng.random_range(0..self.span));
            ledger.containing(&key).map_or(1, |region| region.id())
        })
    }

    fn recent(&mut self, ledger: &Ledger) -> Option<usize> {
        let window = RECENT[usize::from(self.rng.random::<bool>())];
        let held = ledger.retained().min(window);
        (held > 0 && self.rng.random()).then(|| self.rng.random_range(0..held))
    }
}
