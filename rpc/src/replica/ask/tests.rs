//! Read-through against a scripted leader, under virtual time.

mod bounds;
mod coalescing;
mod leaders;
pub(in crate::replica) mod script;
mod unfit;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::gate::Thresholds;
use tidegate_core::{Moment, Provenance};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::TokioClock;
use crate::pd::Term;
use crate::proto::pdpb::Member;
use crate::replica::heal::Kind;
use crate::replica::state::{LeaderView, PdView, Shared};
use script::{CLUSTER, Call, Is, Leader, Script, region};

/// A replica's asking side, and the leader that it asks.
struct Bench {
    shared: Arc<Shared>,
    asker: Arc<Asker>,
    script: Arc<Script>,
    stop: CancellationToken,
}

/// ["", d) of store 1, [d, m), [m, "").
const REGIONS: [Is; 3] = [
    Is(1, "", "d", 5, 1),
    Is(2, "d", "m", 5, 1),
    Is(3, "m", "", 5, 1),
];

pub(in crate::replica) fn view(url: &str, term: Option<i64>) -> PdView {
    let member = Member {
        member_id: 1,
        client_urls: vec![url.to_owned()],
        ..Member::default()
    };
    PdView {
        cluster_id: CLUSTER,
        members: vec![member.clone()],
        leader: Some(LeaderView {
            member,
            url: url.to_owned(),
            term: term.map(Term::from_create_revision),
        }),
    }
}

impl Bench {
    fn new() -> Self {
        Self::bounded(Bounds::default())
    }

    /// Leader and map agree.
    fn bounded(bounds: Bounds) -> Self {
        let shared = Arc::new(Shared::new(
            Arc::new(TokioClock::new()),
            Thresholds::default(),
        ));
        shared.publish_pd(view("http://pd-1", Some(1)));
        let script = Script::new(&REGIONS);
        let received_at = Moment::from_nanos(1);
        for is in REGIONS {
            let _ = shared
                .map
                .put(region(is), Provenance::Stream { received_at });
        }
        let asker = Arc::new(Asker::new(bounds));
        let stop = CancellationToken::new();
        let leader = Arc::new(Leader(Arc::clone(&script)));
        spawn(&asker, &shared, &leader, &stop);
        Self {
            shared,
            asker,
            script,
            stop,
        }
    }

    fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    /// Asks in a task of its own, for an answer to a question sent at `since` or later.
    fn ask_since(&self, question: Question, since: Moment) -> JoinHandle<Outcome> {
        let asker = Arc::clone(&self.asker);
        let deadline = Instant::now() + Duration::from_secs(5);
        tokio::spawn(async move { asker.ask(question, since, deadline).await })
    }

    /// Any flight will do.
    fn ask(&self, question: Question) -> JoinHandle<Outcome> {
        self.ask_since(question, Moment::from_nanos(1))
    }

    /// What the map says of a key: id, store of the leader, whether the leader confirmed it.
    fn holds(&self, key: &str) -> Option<(u64, u64, bool)> {
        let snapshot = self.shared.map.pin();
        let entry = snapshot.get(key.as_bytes())?;
        let store = entry.leader().map_or(0, |leader| leader.store_id);
        Some((entry.id(), store, entry.confirmed_at().is_some()))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn key(key: &str) -> Question {
    point(Point::Key(key.as_bytes().to_vec().into()))
}

fn point(point: Point) -> Question {
    Question::Point {
        point,
        with_buckets: false,
    }
}

fn scan(start: &str, end: &str) -> Question {
    Question::Scan(crate::proto::pdpb::ScanRegionsRequest {
        start_key: start.as_bytes().to_vec().into(),
        end_key: end.as_bytes().to_vec().into(),
        ..Default::default()
    })
}

fn query(keys: &[&str]) -> Call {
    Call::Query {
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        prev: vec![],
        ids: vec![],
    }
}

/// Lets everything run that does not wait for time to pass.
async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// The id of the region that was answered; 0 for none.
fn id_of(outcome: &Outcome) -> u64 {
    match &outcome.as_ref().expect("an answer").answer {
        Answer::Region(found) => found.region.as_ref().map_or(0, |region| region.id),
        Answer::Nothing => 0,
        other => panic!("{other:?}"),
    }
}

async fn done(task: JoinHandle<Outcome>) -> Outcome {
    task.await.expect("no panic")
}

#[tokio::test(start_paused = true)]
async fn f7_an_answer_is_the_leaders_and_heals_and_confirms_the_entry() {
    let bench = Bench::new();
    bench.script.knows(Is(1, "", "d", 5, 2));
    let asked_at = bench.now();
    let told = done(bench.ask(key("a"))).await.expect("an answer");
    assert_eq!(told.asked_at, asked_at);
    assert_eq!(bench.holds("a"), Some((1, 2, true)));
    assert_eq!(bench.holds("e"), Some((2, 1, false)), "nobody asked");
    assert_eq!(bench.shared.heals.get(Kind::Replaced), 1);
}

#[tokio::test(start_paused = true)]
async fn f7_every_kind_of_lookup_goes_out_in_one_batch() {
    let bench = Bench::new();
    bench.script.hold();
    let first = bench.ask(key("a"));
    settle().await;
    let rest = [
        bench.ask(key("e")),
        bench.ask(point(Point::Prev(b"e".to_vec().into()))),
        bench.ask(point(Point::Id(3))),
        bench.ask(point(Point::Id(99))),
    ];
    settle().await;
    assert_eq!(bench.script.asked(), [query(&["a"])], "the rest gathers");
    bench.script.release(2);
    assert_eq!(id_of(&done(first).await), 1);
    let mut ids = Vec::new();
    for task in rest {
        ids.push(id_of(&done(task).await));
    }
    assert_eq!(ids, [2, 1, 3, 0]);
    let second = Call::Query {
        keys: vec!["e".into()],
        prev: vec!["e".into()],
        ids: vec![3, 99],
    };
    assert_eq!(bench.script.asked(), [query(&["a"]), second]);
    let counts = bench.asker.counters().read();
    assert_eq!((counts.asked, counts.batches, counts.batched), (5, 2, 5));
}

#[tokio::test(start_paused = true)]
async fn questions_with_and_without_buckets_do_not_share_a_batch() {
    let bench = Bench::new();
    bench.script.hold();
    let first = bench.ask(key("a"));
    settle().await;
    let with = Question::Point {
        point: Point::Key(b"e".to_vec().into()),
        with_buckets: true,
    };
    let tasks = [bench.ask(key("e")), bench.ask(with), bench.ask(key("x"))];
    bench.script.release(10);
    assert_eq!(id_of(&done(first).await), 1);
    for task in tasks {
        assert!(done(task).await.is_ok());
    }
    let asked = [query(&["a"]), query(&["e"]), query(&["e"]), query(&["x"])];
    assert_eq!(bench.script.asked(), asked);
}

#[tokio::test(start_paused = true)]
async fn half_a_split_is_answered_at_once_and_the_other_half_is_asked_about() {
    let bench = Bench::new();
    bench.script.knows(Is(9, "d", "g", 6, 1));
    bench.script.knows(Is(2, "g", "m", 6, 1));
    assert_eq!(id_of(&done(bench.ask(key("e"))).await), 9);
    settle().await;
    assert_eq!(
        bench.script.asked(),
        [query(&["e"]), Call::Scan("d".into(), "m".into())]
    );
    assert_eq!(bench.holds("e"), Some((9, 1, true)));
    assert_eq!(bench.holds("h"), Some((2, 1, true)));
    assert_eq!(bench.shared.heals.get(Kind::HeldBack), 1);
}

#[tokio::test(start_paused = true)]
async fn a_scan_is_answered_as_the_leader_has_it_and_removes_what_it_does_not_have() {
    let bench = Bench::new();
    let mut gone = tidegate_core::Batch::new();
    gone.remove(2, tidegate_core::Expect::Any);
    let _ = bench.script.map.apply(gone);
    let told = done(bench.ask(scan("", ""))).await.expect("an answer");
    let Answer::Scan(answer) = &told.answer else {
        panic!("{told:?}")
    };
    assert_eq!(answer.regions.len(), 2);
    assert_eq!(bench.holds("e"), None);
    assert_eq!(bench.holds("a"), Some((1, 1, true)));
}
