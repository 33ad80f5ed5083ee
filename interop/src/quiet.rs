//! The comparison at rest: once nothing changes, every answer of the replica equals PD's.

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use tokio::time::Instant;

use crate::client::{Answer, Asker, Found, Question};
use crate::cluster::Cluster;
use crate::error::InteropError;
use crate::keys::key_at;

/// How long PD may take to have heard everything, and the replica to have caught up.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// Waits until `asker` tells exactly the model's regions.
pub async fn wait_until_settled(
    asker: &mut Asker,
    cluster: &Cluster,
    who: &'static str,
) -> Result<(), InteropError> {
    let mut expected: Vec<_> = cluster
        .regions()
        .iter()
        .map(|r| (r.meta(), r.leader_peer().id))
        .collect();
    expected.sort_by(|a, b| a.0.start_key.cmp(&b.0.start_key));
    let started = Instant::now();
    loop {
        let detail = match asker
            .ask(&Question::Scan(Vec::new(), Vec::new(), 0))
            .await?
        {
            Answer::Regions(regions) => match first_difference(&regions, &expected) {
                None => return Ok(()),
                Some(difference) => difference,
            },
            Answer::Refused(message) => message,
        };
        if started.elapsed() > SETTLE_LIMIT {
            return Err(InteropError::Timeout {
                what: who,
                limit: SETTLE_LIMIT,
                detail: format!(": {detail}"),
            });
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn first_difference(
    told: &[Found],
    expected: &[(tidegate::proto::metapb::Region, u64)],
) -> Option<String> {
    if told.len() != expected.len() {
        return Some(format!(
            "{} regions are told, {} are meant",
            told.len(),
            expected.len()
        ));
    }
    told.iter()
        .zip(expected)
        .find_map(|(told, (meta, leader))| {
            let epoch = meta.region_epoch.unwrap_or_default();
            let same = told.id == meta.id
                && told.start[..] == meta.start_key[..]
                && told.end[..] == meta.end_key[..]
                && told.version == epoch.version
                && told.conf_ver == epoch.conf_ver
                && told.leader == *leader;
            (!same).then(|| format!("{told:?} is told, {meta:?} with leader {leader} is meant"))
        })
}

/// Asks both servers `count` questions and counts those whose answers differ; the first few are printed.
pub async fn compare(
    pd: &mut Asker,
    replica: &mut Asker,
    cluster: &Cluster,
    rng: &mut SmallRng,
    count: usize,
) -> Result<usize, InteropError> {
    const PRINTED: usize = 5;
    let mut different = 0;
    for i in 0..count {
        let question = random_question(cluster, rng, i);
        let (told, meant) = (replica.ask(&question).await?, pd.ask(&question).await?);
        if told != meant && !equally_missing(&told, &meant) {
            different += 1;
            if different <= PRINTED {
                println!("different: {question:?}\n  replica {told:?}\n  pd      {meant:?}");
            }
        }
    }
    Ok(different)
}

/// A miss at the leader is an empty success; a replica says REGION_NOT_FOUND, for it may not be authoritative.
fn equally_missing(told: &Answer, meant: &Answer) -> bool {
    matches!(told, Answer::Refused(_))
        && matches!(meant, Answer::Regions(regions) if regions.is_empty())
}

fn random_question(cluster: &Cluster, rng: &mut SmallRng, i: usize) -> Question {
    let position = cluster.interesting_position(rng);
    match i % 5 {
        0 => Question::Key(key_at(position)),
        1 => Question::Previous(key_at(position)),
        2 => Question::Id(cluster.regions()[rng.random_range(0..cluster.len())].id),
        kind => {
            let width = (u64::MAX / cluster.len() as u64).saturating_mul(rng.random_range(0..40));
            let end = position.saturating_add(width).min(u64::MAX - 1);
            let end = if rng.random_ratio(1, 20) {
                Vec::new()
            } else {
                key_at(end.max(position + 1))
            };
            let limit = if rng.random_bool(0.5) {
                rng.random_range(1..64)
            } else {
                100
            };
            match kind {
                3 => Question::Batch(key_at(position), end, limit),
                _ => Question::Scan(key_at(position), end, limit),
            }
        }
    }
}
