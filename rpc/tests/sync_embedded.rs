//! The following side against the embedded leader, over gRPC on loopback.

use std::sync::Arc;
use std::time::Duration;

use tidegate::leader::{EmbeddedLeader, LeaderConfig};
use tidegate::pd::{ChannelSettings, Remote};
use tidegate::replica::hooks::Hooks;
use tidegate::replica::state::{Shared, StreamState};
use tidegate::replica::sync::{SyncConfig, WrongCluster, spawn};
use tidegate_core::clock::{BootClock, Clock};
use tidegate_core::gate::Thresholds;
use tidegate_core::{KeyRange, Peer, PeerRole, Region, RegionEpoch, RegionMap};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// No wait of these tests takes longer; most end within milliseconds.
const DEADLINE: Duration = Duration::from_secs(60);

struct Follower {
    shared: Arc<Shared>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), WrongCluster>>,
}

impl Follower {
    fn of(endpoints: &[String]) -> Self {
        let mut config =
            SyncConfig::new("follower", "http://127.0.0.1:1", endpoints.to_vec()).unwrap();
        config.probe_interval = Duration::from_millis(100);
        let clock = Arc::new(BootClock);
        let shared = Arc::new(Shared::new(clock, Thresholds::default()));
        let stop = CancellationToken::new();
        let remote = Arc::new(Remote::new(ChannelSettings::default(), None));
        let task = spawn(
            Arc::clone(&shared),
            remote,
            config,
            &Hooks::default(),
            stop.clone(),
        );
        Self { shared, stop, task }
    }

    /// Waits until the map is proven up to the leader's present head.
    async fn catches_up_with(&self, leader: &EmbeddedLeader) {
        let asked = BootClock.now();
        let next = leader.next_index();
        self.until("a proof of now", || {
            let view = self.shared.gate.view();
            view.applied >= next && view.proven_at.is_some_and(|at| at >= asked)
        })
        .await;
        assert_eq!(rows(&self.shared.map), rows(leader.regions()));
        assert!(self.serves());
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(
                begun.elapsed() < DEADLINE,
                "never: {what}; {:?}; {:?}",
                self.shared.gate.view(),
                self.shared.counters.read()
            );
            sleep(Duration::from_millis(2)).await;
        }
    }

    fn serves(&self) -> bool {
        let map = self.shared.map.generation();
        let limits = &self.shared.thresholds.get().into();
        let decision = self.shared.gate.decide(map, BootClock.now(), limits);
        decision.is_serve()
    }

    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
}

type Row = (u64, KeyRange, RegionEpoch, Vec<Peer>, Option<Peer>);

/// All that a lookup could tell, in key order.
fn rows(map: &RegionMap) -> Vec<Row> {
    let snapshot = map.pin();
    snapshot
        .iter()
        .map(|entry| {
            let region = entry.region();
            (
                region.id(),
                region.range().clone(),
                region.epoch(),
                region.peers().to_vec(),
                region.leader(),
            )
        })
        .collect()
}

fn peer(region: u64, store_id: u64) -> Peer {
    Peer {
        id: region * 10 + store_id,
        store_id,
        role: PeerRole::Voter,
        is_witness: false,
    }
}

/// Keys from `start` to `end`, each of 8 bytes.
fn region(id: u64, start: u64, end: u64, version: u64, store: u64) -> Region {
    let key = |at: u64| at.to_be_bytes().to_vec();
    let range = KeyRange::new(key(start), key(end)).unwrap();
    let epoch = RegionEpoch {
        conf_ver: 1,
        version,
    };
    Region::builder(id, range, epoch)
        .peers((1..=3).map(|store| peer(id, store)))
        .leader(Some(peer(id, store)))
        .build()
        .unwrap()
}

/// Regions of ten keys each.
fn cluster(count: u64) -> Vec<Region> {
    (1..=count)
        .map(|id| region(id, id * 10, id * 10 + 10, 2, 1 + id % 3))
        .collect()
}

async fn leader_of(count: u64) -> EmbeddedLeader {
    let leader = EmbeddedLeader::start(LeaderConfig::default())
        .await
        .unwrap();
    // With as many records as regions its dialect would not show.
    leader.report_region(region(1, 10, 20, 1, 2)).unwrap();
    for outcome in leader.report_regions(cluster(count)) {
        outcome.unwrap();
    }
    leader
}

#[tokio::test]
async fn a_full_sync_and_what_changes_after_it() {
    let leader = leader_of(3_500).await;
    let follower = Follower::of(&[leader.url()]);
    follower.catches_up_with(&leader).await;
    assert_eq!(follower.shared.map.pin().len(), 3_500);
    assert_eq!(follower.shared.cluster_id(), Some(leader.cluster_id()));
    let pd = follower.shared.pd().unwrap();
    let seen = pd.leader.as_ref().unwrap();
    assert_eq!(seen.url, leader.url());
    assert_eq!(
        seen.term.map(|term| term.create_revision()),
        Some(leader.term())
    );

    // A split, a merge that takes an id away, a leader move without an epoch.
    leader.report_region(region(7, 70, 75, 3, 1)).unwrap();
    leader.report_region(region(9_001, 75, 80, 3, 1)).unwrap();
    leader.report_region(region(20, 200, 220, 4, 2)).unwrap();
    leader.report_region(region(30, 300, 310, 2, 3)).unwrap();
    follower.catches_up_with(&leader).await;
    assert!(follower.shared.map.pin().by_id(21).is_none());
    assert_eq!(follower.shared.stream(), StreamState::Live);
    let counts = follower.shared.counters.read();
    assert_eq!((counts.full_syncs, counts.reconnects), (1, 0));
    assert_eq!(
        leader.full_syncs(),
        1,
        "no probe made the leader start another"
    );
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn changes_during_the_full_sync_are_not_lost() {
    let leader = leader_of(6_000).await;
    let follower = Follower::of(&[leader.url()]);
    for round in 0..20 {
        for id in (1..=6_000).step_by(97) {
            let moved = region(id, id * 10, id * 10 + 10, 2, 1 + (id + round) % 3);
            leader.report_region(moved).unwrap();
        }
        tokio::task::yield_now().await;
    }
    follower.catches_up_with(&leader).await;
    assert_eq!(follower.shared.counters.read().gaps, 0);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_restart_under_a_new_term_is_synced_in_full_although_its_index_went_back() {
    let leader = leader_of(1_200).await;
    let follower = Follower::of(&[leader.url()]);
    follower.catches_up_with(&leader).await;
    let generation = follower.shared.map.generation();

    let mut state = leader.stop().await;
    state.rewind_index(50);
    state.report_region(region(5, 50, 60, 3, 2)).unwrap();
    let leader = EmbeddedLeader::start_with(LeaderConfig::default(), state)
        .await
        .unwrap();
    // The follower's own index comes round again, for other records.
    for id in 100..160 {
        leader
            .report_region(region(id, id * 10, id * 10 + 10, 3, 2))
            .unwrap();
    }
    follower
        .until("the new term is followed", || {
            follower.shared.map.generation() > generation
        })
        .await;
    follower.catches_up_with(&leader).await;
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_backend_that_is_not_there_yet_is_waited_for() {
    let leader = leader_of(10).await;
    let url = leader.url();
    let state = leader.stop().await;
    let follower = Follower::of(&[url]);
    follower
        .until("it has tried", || {
            follower.shared.counters.read().connect_failures > 0
        })
        .await;
    assert_eq!(follower.shared.stream(), StreamState::Connecting);
    let leader = EmbeddedLeader::start_with(LeaderConfig::default(), state)
        .await
        .unwrap();
    follower.catches_up_with(&leader).await;
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn endpoints_of_different_clusters_are_an_error_that_names_both() {
    let one = EmbeddedLeader::start(LeaderConfig::default())
        .await
        .unwrap();
    let other = EmbeddedLeader::start(LeaderConfig {
        cluster_id: 2,
        ..LeaderConfig::default()
    })
    .await
    .unwrap();
    let follower = Follower::of(&[one.url(), other.url()]);
    let error = follower.task.await.unwrap().unwrap_err().to_string();
    for part in [one.url(), other.url()] {
        assert!(error.contains(&part), "{error}");
    }
    one.stop().await;
    other.stop().await;
}
