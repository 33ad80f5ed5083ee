//! F5: a replica that follows a replica, down to a scripted PD.

use std::sync::Mutex;

use bytes::Bytes;
use tokio_stream::StreamExt;

use crate::pd::{CallError, FrameSource, LeaderKey, PdTransport, Told};
use crate::proto::pdpb::{GetMembersResponse, ScanRegionsResponse, SyncRegionRequest};
use crate::replica::chain::{self, Chain};
use crate::syncer::outlet::Outflow;

use super::peer::Frames;
use super::*;
use crate::replica::sync::Upstream;

type Replicas = Vec<(String, Arc<Shared>)>;

/// Replicas by their address, and the scripted PD for all else.
#[derive(Clone)]
struct Net {
    pd: Pd,
    replicas: Arc<Mutex<Replicas>>,
    /// Addresses behind which everything stands still.
    frozen: Arc<Mutex<Vec<String>>>,
}

impl Net {
    fn is_frozen(&self, url: &str) -> bool {
        self.frozen.lock().unwrap().iter().any(|at| at == url)
    }

    fn freeze(&self, url: &str) {
        self.frozen.lock().unwrap().push(url.to_owned());
    }

    /// Answers everybody who follows or probes PD with nothing new, for so many tenths of a second.
    async fn pd_answers(&self, tenths: u64, mut look: impl FnMut(u64)) {
        let mut streams = Vec::new();
        for tenth in 0..tenths {
            for lane in [Lane::Stream, Lane::Calls] {
                while let Some(stream) = self.pd.try_accept(lane) {
                    stream.send(frame(stream.start_index(), vec![]));
                    streams.push(stream);
                }
            }
            pass(Duration::from_millis(100)).await;
            look(tenth);
        }
    }
}

enum Source {
    Pd(Frames),
    Replica {
        net: Net,
        url: String,
        told: Told,
        frames: Outflow<SyncRegionResponse>,
    },
}

impl FrameSource for Source {
    async fn next_frame(&mut self) -> Result<Option<SyncRegionResponse>, CallError> {
        match self {
            Self::Pd(frames) => frames.next_frame().await,
            Self::Replica { net, url, .. } if net.is_frozen(url) => std::future::pending().await,
            Self::Replica { url, frames, .. } => frames
                .next()
                .await
                .transpose()
                .map_err(|status| CallError::status(url, status)),
        }
    }

    fn told(&self) -> Option<&Told> {
        match self {
            Self::Pd(_) => None,
            Self::Replica { told, .. } => Some(told),
        }
    }
}

impl PdTransport for Net {
    type Frames = Source;

    async fn members(&self, url: &str) -> Result<GetMembersResponse, CallError> {
        self.pd.members(url).await
    }

    async fn leader_key(&self, url: &str, cluster_id: u64) -> Result<Option<LeaderKey>, CallError> {
        self.pd.leader_key(url, cluster_id).await
    }

    async fn scan_regions(
        &self,
        url: &str,
        cluster_id: u64,
        start: Bytes,
        limit: u32,
    ) -> Result<ScanRegionsResponse, CallError> {
        self.pd.scan_regions(url, cluster_id, start, limit).await
    }

    async fn sync_regions(
        &self,
        url: &str,
        lane: Lane,
        request: SyncRegionRequest,
    ) -> Result<Source, CallError> {
        let replica = {
            let replicas = self.replicas.lock().unwrap();
            replicas
                .iter()
                .find(|(own, _)| own == url)
                .map(|(_, shared)| Arc::clone(shared))
        };
        if self.is_frozen(url) {
            return std::future::pending().await;
        }
        let Some(shared) = replica else {
            return Ok(Source::Pd(self.pd.sync_regions(url, lane, request).await?));
        };
        let requests = tokio_stream::once(Ok(request)).chain(tokio_stream::pending());
        let chain = shared.chain().unwrap();
        let opened = chain::open(&shared, chain, requests)
            .await
            .map_err(|status| CallError::status(url, status))?;
        Ok(Source::Replica {
            net: self.clone(),
            url: url.to_owned(),
            told: opened.told,
            frames: opened.frames,
        })
    }
}

/// A PD and replicas that follow it or each other.
struct Chained {
    net: Net,
    stop: CancellationToken,
}

impl Chained {
    fn new() -> Self {
        Self {
            net: Net {
                pd: Pd::new(),
                replicas: Arc::default(),
                frozen: Arc::default(),
            },
            stop: CancellationToken::new(),
        }
    }

    /// Starts a replica at `url` that follows `upstreams` in turn.
    fn replica(&self, url: &str, upstreams: &[&str]) -> World {
        let pd = self.net.pd.clone();
        let mut config = SyncConfig::new("replica", url, vec![pd.url()]).unwrap();
        config.upstreams = upstreams
            .iter()
            .map(|&upstream| match upstream {
                "pd" => Upstream::Pd,
                url => Upstream::Replica(url.to_owned()),
            })
            .collect();
        let shared = Arc::new(Shared::new(
            Arc::new(TokioClock::new()),
            Thresholds::default(),
        ));
        shared.link(Arc::new(Chain::new(config.id(), 4, self.stop.clone())));
        let mut replicas = self.net.replicas.lock().unwrap();
        replicas.push((url.to_owned(), Arc::clone(&shared)));
        drop(replicas);
        let stop = CancellationToken::new();
        let task = spawn(
            Arc::clone(&shared),
            Arc::new(self.net.clone()),
            config,
            &Hooks::default(),
            stop.clone(),
        );
        World {
            shared,
            pd,
            stop,
            task,
        }
    }

    /// The replica "up" that follows PD, proven, and the stream that feeds it.
    async fn upstream(&self) -> (World, Stream) {
        let up = self.replica(UP, &["pd"]);
        let stream = up.follow(regions(1..4), 100).await;
        up.prove().await;
        (up, stream)
    }

    /// Lets the PD answer the next probe with nothing new, whoever sends it.
    async fn answer_probe(&self) -> Stream {
        let probe = self.net.pd.accept(Lane::Calls).await;
        probe.send(frame(probe.start_index(), vec![]));
        probe
    }
}

const UP: &str = "http://up:1";
const DOWN: &str = "http://down:1";

fn proven_at(world: &World) -> Option<tidegate_core::Moment> {
    world.shared.gate.view().proven_at
}

#[tokio::test(start_paused = true)]
async fn f5_a_replica_follows_a_replica_under_the_leaders_indexes() {
    let chained = Chained::new();
    let (up, stream) = chained.upstream().await;
    let down = chained.replica(DOWN, &[UP]);
    down.until("it has synced", || down.ids() == [1, 2, 3])
        .await;
    assert_eq!(down.shared.gate.applied(), 100);
    chained.answer_probe().await;
    down.until("it is proven", || down.serves()).await;
    stream.send(leader_move(100, 2, 1, 3));
    down.until("the record came through", || down.leader_of(2) == Some(3))
        .await;
    assert_eq!(down.shared.gate.applied(), 101);
    assert_eq!(up.shared.chain().unwrap().followers(), 1);
    assert_eq!(down.shared.chain().unwrap().path().len(), 1);
    assert!(
        chained.net.pd.try_accept(Lane::Stream).is_none(),
        "PD feeds one stream"
    );
    up.end().await;
    down.end().await;
}

#[tokio::test(start_paused = true)]
async fn f5_the_age_of_a_chained_answer_counts_from_the_leader() {
    let chained = Chained::new();
    let (up, _stream) = chained.upstream().await;
    pass(Duration::from_secs(2)).await;
    let down = chained.replica(DOWN, &[UP]);
    // The follower's first question makes the upstream ask; PD takes nearly a second for its answer.
    let probe = chained.net.pd.accept(Lane::Calls).await;
    let asked = down.shared.clock.now();
    pass(Duration::from_millis(900)).await;
    assert_eq!(
        proven_at(&down),
        None,
        "an older proof is not taken for one of now"
    );
    probe.send(frame(100, vec![]));
    down.until("it is proven", || proven_at(&down).is_some())
        .await;
    assert_eq!(proven_at(&down), Some(asked));

    // From here on PD is silent. Each replica goes on to ask, and both are as old as PD's last answer.
    for _ in 0..10 {
        pass(Duration::from_secs(1)).await;
        let (at_up, at_down) = (proven_at(&up).unwrap(), proven_at(&down).unwrap());
        assert!(at_down <= at_up, "younger than its upstream");
    }
    assert!(!down.serves(), "nobody has heard of PD for ten seconds");
    assert!(down.shared.counters.probes_sent.get() > 2);
    up.end().await;
    down.end().await;
}

#[tokio::test(start_paused = true)]
async fn f5_a_proof_goes_through_two_replicas_to_the_leader() {
    let chained = Chained::new();
    let (up, _stream) = chained.upstream().await;
    let down = chained.replica(DOWN, &[UP]);
    down.until("it has synced", || down.ids() == [1, 2, 3])
        .await;
    chained.answer_probe().await;
    down.until("it is proven", || down.serves()).await;
    let last = chained.replica("http://last:1", &[DOWN]);
    last.until("it has synced", || last.ids() == [1, 2, 3])
        .await;
    for _ in 0..6 {
        chained.answer_probe().await;
        pass(Duration::from_millis(400)).await;
        let view = [&up, &down, &last].map(proven_at);
        assert!(view[2] <= view[1].max(view[0]), "{view:?}");
    }
    assert!(last.serves());
    assert_eq!(last.shared.chain().unwrap().path().len(), 2);
    for world in [up, down, last] {
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn f5_a_follower_goes_on_at_its_index_from_one_upstream_to_another() {
    let chained = Chained::new();
    let (up, stream) = chained.upstream().await;
    let down = chained.replica(DOWN, &[UP, "pd"]);
    down.until("it has synced", || down.ids() == [1, 2, 3])
        .await;
    stream.send(frame(100, regions(1..2)));
    down.until("it has followed", || down.shared.gate.applied() == 101)
        .await;
    // The upstream goes; PD is next.
    chained.net.replicas.lock().unwrap().clear();
    chained.stop.cancel();
    let next = chained.net.pd.accept(Lane::Stream).await;
    assert_eq!(next.start_index(), 101, "the same term, the same indexes");
    next.send(frame(101, vec![]));
    down.until("it follows PD", || {
        down.shared.stream() == StreamState::Live && down.shared.chain().unwrap().path().is_empty()
    })
    .await;
    assert_eq!(down.shared.counters.full_syncs.get(), 1);
    up.end().await;
    down.end().await;
}

#[tokio::test(start_paused = true)]
async fn f5_a_new_term_upstream_is_a_full_sync_all_the_way_down() {
    let chained = Chained::new();
    let (up, stream) = chained.upstream().await;
    let down = chained.replica(DOWN, &[UP]);
    down.until("it has synced", || down.ids() == [1, 2, 3])
        .await;
    chained.net.pd.set_term(6);
    stream.fail(tonic::Status::unavailable("no leader"));
    let stream = up.stream().await;
    stream.send(frame(0, regions(7..9)));
    stream.send(frame(100, vec![]));
    // Proven before it is swapped in.
    chained.answer_probe().await;
    up.until("it has synced", || up.ids() == [7, 8]).await;
    for _ in 0..40 {
        if down.ids() == [7, 8] {
            break;
        }
        if let Some(probe) = chained.net.pd.try_accept(Lane::Calls) {
            probe.send(frame(probe.start_index(), vec![]));
        }
        pass(Duration::from_millis(250)).await;
    }
    assert_eq!(down.ids(), [7, 8]);
    assert_eq!(down.shared.counters.term_changes.get(), 1);
    up.end().await;
    down.end().await;
}

#[tokio::test(start_paused = true)]
async fn f5_a_circle_is_left_and_proves_nothing() {
    let chained = Chained::new();
    let (up, stream) = chained.upstream().await;
    up.end().await;
    drop(stream);
    // Nobody follows PD: each has only the other.
    let one = chained.replica(DOWN, &["http://two:1"]);
    let two = chained.replica("http://two:1", &[DOWN]);
    pass(Duration::from_secs(30)).await;
    assert!(!one.serves() && !two.serves());
    assert_eq!(proven_at(&one).or(proven_at(&two)), None);
    let own = chained.replica("http://own:1", &["http://own:1"]);
    pass(Duration::from_secs(5)).await;
    assert_eq!(own.shared.stream(), StreamState::Connecting);
    let broken = own.shared.last_broken().unwrap();
    assert!(broken.detail.contains("circle"), "{broken:?}");
    for world in [one, two, own] {
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn f5_what_is_no_replica_is_not_followed_as_one() {
    let chained = Chained::new();
    let world = chained.replica(DOWN, &["http://pd-1:2379"]);
    let stream = chained.net.pd.accept(Lane::Chain).await;
    stream.send(frame(0, regions(1..4)));
    stream.send(frame(100, vec![]));
    world
        .until("it is told", || world.shared.last_broken().is_some())
        .await;
    let broken = world.shared.last_broken().unwrap();
    assert!(broken.detail.contains("is no replica"), "{broken:?}");
    assert_eq!(world.ids(), [0; 0]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn f5_replicas_that_stand_still_are_left_before_the_gate_has_to_shut() {
    const THIRD: &str = "http://third:1";
    // At whatever point between two probes it happens, and if the next one stands still as well.
    for tenths in [0, 5, 15, 25, 29] {
        let chained = Chained::new();
        let (up, _stream) = chained.upstream().await;
        let third = chained.replica(THIRD, &["pd"]);
        let _third_stream = third.follow(regions(1..4), 100).await;
        third.prove().await;
        let down = chained.replica(DOWN, &[UP, "http://second:1", THIRD]);
        down.until("it has synced", || down.ids() == [1, 2, 3])
            .await;
        chained.answer_probe().await;
        down.until("it is proven", || down.serves()).await;
        let proven = proven_at(&down);
        while proven_at(&down) == proven {
            chained.net.pd_answers(1, |_| {}).await;
        }
        chained.net.pd_answers(tenths, |_| {}).await;
        chained.net.freeze(UP);
        chained.net.freeze("http://second:1");
        let serves = |tenth| {
            let broken = down.shared.last_broken();
            assert!(
                down.serves(),
                "{tenths}: shut after {tenth} tenths of a second: {broken:?}"
            );
        };
        chained.net.pd_answers(150, serves).await;
        let path = down.shared.chain().unwrap().path();
        assert_eq!(path, [third.shared.chain().unwrap().id()]);
        assert_eq!(down.shared.counters.full_syncs.get(), 1);
        for world in [up, third, down] {
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn f5_the_only_replica_to_follow_is_not_left_for_a_probe() {
    let chained = Chained::new();
    let (up, _stream) = chained.upstream().await;
    let down = chained.replica(DOWN, &[UP]);
    down.until("it has synced", || down.ids() == [1, 2, 3])
        .await;
    chained.answer_probe().await;
    down.until("it is proven", || down.serves()).await;
    // PD stops answering: the upstream's gate shuts, and it says so to each probe.
    for _ in 0..20 {
        pass(Duration::from_secs(1)).await;
    }
    assert!(!down.serves());
    assert_eq!(down.shared.last_broken().map(|broken| broken.reason), None);
    assert_eq!(up.shared.chain().unwrap().followers(), 1);
    up.end().await;
    down.end().await;
}
