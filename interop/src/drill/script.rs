//! What is done in each drill. The judge, the clients and the changes run beside it all the time.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use crate::drill::Report;
use crate::drill::clients::Asker;
use crate::drill::stage::{Conditions, Stage};
use crate::drill::world::World;
use crate::error::InteropError;
use crate::judge::About;
use crate::pd::etcd::routers;

/// Lets a state last long enough to show what follows from it.
const WHILE: Duration = Duration::from_secs(1);
/// Changes of a leadership that came and went.
const CHANGES: usize = 20;
/// For a router to be registered, or to be no longer.
const REGISTRY_LIMIT: Duration = Duration::from_secs(20);
/// Questions that wait for a replica that stands still.
const WAITING: usize = 32;

/// Nothing happens; the figures to compare the others with.
pub async fn churn(mut stage: Stage) -> Result<Report, InteropError> {
    sleep(stage.conditions().long).await;
    let recovery = stage.recovery().await?;
    Report::end(stage, recovery, "only changes".to_owned()).await
}

/// Leadership goes to another member and back, twice, without any process being started; the index goes back each time.
pub async fn there_and_back(mut stage: Stage) -> Result<Report, InteropError> {
    let (at, [other, _]) = (stage.pd.leading(), stage.pd.others());
    for _ in 0..2 {
        for to in [other, at] {
            stage.hush().await;
            stage.pd.transfer(to, CHANGES as u64).await?;
            stage.turn_to_leader().await?;
            // As many as the index went back by: the same indexes for other changes.
            for _ in 0..CHANGES {
                stage.change(World::move_one).await?;
            }
        }
    }
    let recovery = stage.recovery().await?;
    Report::end(stage, recovery, "leader A-B-A-B-A".to_owned()).await
}

/// Leadership goes round three members.
pub async fn transfer(mut stage: Stage) -> Result<Report, InteropError> {
    let mut longest = Duration::ZERO;
    let (at, [next, further]) = (stage.pd.leading(), stage.pd.others());
    for to in [next, further, at] {
        stage.hush().await;
        stage.pd.transfer(to, 0).await?;
        stage.turn_to_leader().await?;
        longest = longest.max(stage.recovery().await?);
        sleep(WHILE).await;
    }
    let what = "leader A-B-C-A, the longest recovery of three".to_owned();
    Report::end(stage, longest, what).await
}

/// The leader is killed; another member leads when its lease has run out.
pub async fn killed_leader(mut stage: Stage) -> Result<Report, InteropError> {
    if stage.pd.is_real() {
        // What its followers have not heard yet would be lost with it.
        stage.hush().await;
    }
    let killed = Instant::now();
    stage.pd.kill_leader().await?;
    stage.hush().await;
    sleep(WHILE).await;
    stage.succeed().await?;
    let without = killed.elapsed();
    let recovery = stage.recovery().await?;
    let what = format!(
        "kill -9, no leader for {:.1} s, then another member",
        without.as_secs_f64()
    );
    Report::end(stage, recovery, what).await
}

/// The leader starts again and its index has gone back by what had not been saved.
pub async fn index_gone_back(mut stage: Stage) -> Result<Report, InteropError> {
    for _ in 0..CHANGES {
        stage.change(World::move_one).await?;
    }
    let mut longest = Duration::ZERO;
    for rewind in [99, CHANGES as u64] {
        stage.hush().await;
        stage.pd.restart(rewind).await?;
        stage.turn_to_leader().await?;
        longest = longest.max(stage.recovery().await?);
        sleep(WHILE).await;
    }
    let what = if stage.pd.is_real() {
        "all members killed and started again, twice, the longer recovery"
    } else {
        "two restarts, the index 99 and 20 back, the longer recovery"
    };
    let what = what.to_owned();
    Report::end(stage, longest, what).await
}

/// A member that follows is removed, then the one that leads.
pub async fn removed_members(mut stage: Stage) -> Result<Report, InteropError> {
    let (leader, [heir, follower]) = (stage.pd.leading(), stage.pd.others());
    stage.pd.remove(follower).await?;
    let first = stage.recovery().await?;
    sleep(WHILE).await;
    stage.hush().await;
    stage.pd.transfer(heir, 0).await?;
    stage.pd.remove(leader).await?;
    stage.turn_to_leader().await?;
    let second = stage.recovery().await?;
    sleep(WHILE).await;
    let what = "a follower removed, then the leader; the longer recovery".to_owned();
    Report::end(stage, first.max(second), what).await
}

/// The network between the replica and every member becomes a black hole.
pub async fn cut_off(mut stage: Stage) -> Result<Report, InteropError> {
    let (long, bound) = (stage.conditions().long, stage.conditions().bound());
    stage.pd.cut(true);
    let begun = Instant::now();
    sleep(bound).await;
    let before = stage.scene.tally.figures().map;
    sleep(long.saturating_sub(bound)).await;
    let after = stage.scene.tally.figures().map;
    stage.pd.cut(false);
    let healed = Instant::now();
    stage.recovery().await?;
    let recovery = healed.elapsed();
    // Two lookups may have been decided within the age and counted after it.
    if after > before + 8 {
        return Err(InteropError::Verdict(format!(
            "cut off for longer than its max-age, the replica's map gave {} answers",
            after - before
        )));
    }
    let what = format!("no byte passed for {:.1} s", (healed - begun).as_secs_f64());
    Report::end(stage, recovery, what).await
}

/// The replica stands still while regions change, with questions waiting for it; what it answers first must not be from
/// before.
pub async fn stopped_replica(mut stage: Stage) -> Result<Report, InteropError> {
    let long = stage.conditions().long;
    let stopped = Instant::now();
    stage.replica.signal(Signal::STOP)?;
    // The signal takes effect at each thread's next step; what is asked from here on waits.
    sleep(Duration::from_millis(50)).await;
    let from = Instant::now();
    sleep(long).await;
    let ids = stage.world.changed_since(from);
    let until = Instant::now();
    stage.scene.stood_still(from, until);
    // These are there before anything else when it goes on.
    let mut waiting = tokio::task::JoinSet::new();
    for id in ids.iter().rev().take(WAITING).copied() {
        let mut asker = Asker::new(&stage.scene)?;
        waiting.spawn(async move { asker.ask_replica(&About::Id(id)).await.is_some() });
    }
    sleep(Duration::from_millis(100)).await;
    let until = Instant::now();
    stage.scene.stood_still(from, until);
    stage.replica.signal(Signal::CONT)?;
    let mut first = 0;
    while let Some(answered) = waiting.join_next().await {
        first += usize::from(answered.unwrap_or(false));
    }
    stage.recovery().await?;
    let recovery = until.elapsed();
    let what = format!(
        "SIGSTOP for {:.1} s with {} changes; {first} of {} that waited were answered, and judged from SIGCONT on",
        (until - stopped).as_secs_f64(),
        ids.len(),
        ids.len().min(WAITING),
    );
    Report::end(stage, recovery, what).await
}

/// The replica is registered in etcd while it answers, again after etcd was away for longer than the lease, and no
/// longer once it has stopped.
pub async fn registration(mut stage: Stage) -> Result<Report, InteropError> {
    let url = stage.replica.url().to_owned();
    registered(&mut stage, &url, true).await?;
    let away = Duration::from_secs(7);
    if stage.pd.is_real() {
        stage.hush().await;
    }
    stage.pd.etcd_away().await?;
    sleep(away).await;
    stage.pd.etcd_back().await?;
    if stage.pd.is_real() {
        stage.turn_to_leader().await?;
    }
    let back = Instant::now();
    registered(&mut stage, &url, true).await?;
    let renewed = back.elapsed();
    let recovery = stage.recovery().await?;
    stage.replica.signal(Signal::TERM)?;
    registered(&mut stage, &url, false).await?;
    let what = format!(
        "etcd killed for {away:?}; registered {} ms after its return, gone after SIGTERM",
        renewed.as_millis()
    );
    Report::end(stage, recovery, what).await
}

async fn registered(stage: &mut Stage, url: &str, meant: bool) -> Result<(), InteropError> {
    let (channel, cluster_id) = (stage.pd.etcd_channel()?, stage.pd.cluster_id());
    let seen = async {
        loop {
            if let Ok(keys) = routers(channel.clone(), cluster_id).await
                && keys.iter().any(|pair| pair.key.ends_with(url.as_bytes())) == meant
            {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(REGISTRY_LIMIT, seen)
        .await
        .map_err(|_| InteropError::Timeout {
            what: if meant {
                "the replica's registration in etcd"
            } else {
                "the end of the replica's registration"
            },
            limit: REGISTRY_LIMIT,
            detail: format!("; its last lines:\n{}", stage.replica.tail()),
        })
}

/// Whether the drill can be run under these conditions; why not.
pub fn obstacle(name: &str, conditions: &Conditions) -> Option<&'static str> {
    (name == "registration" && conditions.etcd.is_none() && conditions.pd_server.is_none())
        .then_some("there is no etcd; give --etcd PATH (Debian's package etcd-server has one)")
}
