//! The task that compares: pages, regions in use, and second looks, each when it is due.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_core::gate::Lag;
use tidegate_core::{Key, KeyRange, Region};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::upstream::Upstream;
use crate::audit::compare::{compare, differs, hull};
use crate::audit::track::Tracker;
use crate::audit::{AskError, Kind, Pace, Source};
use crate::pd::Term;
use crate::replica::heal::{Asked, Said, heal};
use crate::replica::state::{LeaderView, Shared};

/// The share of a core of the leader.
const SHARE: f64 = 0.01;
/// Regions of a page.
const PAGE: usize = 512;
/// How many times a page the leader may have in the same keys; where it has more, the page is cut.
const WIDER: usize = 4;
/// Differences that are looked at again at a time.
const LOOKS: usize = 32;
/// Differences that are followed at a time.
const FOLLOWED: usize = 1_024;
/// Regions in use that are asked about at a time.
const IN_USE: usize = 64;
/// Regions in use are compared so many times in a pass.
const IN_USE_PER_PASS: u32 = 20;
/// Changes that may be known and not applied.
const MOST_LAG: u64 = 1_000;
/// Regions that one healing may take in; what is larger is for a full sync.
const MOST_HEALED: usize = 2_048;
/// Questions of one healing, each about a wider range.
const HEALINGS: usize = 4;
/// The shortest time between two full syncs that are demanded.
const FULL_SYNCS_APART: Duration = Duration::from_secs(60);
/// Between two looks whether there is something to compare with, and after a question that was not answered.
const WAIT: Duration = Duration::from_secs(1);

/// What the map is compared with; another one, and what has been seen counts no longer.
#[derive(Clone, Debug)]
struct Ground {
    cluster_id: u64,
    leader: LeaderView,
    term: Term,
    generation: u64,
}

impl Ground {
    fn is_same(&self, other: &Self) -> bool {
        (self.term, self.generation, &self.leader.url)
            == (other.term, other.generation, &other.leader.url)
    }
}

pub(super) struct Auditor<U: Upstream> {
    shared: Arc<Shared>,
    upstream: U,
    ground: Option<Ground>,
    source: Option<U::Leader>,
    cursor: Key,
    next_page: Instant,
    next_in_use: Instant,
    pass_begun: Instant,
    /// Whole passes, those before the ground changed too.
    pass: u64,
    tracker: Tracker,
    /// Differences of this pass that grew older than the grace.
    found: u64,
    /// In which pass a region was healed last.
    healed: HashMap<u64, u64>,
    demanded: Option<Instant>,
}

impl<U: Upstream> Auditor<U> {
    pub(super) fn new(shared: Arc<Shared>, upstream: U) -> Self {
        let now = Instant::now();
        Self {
            shared,
            upstream,
            ground: None,
            source: None,
            cursor: Key::default(),
            next_page: now,
            next_in_use: now,
            pass_begun: now,
            pass: 0,
            tracker: Tracker::new(FOLLOWED),
            found: 0,
            healed: HashMap::new(),
            demanded: None,
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.turn() => {}
            }
        }
    }

    /// One question, or the wait for the next.
    async fn turn(&mut self) {
        let Some(pass) = self.shared.audit.knobs().pass else {
            return self.stand_by().await;
        };
        let Some(ground) = self.find_ground() else {
            return self.stand_by().await;
        };
        // Relaxed: values for display.
        self.shared.audit.waiting.store(0, Relaxed);
        self.stand_on(&ground);
        let now = Instant::now();
        let due = self.tracker.due(now, LOOKS);
        let asked = if !due.is_empty() {
            self.look(&ground, &due).await
        } else if now >= self.next_in_use {
            self.next_in_use = now + pass / IN_USE_PER_PASS;
            self.compare_in_use(&ground).await
        } else if now >= self.next_page {
            self.page(&ground, pass).await
        } else {
            let next = self.next_page.min(self.next_in_use);
            let next = self.tracker.next_due().map_or(next, |due| due.min(next));
            // Not far ahead: the knobs may change.
            return sleep_until(next.min(now + WAIT)).await;
        };
        self.show();
        match asked {
            Ok(took) => {
                sleep(
                    Pace {
                        share: SHARE,
                        rate: u32::MAX,
                    }
                    .pause(took, 1),
                )
                .await
            }
            Err(error) => {
                debug!(%error, "the comparison with the PD leader has no answer");
                self.shared.audit.failed.add(1);
                sleep(WAIT).await;
            }
        }
    }

    async fn stand_by(&mut self) {
        // Relaxed: a value for display.
        self.shared.audit.waiting.store(1, Relaxed);
        sleep(WAIT).await;
    }

    /// What the map can be compared with; `None` while there is no point in it.
    fn find_ground(&self) -> Option<Ground> {
        let shared = &self.shared;
        let generation = shared.map.generation();
        let decision = shared.gate.decide(
            generation,
            shared.clock.now(),
            &shared.thresholds.get().into(),
        );
        let behind = match shared.gate.view().lag {
            Lag::Known(lag) => lag > MOST_LAG,
            Lag::Unknown => true,
        };
        if !decision.is_serve() || behind {
            return None;
        }
        let pd = shared.pd()?;
        let leader = pd.leader.clone()?;
        // Whose term cannot be read may be no PD member.
        let term = leader.term?;
        Some(Ground {
            cluster_id: pd.cluster_id,
            leader,
            term,
            generation,
        })
    }

    fn stand_on(&mut self, ground: &Ground) {
        if self.ground.as_ref().is_some_and(|own| own.is_same(ground)) {
            return;
        }
        self.source = Some(self.upstream.leader(&ground.leader, ground.cluster_id));
        self.ground = Some(ground.clone());
        self.tracker = Tracker::new(FOLLOWED);
        self.found = 0;
    }

    /// Whether an answer that was asked for on `ground` counts.
    fn still_on(&self, ground: &Ground) -> bool {
        let still = self.find_ground().is_some_and(|now| now.is_same(ground));
        if !still {
            self.shared.audit.overtaken.add(1);
        }
        still
    }

    async fn scan(
        &self,
        ranges: &[KeyRange],
        limit: usize,
    ) -> Result<(Vec<Region>, Duration, Instant), AskError> {
        let Some(source) = &self.source else {
            return Ok((Vec::new(), Duration::ZERO, Instant::now()));
        };
        let sent = Instant::now();
        let regions = source.scan(ranges, limit).await?;
        let received = Instant::now();
        Ok((regions, received.saturating_duration_since(sent), received))
    }

    async fn page(&mut self, ground: &Ground, pass: Duration) -> Result<Duration, AskError> {
        let from = self.cursor.clone();
        let (own, all) = {
            let snapshot = self.shared.map.pin();
            let own: Vec<Region> = snapshot
                .scan(&from, &[])
                .take(PAGE)
                .map(|entry| entry.region().clone())
                .collect();
            (own, snapshot.len())
        };
        let end = if own.len() < PAGE {
            Key::default()
        } else {
            own.last()
                .map_or_else(Key::default, |last| last.end().clone())
        };
        let within = range(from.clone(), end.clone());
        let (known, took, received) = self.scan(&[within], PAGE * WIDER).await?;
        if !self.still_on(ground) {
            return Ok(took);
        }
        // Where the leader has many more regions, only what it has told is compared.
        let next = match known.last() {
            Some(last) if known.len() >= PAGE * WIDER => last.end().clone(),
            _ => end,
        };
        let within = range(from, next.clone());
        let compared = own
            .iter()
            .filter(|region| region.range().overlaps(&within))
            .count();
        self.shared.audit.compared.add(compared as u64);
        self.tracker.sight(compare(&within, &known, &own), received);
        let part = compared.max(1) as f64 / all.max(1) as f64;
        self.next_page = Instant::now() + pass.mul_f64(part.min(1.0)).saturating_sub(took);
        if next.is_empty() {
            self.end_pass();
        }
        self.cursor = next;
        Ok(took)
    }

    fn end_pass(&mut self) {
        let audit = &self.shared.audit;
        let took = self.pass_begun.elapsed();
        self.pass_begun = Instant::now();
        self.pass += 1;
        // Relaxed: a value for display.
        audit
            .last_pass_ms
            .store(u64::try_from(took.as_millis()).unwrap_or(u64::MAX), Relaxed);
        audit.passes.add(1);
        info!(
            seconds = took.as_secs(),
            found = self.found,
            open = self.tracker.len(),
            "the whole map has been compared with the PD leader"
        );
        self.found = 0;
        let pass = self.pass;
        self.healed
            .retain(|_, healed| pass.saturating_sub(*healed) <= 2);
    }

    async fn compare_in_use(&mut self, ground: &Ground) -> Result<Duration, AskError> {
        let ids = self.shared.audit.in_use.take();
        let mut own: Vec<Region> = {
            let snapshot = self.shared.map.pin();
            ids.iter()
                .filter_map(|id| Some(snapshot.by_id(*id)?.region().clone()))
                .collect()
        };
        own.sort_unstable_by(|one, other| one.start().cmp(other.start()));
        let mut all = Duration::ZERO;
        for own in own.chunks(IN_USE) {
            let ranges = joined(own.iter().map(Region::range));
            let limit = IN_USE * WIDER;
            let (known, took, received) = self.scan(&ranges, limit).await?;
            all += took;
            if !self.still_on(ground) {
                return Ok(all);
            }
            if known.len() >= limit {
                // The pass gets there.
                continue;
            }
            for range in &ranges {
                let inside = |regions: &[Region]| -> Vec<Region> {
                    regions
                        .iter()
                        .filter(|region| region.range().overlaps(range))
                        .cloned()
                        .collect()
                };
                self.tracker
                    .sight(compare(range, &inside(&known), &inside(own)), received);
            }
            self.shared.audit.compared.add(own.len() as u64);
        }
        Ok(all)
    }

    async fn look(&mut self, ground: &Ground, due: &[u64]) -> Result<Duration, AskError> {
        let asked = Instant::now();
        let own: Vec<Option<Region>> = {
            let snapshot = self.shared.map.pin();
            due.iter()
                .map(|id| snapshot.by_id(*id).map(|entry| entry.region().clone()))
                .collect()
        };
        let Some(source) = &self.source else {
            return Ok(Duration::ZERO);
        };
        let leader = source.by_ids(due).await?;
        let took = asked.elapsed();
        if !self.still_on(ground) {
            return Ok(took);
        }
        for ((id, own), leader) in due.iter().zip(&own).zip(&leader) {
            self.tracker.look(*id, own.as_ref(), asked, leader.as_ref());
        }
        let grace = self.shared.audit.knobs().grace;
        let old: Vec<(u64, Kind, KeyRange)> = self
            .tracker
            .open()
            .filter(|(_, open)| open.age().is_some_and(|age| age >= grace))
            .map(|(id, open)| (id, open.kind, open.range()))
            .collect();
        for (id, kind, range) in old {
            self.mend(ground, id, kind, range).await?;
        }
        Ok(took)
    }

    /// Heals one difference that is old enough, or demands a full sync.
    async fn mend(
        &mut self,
        ground: &Ground,
        id: u64,
        kind: Kind,
        range: KeyRange,
    ) -> Result<(), AskError> {
        let again = self.healed.contains_key(&id);
        let mended = self.heal(ground, id, range).await?;
        self.tracker.close(id);
        let Some(mended) = mended else { return Ok(()) };
        let audit = &self.shared.audit;
        audit.note_found(kind);
        self.found += 1;
        if mended {
            audit.note_healed(kind);
            self.healed.insert(id, self.pass);
        }
        warn!(
            region = id,
            kind = kind.as_str(),
            mended,
            again,
            "the map differed from the PD leader's"
        );
        let few = 32 + self.shared.map.stats().regions as u64 / 1_000;
        let why = if !mended {
            "a region cannot be healed"
        } else if again {
            "a region differs again after it was healed"
        } else if self.found > few {
            "many regions differ"
        } else {
            return Ok(());
        };
        self.demand_full_sync(ground, why);
        Ok(())
    }

    /// Whether the map says what the leader says, once it has been told; `None` if the answer did not count.
    async fn heal(
        &self,
        ground: &Ground,
        id: u64,
        mut range: KeyRange,
    ) -> Result<Option<bool>, AskError> {
        for _ in 0..HEALINGS {
            let asked = {
                let snapshot = self.shared.map.pin();
                let inside = snapshot.overlaps(&range).take(MOST_HEALED + 1);
                Asked::about(&self.shared, &snapshot, inside.chain(snapshot.by_id(id)))
            };
            if asked.seen().count() > MOST_HEALED {
                return Ok(Some(false));
            }
            let (regions, ..) = self.scan(std::slice::from_ref(&range), MOST_HEALED).await?;
            let answered_at = self.shared.clock.now();
            if regions.len() >= MOST_HEALED {
                return Ok(Some(false));
            }
            let reigns = self
                .upstream
                .reigns(&ground.leader, ground.cluster_id)
                .await;
            if !reigns || !self.still_on(ground) {
                return Ok(None);
            }
            let told = regions.iter().find(|region| region.id() == id).cloned();
            let unknown_ids = if told.is_none() { vec![id] } else { Vec::new() };
            let said = Said {
                regions,
                whole: vec![range.clone()],
                unknown_ids,
                ..Said::default()
            };
            let healed = heal(&self.shared, &asked, said, answered_at);
            debug!(region = id, "the map was healed by a comparison");
            if healed.unsettled.is_empty() {
                let snapshot = self.shared.map.pin();
                let own = snapshot.by_id(id);
                return Ok(Some(match (&told, own) {
                    (Some(told), Some(own)) => {
                        !matches!(differs(told, own.region()), Some(kind) if kind != Kind::NewerEpoch)
                            && !told.epoch().is_older_than(own.region().epoch())
                    }
                    (None, None) => true,
                    _ => false,
                }));
            }
            range = healed
                .unsettled
                .iter()
                .fold(range, |range, more| hull(&range, more));
        }
        Ok(Some(false))
    }

    fn demand_full_sync(&mut self, ground: &Ground, why: &'static str) {
        let audit = &self.shared.audit;
        let pass = audit.knobs().pass.unwrap_or_default();
        let apart = FULL_SYNCS_APART.max(pass);
        if self.demanded.is_some_and(|at| at.elapsed() < apart) {
            audit.full_syncs_held.add(1);
            return;
        }
        self.demanded = Some(Instant::now());
        audit.full_syncs.add(1);
        warn!(
            why,
            "the map is replaced by a full sync: the stream does not show what differs"
        );
        self.shared.distrust(ground.generation);
    }

    fn show(&self) {
        let oldest = self
            .tracker
            .open()
            .filter_map(|(_, open)| open.age())
            .max()
            .unwrap_or_default();
        // Relaxed: values for display.
        self.shared
            .audit
            .open
            .store(self.tracker.len() as u64, Relaxed);
        self.shared.audit.oldest_ms.store(
            u64::try_from(oldest.as_millis()).unwrap_or(u64::MAX),
            Relaxed,
        );
    }
}

/// A range whose ends are known to be in order.
fn range(start: Key, end: Key) -> KeyRange {
    KeyRange::new(start, end).unwrap_or_else(|_| KeyRange::all())
}

/// The ranges, which are in the order of their starts, with those joined that touch.
fn joined<'r>(ranges: impl Iterator<Item = &'r KeyRange>) -> Vec<KeyRange> {
    let mut joined: Vec<KeyRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end().is_empty() || last.end() >= range.start() => {
                *last = hull(last, range)
            }
            _ => joined.push(range.clone()),
        }
    }
    joined
}
