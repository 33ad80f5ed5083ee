//! What a replica serves to those who follow it, under virtual time; the map and its proofs are what the test says.

use std::time::Duration;

use tidegate_core::gate::Thresholds;
use tidegate_core::{Batch, BulkLoad, Key, KeyRange, Provenance, Region, RegionEpoch};
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt;
use tonic::{Code, Status};

use crate::clock::TokioClock;
use crate::pd::Term;
use crate::pd::told::CALLER;
use crate::proto::pdpb::{Member, RequestHeader, SyncRegionRequest, SyncRegionResponse};
use crate::replica::state::Shared;
use crate::replica::sync::Staged;
use crate::syncer::outlet::Outflow;

use super::serve::Opened;
use super::*;

const CLUSTER: u64 = 7;
const ID: &str = "00000000000000aa";
const SECOND: Duration = Duration::from_secs(1);

/// A replica in the term 5 whose leader is what the test does.
struct Upstream {
    shared: Arc<Shared>,
    chain: Arc<Chain>,
    stop: CancellationToken,
}

impl Upstream {
    /// With regions 1 to `regions` at the index `next`, proven now.
    fn new(regions: u64, next: u64) -> Self {
        Self::with_downstreams(regions, next, 4)
    }

    fn with_downstreams(regions: u64, next: u64, downstreams: usize) -> Self {
        let clock = Arc::new(TokioClock::new());
        let shared = Arc::new(Shared::new(clock, Thresholds::default()));
        shared.settle_cluster(CLUSTER);
        let stop = CancellationToken::new();
        let chain = Arc::new(Chain::new(ID, downstreams, stop.clone()));
        let upstream = Self {
            shared,
            chain,
            stop,
        };
        upstream.full_sync(5, regions, next);
        upstream.prove();
        upstream
    }

    fn full_sync(&self, term: i64, regions: u64, next: u64) {
        let received_at = Moment::from_nanos(1);
        let mut load = BulkLoad::new();
        for id in 1..=regions {
            load.put(region(id, 1), Provenance::Stream { received_at });
        }
        let staged = Staged::loaded(&self.shared, load);
        let generation = staged.generation();
        self.shared
            .gate
            .apply_finished(generation, next, self.shared.clock.now());
        staged.publish(&self.shared);
        self.chain.replaced(generation, Some(reign(term)), next);
    }

    /// The leader was asked now, and this replica had all of it.
    fn prove(&self) {
        let generation = self.shared.gate.generation();
        let head = self.shared.gate.applied();
        let now = self.shared.clock.now();
        self.shared.gate.probe_answered(generation, now, head);
        self.chain.asking().turned(now);
    }

    /// The leader records new versions of these regions.
    fn record(&self, changed: &[(u64, u64)]) {
        let first = self.shared.gate.applied();
        let batch = batch(changed.iter().map(|&(id, version)| region(id, version)));
        let entries: Vec<SharedEntry> = batch.entries().cloned().collect();
        self.shared.map.apply(batch);
        self.chain.append(first, entries);
        self.received(first + changed.len() as u64);
    }

    /// A frame of the leader's has been applied up to `next`.
    fn received(&self, next: u64) {
        let generation = self.shared.gate.generation();
        let now = self.shared.clock.now();
        self.shared.gate.apply_finished(generation, next, now);
    }

    /// The leader says that there is nothing new.
    fn keepalive(&self) {
        self.received(self.shared.gate.applied());
        self.chain.beat(self.shared.clock.now());
    }

    async fn ask(&self, name: &str, start_index: u64, term: i64) -> Result<Answer, Status> {
        let request = SyncRegionRequest {
            header: Some(RequestHeader {
                cluster_id: CLUSTER,
                caller_component: CALLER.to_owned(),
                caller_id: term.to_string(),
                ..RequestHeader::default()
            }),
            member: Some(Member {
                name: name.to_owned(),
                client_urls: vec!["http://follower:1".to_owned()],
                ..Member::default()
            }),
            start_index,
        };
        let requests = tokio_stream::once(Ok(request)).chain(tokio_stream::pending());
        let Opened { told, frames } = open(&self.shared, &self.chain, requests).await?;
        Ok(Answer { told, frames })
    }

    async fn follow(&self, name: &str, start_index: u64) -> Answer {
        self.ask(name, start_index, 5).await.unwrap()
    }

    async fn probe(&self, start_index: u64) -> Result<Answer, Status> {
        self.ask("one-00000000000000bb-probe", start_index, 5).await
    }
}

#[derive(Debug)]
struct Answer {
    told: Told,
    frames: Outflow<SyncRegionResponse>,
}

impl Answer {
    /// Start index and ids of the next frame, which comes within a minute.
    async fn next(&mut self) -> (u64, Vec<u64>) {
        let frame = self.frame().await.unwrap();
        let ids = frame.regions.iter().map(|region| region.id).collect();
        (frame.start_index, ids)
    }

    async fn frame(&mut self) -> Result<SyncRegionResponse, Status> {
        let next = timeout(60 * SECOND, self.frames.next()).await;
        next.expect("a frame").expect("no end")
    }

    async fn is_quiet_for(&mut self, time: Duration) -> bool {
        timeout(time, self.frames.next()).await.is_err()
    }
}

fn reign(term: i64) -> Reign {
    Reign {
        term: Term::from_create_revision(term),
        member_id: 9,
        member_name: "pd".to_owned(),
    }
}

fn region(id: u64, version: u64) -> Region {
    let key = |at: u64| Key::from(&at.to_be_bytes()[..]);
    let range = KeyRange::new(key(id), key(id + 1)).unwrap();
    let epoch = RegionEpoch {
        conf_ver: 1,
        version,
    };
    Region::builder(id, range, epoch).build().unwrap()
}

fn batch(regions: impl IntoIterator<Item = Region>) -> Batch {
    let received_at = Moment::from_nanos(1);
    regions
        .into_iter()
        .map(|region| (region, Provenance::Stream { received_at }))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn f5_a_new_follower_gets_the_map_what_changed_meanwhile_and_then_the_records() {
    let upstream = Upstream::new(3, 100);
    let mut follower = upstream.follow("one", 0).await;
    assert_eq!(follower.told.term, Term::from_create_revision(5));
    assert_eq!(follower.told.leader_id, 9);
    assert_eq!(follower.told.path, [ID]);
    assert_eq!(follower.next().await, (0, vec![1, 2, 3]));
    assert_eq!(follower.next().await, (100, vec![]), "complete");
    upstream.record(&[(2, 2), (3, 2)]);
    assert_eq!(follower.next().await, (100, vec![2, 3]));
    assert_eq!(upstream.chain.followers(), 1);
    drop(follower);
    sleep(SECOND).await;
    assert_eq!(upstream.chain.followers(), 0);
}

#[tokio::test(start_paused = true)]
async fn f5_what_is_recorded_during_a_full_sync_follows_it() {
    let upstream = Upstream::new(2_500, 100);
    let mut follower = upstream.follow("one", 0).await;
    // Two pages have been looked at and wait to be read.
    sleep(SECOND).await;
    upstream.record(&[(1, 2), (2_500, 2)]);
    let mut positions = Vec::new();
    for _ in 0..3 {
        let (position, ids) = follower.next().await;
        positions.push((position, ids.len()));
    }
    assert_eq!(positions, [(0, 1_000), (1_000, 1_000), (2_000, 500)]);
    assert_eq!(follower.next().await, (100, vec![1, 2_500]));
    assert_eq!(follower.next().await, (102, vec![]));
}

#[tokio::test(start_paused = true)]
async fn f5_a_follower_resumes_at_its_own_index_within_the_ring() {
    let upstream = Upstream::new(3, 100);
    upstream.record(&[(1, 2), (2, 2), (3, 2)]);
    let mut behind = upstream.follow("one", 101).await;
    assert_eq!(behind.next().await, (101, vec![2, 3]));
    let mut there = upstream.follow("two", 103).await;
    assert_eq!(there.next().await, (103, vec![]));
    let mut too_old = upstream.follow("three", 99).await;
    assert_eq!(too_old.next().await, (0, vec![1, 2, 3]));
    assert_eq!(too_old.next().await, (103, vec![]));
}

#[tokio::test(start_paused = true)]
async fn f5_a_record_that_the_map_refuses_keeps_its_place() {
    let upstream = Upstream::new(3, 100);
    let mut follower = upstream.follow("one", 100).await;
    assert_eq!(follower.next().await, (100, vec![]));
    upstream.record(&[(1, 5)]);
    assert_eq!(follower.next().await, (100, vec![1]));
    upstream.record(&[(1, 4)]);
    let frame = follower.frame().await.unwrap();
    assert_eq!(frame.start_index, 101);
    assert_eq!(frame.regions[0].region_epoch.unwrap().version, 4);
}

#[tokio::test(start_paused = true)]
async fn f5_an_index_of_another_term_gets_everything_and_one_beyond_ours_nothing() {
    let upstream = Upstream::new(3, 100);
    for start in [1, 100, 5_000] {
        let mut other = upstream.ask("one", start, 4).await.unwrap();
        assert_eq!(other.told.term, Term::from_create_revision(5));
        assert_eq!(other.next().await, (0, vec![1, 2, 3]), "asked at {start}");
    }
    let ahead = upstream.ask("one", 101, 5).await.unwrap_err();
    assert_eq!(ahead.code(), Code::Unavailable);
    assert!(ahead.message().contains("behind its follower"), "{ahead}");
}

#[tokio::test(start_paused = true)]
async fn f5_a_full_sync_here_ends_the_streams() {
    let upstream = Upstream::new(2_500, 100);
    let mut live = upstream.follow("one", 100).await;
    assert_eq!(live.next().await, (100, vec![]));
    let mut syncing = upstream.follow("two", 0).await;
    sleep(SECOND).await;
    upstream.full_sync(6, 2, 100);
    let error = live.frame().await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("synced anew"), "{error}");
    // What was on its way; then no page of the new map behind pages of the old one.
    assert_eq!(syncing.next().await.0, 0);
    assert_eq!(syncing.next().await.0, 1_000);
    let error = syncing.frame().await.unwrap_err();
    assert!(error.message().contains("synced anew"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn f5_a_keepalive_is_passed_on_after_what_waits_and_none_is_made_here() {
    let upstream = Upstream::new(3, 100);
    let mut follower = upstream.follow("one", 100).await;
    assert_eq!(follower.next().await, (100, vec![]));
    sleep(5 * SECOND).await;
    upstream.keepalive();
    assert_eq!(follower.next().await, (100, vec![]));
    upstream.record(&[(1, 2)]);
    upstream.keepalive();
    assert_eq!(follower.next().await, (100, vec![1]));
    upstream.prove();
    assert!(
        follower.is_quiet_for(9 * SECOND).await,
        "records were sign enough"
    );
    upstream.keepalive();
    assert_eq!(follower.next().await, (101, vec![]));
}

#[tokio::test(start_paused = true)]
async fn f5_without_a_proof_no_keepalive_no_stream_and_no_answer_to_a_probe() {
    let upstream = Upstream::new(3, 100);
    let mut follower = upstream.follow("one", 100).await;
    assert_eq!(follower.next().await, (100, vec![]));
    // Older than max-age.
    sleep(11 * SECOND).await;
    upstream.keepalive();
    assert!(follower.is_quiet_for(SECOND).await);
    let refused = upstream.probe(100).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let refused = upstream.ask("two", 100, 5).await.unwrap_err();
    assert!(refused.message().contains("not proven"), "{refused}");
    // What the leader records is passed on all the same.
    upstream.record(&[(1, 2)]);
    assert_eq!(follower.next().await, (100, vec![1]));
    upstream.prove();
    upstream.keepalive();
    assert_eq!(follower.next().await, (101, vec![]));
}

#[tokio::test(start_paused = true)]
async fn f5_a_keepalive_that_waited_is_not_passed_on() {
    let upstream = Upstream::new(3, 100);
    let mut follower = upstream.follow("one", 100).await;
    assert_eq!(follower.next().await, (100, vec![]));
    let received = upstream.shared.clock.now();
    sleep(3 * SECOND / 2).await;
    upstream.chain.beat(received);
    assert!(follower.is_quiet_for(SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn f5_a_probe_waits_for_a_proof_of_its_own_time() {
    let upstream = Upstream::new(3, 100);
    sleep(2 * SECOND).await;
    let asked = upstream.shared.clock.now();
    let leader = async {
        upstream.chain.asking().wanted(Duration::ZERO).await;
        assert_eq!(
            upstream.shared.clock.now(),
            asked,
            "the leader is asked at once"
        );
        // It takes a moment, and shows a record on its way.
        sleep(SECOND / 2).await;
        upstream.record(&[(1, 2)]);
        upstream.shared.gate.probe_answered(1, asked, 101);
        upstream.chain.asking().turned(asked);
    };
    let (answer, ()) = tokio::join!(upstream.probe(100), leader);
    let mut answer = answer.unwrap();
    assert_eq!(answer.told.behind, Duration::ZERO);
    assert_eq!(answer.next().await, (100, vec![1]));
}

#[tokio::test(start_paused = true)]
async fn f5_an_older_proof_is_told_as_what_it_is() {
    let upstream = Upstream::new(3, 100);
    sleep(4 * SECOND).await;
    let begun = Instant::now();
    let mut answer = upstream.probe(100).await.unwrap();
    assert_eq!(begun.elapsed(), SECOND, "nobody answered");
    assert_eq!(answer.told.behind, 4 * SECOND);
    assert_eq!(answer.next().await, (100, vec![]));
}

#[tokio::test(start_paused = true)]
async fn f5_a_probe_of_another_term_or_index_shows_nothing() {
    let upstream = Upstream::new(3, 100);
    let mut other = upstream
        .ask("one-00000000000000bb-probe", 100, 4)
        .await
        .unwrap();
    assert_eq!(other.told.term, Term::from_create_revision(5));
    assert!(other.frames.next().await.is_none());
    for start in [99, 101, 0] {
        assert!(upstream.probe(start).await.is_err(), "{start}");
    }
}

#[tokio::test(start_paused = true)]
async fn f5_the_proof_of_one_map_is_not_told_with_the_records_of_another() {
    let upstream = Upstream::new(3, 100);
    let probe = upstream.probe(100);
    sleep(SECOND).await;
    let swap = async {
        sleep(SECOND / 2).await;
        upstream.full_sync(6, 2, 100);
        upstream.prove();
    };
    let (answer, ()) = tokio::join!(probe, swap);
    assert_eq!(answer.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn f5_a_follower_that_does_not_read_is_dropped_with_an_error() {
    let upstream = Upstream::new(3, 100);
    let mut follower = upstream.follow("one", 100).await;
    assert_eq!(follower.next().await, (100, vec![]));
    for round in 2..5 {
        upstream.record(&[(1, round)]);
        sleep(SECOND).await;
    }
    sleep(12 * SECOND).await;
    assert_eq!(upstream.chain.followers(), 0);
    let error = loop {
        if let Err(error) = follower.frame().await {
            break error;
        }
    };
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("not read in time"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn f5_a_second_stream_of_a_name_takes_the_first_ones_place_within_the_limit() {
    let upstream = Upstream::with_downstreams(3, 100, 1);
    let mut first = upstream.follow("one", 100).await;
    assert_eq!(first.next().await, (100, vec![]));
    let refused = upstream.ask("two", 100, 5).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let mut second = upstream.follow("one", 100).await;
    assert_eq!(second.next().await, (100, vec![]));
    let error = first.frame().await.unwrap_err();
    assert!(error.message().contains("took its name"), "{error}");

    let nobody = Upstream::with_downstreams(3, 100, 0);
    let refused = nobody.ask("one", 0, 5).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("max-downstreams"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn f5_nobody_follows_in_a_circle_or_at_any_distance() {
    let upstream = Upstream::new(3, 100);
    let told = |path: &[&str]| Told {
        term: Term::from_create_revision(5),
        leader_id: 9,
        path: path.iter().map(|&id| id.to_owned()).collect(),
        behind: Duration::ZERO,
    };
    let refused = async |name: &str| {
        upstream
            .ask(name, 100, 5)
            .await
            .map(|_| ())
            .map_err(|e| e.code())
    };
    let us = format!("we-{ID}");
    assert_eq!(refused(&us).await, Err(Code::FailedPrecondition));
    let other = "other-00000000000000bb";
    assert_eq!(refused(other).await, Ok(()));
    upstream
        .chain
        .comes_from(Some(&told(&["00000000000000cc", "00000000000000bb"])));
    assert_eq!(refused(other).await, Err(Code::FailedPrecondition));
    let probe = format!("{other}-probe");
    assert_eq!(refused(&probe).await, Err(Code::FailedPrecondition));
    assert_eq!(refused("third-00000000000000dd").await, Ok(()));
    upstream.chain.comes_from(None);
    assert_eq!(refused(other).await, Ok(()));
    upstream.chain.comes_from(Some(&told(&["e"; 8])));
    assert_eq!(refused(other).await, Err(Code::FailedPrecondition));
}

#[tokio::test(start_paused = true)]
async fn f5_a_stop_says_so() {
    let upstream = Upstream::new(3, 100);
    let mut follower = upstream.follow("one", 100).await;
    assert_eq!(follower.next().await, (100, vec![]));
    upstream.stop.cancel();
    let last = follower.frame().await.unwrap_err();
    assert_eq!(
        (last.code(), last.message()),
        (Code::Unavailable, "this replica is stopping")
    );
}
