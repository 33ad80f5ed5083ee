//! The write side of the leader's regions: PD's check of each report, then map, history and listeners in one order.
//!
//! One lock orders the writers, so that the order of the records is the order in which the map took the changes.
//! Lookups never take it.
//!
//! On release 8.5 a change is not recorded when it is made: it waits until the broadcaster takes it, and gets its index
//! then. While the broadcaster stands still the map moves on and the history does not.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::clock::Clock;
use tidegate_core::history::{Appender, Capacity, History, adaptive_history};
use tidegate_core::{
    Batch, Entry, Key, KeyRange, Provenance, Region, RegionEpoch, RegionMap, SharedEntry, Snapshot,
};
use tokio::sync::watch;

use super::observer::{Change, ChangeObserver};
use super::publish::is_published;
use crate::pd::Dialect;

/// A report that the leader took.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reported {
    /// The index of its record, or `None` when it said nothing that is passed on to followers.
    pub index: Option<u64>,
}

/// A report that the leader refused: it knows something newer. Nothing changed; the reporter is behind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StaleRegion {
    /// The id that was reported.
    pub id: u64,
    /// The epoch that was reported.
    pub epoch: RegionEpoch,
    /// The id that it lost to: the same, or that of a region whose range it overlaps.
    pub origin_id: u64,
    /// The epoch that it lost to.
    pub origin_epoch: RegionEpoch,
}

impl fmt::Display for StaleRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = |epoch: RegionEpoch| {
            format!(
                "region_epoch:<conf_ver:{} version:{}>",
                epoch.conf_ver, epoch.version
            )
        };
        write!(
            f,
            "region is stale: region id:{} {} origin id:{} {}",
            self.id,
            epoch(self.epoch),
            self.origin_id,
            epoch(self.origin_epoch)
        )
    }
}

impl std::error::Error for StaleRegion {}

/// What outlives a leader: the regions and the place in the order of their changes.
#[derive(Debug)]
pub(super) struct Seed {
    pub(super) map: Arc<RegionMap>,
    pub(super) next_index: u64,
    pub(super) sequence: u64,
    pub(super) observer: Option<Arc<dyn ChangeObserver>>,
    pub(super) clock: Arc<dyn Clock>,
}

/// The leader's regions.
pub(super) struct Regions {
    map: Arc<RegionMap>,
    history: History<SharedEntry>,
    head: watch::Sender<u64>,
    observer: Option<Arc<dyn ChangeObserver>>,
    clock: Arc<dyn Clock>,
    dialect: Dialect,
    writer: Mutex<Writer>,
}

struct Writer {
    appender: Appender<SharedEntry>,
    /// Release 8.5: changes that the broadcaster has not taken yet.
    unrecorded: VecDeque<SharedEntry>,
    sequence: u64,
    /// The raft term of each region's last heartbeat, where it had one.
    terms: HashMap<u64, u64>,
}

/// What a report is checked against.
struct View<'a> {
    snapshot: Snapshot<'a>,
    terms: &'a HashMap<u64, u64>,
    dialect: Dialect,
}

/// Reports that do not touch each other and become visible together.
#[derive(Default)]
struct Group {
    admitted: Vec<Admitted>,
    ids: HashSet<u64>,
    ranges: BTreeMap<Key, KeyRange>,
    displaced: HashSet<u64>,
}

struct Admitted {
    slot: usize,
    region: Region,
    term: u64,
    publish: bool,
    displaced: Vec<SharedEntry>,
}

impl fmt::Debug for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Regions")
            .field("next_index", &self.next_index())
            .finish_non_exhaustive()
    }
}

impl Regions {
    pub(super) fn new(seed: Seed, capacity: Capacity, dialect: Dialect) -> Self {
        let Seed {
            map,
            next_index,
            sequence,
            observer,
            clock,
        } = seed;
        let (appender, history) = adaptive_history(capacity, next_index);
        let writer = Writer {
            appender,
            unrecorded: VecDeque::new(),
            sequence,
            terms: HashMap::new(),
        };
        Self {
            map,
            history,
            head: watch::Sender::new(next_index),
            observer,
            clock,
            dialect,
            writer: Mutex::new(writer),
        }
    }

    pub(super) fn seed(&self) -> Seed {
        let writer = self.writer();
        Seed {
            map: Arc::clone(&self.map),
            next_index: writer.appender.next_index(),
            sequence: writer.sequence,
            observer: self.observer.clone(),
            clock: Arc::clone(&self.clock),
        }
    }

    pub(super) fn map(&self) -> &RegionMap {
        &self.map
    }

    pub(super) fn history(&self) -> &History<SharedEntry> {
        &self.history
    }

    pub(super) fn next_index(&self) -> u64 {
        self.history.next_index()
    }

    /// Release 8.5: records at most `most` of the changes that wait, and returns them with the index of the first.
    pub(super) fn record_waiting(&self, most: usize) -> Option<(u64, Vec<SharedEntry>)> {
        let mut writer = self.writer();
        let Writer {
            appender,
            unrecorded,
            ..
        } = &mut *writer;
        let first = appender.next_index();
        let taken = most.min(unrecorded.len());
        let records: Vec<_> = unrecorded.drain(..taken).collect();
        for record in &records {
            appender.append(record.clone());
        }
        (!records.is_empty()).then_some((first, records))
    }

    /// Wakes when records were appended, or wait to be. Subscribe before the first look at the history, or records may pass unseen.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    /// A follower has come back and wants the records from `index` on, whether they are here or not. The history grows
    /// so that the next one that was away for so long finds them.
    pub(super) fn wanted(&self, index: u64) {
        self.writer().appender.observe(index);
    }

    /// To be called every five minutes, as PD does: gives back what the history has grown by once nobody needs it.
    pub(super) fn maintain(&self) {
        self.writer().appender.maintain();
    }

    /// Takes one report. `term` is the raft term, 0 when the reporter does not say.
    pub(super) fn report(&self, region: Region, term: u64) -> Result<Reported, StaleRegion> {
        let mut writer = self.writer();
        let mut group = Group::default();
        group.admit(&self.view(&writer), 0, region, term)?;
        let mut index = None;
        self.commit(&mut writer, group, |_, reported| index = reported.index);
        Ok(Reported { index })
    }

    /// Takes reports in order. Those that touch neither each other's ids nor ranges become visible together; the
    /// first that touches an earlier one starts a new step.
    pub(super) fn report_all(&self, regions: Vec<Region>) -> Vec<Result<Reported, StaleRegion>> {
        let mut results = vec![Ok(Reported { index: None }); regions.len()];
        let mut writer = self.writer();
        let mut group = Group::default();
        for (slot, region) in regions.into_iter().enumerate() {
            if group.touches(&region) {
                let done = std::mem::take(&mut group);
                self.commit(&mut writer, done, |slot, reported| {
                    results[slot] = Ok(reported)
                });
            }
            if let Err(stale) = group.admit(&self.view(&writer), slot, region, 0) {
                results[slot] = Err(stale);
            }
        }
        self.commit(&mut writer, group, |slot, reported| {
            results[slot] = Ok(reported)
        });
        results
    }

    /// Takes a region as from storage: the map has it, no record is made.
    pub(super) fn load(&self, region: Region) -> Result<(), StaleRegion> {
        let mut writer = self.writer();
        let mut group = Group::default();
        group.admit(&self.view(&writer), 0, region, 0)?;
        for admitted in &mut group.admitted {
            admitted.publish = false;
        }
        self.commit(&mut writer, group, |_, _| {});
        Ok(())
    }

    fn view<'a>(&'a self, writer: &'a Writer) -> View<'a> {
        View {
            snapshot: self.map.pin(),
            terms: &writer.terms,
            dialect: self.dialect,
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit(&self, writer: &mut Writer, group: Group, mut done: impl FnMut(usize, Reported)) {
        let Group { admitted, .. } = group;
        if admitted.is_empty() {
            return;
        }
        let first = writer.sequence + 1;
        if let Some(observer) = &self.observer {
            for (sequence, change) in (first..).zip(&admitted) {
                observer.changing(&change.announce(sequence, &change.region));
            }
        }
        let provenance = Provenance::Stream {
            received_at: self.clock.now(),
        };
        let mut batch = Batch::with_capacity(admitted.len());
        let ids: Vec<u64> = admitted.iter().map(|change| change.region.id()).collect();
        let mut meta = Vec::with_capacity(admitted.len());
        for change in admitted {
            let Admitted {
                slot,
                region,
                term,
                publish,
                displaced,
            } = change;
            batch.put(region, provenance);
            meta.push((slot, term, publish, displaced));
        }
        let outcomes = self.map.apply(batch);
        if let Some(refused) = outcomes.iter().find_map(|outcome| outcome.refusal()) {
            // Checked against the same map under the same lock by the same rules.
            tracing::error!(%refused, "the map refused a change that PD's rules admit");
        }
        let entries: Vec<Option<SharedEntry>> = {
            let snapshot = self.map.pin();
            ids.iter()
                .map(|&id| snapshot.by_id(id).map(|entry| entry.to_shared()))
                .collect()
        };
        for ((sequence, entry), (slot, term, publish, displaced)) in
            (first..).zip(entries).zip(meta)
        {
            let Some(entry) = entry else { continue };
            writer.sequence = sequence;
            for old in &displaced {
                writer.terms.remove(&old.id());
            }
            if term > 0 {
                writer.terms.insert(entry.id(), term);
            }
            if let Some(observer) = &self.observer {
                let put = entry.region();
                observer.changed(&Change {
                    sequence,
                    put,
                    displaced: &displaced,
                });
            }
            let index = publish.then(|| writer.record(self.dialect, entry));
            done(slot, Reported { index });
        }
        let next = writer.next_index();
        self.head
            .send_if_modified(|head| std::mem::replace(head, next) != next);
    }
}

impl Writer {
    /// Gives a change its index, now or when the broadcaster gets to it.
    fn record(&mut self, dialect: Dialect, entry: SharedEntry) -> u64 {
        match dialect {
            Dialect::Master => self.appender.append(entry),
            Dialect::Release85 => {
                let index = self.next_index();
                self.unrecorded.push_back(entry);
                index
            }
        }
    }

    /// The index of the next change.
    fn next_index(&self) -> u64 {
        self.appender.next_index() + self.unrecorded.len() as u64
    }
}

impl Admitted {
    fn announce<'a>(&'a self, sequence: u64, put: &'a Region) -> Change<'a> {
        Change {
            sequence,
            put,
            displaced: &self.displaced,
        }
    }
}

impl Group {
    /// Whether `region` has an id or a key in common with what the group already puts.
    fn touches(&self, region: &Region) -> bool {
        if self.ids.contains(&region.id()) {
            return true;
        }
        let before = self.ranges.range(..=region.start().clone()).next_back();
        let behind = self.ranges.range(region.start().clone()..).next();
        [before, behind]
            .into_iter()
            .flatten()
            .any(|(_, range)| range.overlaps(region.range()))
    }

    /// PD's check of a report against the map. A report that says nothing new is dropped without an error.
    fn admit(
        &mut self,
        view: &View<'_>,
        slot: usize,
        region: Region,
        term: u64,
    ) -> Result<(), StaleRegion> {
        let View {
            snapshot,
            terms,
            dialect,
        } = view;
        let origin = snapshot.by_id(region.id());
        let stale = |entry: &Entry| StaleRegion {
            id: region.id(),
            epoch: region.epoch(),
            origin_id: entry.id(),
            origin_epoch: entry.epoch(),
        };
        if !region.is_recreated() {
            if let Some(newer) = snapshot
                .overlaps(region.range())
                .find(|entry| entry.epoch().version > region.epoch().version)
            {
                return Err(stale(&newer));
            }
            if let Some(origin) = origin {
                let known = terms.get(&region.id()).copied().unwrap_or(0);
                if (term > 0 && term < known)
                    || region.epoch().version < origin.epoch().version
                    || region.epoch().conf_ver < origin.epoch().conf_ver
                {
                    return Err(stale(&origin));
                }
            }
        }
        let origin = origin.map(|entry| entry.to_shared());
        if origin
            .as_ref()
            .is_some_and(|origin| *origin.region() == region)
        {
            return Ok(());
        }
        let publish = is_published(
            *dialect,
            origin.as_ref().map(|origin| origin.region()),
            &region,
        );
        let overlapped = snapshot
            .overlaps(region.range())
            .filter(|entry| entry.id() != region.id())
            .map(|entry| entry.to_shared());
        let mut displaced: Vec<SharedEntry> = origin.into_iter().chain(overlapped).collect();
        displaced.retain(|old| self.displaced.insert(old.id()));
        self.ids.insert(region.id());
        self.ranges
            .insert(region.start().clone(), region.range().clone());
        self.admitted.push(Admitted {
            slot,
            region,
            term,
            publish,
            displaced,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
