//! F6 with real processes: killed at random points, two on one directory, a directory of another cluster.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use support::{CLUSTER, Served, channel, get, header, leader, refusal, serving};
use tidegate::leader::EmbeddedLeader;
use tidegate::proto::pdpb::ScanRegionsRequest;
use tidegate::proto::pdpb::pd_client::PdClient;
use tidegate_core::{RegionEpoch, RegionMap};
use tonic::Request;

const REGIONS: u64 = 300;

/// Ends a process with a signal and waits until it is gone.
async fn finish(served: Served, signal: &'static str) {
    served.signal(signal);
    tokio::task::spawn_blocking(move || served.wait())
        .await
        .expect("gone");
}

/// The status page of a replica.
async fn status(addr: SocketAddr) -> serde_json::Value {
    let status = get(addr, "/status").await;
    let body = status.split("\r\n\r\n").nth(1).expect("a body");
    serde_json::from_str(body).expect("a status")
}

async fn start(directory: String, url: String) -> Served {
    let start = move || Served::start(&["--backend-endpoints", &url, "--data-dir", &directory]);
    tokio::task::spawn_blocking(start).await.expect("started")
}

/// A change of one region that makes a record.
fn change(leader: &EmbeddedLeader, rng: &mut SmallRng) {
    let old = {
        let snapshot = leader.regions().pin();
        let id = rng.random_range(1..=REGIONS);
        snapshot.by_id(id).expect("never removed").region().clone()
    };
    let epoch = RegionEpoch {
        conf_ver: old.epoch().conf_ver + 1,
        ..old.epoch()
    };
    let changed = old.to_builder().epoch(epoch).build().expect("a region");
    leader.report_region(changed).expect("newer");
}

/// Id and conf_ver of each region in the order of keys.
fn rows(map: &RegionMap) -> Vec<(u64, u64)> {
    let snapshot = map.pin();
    let rows = snapshot.iter();
    rows.map(|entry| (entry.id(), entry.epoch().conf_ver))
        .collect()
}

/// The same as a replica answers it.
async fn answered(addr: SocketAddr) -> Vec<(u64, u64)> {
    let mut pd = PdClient::new(channel(addr).await);
    let mut request = Request::new(ScanRegionsRequest {
        header: header(),
        ..ScanRegionsRequest::default()
    });
    let key = "pd-allow-follower-handle";
    request
        .metadata_mut()
        .insert(key, "".parse().expect("text"));
    let answer = pd
        .scan_regions(request)
        .await
        .expect("an answer")
        .into_inner();
    assert_eq!(answer.header.expect("set").error, None);
    let row = |region: &tidegate::proto::metapb::Region| {
        (region.id, region.region_epoch.expect("set").conf_ver)
    };
    answer.region_metas.iter().map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn f6_killed_at_any_point_the_next_start_resumes_and_has_what_the_leader_has() {
    let leader = leader(CLUSTER, REGIONS).await;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("text").to_owned();
    let mut rng = SmallRng::seed_from_u64(7);
    let mut resumed = 0;
    for round in 0..12 {
        let served = start(path.clone(), leader.url()).await;
        serving(served.addr).await;
        let status = status(served.addr).await;
        assert_eq!(status["persist"]["set_aside"], 0, "round {round}: {status}");
        if status["sync"]["full_syncs"] == 0 {
            assert_eq!(status["persist"]["loaded"], REGIONS, "round {round}");
            // Noted a moment after the gate has opened.
            let ready = &status["ready"];
            assert!(ready.is_null() || ready["start"] == "warm", "{ready}");
            resumed += 1;
        }
        // A proof of now: all that was reported before the question is in the answer.
        let expected = rows(leader.regions());
        let caught_up = async {
            while answered(served.addr).await != expected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(support::PATIENCE, caught_up)
            .await
            .unwrap_or_else(|_| panic!("round {round}"));
        // Killed while it writes: 100 records make a write due.
        let lives = Duration::from_millis(rng.random_range(0..400));
        let end = tokio::time::Instant::now() + lives;
        while tokio::time::Instant::now() < end {
            for _ in 0..40 {
                change(&leader, &mut rng);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        finish(served, "KILL").await;
    }
    // The first start finds nothing; each later one finds a state, unless the first write was never done.
    assert!(resumed >= 8, "{resumed} of 11");
}

#[tokio::test(flavor = "multi_thread")]
async fn f6_ended_at_any_point_of_its_start_the_next_one_still_has_everything() {
    const MANY: u64 = 9_000;
    let leader = leader(CLUSTER, MANY).await;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("text").to_owned();
    let served = start(path.clone(), leader.url()).await;
    serving(served.addr).await;
    finish(served, "TERM").await;
    // How long a start takes, from the process to the proof.
    let begun = tokio::time::Instant::now();
    let served = start(path.clone(), leader.url()).await;
    serving(served.addr).await;
    let whole = begun.elapsed();
    finish(served, "TERM").await;
    for round in 0..24 {
        let (directory, url) = (path.clone(), leader.url());
        let start =
            move || Served::start_quiet(&["--backend-endpoints", &url, "--data-dir", &directory]);
        let served = tokio::task::spawn_blocking(start).await.expect("started");
        tokio::time::sleep(whole * round / 24).await;
        finish(served, ["KILL", "TERM"][(round % 2) as usize]).await;
    }
    let served = start(path, leader.url()).await;
    serving(served.addr).await;
    let status = status(served.addr).await;
    assert_eq!(status["persist"]["loaded"], MANY, "{status}");
    assert_eq!(status["persist"]["set_aside"], 0, "{status}");
    assert_eq!(status["sync"]["full_syncs"], 0, "{status}");
    assert_eq!(answered(served.addr).await, rows(leader.regions()));
}

#[tokio::test(flavor = "multi_thread")]
async fn f6_a_second_process_on_the_directory_is_refused() {
    let leader = leader(CLUSTER, 3).await;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("text").to_owned();
    let _served = start(path.clone(), leader.url()).await;
    let arguments = ["serve", "--listen-addr", "http://127.0.0.1:0"];
    let (url, data_dir) = (leader.url(), path.clone());
    let refused = move || {
        let more = ["--backend-endpoints", &url, "--data-dir", &data_dir];
        refusal(&[&arguments[..], &more].concat())
    };
    let line = tokio::task::spawn_blocking(refused).await.expect("ended");
    assert!(
        line.contains(&path) && line.contains("another process"),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn f6_another_clusters_directory_is_refused() {
    let (one, other) = (leader(CLUSTER, 3).await, leader(CLUSTER + 1, 3).await);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("text").to_owned();
    let served = start(path.clone(), one.url()).await;
    serving(served.addr).await;
    // A stop writes what waits.
    served.signal("TERM");
    let code = tokio::task::spawn_blocking(move || served.wait());
    assert_eq!(code.await.expect("ended"), Some(0));
    let url = other.url();
    let refused = move || {
        refusal(&[
            "serve",
            "--listen-addr",
            "http://127.0.0.1:0",
            "--backend-endpoints",
            &url,
            "--data-dir",
            &path,
        ])
    };
    let line = tokio::task::spawn_blocking(refused).await.expect("ended");
    assert!(
        line.contains("cluster 7") && line.contains("cluster 8"),
        "{line}"
    );
}

#[test]
fn f6_a_directory_that_cannot_be_made_is_named() {
    let line = refusal(&[
        "serve",
        "--listen-addr",
        "http://127.0.0.1:0",
        "--data-dir",
        "/proc/tidegate",
    ]);
    assert!(line.contains("/proc/tidegate"), "{line}");
}
