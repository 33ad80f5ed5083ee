//! F6: what a restart finds on disk, and what it makes of it.

use std::path::Path;

use crate::proto::convert::region_from_pb;
use crate::replica::heal::{Asked, Kind, Said, heal};
use crate::replica::persist::{self, OtherCluster, Persist};

use super::peer::Key;
use super::*;

/// A replica with a data directory.
struct Kept {
    world: World,
    stop_writing: CancellationToken,
    writer: JoinHandle<()>,
}

impl Kept {
    async fn start(pd: &Pd, directory: &Path) -> Self {
        let persist = Persist::open(directory.to_owned()).await.unwrap();
        let shared = Arc::new(Shared::new(
            Arc::new(TokioClock::new()),
            Thresholds::default(),
        ));
        shared.keep_on_disk(Arc::clone(&persist));
        let stop_writing = CancellationToken::new();
        let writer = persist::spawn(persist, Arc::clone(&shared), stop_writing.clone());
        let config = SyncConfig::new("replica", "http://replica:1", vec![pd.url()]).unwrap();
        Self {
            world: World::launch_on(shared, pd.clone(), config, Hooks::default()),
            stop_writing,
            writer,
        }
    }

    fn persist(&self) -> &Arc<Persist> {
        self.world.shared.persist().unwrap()
    }

    /// Waits until a restart would resume at `index`.
    async fn written(&self, index: u64) {
        for _ in 0..600 {
            if self.persist().status().index == index {
                return;
            }
            pass(Duration::from_millis(100)).await;
        }
        panic!("never written: {:?}", self.persist().status());
    }

    /// The process goes without a word: what was not written yet is lost.
    async fn crash(self) {
        self.writer.abort();
        let _ = self.writer.await;
        let pd = self.world.pd.clone();
        self.world.end().await;
        // What it had opened went with it.
        for lane in [Lane::Stream, Lane::Calls] {
            while pd.try_accept(lane).is_some() {}
        }
    }

    async fn end(self) {
        self.world.stop.cancel();
        self.world.task.await.unwrap().unwrap();
        self.stop_writing.cancel();
        self.writer.await.unwrap();
    }
}

/// A directory with the regions 1 to 3 at the index 100, and the PD that they came from.
async fn kept_at_100() -> (tempfile::TempDir, Pd) {
    let (directory, pd) = (tempfile::tempdir().unwrap(), Pd::new());
    let kept = Kept::start(&pd, directory.path()).await;
    let _stream = kept.world.follow(regions(1..4), 100).await;
    kept.written(100).await;
    kept.crash().await;
    (directory, pd)
}

#[tokio::test(start_paused = true)]
async fn f6_a_restart_in_the_same_term_resumes_and_answers_nothing_before_a_proof() {
    let (directory, pd) = kept_at_100().await;
    let kept = Kept::start(&pd, directory.path()).await;
    let world = &kept.world;
    let stream = world.stream().await;
    assert_eq!(stream.start_index(), 100);
    assert_eq!(world.ids(), [1, 2, 3], "loaded");
    assert!(!world.serves(), "nothing has confirmed it");
    stream.send(frame(100, vec![]));
    world
        .until("it is live", || world.shared.stream() == StreamState::Live)
        .await;
    assert!(!world.serves(), "the stream alone is no proof");
    // A leader whose dialect is not known may be stuck and answer all the same. So it is asked which it speaks.
    world.prove().await;
    assert!(!world.serves());
    let who = world.pd.try_who().expect("asked");
    who.send(frame(0, regions(1..4)));
    world.until("it is master's", || world.serves()).await;
    assert_eq!(world.shared.counters.full_syncs.get(), 0);
    assert_eq!(kept.persist().status().loaded, 3);
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn f6_what_changed_meanwhile_is_said_by_the_stream() {
    let (directory, pd) = kept_at_100().await;
    let kept = Kept::start(&pd, directory.path()).await;
    let stream = kept.world.stream().await;
    stream.send(leader_move(100, 2, 1, 3));
    kept.world
        .until("it is applied", || kept.world.shared.gate.applied() == 101)
        .await;
    assert_eq!(kept.world.leader_of(2), Some(3));
    kept.world.prove().await;
    stream.send(leader_move(101, 2, 1, 3));
    kept.world
        .until("it is proven", || kept.world.serves())
        .await;
    kept.written(102).await;
    kept.crash().await;

    let kept = Kept::start(&pd, directory.path()).await;
    assert_eq!(kept.world.stream().await.start_index(), 102);
    assert_eq!(kept.world.leader_of(2), Some(3));
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn f6_another_term_is_another_index_space() {
    let (directory, pd) = kept_at_100().await;
    pd.set_term(6);
    let kept = Kept::start(&pd, directory.path()).await;
    let _stream = kept.world.follow(regions(1..3), 40).await;
    assert_eq!(kept.world.ids(), [1, 2]);
    assert_eq!(kept.persist().status().loaded, 0);
    kept.written(40).await;
    kept.crash().await;

    let kept = Kept::start(&pd, directory.path()).await;
    assert_eq!(kept.world.stream().await.start_index(), 40);
    assert_eq!(kept.world.ids(), [1, 2], "replaced as a whole");
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn f6_a_term_that_cannot_be_read_resumes_nothing_and_keeps_what_is_on_disk() {
    let (directory, pd) = kept_at_100().await;
    pd.set_key(Key::Unreadable);
    let kept = Kept::start(&pd, directory.path()).await;
    let stream = kept.world.follow(regions(1..2), 500).await;
    stream.send(frame(500, regions(2..3)));
    kept.world
        .until("it is applied", || kept.world.shared.gate.applied() == 501)
        .await;
    pass(Duration::from_secs(2)).await;
    kept.crash().await;

    pd.set_term(5);
    let kept = Kept::start(&pd, directory.path()).await;
    assert_eq!(kept.world.stream().await.start_index(), 100);
    assert_eq!(kept.world.ids(), [1, 2, 3]);
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn f6_an_index_that_means_nothing_is_not_resumed_by_the_next_start() {
    let (directory, pd) = kept_at_100().await;
    let kept = Kept::start(&pd, directory.path()).await;
    let stream = kept.world.stream().await;
    stream.send(frame(60, regions(1..2)));
    kept.world
        .until("the stream went back", || {
            kept.world.shared.counters.regressions.get() == 1
        })
        .await;
    kept.written(0).await;
    kept.crash().await;
    let kept = Kept::start(&pd, directory.path()).await;
    assert!(kept.world.stream().await.asks_for_everything());
    assert_eq!(kept.world.ids(), [0; 0]);
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn f6_a_leader_that_has_forgotten_the_index_sends_everything() {
    let (directory, pd) = kept_at_100().await;
    let kept = Kept::start(&pd, directory.path()).await;
    let stream = kept.world.stream().await;
    assert_eq!(stream.start_index(), 100);
    stream.send(frame(0, regions(5..7)));
    stream.send(frame(20_000, vec![]));
    kept.world
        .until("it is published", || kept.world.ids() == [5, 6])
        .await;
    kept.written(20_000).await;
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn f6_a_stop_writes_what_waits() {
    let (directory, pd) = kept_at_100().await;
    let kept = Kept::start(&pd, directory.path()).await;
    let stream = kept.world.stream().await;
    stream.send(frame(100, regions(2..3)));
    kept.world
        .until("it is applied", || kept.world.shared.gate.applied() == 101)
        .await;
    kept.end().await;
    let kept = Kept::start(&pd, directory.path()).await;
    assert_eq!(kept.world.stream().await.start_index(), 101);
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn f6_a_change_waits_a_second_or_for_a_hundred_records() {
    let (directory, pd) = kept_at_100().await;
    let kept = Kept::start(&pd, directory.path()).await;
    let stream = kept.world.stream().await;
    stream.send(frame(100, regions(1..2)));
    let begun = tokio::time::Instant::now();
    kept.written(101).await;
    let waited = begun.elapsed();
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(2)).contains(&waited),
        "{waited:?}"
    );
    pass(Duration::from_secs(5)).await;
    stream.send(frame(101, regions(1..101)));
    let begun = tokio::time::Instant::now();
    kept.written(201).await;
    assert!(begun.elapsed() < Duration::from_secs(1));
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn f6_what_a_leader_answered_is_written_like_a_record() {
    let (directory, pd) = kept_at_100().await;
    let kept = Kept::start(&pd, directory.path()).await;
    let stream = kept.world.stream().await;
    stream.send(frame(100, vec![]));
    kept.world.prove().await;
    let shared = &kept.world.shared;
    let asked = {
        let snapshot = shared.map.pin();
        Asked::about(shared, &snapshot, snapshot.iter())
    };
    let said = Said {
        regions: vec![region_from_pb(&region(3, 9), None, None, None).unwrap()],
        unknown_ids: vec![1],
        whole: vec![tidegate_core::KeyRange::all()],
        ..Said::default()
    };
    let healed = heal(shared, &asked, said, shared.clock.now());
    assert_eq!(healed.of(Kind::Removed), 2);
    assert_eq!(kept.world.ids(), [3]);
    pass(Duration::from_secs(2)).await;
    kept.crash().await;
    let kept = Kept::start(&pd, directory.path()).await;
    let _stream = kept.world.stream().await;
    assert_eq!(kept.world.ids(), [3]);
    let version = {
        let snapshot = kept.world.shared.map.pin();
        snapshot.by_id(3).unwrap().epoch().version
    };
    assert_eq!(version, 9);
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn f6_another_clusters_directory_ends_the_task_and_is_left_as_it_is() {
    let (directory, pd) = kept_at_100().await;
    pd.set_other_cluster("pd-1", 99);
    let kept = Kept::start(&pd, directory.path()).await;
    let error = kept.world.task.await.unwrap().unwrap_err();
    let expected = OtherCluster {
        path: directory.path().to_owned(),
        kept: CLUSTER,
        found: 99,
    };
    assert_eq!(error, WrongCluster::DataDir(expected));
    kept.writer.abort();
    let _ = kept.writer.await;
    drop(kept.world.shared);
    let persist = Persist::open(directory.path().to_owned()).await.unwrap();
    assert_eq!(persist.check_cluster(CLUSTER), Ok(()));
    assert_eq!(persist.status().index, 100);
}
