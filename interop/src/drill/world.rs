//! The model and the judge under one lock: what is reported to the leader is in the ledger before the leader has it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use crate::client::Found;
use crate::cluster::{Cluster, ModelRegion};
use crate::judge::{About, Ledger, Verdict};
use crate::keys::key_at;

/// The regions as the stores have them, and as the leader was told of them.
#[derive(Debug)]
pub struct World(Mutex<State>);

#[derive(Debug)]
struct State {
    cluster: Cluster,
    ledger: Ledger,
    rng: SmallRng,
}

impl World {
    /// `count` regions, none of which the leader has been told of.
    pub fn new(count: u64, seed: u64) -> Self {
        let cluster = Cluster::new(count, 1_000);
        let mut ledger = Ledger::default();
        for region in cluster.regions() {
            ledger.report(region.found());
        }
        Self(Mutex::new(State {
            cluster,
            ledger,
            rng: SmallRng::seed_from_u64(seed),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All regions as they are now.
    pub fn regions(&self) -> Vec<ModelRegion> {
        self.lock().cluster.regions().to_vec()
    }

    /// A split, a leader's move or a change of peers; what the leader has to be told of it.
    pub fn change(&self) -> Vec<ModelRegion> {
        let State {
            cluster,
            ledger,
            rng,
        } = &mut *self.lock();
        let changed = match rng.random_range(0..10) {
            0..3 => cluster.split(rng),
            3..8 => cluster.move_leader(rng),
            _ => cluster.change_peer(rng),
        };
        for region in &changed {
            ledger.report(region.found());
        }
        changed
    }

    /// Moves the leader of one region, any.
    pub fn move_one(&self) -> Vec<ModelRegion> {
        let State {
            cluster,
            ledger,
            rng,
        } = &mut *self.lock();
        let changed = cluster.move_leader(rng);
        for region in &changed {
            ledger.report(region.found());
        }
        changed
    }

    /// Moves the leader of every region.
    pub fn move_all(&self) -> Vec<ModelRegion> {
        let State {
            cluster, ledger, ..
        } = &mut *self.lock();
        let changed: Vec<_> = (0..cluster.len())
            .flat_map(|index| cluster.move_leader_of(index))
            .collect();
        for region in &changed {
            ledger.report(region.found());
        }
        changed
    }

    /// The leader has the last state of these regions.
    pub fn confirm(&self, ids: impl IntoIterator<Item = u64>, at: Instant) {
        let state = &mut *self.lock();
        for id in ids {
            state.ledger.confirm(id, at);
        }
    }

    /// The regions of which the leader was seen to have something new since `at`, the latest last.
    pub fn changed_since(&self, at: Instant) -> Vec<u64> {
        self.lock().ledger.changed_since(at)
    }

    /// What the leader was told last of a region.
    pub fn last(&self, id: u64) -> Option<Found> {
        self.lock().ledger.last(id).cloned()
    }

    /// Something to ask: every other time about a region that changed lately.
    pub fn question(&self) -> About {
        let State { cluster, rng, .. } = &mut *self.lock();
        if rng.random_ratio(1, 4) {
            About::Id(cluster.regions()[rng.random_range(0..cluster.len())].id)
        } else {
            About::Key(key_at(cluster.interesting_position(rng)))
        }
    }

    /// Judges an answer.
    pub fn judge(&self, about: &About, answer: &Found, asked: Instant) -> Verdict {
        self.lock().ledger.judge(about, answer, asked)
    }
}
