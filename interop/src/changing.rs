//! The comparison in motion: while regions split and move, the replica is never ahead of PD and never stale.
//!
//! Two servers cannot be asked at one instant, so the order of asking carries the proof. For a fixed key the version of
//! the region that covers it only grows, and for a fixed id within a version so does conf_ver.
//!
//! - *Never newer*: the replica is asked first. What it tells, PD has told it, so PD asked afterwards tells at least that.
//! - *Never stale*: PD is asked first. The replica may be behind for as long as its bounds allow; a question that is
//!   sent later than that must be answered with at least what PD told, or refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::client::{Answer, Asker, Found, Question};
use crate::cluster::Cluster;
use crate::error::InteropError;
use crate::keys::key_at;
use crate::replica::STALL_THRESHOLD;

/// What a round trip may add to the replica's own bounds.
pub const ROUND_TRIP: Duration = Duration::from_millis(500);

/// Counters of a run in motion.
#[derive(Debug, Default)]
pub struct Tally {
    /// Pairs of answers that were compared.
    pub compared: AtomicU64,
    /// Questions that the replica refused or missed; its right, but a steady run has few.
    pub refused: AtomicU64,
    /// Answers of the replica that were newer than PD's later one.
    pub newer: AtomicU64,
    /// Answers that were behind PD's earlier one, within the bounds.
    pub behind: AtomicU64,
    /// Answers that were behind past the bounds.
    pub stale: AtomicU64,
    /// Longest time for which the replica was seen behind, in milliseconds.
    pub longest_ms: AtomicU64,
}

impl Tally {
    fn count(counter: &AtomicU64) {
        // Relaxed: counters of a report, read after the tasks were joined.
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether `a` is older than `b`, both answers for one key.
fn is_older(a: &Found, b: &Found) -> bool {
    a.version < b.version || (a.id == b.id && a.version == b.version && a.conf_ver < b.conf_ver)
}

/// Asks until `stop` is set. Answers may be behind by `max_age` and by what one apply and one round trip take.
pub async fn watch(
    mut pd: Asker,
    mut replica: Asker,
    cluster: Arc<Mutex<Cluster>>,
    tally: Arc<Tally>,
    stop: Arc<AtomicBool>,
    (seed, max_age): (u64, Duration),
) -> Result<(), InteropError> {
    let mut rng = SmallRng::seed_from_u64(seed);
    // Relaxed: a flag to end by; nothing is published with it.
    while !stop.load(Ordering::Relaxed) {
        let position = cluster.lock().await.interesting_position(&mut rng);
        let question = Question::Key(key_at(position));
        never_newer(&mut pd, &mut replica, &question, &tally).await?;
        never_stale(&mut pd, &mut replica, &question, &tally, max_age).await?;
    }
    Ok(())
}

async fn never_newer(
    pd: &mut Asker,
    replica: &mut Asker,
    question: &Question,
    tally: &Tally,
) -> Result<(), InteropError> {
    let told = replica.ask(question).await?;
    let meant = pd.ask(question).await?;
    match (told.region(), meant.region()) {
        (Some(told), Some(meant)) => {
            Tally::count(&tally.compared);
            if is_older(meant, told) {
                Tally::count(&tally.newer);
                println!("newer than PD: {question:?}\n  replica {told:?}\n  pd      {meant:?}");
            }
        }
        (None, _) => Tally::count(&tally.refused),
        // Between the heartbeats of a split's two halves PD has a hole, which no answer contradicts.
        (Some(_), None) => {}
    }
    Ok(())
}

async fn never_stale(
    pd: &mut Asker,
    replica: &mut Asker,
    question: &Question,
    tally: &Tally,
    max_age: Duration,
) -> Result<(), InteropError> {
    let bound = max_age + STALL_THRESHOLD + ROUND_TRIP;
    let meant = pd.ask(question).await?;
    let known = Instant::now();
    let Some(meant) = meant.region() else {
        return Ok(());
    };
    let mut seen_behind = false;
    loop {
        let sent = Instant::now();
        let told = match replica.ask(question).await? {
            Answer::Regions(regions) if !regions.is_empty() => regions,
            Answer::Regions(_) | Answer::Refused(_) => {
                Tally::count(&tally.refused);
                return Ok(());
            }
        };
        Tally::count(&tally.compared);
        if !is_older(&told[0], meant) {
            return Ok(());
        }
        let behind = sent.duration_since(known);
        tally
            .longest_ms
            .fetch_max(behind.as_millis() as u64, Ordering::Relaxed);
        if behind > bound {
            Tally::count(&tally.stale);
            println!(
                "stale by {behind:?}: {question:?}\n  replica {:?}\n  pd      {meant:?}",
                told[0]
            );
            return Ok(());
        }
        if !seen_behind {
            Tally::count(&tally.behind);
            seen_behind = true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(id: u64, version: u64, conf_ver: u64) -> Found {
        Found {
            id,
            version,
            conf_ver,
            start: Vec::new(),
            end: Vec::new(),
            peers: Vec::new(),
            leader: 0,
        }
    }

    #[test]
    fn a_key_grows_older_by_version_and_a_region_by_conf_ver() {
        let now = found(1, 5, 5);
        assert!(is_older(&found(1, 4, 9), &now));
        assert!(is_older(&found(2, 4, 9), &now));
        assert!(is_older(&found(1, 5, 4), &now));
        assert!(!is_older(&now, &now));
        assert!(!is_older(&found(1, 6, 5), &now));
        // Another region of the same version says nothing about membership.
        assert!(!is_older(&found(2, 5, 4), &now));
    }
}
