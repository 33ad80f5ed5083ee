//! The comparison against a scripted leader, under virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::gate::Thresholds;
use tidegate_core::{KeyRange, Provenance, Region, RegionMap};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::auditor::Auditor;
use super::upstream::Upstream;
use super::*;
use crate::audit::compare::tests::{led, region};
use crate::audit::{AskError, Source};
use crate::clock::TokioClock;
use crate::pd::{CallError, Term};
use crate::proto::pdpb::Member;
use crate::replica::state::{LeaderView, PdView};

const CLUSTER: u64 = 7;
const MINUTE: Duration = Duration::from_secs(60);

/// A leader that says what the test says, and how long it takes for it.
#[derive(Debug)]
struct Script {
    regions: Vec<Region>,
    term: i64,
    takes: Duration,
    /// Everything that was asked, and when.
    asked: Vec<(Instant, Vec<KeyRange>)>,
    works: Duration,
    answers: bool,
}

#[derive(Clone, Debug)]
struct Pd(Arc<Mutex<Script>>);

impl Pd {
    fn with<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        change(&mut self.0.lock().expect("not poisoned"))
    }

    async fn work(&self) -> Result<(), AskError> {
        let takes = self.with(|script| {
            script.works += script.takes;
            script.takes
        });
        sleep(takes).await;
        if self.with(|script| script.answers) {
            return Ok(());
        }
        let error = CallError::Deadline {
            url: "http://pd:1".to_owned(),
            after: takes,
        };
        Err(error.into())
    }
}

impl Source for Pd {
    async fn scan(&self, ranges: &[KeyRange], limit: usize) -> Result<Vec<Region>, AskError> {
        self.with(|script| script.asked.push((Instant::now(), ranges.to_vec())));
        self.work().await?;
        let within = |region: &&Region| ranges.iter().any(|range| range.overlaps(region.range()));
        Ok(self.with(|script| {
            script
                .regions
                .iter()
                .filter(within)
                .take(limit)
                .cloned()
                .collect()
        }))
    }

    async fn by_ids(&self, ids: &[u64]) -> Result<Vec<Option<Region>>, AskError> {
        self.work().await?;
        let find = |script: &mut Script, id: u64| {
            script
                .regions
                .iter()
                .find(|region| region.id() == id)
                .cloned()
        };
        Ok(ids
            .iter()
            .map(|id| self.with(|script| find(script, *id)))
            .collect())
    }
}

impl Upstream for Pd {
    type Leader = Self;

    fn leader(&self, _: &LeaderView, _: u64) -> Self {
        self.clone()
    }

    async fn reigns(&self, leader: &LeaderView, _: u64) -> bool {
        let term = self.with(|script| script.term);
        leader.term == Some(Term::from_create_revision(term))
    }
}

struct World {
    shared: Arc<Shared>,
    pd: Pd,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl World {
    /// A replica whose map holds `own` and is fresh, and a leader that holds `leader`.
    fn start(own: &[Region], leader: Vec<Region>) -> Self {
        let forever = Duration::from_secs(1 << 30);
        let thresholds = Thresholds {
            max_age: forever,
            time_threshold: forever,
            ..Thresholds::default()
        };
        let shared = Arc::new(Shared::new(Arc::new(TokioClock::new()), thresholds));
        let script = Script {
            regions: leader,
            term: 5,
            takes: Duration::from_micros(100),
            asked: Vec::new(),
            works: Duration::ZERO,
            answers: true,
        };
        let pd = Pd(Arc::new(Mutex::new(script)));
        let stop = CancellationToken::new();
        let auditor = Auditor::new(Arc::clone(&shared), pd.clone());
        let task = tokio::spawn(auditor.run(stop.clone()));
        let world = Self {
            shared,
            pd,
            stop,
            task,
        };
        world.full_sync(1, own);
        world.lead(5);
        world
    }

    fn full_sync(&self, generation: u64, regions: &[Region]) {
        let (gate, now) = (&self.shared.gate, self.shared.clock.now());
        let staged = RegionMap::new();
        for region in regions {
            let _ = staged.put(region.clone(), Provenance::Stream { received_at: now });
        }
        gate.begin(generation);
        gate.head_received(generation, 10);
        gate.apply_started(generation, now);
        gate.apply_finished(generation, 10, now);
        gate.probe_answered(generation, now, 10);
        self.shared.map.replace_with(staged, generation);
        gate.publish(generation);
    }

    /// The leader in another term, as the sync task tells it.
    fn lead(&self, term: i64) {
        let url = "http://pd:1".to_owned();
        let member = Member {
            member_id: 1,
            client_urls: vec![url.clone()],
            ..Member::default()
        };
        let term = Some(Term::from_create_revision(term));
        let leader = Some(LeaderView {
            member: member.clone(),
            url,
            term,
        });
        self.shared.publish_pd(PdView {
            cluster_id: CLUSTER,
            members: vec![member],
            leader,
        });
    }

    /// A record of the stream.
    fn stream(&self, region: Region) {
        let received_at = self.shared.clock.now();
        let _ = self
            .shared
            .map
            .put(region, Provenance::Stream { received_at });
    }

    fn own(&self) -> Vec<Region> {
        let snapshot = self.shared.map.pin();
        snapshot
            .iter()
            .map(|entry| entry.region().clone())
            .collect()
    }

    fn status(&self) -> AuditStatus {
        self.shared.audit.read()
    }

    fn distrusts(&self) -> bool {
        let generation = self.shared.gate.generation();
        let distrusted = self.shared.distrusted(generation);
        tokio::pin!(distrusted);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        distrusted.as_mut().poll(&mut context).is_ready()
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.expect("no panic");
    }
}

/// Regions 1 to `count` over all keys.
fn whole(count: u64) -> Vec<Region> {
    let bound = |at: u64| {
        if at == 0 || at == count {
            String::new()
        } else {
            format!("{at:05}")
        }
    };
    (1..=count)
        .map(|id| region(id, &bound(id - 1), &bound(id), 2))
        .collect()
}

fn newer(of: &Region, version: u64) -> Region {
    of.to_builder()
        .epoch(tidegate_core::RegionEpoch::new(1, version))
        .build()
        .expect("a region")
}

#[tokio::test(start_paused = true)]
async fn f2_a_pass_takes_the_time_it_is_given_and_finds_nothing_in_equal_maps() {
    let world = World::start(&whole(5_000), whole(5_000));
    sleep(MINUTE * 5).await;
    let status = world.status();
    assert_eq!(
        (status.last_pass_ms, status.oldest_ms),
        (None, None),
        "not known is not 0"
    );
    sleep(MINUTE * 20).await;
    let status = world.status();
    assert_eq!(status.passes, 2, "{status:?}");
    let minutes = status.last_pass_ms.expect("of the last") as f64 / 60_000.0;
    assert!((9.0..=11.0).contains(&minutes), "{minutes}");
    assert!(
        status.running && status.found.values().all(|count| *count == 0),
        "{status:?}"
    );
    assert!(!world.distrusts());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_the_leader_works_for_less_than_a_hundredth_of_the_time() {
    let world = World::start(&whole(20_000), whole(20_000));
    world
        .pd
        .with(|script| script.takes = Duration::from_millis(200));
    let begun = Instant::now();
    sleep(MINUTE * 60).await;
    let works = world.pd.with(|script| script.works);
    assert!(works > Duration::from_secs(10), "{works:?}");
    assert!(works <= begun.elapsed() / 99, "{works:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_a_change_on_its_way_is_no_difference() {
    let leader: Vec<Region> = whole(100).iter().map(|region| newer(region, 3)).collect();
    let world = World::start(&whole(100), leader.clone());
    sleep(Duration::from_secs(5)).await;
    assert!(world.status().open > 0);
    leader.into_iter().for_each(|region| world.stream(region));
    sleep(MINUTE * 11).await;
    let status = world.status();
    assert!(status.found.values().all(|count| *count == 0), "{status:?}");
    assert_eq!(status.open, 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_a_region_that_the_leader_has_removed_is_removed_after_the_grace() {
    let mut leader = whole(10);
    leader.remove(3);
    let world = World::start(&whole(10), leader.clone());
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.own().len(), 10, "the grace is not over");
    sleep(MINUTE).await;
    assert_eq!(world.own(), leader);
    let status = world.status();
    assert_eq!(
        (
            status.found["unknown_region"],
            status.healed["unknown_region"]
        ),
        (1, 1),
        "{status:?}"
    );
    assert_eq!(status.full_syncs, 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_what_the_stream_has_lost_is_healed() {
    let mut leader = whole(12);
    // A split, a merge, another leader, and a region that is not known at all.
    leader[1] = newer(&region(2, "00001", "00001x", 3), 3);
    leader.insert(2, region(20, "00001x", "00002", 3));
    leader[5] = newer(&region(5, "00004", "00006", 3), 4);
    leader.remove(6);
    leader[7] = led(8, "00007", "00008", 2, 3);
    let mut own = whole(12);
    own.remove(9);
    let world = World::start(&own, leader.clone());
    sleep(MINUTE).await;
    assert_eq!(world.own(), leader);
    let status = world.status();
    assert_eq!(status.found, status.healed, "{status:?}");
    assert!(
        status.found["older_epoch"] >= 1
            && status.found["hole"] >= 1
            && status.found["other_leader"] == 1,
        "{status:?}"
    );
    assert_eq!(status.full_syncs, 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_an_index_that_was_used_twice_ends_in_a_full_sync() {
    // The same index, and other content: a leader that began anew where the old one had not written yet.
    let leader: Vec<Region> = whole(1_000).iter().map(|region| newer(region, 3)).collect();
    let world = World::start(&whole(1_000), leader);
    sleep(MINUTE * 5).await;
    let status = world.status();
    assert_eq!(status.full_syncs, 1, "{status:?}");
    assert!(world.distrusts());
    assert!(
        status.full_syncs_held > 0,
        "one is enough until it has come"
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_what_cannot_be_healed_ends_in_a_full_sync() {
    // The leader is behind the map: it has lost something, and an older epoch does not enter.
    let mut own = whole(10);
    own[4] = newer(&own[4], 9);
    let world = World::start(&own, whole(10));
    sleep(MINUTE).await;
    let status = world.status();
    assert_eq!(
        (
            status.found["newer_epoch"],
            status.healed["newer_epoch"],
            status.full_syncs
        ),
        (1, 0, 1),
        "{status:?}"
    );
    assert!(world.distrusts());
    // The map of the full sync is another one.
    world.full_sync(2, &whole(10));
    sleep(MINUTE * 11).await;
    assert!(!world.distrusts());
    assert_eq!(world.status().found["newer_epoch"], 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_a_region_that_differs_again_after_it_was_healed_ends_in_a_full_sync() {
    let world = World::start(&whole(10), whole(10));
    world.shared.audit.set_knobs(Knobs {
        pass: Some(MINUTE),
        grace: Duration::from_secs(5),
    });
    let change = |version| {
        world
            .pd
            .with(|script| script.regions[4] = newer(&script.regions[4], version))
    };
    change(3);
    sleep(MINUTE * 2).await;
    assert_eq!(
        (
            world.status().healed["older_epoch"],
            world.status().full_syncs
        ),
        (1, 0)
    );
    change(4);
    sleep(MINUTE * 2).await;
    assert_eq!(
        (
            world.status().healed["older_epoch"],
            world.status().full_syncs
        ),
        (2, 1)
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_what_was_seen_before_a_change_of_leader_does_not_count() {
    let mut leader = whole(10);
    leader.remove(3);
    let world = World::start(&whole(10), leader);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.status().open, 1);
    // The next leader knows the region; the replica has not been told of its term yet.
    world.pd.with(|script| {
        script.term = 6;
        script.regions = whole(10);
    });
    sleep(Duration::from_secs(8)).await;
    world.lead(6);
    world.full_sync(2, &whole(10));
    sleep(MINUTE * 2).await;
    let status = world.status();
    assert_eq!(world.own(), whole(10));
    assert!(status.found.values().all(|count| *count == 0), "{status:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_a_deposed_leader_heals_nothing() {
    let mut leader = whole(10);
    leader.remove(3);
    let world = World::start(&whole(10), leader);
    // Another member leads, and who is asked does not know it yet.
    world.pd.with(|script| script.term = 6);
    sleep(MINUTE * 2).await;
    assert_eq!(world.own(), whole(10));
    assert_eq!(world.status().found["unknown_region"], 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_nothing_is_asked_while_the_gate_is_shut_or_the_map_behind() {
    let world = World::start(&whole(10), whole(10));
    sleep(Duration::from_secs(5)).await;
    let asked = || world.pd.with(|script| script.asked.len());
    let before = asked();
    assert!(before > 0);
    world.shared.gate.head_received(1, 5_000);
    sleep(MINUTE * 30).await;
    assert_eq!(asked(), before);
    assert!(!world.status().running);
    world.full_sync(2, &whole(10));
    sleep(MINUTE * 11).await;
    assert!(asked() > before && world.status().running);
    let before = asked();
    world.shared.audit.set_knobs(Knobs {
        pass: None,
        ..Knobs::default()
    });
    sleep(MINUTE * 30).await;
    assert!(
        asked() <= before + 1 && !world.status().running,
        "it is switched off"
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_regions_in_use_are_compared_more_often() {
    let world = World::start(&whole(5_000), whole(5_000));
    sleep(MINUTE).await;
    let far = &whole(5_000)[4_900];
    (0..64).for_each(|_| world.shared.audit.in_use.note(far.id()));
    sleep(MINUTE).await;
    let asked = world.pd.with(|script| {
        script
            .asked
            .iter()
            .any(|(_, ranges)| ranges == &[far.range().clone()])
    });
    assert!(asked, "long before the pass gets there");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f2_a_leader_that_does_not_answer_is_asked_again_later() {
    let world = World::start(&whole(10), whole(10));
    world.pd.with(|script| script.answers = false);
    sleep(MINUTE).await;
    assert!(
        (10..=61).contains(&world.status().failed),
        "{:?}",
        world.status()
    );
    world.pd.with(|script| script.answers = true);
    sleep(MINUTE * 11).await;
    assert!(world.status().passes > 0);
    world.end().await;
}
