//! Stopping under load: what was accepted is answered, and the deadline holds.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use support::{CLUSTER, PATIENCE, Served, channel, get, header, leader, serving};
use tidegate::proto::pdpb::{GetRegionByIdRequest, QueryRegionRequest};
use tidegate::proto::routerpb::router_client::RouterClient;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Channel;

const REGIONS: u64 = 200;

async fn start(arguments: &'static [&'static str], url: String) -> Served {
    let start = move || {
        let endpoints = ["--backend-endpoints", &url];
        Served::start(&[arguments, &endpoints].concat())
    };
    tokio::task::spawn_blocking(start).await.expect("started")
}

/// Asks until the server goes away, and counts the answers.
async fn ask(channel: Channel, answered: Arc<AtomicU64>) {
    let mut router = RouterClient::new(channel);
    for i in 0.. {
        let request = GetRegionByIdRequest {
            header: header(),
            region_id: i % REGIONS + 1,
            need_buckets: false,
        };
        match router.get_region_by_id(request).await {
            Ok(answer) => {
                let answer = answer.into_inner();
                assert_eq!(answer.header.expect("set").error, None, "fresh to the last");
                assert!(answer.region.is_some());
                answered.fetch_add(1, Relaxed);
            }
            Err(_) => return,
        }
    }
}

/// Sends batches one after the other until the server ends the stream, and counts the answers.
async fn query(channel: Channel, answered: Arc<AtomicU64>) -> Code {
    let (sender, receiver) = mpsc::channel(1);
    let mut router = RouterClient::new(channel);
    let batch = || QueryRegionRequest {
        header: header(),
        ids: vec![1, 2, 3],
        ..QueryRegionRequest::default()
    };
    sender.send(batch()).await.expect("open");
    let answers = router
        .query_region(ReceiverStream::new(receiver))
        .await
        .expect("a stream");
    let mut answers = answers.into_inner();
    loop {
        match answers.message().await {
            Ok(Some(answer)) => {
                assert_eq!(answer.header.expect("set").error, None, "fresh to the last");
                answered.fetch_add(1, Relaxed);
            }
            Ok(None) => return Code::Ok,
            Err(status) => return status.code(),
        }
        // The stream may have ended in between.
        let _ = sender.send(batch()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_under_load_answers_what_was_accepted_and_exits_with_0() {
    let leader = leader(CLUSTER, REGIONS).await;
    let served = start(&["--name", "stopped"], leader.url()).await;
    serving(served.addr).await;
    let answered = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    let mut streams = JoinSet::new();
    for i in 0..8 {
        let channel = channel(served.addr).await;
        // Half of the clients share their connection.
        for _ in 0..1 + i % 2 {
            clients.spawn(ask(channel.clone(), Arc::clone(&answered)));
        }
        if i < 3 {
            streams.spawn(query(channel, Arc::clone(&answered)));
        }
    }
    let load = async {
        while answered.load(Relaxed) < 2_000 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, load)
        .await
        .expect("answers in time");
    served.signal("TERM");
    let (line, code) =
        tokio::task::spawn_blocking(move || (served.line_with("stopped"), served.wait()))
            .await
            .expect("ended");
    assert_eq!(code, Some(0));
    assert!(!line.contains("cut"), "{line}");
    clients.join_all().await;
    let ends = streams.join_all().await;
    assert_eq!(
        ends,
        [Code::Unavailable; 3],
        "told to go elsewhere, not cut off"
    );
    // As many answers have arrived as lookups were answered: none was lost on the way out.
    let count = line
        .split("served=")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let count: u64 = count.expect("in the line").parse().expect("a count");
    assert_eq!(answered.load(Relaxed), count, "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_cut_at_the_deadline() {
    let leader = leader(CLUSTER, REGIONS).await;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidegate.toml");
    std::fs::write(&path, "shutdown-deadline = \"200ms\"\n").expect("written");
    let path: &'static str = Box::leak(path.to_str().expect("text").to_owned().into_boxed_str());
    let arguments: &'static [&'static str] = Box::leak(vec!["--config", path].into_boxed_slice());
    let served = start(arguments, leader.url()).await;
    serving(served.addr).await;

    // One answer is more than the stream's window holds, and nobody takes it.
    let endpoint = Channel::from_shared(format!("http://{}", served.addr)).expect("an address");
    let endpoint = endpoint.initial_stream_window_size(1_024);
    let mut router = RouterClient::new(endpoint.connect().await.expect("a listener"));
    let batch = QueryRegionRequest {
        header: header(),
        ids: (1..=REGIONS).collect(),
        ..QueryRegionRequest::default()
    };
    let batches = tokio_stream::once(batch).chain(tokio_stream::pending());
    let _unread = router.query_region(batches).await.expect("a stream");
    let answered = async { while !get(served.addr, "/status").await.contains("\"served\": 1,") {} };
    tokio::time::timeout(PATIENCE, answered)
        .await
        .expect("answered in time");
    served.signal("TERM");
    let (line, code) =
        tokio::task::spawn_blocking(move || (served.line_with("stopped"), served.wait()))
            .await
            .expect("ended");
    assert!(line.contains("cut"), "{line}");
    assert_eq!(code, Some(0));
}
