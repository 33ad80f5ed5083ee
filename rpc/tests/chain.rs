//! F5 with real processes: a replica that follows a replica over gRPC, and is judged by what the leader holds.

mod support;

use std::time::Duration;

use support::{CLUSTER, PATIENCE, Served, channel, get, header, leader, serving};
use tidegate::proto::pdpb::GetRegionByIdRequest;
use tidegate::proto::pdpb::pd_client::PdClient;
use tidegate_core::RegionEpoch;
use tonic::Request;

async fn start(arguments: Vec<String>) -> Served {
    let start = move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Served::start(&arguments)
    };
    tokio::task::spawn_blocking(start).await.expect("started")
}

fn status(page: &str) -> serde_json::Value {
    let body = page.split("\r\n\r\n").nth(1).expect("a body");
    serde_json::from_str(body).expect("a status")
}

#[tokio::test(flavor = "multi_thread")]
async fn f5_a_change_at_the_leader_is_answered_by_the_replica_of_a_replica() {
    let leader = leader(CLUSTER, 2_500).await;
    let endpoints = || vec!["--backend-endpoints".to_owned(), leader.url()];
    let up = start(endpoints()).await;
    serving(up.addr).await;
    let upstream = ["--upstream".to_owned(), format!("http://{}", up.addr)];
    let down = start([endpoints(), upstream.to_vec()].concat()).await;
    serving(down.addr).await;
    assert_eq!(leader.full_syncs(), 1, "the second one came from the first");

    let old = leader
        .regions()
        .pin()
        .by_id(7)
        .expect("it")
        .region()
        .clone();
    let epoch = RegionEpoch {
        conf_ver: 9,
        ..old.epoch()
    };
    let changed = old.to_builder().epoch(epoch).build().expect("a region");
    leader.report_region(changed).expect("newer");
    let mut pd = PdClient::new(channel(down.addr).await);
    let caught_up = async {
        loop {
            let mut request = Request::new(GetRegionByIdRequest {
                header: header(),
                region_id: 7,
                need_buckets: false,
            });
            let key = "pd-allow-follower-handle";
            request
                .metadata_mut()
                .insert(key, "".parse().expect("text"));
            let answer = pd.get_region_by_id(request).await.expect("an answer");
            let region = answer.into_inner().region;
            if region
                .and_then(|region| region.region_epoch)
                .map(|epoch| epoch.conf_ver)
                == Some(9)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, caught_up)
        .await
        .expect("in time");
    assert_eq!(status(&get(up.addr, "/status").await)["followers"], 1);
    let down_status = status(&get(down.addr, "/status").await);
    assert_eq!(down_status["path"].as_array().expect("ids").len(), 1);

    // A follower does not keep the one that it follows from stopping, and knows why it has gone.
    up.signal("TERM");
    let ended = tokio::task::spawn_blocking(move || {
        let stopped = up.line_with("stopped");
        let left = down.line_with("not following the replica");
        (stopped, up.wait(), left)
    });
    let (stopped, code, left) = ended.await.expect("ended");
    assert!(!stopped.contains("cut"), "{stopped}");
    assert_eq!(code, Some(0));
    assert!(left.contains("the upstream stops"), "{left}");
    assert!(left.contains("it is tried again"), "{left}");
}
