//! What keeping regions on disk costs the one who applies frames.

use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep, timeout};

use crate::replica::persist::{self, Persist};

use super::*;

const REGIONS: u64 = 100_000;
/// Changes in a frame, and frames.
const FRAME: u64 = 1_000;
const FRAMES: u64 = 200;
const ROUNDS: usize = 3;

/// Applies frames as fast as they can be, and tells how long one change took, in microseconds.
async fn apply(directory: Option<&Path>) -> f64 {
    let shared = Arc::new(Shared::new(
        Arc::new(TokioClock::new()),
        Thresholds::default(),
    ));
    let stop_writing = CancellationToken::new();
    let mut writer = None;
    if let Some(directory) = directory {
        let persist = Persist::open(directory.to_owned()).await.unwrap();
        shared.keep_on_disk(Arc::clone(&persist));
        let stop = stop_writing.clone();
        writer = Some(persist::spawn(persist, Arc::clone(&shared), stop));
    }
    let pd = Pd::new();
    let config = SyncConfig::new("replica", "http://replica:1", vec![pd.url()]).unwrap();
    let world = World::launch_on(shared, pd, config, Hooks::default());
    let applied = async |index: u64| {
        let applied = async {
            while world.shared.gate.applied() != index {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let in_time = timeout(Duration::from_secs(60), applied).await;
        in_time.unwrap_or_else(|_| {
            panic!(
                "{:?} {:?}",
                world.shared.gate.view(),
                world.shared.last_broken()
            )
        });
    };
    let stream = world.stream().await;
    let mut index = 10 * REGIONS;
    for sent in (0..REGIONS).step_by(FRAME as usize) {
        stream.send(frame(sent, regions(sent + 1..=sent + FRAME)));
    }
    stream.send(frame(index, vec![]));
    applied(index).await;
    if let Some(persist) = world.shared.persist() {
        kept(persist, index).await;
    }
    let mut rng = SmallRng::seed_from_u64(1);
    let frames: Vec<_> = (0..FRAMES)
        .map(|at| {
            let changed = (0..FRAME).map(|_| region(rng.random_range(1..=REGIONS), at + 2));
            frame(index + at * FRAME, changed.collect())
        })
        .collect();
    let begun = Instant::now();
    for frame in frames {
        stream.send(frame);
    }
    index += FRAMES * FRAME;
    applied(index).await;
    let took = begun.elapsed().as_secs_f64() * 1e6 / (FRAMES * FRAME) as f64;
    if let Some(persist) = world.shared.persist() {
        kept(persist, index).await;
        let status = persist.status();
        println!(
            "  on disk {:.1} s after the last frame; {} writes of {} records and {:.0} MB in {:.1} s, the first {REGIONS} \
             included",
            begun.elapsed().as_secs_f64() - took * (FRAMES * FRAME) as f64 / 1e6,
            status.flushes,
            status.records,
            status.written_bytes as f64 / 1e6,
            status.writing_ms as f64 / 1e3,
        );
    }
    world.stop.cancel();
    stop_writing.cancel();
    world.task.await.unwrap().unwrap();
    if let Some(writer) = writer {
        writer.await.unwrap();
    }
    drop(world.shared);
    if let Some(directory) = directory {
        let found = Persist::open(directory.to_owned()).await.unwrap().status();
        assert_eq!((found.index, found.set_aside), (index, 0));
    }
    took
}

/// Waits until what was applied up to `index` is on disk.
async fn kept(persist: &Persist, index: u64) {
    let written = async {
        while persist.status().index != index {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = timeout(Duration::from_secs(60), written).await;
    let status = persist.status();
    assert!(in_time.is_ok() && status.errors == 0, "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures: cargo test --release -p tidegate --lib beside_disk -- --ignored --nocapture"]
async fn f6_frames_are_applied_beside_the_writes_of_what_they_changed() {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(apply(None).await);
        let directory = tempfile::tempdir().unwrap();
        with.push(apply(Some(directory.path())).await);
    }
    for (what, times) in [
        ("without data-dir", &mut without),
        ("with data-dir", &mut with),
    ] {
        times.sort_by(f64::total_cmp);
        println!(
            "{what}: {:.2} us a change ({:.2} to {:.2}), {REGIONS} regions, frames of {FRAME} at random places",
            times[ROUNDS / 2],
            times[0],
            times[ROUNDS - 1]
        );
    }
}
