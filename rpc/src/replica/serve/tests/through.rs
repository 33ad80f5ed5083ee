//! Read-through as a client sees it: services called directly, a scripted leader behind them, under virtual time.

mod batches;
mod paused;
mod unfit;

use super::*;
use crate::clock::TokioClock;
use crate::pd::Term;
use crate::proto::pdpb::ErrorType;
use crate::replica::ask::tests::script::{Call, Is, Leader, Script};
use crate::replica::ask::{self, Bounds, MARK};
use tokio_util::sync::CancellationToken;

/// A replica that reads through, and its leader. Both hold ["", d) of store 1, [d, m), [m, ""); the map was proven
/// fresh at the start.
struct Through {
    serving: Arc<Serving>,
    script: Arc<Script>,
    stop: CancellationToken,
}

const REGIONS: [Is; 3] = [
    Is(1, "", "d", 5, 1),
    Is(2, "d", "m", 5, 1),
    Is(3, "m", "", 5, 1),
];

impl Through {
    fn new() -> Self {
        Self::with(Bounds::default())
    }

    fn with(bounds: Bounds) -> Self {
        Self::clocked(bounds, Arc::new(TokioClock::new()))
    }

    fn clocked(bounds: Bounds, clock: Arc<dyn Clock>) -> Self {
        let shared = Shared::new(clock, Thresholds::default());
        assert!(shared.settle_cluster(CLUSTER));
        let shared = Arc::new(shared);
        let remote = Arc::new(Remote::new(ChannelSettings::default(), None));
        let script = Script::new(&REGIONS);
        let asker = Arc::new(Asker::new(bounds));
        let stop = CancellationToken::new();
        let leader = Arc::new(Leader(Arc::clone(&script)));
        ask::spawn(&asker, &shared, &leader, &stop);
        let timeout = Duration::from_millis(100);
        let serving = Serving::new(Arc::clone(&shared), remote, vec![], timeout, false);
        let serving = Arc::new(serving.reading_through(asker));
        let through = Self {
            serving,
            script,
            stop,
        };
        through.lead(Some(1));
        through.full_sync(1, &REGIONS);
        through
    }

    fn lead(&self, term: Option<i64>) {
        let member = Member {
            member_id: 1,
            client_urls: vec!["http://pd-1".to_owned()],
            ..Member::default()
        };
        self.serving.shared.publish_pd(PdView {
            cluster_id: CLUSTER,
            members: vec![member.clone()],
            leader: Some(LeaderView {
                member,
                url: "http://pd-1".to_owned(),
                term: term.map(Term::from_create_revision),
            }),
        });
    }

    fn full_sync(&self, generation: u64, regions: &[Is]) {
        let shared = &self.serving.shared;
        let now = shared.clock.now();
        shared.gate.begin(generation);
        shared.gate.head_received(generation, 10);
        shared.gate.apply_started(generation, now);
        shared.gate.apply_finished(generation, 10, now);
        shared.gate.probe_answered(generation, now, 10);
        let map = RegionMap::new();
        for is in regions {
            let received_at = now;
            let region = ask::tests::script::region(*is);
            let _ = map.put(region, Provenance::Stream { received_at });
        }
        shared.map.replace_with(map, generation);
        shared.gate.publish(generation);
    }

    /// Lets the proof grow too old.
    async fn shut(&self) {
        tokio::time::advance(Duration::from_millis(10_001)).await;
        assert_eq!(self.serving.shut(), Some(RefuseReason::Age));
    }

    async fn get(&self, key: &str) -> Got {
        self.get_with(key, &[]).await
    }

    async fn get_with(&self, key: &str, metadata: &[(&'static str, &str)]) -> Got {
        let request = GetRegionRequest {
            header: header(),
            region_key: key.as_bytes().to_vec().into(),
            need_buckets: false,
        };
        let mut request = to_follower(request);
        for (name, value) in metadata {
            request
                .metadata_mut()
                .append(*name, value.parse().expect("ascii"));
        }
        let response = PdService(Arc::clone(&self.serving))
            .get_region(request)
            .await;
        Got::of(&response.expect("a header"))
    }

    async fn query(&self, request: QueryRegionRequest) -> QueryRegionResponse {
        self.query_with(request, Demand::default()).await
    }

    async fn query_with(&self, request: QueryRegionRequest, demand: Demand) -> QueryRegionResponse {
        let request = QueryRegionRequest {
            header: header(),
            ..request
        };
        let requests = tokio_stream::iter([Ok(request)]);
        let serving = Arc::clone(&self.serving);
        let stream = super::super::query::QueryStream::new(serving, demand, requests);
        let mut stream = stream.messages();
        stream.next().await.expect("a frame").expect("no status")
    }

    fn counts(&self, method: Method) -> counters::Counts {
        self.serving.counters.of(method)
    }
}

impl Drop for Through {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// An answer to GetRegion, short.
#[derive(Debug, PartialEq)]
struct Got {
    id: u64,
    /// The store of the region's leader.
    store: u64,
    error: Option<i32>,
    source: String,
    age_ms: Option<u64>,
}

impl Got {
    fn of(response: &Response<GetRegionResponse>) -> Self {
        let text = |key| response.metadata().get(key).and_then(|it| it.to_str().ok());
        let answer = response.get_ref();
        Self {
            id: answer.region.as_ref().map_or(0, |region| region.id),
            store: answer.leader.as_ref().map_or(0, |leader| leader.store_id),
            error: error_of(answer.header.as_ref()).map(|(kind, _)| kind),
            source: text("tidegate-source").unwrap_or("").to_owned(),
            age_ms: text("tidegate-age-ms").and_then(|age| age.parse().ok()),
        }
    }

    fn from(source: &str, id: u64, store: u64, age_ms: u64) -> Self {
        let source = source.to_owned();
        Self {
            id,
            store,
            error: None,
            source,
            age_ms: Some(age_ms),
        }
    }
}

fn keys(keys: &[&str]) -> QueryRegionRequest {
    QueryRegionRequest {
        keys: keys
            .iter()
            .map(|key| key.as_bytes().to_vec().into())
            .collect(),
        ..QueryRegionRequest::default()
    }
}

fn remove(map: &RegionMap, id: u64) {
    let mut batch = tidegate_core::Batch::new();
    batch.remove(id, tidegate_core::Expect::Any);
    let _ = map.apply(batch);
}

#[tokio::test(start_paused = true)]
async fn an_open_gate_asks_nobody() {
    let bench = Through::new();
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(bench.get("a").await, Got::from("map", 1, 1, 2_000));
    assert_eq!(bench.query(keys(&["a", "e"])).await.key_id_map, [1, 2]);
    assert_eq!(bench.script.asked(), []);
}

#[tokio::test(start_paused = true)]
async fn f7_behind_a_shut_gate_the_leader_is_asked_once_and_then_its_word_is_served() {
    let bench = Through::new();
    bench.shut().await;
    bench.script.knows(Is(1, "", "d", 5, 2));
    assert_eq!(bench.get("a").await, Got::from("leader", 1, 2, 0));
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(
        bench.get("b").await,
        Got::from("confirmed", 1, 2, 4_000),
        "the same region"
    );
    assert_eq!(bench.script.asked().len(), 1);
    let counts = bench.counts(Method::GetRegion);
    assert_eq!(
        (
            counts.served,
            counts.asked,
            counts.confirmed,
            counts.refused
        ),
        (0, 1, 1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn an_entry_is_served_until_its_own_confirmation_is_too_old() {
    let bench = Through::new();
    bench.shut().await;
    let _ = bench.get("a").await;
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(bench.get("a").await, Got::from("confirmed", 1, 1, 10_000));
    tokio::time::advance(Duration::from_millis(2)).await;
    assert_eq!(bench.get("a").await.source, "leader");
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_is_of_no_use_in_another_generation() {
    let bench = Through::new();
    bench.shut().await;
    let _ = bench.get("a").await;
    let shared = &bench.serving.shared;
    shared.map.replace_with(RegionMap::new(), 2);
    let got = bench.get("a").await;
    assert_eq!((got.source.as_str(), got.id), ("leader", 1));
}

#[tokio::test(start_paused = true)]
async fn a_miss_is_asked_and_the_leaders_miss_is_passed_on() {
    let bench = Through::new();
    remove(&bench.serving.shared.map, 2);
    assert_eq!(bench.get("e").await, Got::from("leader", 2, 1, 0));
    assert_eq!(bench.get("e").await.source, "map", "healed");
    remove(&bench.serving.shared.map, 2);
    remove(&bench.script.map, 2);
    assert_eq!(
        bench.get("e").await,
        Got::from("leader", 0, 0, 0),
        "a success without a region"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leaders_error_is_passed_on_unchanged() {
    let bench = Through::new();
    bench.shut().await;
    *bench.script.error.lock().expect("unpoisoned") = Some(ErrorType::NotBootstrapped);
    let got = bench.get("a").await;
    assert_eq!((got.error, got.source.as_str()), (Some(2), "leader"));
    let answer = bench.query(keys(&["a"])).await;
    assert_eq!(
        error_of(answer.header.as_ref()).map(|(kind, _)| kind),
        Some(2)
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_to_ask_the_lookup_is_refused_for_the_gates_reason() {
    let bench = Through::new();
    bench.shut().await;
    assert!(bench.serving.is_serving(), "the leader can be asked");
    bench.serving.shared.publish_no_leader();
    assert!(!bench.serving.is_serving());
    let got = bench.get("a").await;
    assert_eq!(
        (got.error, got.source.as_str()),
        (Some(REGION_NOT_FOUND), "none")
    );
    let answer = bench.query(keys(&["a"])).await;
    assert_eq!(error_of(answer.header.as_ref()), refused());
    assert_eq!(
        bench.counts(Method::GetRegion).refused_by_reason,
        [("age", 1)].into()
    );
    assert_eq!(
        bench.counts(Method::QueryRegion).refused_by_reason,
        [("age", 1)].into()
    );
}

#[tokio::test(start_paused = true)]
async fn what_exceeds_the_bounds_is_refused() {
    let bench = Through::with(Bounds {
        waiting: 0,
        ..Bounds::default()
    });
    bench.shut().await;
    assert_eq!(bench.get("a").await.error, Some(REGION_NOT_FOUND));
    let asks = bench
        .serving
        .asked()
        .expect("reads through")
        .counters()
        .read();
    assert_eq!(asks.overflow, 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_of_another_replica_is_never_read_through_again() {
    let bench = Through::new();
    bench.shut().await;
    let got = bench.get_with("a", &[(MARK, "1")]).await;
    assert_eq!(got.error, Some(REGION_NOT_FOUND));
    let marked = MetadataMap::from_headers(
        [(MARK.parse().expect("a name"), "1".parse().expect("a value"))]
            .into_iter()
            .collect(),
    );
    let demand = Demand::of(&marked).expect("readable");
    let answer = bench.query_with(keys(&["a"]), demand).await;
    assert_eq!(error_of(answer.header.as_ref()), refused());
    assert_eq!(bench.script.asked(), []);
}

#[tokio::test(start_paused = true)]
async fn a_caller_may_demand_a_younger_answer() {
    let bench = Through::new();
    tokio::time::advance(Duration::from_secs(2)).await;
    let strict = [("tidegate-max-age-ms", "1500")];
    assert_eq!(
        bench.get_with("a", &strict).await,
        Got::from("leader", 1, 1, 0)
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(
        bench.get_with("a", &strict).await,
        Got::from("confirmed", 1, 1, 1_000)
    );
    assert_eq!(bench.get("a").await, Got::from("map", 1, 1, 3_000));
    bench.serving.shared.gate.head_received(1, 15);
    let close = [("tidegate-max-lag", "4")];
    assert_eq!(bench.get_with("e", &close).await.source, "leader");
    assert_eq!(
        bench
            .get_with("x", &[("tidegate-max-lag", "5")])
            .await
            .source,
        "map"
    );
}

#[tokio::test(start_paused = true)]
async fn f3_an_answer_below_the_callers_floor_is_asked_of_the_leader() {
    let bench = Through::new();
    bench.script.knows(Is(1, "", "d", 6, 2));
    for floor in ["region=1;version=6", "key=61;version=6"] {
        let bench = Through::new();
        bench.script.knows(Is(1, "", "d", 6, 2));
        assert_eq!(bench.get("a").await.source, "map");
        assert_eq!(
            bench.get_with("a", &[("tidegate-floor", floor)]).await,
            Got::from("leader", 1, 2, 0)
        );
        assert_eq!(
            bench
                .get_with("a", &[("tidegate-floor", floor)])
                .await
                .source,
            "map",
            "healed"
        );
    }
    assert_eq!(
        bench
            .get_with("a", &[("tidegate-floor", "region=1;version=5")])
            .await
            .source,
        "map"
    );
}

#[tokio::test(start_paused = true)]
async fn f3_a_floor_that_the_leader_cannot_meet_ends_after_one_answer_of_the_leader() {
    let bench = Through::new();
    let floor = [("tidegate-floor", "region=1;version=9")];
    assert_eq!(
        bench.get_with("a", &floor).await,
        Got::from("leader", 1, 1, 0)
    );
    assert_eq!(bench.script.asked().len(), 1);
    let mut metadata = MetadataMap::new();
    metadata.insert(
        "tidegate-floor",
        "region=1;version=9".parse().expect("ascii"),
    );
    let demand = Demand::of(&metadata).expect("readable");
    let answer = bench.query_with(keys(&["a", "e"]), demand).await;
    assert_eq!(answer.key_id_map, [1, 2]);
    assert_eq!(bench.script.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_demand_that_cannot_be_read_is_turned_away() {
    let bench = Through::new();
    let mut request = to_follower(key(b"a"));
    request
        .metadata_mut()
        .insert("tidegate-max-age-ms", "soon".parse().expect("ascii"));
    let status = PdService(Arc::clone(&bench.serving))
        .get_region(request)
        .await;
    assert_eq!(
        status.expect_err("turned away").code(),
        Code::InvalidArgument
    );
    assert_eq!(
        bench.counts(Method::GetRegion).rejected_by_cause,
        [("demand", 1)].into()
    );
}

#[tokio::test(start_paused = true)]
async fn while_pd_has_no_leader_at_all_max_outage_takes_the_place_of_age_and_silence() {
    let bench = Through::new();
    let shared = &bench.serving.shared;
    shared
        .thresholds
        .set_max_outage(Some(Duration::from_secs(60)));
    tokio::time::advance(Duration::from_secs(40)).await;
    shared.publish_no_leader();
    assert_eq!(
        bench.get("a").await.error,
        Some(REGION_NOT_FOUND),
        "it may only be hidden"
    );
    shared.note_outage(true);
    assert_eq!(bench.get("a").await, Got::from("map", 1, 1, 40_000));
    assert!(bench.serving.is_serving());
    let strict = [("tidegate-max-age-ms", "39999")];
    assert_eq!(
        bench.get_with("a", &strict).await.error,
        Some(REGION_NOT_FOUND)
    );
    // What was seen of PD grows old, too, if nobody looks again.
    tokio::time::advance(Duration::from_millis(10_001)).await;
    assert_eq!(bench.get("a").await.error, Some(REGION_NOT_FOUND));
    shared.note_outage(true);
    assert_eq!(bench.get("a").await.source, "map");
    tokio::time::advance(Duration::from_secs(10)).await;
    shared.note_outage(true);
    assert_eq!(
        bench.get("a").await.error,
        Some(REGION_NOT_FOUND),
        "a minute is over"
    );
    bench.full_sync(2, &REGIONS);
    shared.note_outage(false);
    bench.lead(Some(2));
    tokio::time::advance(Duration::from_millis(10_001)).await;
    assert_eq!(
        bench.get("a").await.source,
        "leader",
        "the usual bounds again"
    );
}
