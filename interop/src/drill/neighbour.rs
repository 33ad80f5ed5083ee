//! A second follower of the leader is stopped. A leader of master does not mind; one of release 8.5 broadcasts to nobody
//! any more as soon as the buffers of the stopped one are full: its releases up to 8.5.6, and the played leader, until
//! the follower is gone, later ones for ten seconds.

use std::time::Duration;

use rustix::process::Signal;
use tidegate::pd::Dialect;
use tokio::time::{Instant, sleep};

use crate::drill::Report;
use crate::drill::stage::Stage;
use crate::drill::tally::Figures;
use crate::drill::world::World;
use crate::error::InteropError;
use crate::replica::{Replica, Setting, tight};

/// Rounds in which every region changes, where nothing is expected of them.
const ROUNDS: u64 = 40;
/// How long regions change at most until the broadcast has stopped: how much the buffers take is the system's to say.
const FLOOD_LIMIT: Duration = Duration::from_secs(90);
/// A pause of the map that means nothing.
const PAUSE: Duration = Duration::from_secs(1);
/// For the map to answer again once the neighbour has gone.
const REOPEN_LIMIT: Duration = Duration::from_secs(20);
/// For so long the map is watched after that.
const WATCHED: Duration = Duration::from_secs(3);

/// Runs the drill.
pub async fn run(mut stage: Stage) -> Result<Report, InteropError> {
    let conditions = stage.conditions().clone();
    let (bound, dialect) = (conditions.bound(), conditions.dialect);
    let setting = Setting {
        name: "neighbour",
        when_stale: "refuse",
        config: tight("register = false\n"),
    };
    let neighbour = Replica::start(
        &conditions.tidegate,
        &conditions.dir,
        &stage.pd.endpoints(),
        stage.pd.cluster_id(),
        &setting,
    )
    .await?;
    stage.scene.tally.begin();
    neighbour.signal(Signal::STOP)?;
    let begun = Instant::now();
    let (mut told, mut rounds) = (0, 0);
    while begun.elapsed() < FLOOD_LIMIT {
        told += stage.change(World::move_all).await?.len();
        rounds += 1;
        let enough = match dialect {
            Dialect::Master => rounds >= ROUNDS,
            Dialect::Release85 => stage.scene.tally.figures().without_map > bound + PAUSE,
        };
        if enough {
            break;
        }
    }
    sleep(bound + PAUSE).await;
    let beside = stage.scene.tally.figures();
    let stopped_for = begun.elapsed();
    let freed = Instant::now();
    neighbour.kill().await?;
    stage.recovery().await?;
    let reopened = freed.elapsed();
    let from = stage.scene.tally.figures();
    sleep(WATCHED).await;
    let until = stage.scene.tally.figures();
    let seen = Seen {
        without_map: beside.without_map,
        reopened,
        after: Answers::between(&from, &until),
    };
    let broadcast = seen
        .judge(dialect, bound, stage.pd.is_real())
        .map_err(InteropError::Verdict)?;
    let what = format!(
        "{told} changes in {:.1} s beside a stopped follower: {broadcast}; in {:.0} s after it had gone {} answers of the map, {} others",
        stopped_for.as_secs_f64(),
        WATCHED.as_secs_f64(),
        seen.after.map,
        seen.after.others
    );
    Report::end(stage, reopened, what).await
}

/// Answers within a time.
#[derive(Clone, Copy, Debug)]
struct Answers {
    map: u64,
    others: u64,
}

impl Answers {
    fn between(from: &Figures, until: &Figures) -> Self {
        Self {
            map: until.map - from.map,
            others: until.without() - from.without(),
        }
    }
}

/// What the clients have seen of the replica.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The longest time without the map while the neighbour was stopped.
    without_map: Duration,
    /// From the neighbour's end until the map answered with a new change.
    reopened: Duration,
    /// What it answered then.
    after: Answers,
}

impl Seen {
    /// What became of the broadcast, or what is wrong.
    fn judge(&self, dialect: Dialect, bound: Duration, real: bool) -> Result<&'static str, String> {
        let stood = self.without_map > bound;
        let broadcast = match dialect {
            Dialect::Master if self.without_map > PAUSE => {
                return Err(format!(
                    "on master a stopped neighbour kept the map from answering for {:?}",
                    self.without_map
                ));
            }
            Dialect::Master => "the map answered throughout",
            Dialect::Release85 if stood => "the broadcast stopped, and the map's answers with it",
            // A release from 8.5.7 on may have dropped the follower within the age.
            Dialect::Release85 if real => "the leader dropped it before the map was too old",
            Dialect::Release85 => {
                return Err(format!(
                    "the broadcast never stopped, so that nothing was shown: {:?} without the map at most",
                    self.without_map
                ));
            }
        };
        if self.reopened > REOPEN_LIMIT {
            return Err(format!(
                "the map answered {:?} after the neighbour had gone, {REOPEN_LIMIT:?} are allowed",
                self.reopened
            ));
        }
        // With one that never leaves read-through an answer of the map is an accident.
        if self.after.map < 9 * self.after.others || self.after.map == 0 {
            return Err(format!(
                "once the neighbour had gone the map gave {} answers, {} were given without it",
                self.after.map, self.after.others
            ));
        }
        Ok(broadcast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(4);
    const SHUT: Seen = Seen {
        without_map: Duration::from_secs(9),
        reopened: Duration::from_millis(800),
        after: Answers {
            map: 900,
            others: 10,
        },
    };

    #[test]
    fn release_85_has_to_have_stood_still_and_to_go_on_afterwards() {
        let judge = |seen: Seen| seen.judge(Dialect::Release85, BOUND, false);
        assert!(
            judge(SHUT)
                .expect("right")
                .starts_with("the broadcast stopped")
        );
        let open = Seen {
            without_map: Duration::from_millis(3_900),
            ..SHUT
        };
        assert!(judge(open).expect_err("no proof").contains("never stopped"));
        assert!(open.judge(Dialect::Release85, BOUND, true).is_ok());
        let late = Seen {
            reopened: Duration::from_secs(21),
            ..SHUT
        };
        assert!(judge(late).expect_err("late").contains("20s are allowed"));
    }

    #[test]
    fn a_replica_that_never_leaves_read_through_fails() {
        for (map, others) in [(0, 900), (1, 900), (450, 450), (0, 0)] {
            let seen = Seen {
                after: Answers { map, others },
                ..SHUT
            };
            for dialect in [Dialect::Release85, Dialect::Master] {
                let seen = match dialect {
                    Dialect::Master => Seen {
                        without_map: Duration::ZERO,
                        ..seen
                    },
                    Dialect::Release85 => seen,
                };
                let wrong = seen.judge(dialect, BOUND, false).expect_err("read-through");
                assert!(wrong.contains("without it"), "{wrong}");
            }
        }
    }

    #[test]
    fn on_master_the_map_answers_throughout() {
        assert!(SHUT.judge(Dialect::Master, BOUND, false).is_err());
        let throughout = Seen {
            without_map: Duration::from_millis(40),
            ..SHUT
        };
        assert!(throughout.judge(Dialect::Master, BOUND, false).is_ok());
    }
}
