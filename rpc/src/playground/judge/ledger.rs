//! Everything that the leader's map has held, and from which change to which.
//!
//! The ledger mirrors the leader's map and keeps what each change took away, with the change's
//! sequence and time. Nothing else in the playground decides what was true when.
//!
//! A change is stamped after the leader took it: a request sent before the stamp may have been
//! answered with either side of it, one sent after it may not. The lock that the reporter holds from
//! the report to the stamp keeps an answer from being judged in between.
//!
//! Memory: one entry a live region, and what was superseded within [`Ledger::retention`]. An answer
//! older than that is still recognised as forgotten, with a lower bound for its age.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Key, KeyRange, Moment, Region, RegionEpoch};

/// One change of the leader's map: its position in the order of all changes, and when it was made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    /// 0 for what the map started with.
    pub sequence: u64,
    /// After the leader took the change.
    pub at: Moment,
}

/// One stay of one region, exactly as described, in the leader's map.
#[derive(Clone, Debug)]
pub(super) struct Period {
    pub(super) region: Arc<Region>,
    pub(super) from: Stamp,
    pub(super) until: Option<Stamp>,
}

/// One change: `added` took the place of everything in `removed`.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) stamp: Stamp,
    pub(super) added: Arc<Region>,
    pub(super) removed: Vec<Arc<Region>>,
}

/// The upper bounds of what has been dropped: nothing beyond them can be a forgotten answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forgotten {
    pub(super) last: Stamp,
    max_id: u64,
    max_epoch: RegionEpoch,
}

/// The history of the leader's map. See the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    pub(super) by_start: BTreeMap<Key, Arc<Region>>,
    pub(super) by_id: HashMap<u64, VecDeque<Period>>,
    pub(super) log: VecDeque<Change>,
    pub(super) forgotten: Option<Forgotten>,
    latest: Stamp,
    retention: Duration,
}

// === impl Change ===

impl Change {
    /// Whether the change altered who covers any key of `range`.
    pub(super) fn touches(&self, range: &KeyRange) -> bool {
        self.added.range().overlaps(range)
            || self.removed.iter().any(|old| old.range().overlaps(range))
    }
}

// === impl Forgotten ===

impl Forgotten {
    /// Whether `region` can have been among what was dropped.
    pub(super) fn may_include(&self, region: &Region) -> bool {
        let epoch = region.epoch();
        region.id() <= self.max_id
            && epoch.version <= self.max_epoch.version
            && epoch.conf_ver <= self.max_epoch.conf_ver
    }
}

// === impl Ledger ===

impl Ledger {
    /// A ledger of a map that holds `regions`, which must be disjoint, at `at`.
    pub fn new(
        regions: impl IntoIterator<Item = Arc<Region>>,
        at: Moment,
        retention: Duration,
    ) -> Self {
        let latest = Stamp { sequence: 0, at };
        let mut ledger = Self {
            by_start: BTreeMap::new(),
            by_id: HashMap::new(),
            log: VecDeque::new(),
            forgotten: None,
            latest,
            retention,
        };
        for region in regions {
            ledger.insert(region, latest);
        }
        ledger
    }

    /// Records that the leader took `region` at `at`, and returns the change's stamp. O(log n).
    ///
    /// What the region displaces, by id and by overlap, is superseded by this change.
    pub fn record(&mut self, region: Arc<Region>, at: Moment) -> Stamp {
        let stamp = Stamp {
            sequence: self.latest.sequence + 1,
            at: at.max(self.latest.at),
        };
        self.latest = stamp;
        let removed = self.displaced(&region);
        for old in &removed {
            self.by_start.remove(old.start());
            if let Some(period) = self.by_id.get_mut(&old.id()).and_then(VecDeque::back_mut) {
                period.until = Some(stamp);
            }
        }
        self.insert(Arc::clone(&region), stamp);
        self.log.push_back(Change {
            stamp,
            added: region,
            removed,
        });
        self.forget(stamp.at);
        stamp
    }

    /// The region that contains `key` now.
    pub fn containing(&self, key: &[u8]) -> Option<&Arc<Region>> {
        let (_, region) = self
            .by_start
            .range::<[u8], _>((Unbounded, Included(key)))
            .next_back()?;
        region.range().contains(key).then_some(region)
    }

    /// The region that starts where `region` ends, if there is one.
    pub fn after(&self, region: &Region) -> Option<&Arc<Region>> {
        if region.end().is_empty() {
            None
        } else {
            self.by_start.get(region.end())
        }
    }

    /// The region of this id now.
    pub fn by_id(&self, id: u64) -> Option<&Arc<Region>> {
        let period = self.by_id.get(&id)?.back()?;
        period.until.is_none().then_some(&period.region)
    }

    /// The live regions.
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Whether no region is live.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// The stamp of the latest change.
    pub const fn latest(&self) -> Stamp {
        self.latest
    }

    /// What the change `back` places before the latest one put in and took out; fewer than
    /// [`Self::retained`] are there to be asked for.
    pub fn recent(&self, back: usize) -> Option<(&Arc<Region>, &[Arc<Region>])> {
        let change = self.log.get(self.log.len().checked_sub(back + 1)?)?;
        Some((&change.added, &change.removed))
    }

    /// Changes that are still held one by one.
    pub fn retained(&self) -> usize {
        self.log.len()
    }

    /// How long what was superseded is remembered.
    pub const fn retention(&self) -> Duration {
        self.retention
    }

    /// Changes from `since`, inclusive, that had been made by `moment`.
    pub(super) fn changes_between(&self, since: Stamp, moment: Moment) -> u64 {
        let by_moment = match self.log.partition_point(|change| change.stamp.at <= moment) {
            0 => self
                .forgotten
                .map_or(0, |forgotten| forgotten.last.sequence),
            made => self.log[made - 1].stamp.sequence,
        };
        (by_moment + 1).saturating_sub(since.sequence)
    }

    /// The live regions that cover some key of `range`, in key order.
    pub(super) fn overlapping(&self, range: &KeyRange) -> impl Iterator<Item = &Arc<Region>> {
        let start = range.start().as_bytes();
        let before = self
            .by_start
            .range::<[u8], _>((Unbounded, Excluded(start)))
            .next_back();
        let inside = self.by_start.range::<[u8], _>((Included(start), Unbounded));
        let inside = inside.take_while(move |(start, _)| range.ends_after(start));
        before
            .into_iter()
            .chain(inside)
            .map(|(_, region)| region)
            .filter(move |region| region.range().overlaps(range))
    }

    /// What a newcomer takes the place of: the region of the same id, and every overlap.
    fn displaced(&self, region: &Region) -> Vec<Arc<Region>> {
        let same_id = self.by_id(region.id()).into_iter();
        let others = self
            .overlapping(region.range())
            .filter(|old| old.id() != region.id());
        same_id.chain(others).cloned().collect()
    }

    fn insert(&mut self, region: Arc<Region>, from: Stamp) {
        let periods = self.by_id.entry(region.id()).or_default();
        periods.push_back(Period {
            region: Arc::clone(&region),
            from,
            until: None,
        });
        self.by_start.insert(region.start().clone(), region);
    }

    /// Drops what was superseded longer than the retention before `now`.
    fn forget(&mut self, now: Moment) {
        while let Some(change) = self.log.front() {
            if now.saturating_since(change.stamp.at) <= self.retention {
                break;
            }
            let Some(change) = self.log.pop_front() else {
                break;
            };
            let horizon = change.stamp;
            let mut forgotten = self.forgotten.unwrap_or(Forgotten {
                last: horizon,
                max_id: 0,
                max_epoch: RegionEpoch::default(),
            });
            forgotten.last = horizon;
            for old in &change.removed {
                forgotten.max_id = forgotten.max_id.max(old.id());
                forgotten.max_epoch.version = forgotten.max_epoch.version.max(old.epoch().version);
                forgotten.max_epoch.conf_ver =
                    forgotten.max_epoch.conf_ver.max(old.epoch().conf_ver);
                if let Some(periods) = self.by_id.get_mut(&old.id()) {
                    while periods.front().is_some_and(|period| {
                        period
                            .until
                            .is_some_and(|until| until.sequence <= horizon.sequence)
                    }) {
                        periods.pop_front();
                    }
                    if periods.is_empty() {
                        self.by_id.remove(&old.id());
                    }
                }
            }
            self.forgotten = Some(forgotten);
        }
    }
}
