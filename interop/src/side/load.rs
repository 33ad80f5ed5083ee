//! The load: connections that ask one question after the other for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate::proto::pdpb;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;

use super::Side;
use super::subject::Subject;
use crate::error::InteropError;
use crate::keys::key_at;

/// Keys of a batch.
const BATCH: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Unary,
    Batches,
}

/// Loads the subject and prints; returns lookups per second of its processor time.
pub(super) async fn load(side: &Side, subject: &Subject, kind: Kind) -> Result<f64, InteropError> {
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for i in 0..side.connections {
        let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
        let subject = subject.clone();
        clients.spawn(async move {
            match kind {
                Kind::Unary => unary(&subject, i, &stop, &answered).await,
                Kind::Batches => batches(&subject, i, &stop, &answered).await,
            }
        });
    }
    // The connections are made and the first answers given before it counts.
    sleep(Duration::from_secs(1)).await;
    let (begun, before) = (Instant::now(), subject.processor_seconds()?);
    // Relaxed here and below: a count of a report.
    let asked_before = answered.load(Ordering::Relaxed);
    sleep(Duration::from_secs(side.seconds)).await;
    let (took, used) = (begun.elapsed(), subject.processor_seconds()? - before);
    let asked = answered.load(Ordering::Relaxed) - asked_before;
    // Relaxed: a flag to end by; nothing is published with it.
    stop.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    while let Some(done) = clients.join_next().await {
        times.extend(done.map_err(|e| InteropError::Verdict(format!("a client died: {e}")))??);
    }
    times.sort_unstable();
    let at = |share: usize| {
        times
            .get(times.len() * share / 100)
            .copied()
            .unwrap_or_default()
    };
    let per_second = asked as f64 / used.max(0.01);
    println!(
        "{}, {}: {per_second:.0} lookups per CPU second ({asked} in {:.1} s on {used:.2} s of processor), p50 {:?}, p99 {:?} {}",
        subject.label,
        match kind {
            Kind::Unary => "GetRegion",
            Kind::Batches => "QueryRegion of 64",
        },
        took.as_secs_f64(),
        at(50),
        at(99),
        match kind {
            Kind::Unary => "a lookup",
            Kind::Batches => "a batch",
        },
    );
    Ok(per_second)
}

async fn unary(
    subject: &Subject,
    seed: u64,
    stop: &AtomicBool,
    answered: &AtomicU64,
) -> Result<Vec<Duration>, InteropError> {
    let mut client = subject.connect().await?;
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut times = Vec::new();
    // Relaxed: see `load`.
    while !stop.load(Ordering::Relaxed) {
        let question = subject.question(rng.random_range(1..u64::MAX - 1));
        let begun = Instant::now();
        let answer = client.get_region(question).await;
        times.push(begun.elapsed());
        let answer = answer
            .map_err(InteropError::call("GetRegion"))?
            .into_inner();
        if answer.region.is_none() {
            return Err(missing(subject));
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(times)
}

async fn batches(
    subject: &Subject,
    seed: u64,
    stop: &AtomicBool,
    answered: &AtomicU64,
) -> Result<Vec<Duration>, InteropError> {
    let mut client = subject.connect().await?;
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut times = Vec::new();
    let (questions, receiver) = mpsc::channel(1);
    let mut question = || pdpb::QueryRegionRequest {
        header: subject.header(),
        keys: (0..BATCH)
            .map(|_| key_at(rng.random_range(1..u64::MAX - 1)).into())
            .collect(),
        ..Default::default()
    };
    let closed = |_| InteropError::Verdict("the stream of QueryRegion was closed".to_owned());
    questions.send(question()).await.map_err(closed)?;
    let answers = client.query_region(ReceiverStream::new(receiver)).await;
    let mut answers = answers.map_err(InteropError::call("QueryRegion"))?;
    let mut begun = Instant::now();
    loop {
        let answer = answers
            .message()
            .await
            .map_err(InteropError::call("QueryRegion"))?;
        if answer
            .is_none_or(|answer| answer.key_id_map.len() != BATCH || answer.key_id_map.contains(&0))
        {
            return Err(missing(subject));
        }
        times.push(begun.elapsed());
        answered.fetch_add(BATCH as u64, Ordering::Relaxed);
        // Relaxed: see `load`.
        if stop.load(Ordering::Relaxed) {
            return Ok(times);
        }
        let next = question();
        begun = Instant::now();
        questions.send(next).await.map_err(closed)?;
    }
}

fn missing(subject: &Subject) -> InteropError {
    InteropError::Verdict(format!(
        "a lookup under load was not answered by {}",
        subject.label
    ))
}
