//! The following side against a scripted PD, under virtual time.

mod beside_disk;
mod broadcasts;
mod chain;
mod distrust;
mod endings;
mod full_sync;
mod peer;
mod probes;
mod release85;
mod reports;
mod takeover;
mod warm;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::entry::Confirmed;
use tidegate_core::gate::{Lag, Thresholds};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::TokioClock;
use crate::pd::Lane;
use crate::proto::metapb::{Peer as PbPeer, Region as PbRegion, RegionEpoch};
use crate::proto::pdpb::{ResponseHeader, SyncRegionResponse};
use crate::replica::hooks::{ApplyLayer, Hooks};
use crate::replica::state::{Shared, StreamState};

use super::{SyncConfig, WrongCluster, spawn};
use peer::{CLUSTER, Pd, Stream};

/// A replica that follows the script.
struct World {
    shared: Arc<Shared>,
    pd: Pd,
    stop: CancellationToken,
    task: JoinHandle<Result<(), WrongCluster>>,
}

impl World {
    fn start() -> Self {
        Self::start_with(Hooks::default())
    }

    fn start_with(hooks: Hooks) -> Self {
        Self::launch(Pd::new(), hooks)
    }

    fn launch(pd: Pd, hooks: Hooks) -> Self {
        let config = SyncConfig::new("replica", "http://replica:1", vec![pd.url()]).unwrap();
        Self::launch_with(pd, config, hooks)
    }

    fn launch_with(pd: Pd, config: SyncConfig, hooks: Hooks) -> Self {
        let shared = Arc::new(Shared::new(
            Arc::new(TokioClock::new()),
            Thresholds::default(),
        ));
        Self::launch_on(shared, pd, config, hooks)
    }

    fn launch_on(shared: Arc<Shared>, pd: Pd, config: SyncConfig, hooks: Hooks) -> Self {
        let stop = CancellationToken::new();
        let task = spawn(
            Arc::clone(&shared),
            Arc::new(pd.clone()),
            config,
            &hooks,
            stop.clone(),
        );
        Self {
            shared,
            pd,
            stop,
            task,
        }
    }

    /// The next sync stream that the replica opens.
    async fn stream(&self) -> Stream {
        self.pd.accept(Lane::Stream).await
    }

    /// The next probe that the replica sends.
    async fn probe(&self) -> Stream {
        self.pd.accept(Lane::Calls).await
    }

    /// A stream after a full sync of `regions` with the leader at `next`, all of it applied.
    async fn follow(&self, regions: Vec<PbRegion>, next: u64) -> Stream {
        let published = self.shared.counters.full_syncs_published.get();
        let stream = self.stream().await;
        assert!(stream.asks_for_everything(), "a full sync was expected");
        stream.send(frame(0, regions));
        stream.send(frame(next, vec![]));
        self.until("the full sync is published", || {
            self.shared.counters.full_syncs_published.get() > published
                && self.shared.gate.applied() == next
        })
        .await;
        stream
    }

    /// Answers the next probe with nothing new, so that the map is proven.
    async fn prove(&self) {
        let proved = self.shared.counters.probes_proved.get();
        let probe = self.probe().await;
        probe.send(frame(probe.start_index(), vec![]));
        self.until("the probe counts", || {
            self.shared.counters.probes_proved.get() > proved
        })
        .await;
    }

    /// Lets the replica work without letting time pass, until `holds`.
    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        for _ in 0..2_000 {
            if holds() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!(
            "never: {what}; {:?}; {:?}",
            self.shared.gate.view(),
            self.shared.counters.read()
        );
    }

    /// Lets the replica work without letting time pass, until it has nothing to do.
    async fn quiet(&self) {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    fn serves(&self) -> bool {
        let map = self.shared.map.generation();
        let now = self.shared.clock.now();
        self.shared
            .gate
            .decide(map, now, &self.shared.thresholds.get().into())
            .is_serve()
    }

    fn lag(&self) -> Lag {
        self.shared.gate.view().lag
    }

    /// Ids of all regions in key order.
    fn ids(&self) -> Vec<u64> {
        let snapshot = self.shared.map.pin();
        snapshot.iter().map(|entry| entry.region().id()).collect()
    }

    /// What the entries say, in key order, when the leader agrees with each of them.
    fn confirm_all(&self) -> Vec<Confirmed> {
        let at = self.shared.clock.now();
        let snapshot = self.shared.map.pin();
        snapshot
            .iter()
            .map(|entry| entry.word().confirm(at))
            .collect()
    }

    fn leader_of(&self, id: u64) -> Option<u64> {
        let snapshot = self.shared.map.pin();
        snapshot
            .by_id(id)
            .and_then(|entry| entry.region().leader().map(|peer| peer.store_id))
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// Region `id` covers the keys from `id` to `id + 1`, at the given version.
fn region(id: u64, version: u64) -> PbRegion {
    let key = |at: u64| at.to_be_bytes().to_vec().into();
    PbRegion {
        id,
        start_key: key(id),
        end_key: key(id + 1),
        region_epoch: Some(RegionEpoch {
            conf_ver: 1,
            version,
        }),
        peers: (1..=3).map(|store| peer_on(id, store)).collect(),
        ..PbRegion::default()
    }
}

fn peer_on(region: u64, store_id: u64) -> PbPeer {
    PbPeer {
        id: region * 10 + store_id,
        store_id,
        ..PbPeer::default()
    }
}

fn regions(ids: impl IntoIterator<Item = u64>) -> Vec<PbRegion> {
    ids.into_iter().map(|id| region(id, 1)).collect()
}

/// A frame whose regions are led from store 1.
fn frame(start_index: u64, regions: Vec<PbRegion>) -> SyncRegionResponse {
    SyncRegionResponse {
        header: Some(ResponseHeader {
            cluster_id: CLUSTER,
            error: None,
        }),
        region_leaders: regions.iter().map(|region| peer_on(region.id, 1)).collect(),
        regions,
        start_index,
        ..SyncRegionResponse::default()
    }
}

/// A frame that moves the leader of one region to another store, without a new epoch.
fn leader_move(start_index: u64, id: u64, version: u64, store: u64) -> SyncRegionResponse {
    SyncRegionResponse {
        region_leaders: vec![peer_on(id, store)],
        ..frame(start_index, vec![region(id, version)])
    }
}

/// Lets one message through for each permit.
struct Sluice(Semaphore);

impl ApplyLayer for Sluice {
    fn before_apply(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            if let Ok(permit) = self.0.acquire().await {
                permit.forget();
            }
        })
    }
}

fn sluice(open: usize) -> (Arc<Sluice>, Hooks) {
    let sluice = Arc::new(Sluice(Semaphore::new(open)));
    let hooks = Hooks {
        apply_layer: Some(Arc::clone(&sluice) as Arc<dyn ApplyLayer>),
        ..Hooks::default()
    };
    (sluice, hooks)
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
