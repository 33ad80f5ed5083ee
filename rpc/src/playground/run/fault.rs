//! What goes wrong in a run, and when.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::{FAULT, Playground};
use crate::leader::EmbeddedLeader;
use crate::playground::args::Args;
use crate::playground::faults::Scenario;
use crate::playground::load::Load;
use crate::playground::server::PdServer;
use crate::playground::world::RestartError;

/// How long the PD leader is away.
const OUTAGE: Duration = Duration::from_secs(1);
/// How many records its index is back, of those that PD saves it for.
const INDEX_BACK: u64 = 37;
/// The least that one change takes on the sync stream.
const RECORD_BYTES: u64 = 120;
/// A throttled link passes one of so many of the churn's bytes.
const THROTTLE: u64 = 4;
/// A tenth of the history that PD keeps.
const RING: u64 = 1_000;
const SMALLEST_RING: u64 = 32;

/// A history that the changes of half a fault overwrite.
pub(super) fn small_ring(args: &Args) -> usize {
    let cycle = args.duration.unwrap_or(super::CYCLE);
    let fault = cycle * (FAULT.1 - FAULT.0) / 100;
    let changes = args.churn as f64 * fault.as_secs_f64() / 2.0;
    (changes as u64).clamp(SMALLEST_RING, RING) as usize
}

impl Playground {
    /// One fault in the cycle that began at `begin`.
    pub(super) async fn fault(
        &self,
        load: &Load<PdServer>,
        begin: Instant,
        cycle: Duration,
        shown: &Mutex<Option<&'static str>>,
    ) -> Result<(), RestartError> {
        let show = |what| *shown.lock().unwrap_or_else(PoisonError::into_inner) = what;
        let end = begin + cycle * FAULT.1 / 100;
        sleep_until(begin + cycle * FAULT.0 / 100).await;
        match self.args.scenario {
            Scenario::Steady => return Ok(()),
            Scenario::Throttle => {
                show(Some("the link to replica-2 is throttled"));
                self.relay
                    .throttle()
                    .limit(Some((self.args.churn * RECORD_BYTES / THROTTLE).max(1_000)));
                sleep_until(end).await;
                self.relay.throttle().limit(None);
            }
            Scenario::Stall => {
                show(Some("the apply of replica-2 stands still"));
                self.stall.set(true);
                sleep_until(end).await;
                self.stall.set(false);
            }
            Scenario::LeaderRestart => {
                show(Some("the PD leader is away"));
                let outage = OUTAGE.min(cycle * (FAULT.1 - FAULT.0) / 100);
                self.world.restart(outage, INDEX_BACK).await?;
            }
            Scenario::RingOverflow => {
                show(Some("replica-2 is cut off"));
                let next = || self.world.with_leader(EmbeddedLeader::next_index);
                self.relay.cut(true);
                let forgotten = next().map(|next| next + small_ring(&self.args) as u64 + 1);
                sleep_until(end).await;
                while next() < forgotten {
                    sleep(Duration::from_millis(20)).await;
                }
                self.relay.cut(false);
            }
        }
        load.tally().fault_ended(self.clock.now());
        show(None);
        Ok(())
    }
}
