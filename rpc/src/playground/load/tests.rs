use tidegate_core::clock::ManualClock;
use tidegate_core::{Moment, Region};

use super::*;
use crate::playground::churn::{Churn, initial_regions};
use crate::playground::judge::Bounds;

const REGIONS: u64 = 30;

/// Answers from a map of its own, which may be an old one.
#[derive(Debug)]
struct Scripted {
    map: Arc<Mutex<Ledger>>,
    declines: Mutex<Vec<Declined>>,
    asked: Mutex<usize>,
}

impl Scripted {
    fn over(map: &Arc<Mutex<Ledger>>, declines: Vec<Declined>) -> Self {
        Self {
            map: Arc::clone(map),
            declines: Mutex::new(declines),
            asked: Mutex::default(),
        }
    }

    fn asked(&self) -> usize {
        *self.asked.lock().expect("a count")
    }
}

impl Target for Scripted {
    async fn ask(&self, question: &Question) -> Result<Answer, Declined> {
        *self.asked.lock().expect("a count") += 1;
        let declined = self.declines.lock().expect("a script").pop();
        if let Some(declined) = declined {
            if declined == Declined::Slow {
                std::future::pending::<()>().await;
            }
            return Err(declined);
        }
        let map = self.map.lock().expect("a map");
        let get = |key: &[u8]| map.containing(key).map(|region| Region::clone(region));
        match question {
            Question::Get(key) => Ok(Answer::One(get(key))),
            Question::ById(id) => Ok(Answer::One(
                map.by_id(*id).map(|region| Region::clone(region)),
            )),
            _ => Err(Declined::Failed("not in the script".to_owned())),
        }
    }
}

fn ledger_of(regions: &[Region]) -> Arc<Mutex<Ledger>> {
    let shared = regions.iter().cloned().map(Arc::new);
    Arc::new(Mutex::new(Ledger::new(
        shared,
        Moment::from_nanos(1),
        Duration::from_secs(60),
    )))
}

fn bounds() -> Bounds {
    Bounds {
        max_age: Duration::from_secs(1),
        stall_threshold: Duration::from_millis(300),
        allowance: Duration::from_millis(100),
    }
}

fn load(targets: Vec<Scripted>, truth: &Arc<Mutex<Ledger>>, clock: &ManualClock) -> Load<Scripted> {
    let tally = Tally::new(bounds(), targets.len());
    let span = Churn::new(REGIONS, 1).span();
    Load::new(
        targets,
        Arc::clone(truth),
        tally,
        Arc::new(clock.clone()),
        Pace::default(),
        span,
    )
}

fn some_key() -> Question {
    Question::Get(crate::playground::keys::key_at(5))
}

#[tokio::test(start_paused = true)]
async fn what_a_replica_declines_the_leader_is_asked() {
    let truth = ledger_of(&initial_regions(REGIONS));
    let clock = ManualClock::new(Moment::from_nanos(5));
    let replica = Scripted::over(&truth, vec![Declined::NoAnswer]);
    let load = load(
        vec![Scripted::over(&truth, vec![]), replica],
        &truth,
        &clock,
    );
    load.look_up(1, &some_key()).await;
    load.look_up(1, &some_key()).await;
    let tally = load.tally();
    assert_eq!(
        (tally.lookups, tally.errors, tally.checked, tally.behind),
        (2, 0, 2, 0)
    );
    assert_eq!(
        (tally.servers[0].answered, tally.servers[1].answered),
        (1, 1)
    );
    assert_eq!(tally.servers[1].declined, 1);
    assert!((tally.leader_share() - 0.5).abs() < 1e-9);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_without_an_answer_within_the_deadline_is_an_error() {
    let truth = ledger_of(&initial_regions(REGIONS));
    let clock = ManualClock::new(Moment::from_nanos(5));
    let down = Declined::Failed("connection refused".to_owned());
    let load = load(
        vec![Scripted::over(&truth, vec![down; 1_000])],
        &truth,
        &clock,
    );
    let started = Instant::now();
    load.look_up(0, &some_key()).await;
    let waited = started.elapsed();
    assert!(
        waited >= load.pace.deadline && waited < load.pace.deadline * 2,
        "{waited:?}"
    );
    let tally = load.tally();
    assert_eq!((tally.lookups, tally.errors, tally.checked), (1, 1, 0));
    assert!(tally.examples[0].contains("connection refused"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_costs_one_attempt() {
    let truth = ledger_of(&initial_regions(REGIONS));
    let clock = ManualClock::new(Moment::from_nanos(5));
    let hanging = Scripted::over(&truth, vec![Declined::Slow]);
    let load = load(
        vec![Scripted::over(&truth, vec![]), hanging],
        &truth,
        &clock,
    );
    let started = Instant::now();
    load.look_up(1, &some_key()).await;
    assert_eq!(started.elapsed(), load.pace.attempt);
    assert_eq!((load.tally().errors, load.targets[0].asked()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_old_answer_is_behind_and_then_stale() {
    let regions = initial_regions(REGIONS);
    let (truth, old) = (ledger_of(&regions), ledger_of(&regions));
    let clock = ManualClock::new(Moment::from_nanos(5));
    let question = some_key();
    let moved = {
        let held = truth
            .lock()
            .expect("a map")
            .by_id(regions[0].id())
            .map(Arc::clone)
            .expect("held");
        held.to_builder()
            .leader(held.peers().get(1))
            .build()
            .expect("valid")
    };
    truth
        .lock()
        .expect("a map")
        .record(Arc::new(moved), clock.now());
    let load = load(
        vec![Scripted::over(&truth, vec![]), Scripted::over(&old, vec![])],
        &truth,
        &clock,
    );
    clock.advance(bounds().stale_after());
    load.look_up(1, &question).await;
    let early = load.tally().clone();
    assert_eq!((early.behind, early.stale), (1, 0));
    clock.advance(Duration::from_millis(1));
    load.look_up(1, &question).await;
    load.look_up(0, &question).await;
    let tally = load.tally();
    assert_eq!(
        (tally.behind, tally.stale, tally.max_behind_changes),
        (2, 1, 1)
    );
    assert_eq!(
        tally.stale_max_age,
        bounds().stale_after() + Duration::from_millis(1)
    );
    assert_eq!(tally.errors, 0);
}

#[tokio::test(start_paused = true)]
async fn recovery_is_the_first_answer_after_the_fault_that_is_not_behind() {
    let truth = ledger_of(&initial_regions(REGIONS));
    let clock = ManualClock::new(Moment::from_nanos(5));
    let load = load(
        vec![
            Scripted::over(&truth, vec![]),
            Scripted::over(&truth, vec![]),
        ],
        &truth,
        &clock,
    );
    load.look_up(1, &some_key()).await;
    assert_eq!(load.tally().time_to_recover(&[1]), None);
    clock.advance(Duration::from_secs(1));
    load.tally().fault_ended(clock.now());
    assert_eq!(load.tally().time_to_recover(&[1]), None);
    clock.advance(Duration::from_millis(30));
    load.look_up(1, &some_key()).await;
    clock.advance(Duration::from_millis(30));
    load.look_up(1, &some_key()).await;
    assert_eq!(
        load.tally().time_to_recover(&[1]),
        Some(Duration::from_millis(30))
    );
    assert_eq!(load.tally().time_to_recover(&[0, 1]), None);
}

#[test]
fn questions_are_of_every_kind_and_answered_by_what_is_held() {
    let regions = initial_regions(REGIONS);
    let truth = ledger_of(&regions);
    let mut truth = truth.lock().expect("a map");
    let mut churn = Churn::new(REGIONS, 9);
    for step in 0..200 {
        let change = churn.next(&truth).expect("a change");
        truth.record(Arc::new(change), Moment::from_nanos(2 + step));
    }
    let mut questions = Questions::new(SmallRng::seed_from_u64(4), churn.span());
    let mut kinds = [0_usize; 6];
    for _ in 0..2_000 {
        let kind = match questions.next(&truth) {
            Question::Get(_) => 0,
            Question::Previous(_) => 1,
            Question::ById(_) => 2,
            Question::Scan { .. } => 3,
            Question::BatchScan { ranges, .. } => {
                for pair in ranges.windows(2) {
                    assert!(pair[0].end() < pair[1].start());
                }
                4
            }
            Question::Query { .. } => 5,
        };
        kinds[kind] += 1;
    }
    assert!(kinds.iter().all(|count| *count > 100), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn clients_take_the_servers_in_turn_until_they_are_stopped() {
    let truth = ledger_of(&initial_regions(REGIONS));
    let clock = ManualClock::new(Moment::from_nanos(5));
    let targets = (0..3).map(|_| Scripted::over(&truth, vec![])).collect();
    let load = Arc::new(load(targets, &truth, &clock));
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&load).run(stop.clone()));
    // Long enough for lookups that are not in the script to run into their deadlines.
    sleep(Duration::from_secs(60)).await;
    stop.cancel();
    running.await.expect("clients stop");
    let asked: Vec<usize> = load.targets.iter().map(Scripted::asked).collect();
    assert!(asked.iter().all(|asked| *asked > 20), "{asked:?}");
}
