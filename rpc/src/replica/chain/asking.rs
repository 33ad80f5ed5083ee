//! Questions about freshness: who follows this replica asks, and the watch over its own leader answers.

use std::time::Duration;

use tidegate_core::Moment;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::replica::state::Shared;

/// How long a question waits for a proof of its own time. An older one is told as what it is after that.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a proof may wait for records that are on their way, once the leader has answered.
const SETTLING: Duration = Duration::from_millis(100);

/// Between those that ask and the watch.
#[derive(Debug)]
pub(in crate::replica) struct Asking {
    wanted: Notify,
    /// When the last turn of the watch that has ended began.
    turns: watch::Sender<Moment>,
}

impl Default for Asking {
    fn default() -> Self {
        Self {
            wanted: Notify::new(),
            turns: watch::Sender::new(Moment::from_nanos(0)),
        }
    }
}

impl Asking {
    /// Returns when somebody wants a probe, but not before `spacing` has passed: however many ask, the leader is asked
    /// so often at most.
    pub(in crate::replica) async fn wanted(&self, spacing: Duration) {
        sleep(spacing).await;
        self.wanted.notified().await;
    }

    /// A turn that began at `begun` has ended, whatever came of it.
    pub(in crate::replica) fn turned(&self, begun: Moment) {
        self.turns.send_replace(begun);
    }

    /// Answers a question about `generation` that came at `asked`: how much earlier the latest proof is; zero when it is
    /// of that time or a later one. `None` when the map may not answer, or is of another generation.
    pub(super) async fn behind(
        &self,
        shared: &Shared,
        generation: u64,
        asked: Moment,
    ) -> Option<Duration> {
        let proven = || shared.gate.view().proven_at;
        if proven() < Some(asked) {
            self.wanted.notify_one();
            let answered = async {
                let mut turns = self.turns.subscribe();
                // The sender is here.
                let _ = turns.wait_for(|begun| *begun >= asked).await;
                if proven() < Some(asked) {
                    sleep(SETTLING).await;
                }
            };
            let _ = timeout(PATIENCE, answered).await;
        }
        let decision = shared.gate.decide(
            generation,
            shared.clock.now(),
            &shared.thresholds.get().into(),
        );
        let view = shared.gate.view();
        let counts = decision.is_serve() && view.generation == generation;
        view.proven_at
            .filter(|_| counts)
            .map(|proven| asked.saturating_since(proven))
    }
}
