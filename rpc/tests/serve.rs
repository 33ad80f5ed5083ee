//! A replica on loopback, behind a PD leader, as clients and operators meet it.

mod support;

use std::time::Duration;

use support::{CLUSTER, PATIENCE, channel, get, header, leader, serving};
use tidegate::config::{ServeConfig, WhenStale};
use tidegate::leader::EmbeddedLeader;
use tidegate::proto::health::HealthCheckRequest;
use tidegate::proto::health::health_client::HealthClient;
use tidegate::proto::pdpb::pd_client::PdClient;
use tidegate::proto::pdpb::{
    BatchScanRegionsRequest, GetAllStoresRequest, GetClusterInfoRequest, GetMembersRequest,
    GetRegionByIdRequest, GetRegionRequest, GetRegionResponse, KeyRange, QueryRegionRequest,
    RequestHeader, ScanRegionsRequest,
};
use tidegate::proto::routerpb::router_client::RouterClient;
use tidegate::replica::Replica;
use tidegate::replica::hooks::Hooks;
use tonic::{Code, Request};

fn config(leader: &EmbeddedLeader) -> ServeConfig {
    ServeConfig {
        name: "under-test".to_owned(),
        backend_endpoints: vec![leader.url().parse().expect("a URL")],
        listen: "http://127.0.0.1:0".parse().expect("a URL"),
        probe_interval: Duration::from_millis(100),
        when_stale: WhenStale::Refuse,
        ..ServeConfig::default()
    }
}

async fn replica(leader: &EmbeddedLeader) -> Replica {
    let replica = Replica::start(config(leader), Hooks::default())
        .await
        .expect("a free port");
    serving(replica.addr()).await;
    replica
}

/// As a stock client sends it to a follower.
fn to_follower<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("pd-allow-follower-handle", "".parse().expect("ascii"));
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn every_lookup_is_answered_as_the_leader_answers_it() {
    let leader = leader(CLUSTER, 300).await;
    let replica = replica(&leader).await;
    let mut pd = PdClient::new(channel(leader.addr()).await);
    let mut follower = PdClient::new(channel(replica.addr()).await);
    let mut router = RouterClient::new(channel(replica.addr()).await);
    for key in ["", "0", "0002", "00021", "0150", "03", "z"] {
        let request = GetRegionRequest {
            header: header(),
            region_key: key.into(),
            need_buckets: true,
        };
        let expected = pd
            .get_region(request.clone())
            .await
            .expect("a leader")
            .into_inner();
        let got = follower
            .get_region(to_follower(request.clone()))
            .await
            .expect("served");
        assert_eq!(got.into_inner(), expected, "{key}");
        let got = router.get_region(request.clone()).await.expect("served");
        assert_eq!(got.into_inner(), expected, "{key}");
        let expected = pd
            .get_prev_region(request.clone())
            .await
            .expect("a leader")
            .into_inner();
        let got = follower
            .get_prev_region(to_follower(request.clone()))
            .await
            .expect("served")
            .into_inner();
        match expected.region {
            Some(_) => assert_eq!(got, expected, "{key}"),
            None => assert_eq!(got.header.expect("set").error.expect("a miss").r#type, 6),
        }
    }
    let by_id = GetRegionByIdRequest {
        header: header(),
        region_id: 42,
        need_buckets: false,
    };
    let expected = pd
        .get_region_by_id(by_id.clone())
        .await
        .expect("a leader")
        .into_inner();
    let got = router
        .get_region_by_id(by_id)
        .await
        .expect("served")
        .into_inner();
    assert_eq!(got, expected);
    let scan = ScanRegionsRequest {
        header: header(),
        start_key: "0100".into(),
        limit: 50,
        end_key: "0200".into(),
    };
    let expected = pd
        .scan_regions(scan.clone())
        .await
        .expect("a leader")
        .into_inner();
    let got = follower
        .scan_regions(to_follower(scan))
        .await
        .expect("served")
        .into_inner();
    assert_eq!(got.regions.len(), 50);
    assert_eq!(got, expected);
    let range = |start: &str, end: &str| KeyRange {
        start_key: start.to_owned().into(),
        end_key: end.to_owned().into(),
    };
    let batch = BatchScanRegionsRequest {
        header: header(),
        ranges: vec![
            range("0010", "0020"),
            range("0020", "0030"),
            range("01", "0105"),
        ],
        limit: i32::MAX,
        contain_all_key_range: true,
        need_buckets: true,
    };
    let expected = pd
        .batch_scan_regions(batch.clone())
        .await
        .expect("a leader")
        .into_inner();
    let got = router
        .batch_scan_regions(batch)
        .await
        .expect("served")
        .into_inner();
    assert_eq!(got, expected);
    let query = QueryRegionRequest {
        header: header(),
        keys: vec!["0007".into(), "".into(), "zz".into()],
        prev_keys: vec!["0007".into()],
        ids: vec![9, 0, 200],
        need_buckets: true,
    };
    let requests = || tokio_stream::iter([query.clone(), query.clone()]);
    let mut expected = pd
        .query_region(requests())
        .await
        .expect("a leader")
        .into_inner();
    let mut got = router
        .query_region(requests())
        .await
        .expect("served")
        .into_inner();
    for _ in 0..2 {
        assert_eq!(
            got.message().await.expect("a frame"),
            expected.message().await.expect("a frame")
        );
    }
    assert_eq!(got.message().await.expect("an end"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_floors_as_there_may_be_fit_into_the_metadata_of_a_call() {
    let leader = leader(CLUSTER, 3).await;
    let replica = replica(&leader).await;
    let mut router = RouterClient::new(channel(replica.addr()).await);
    let mut asked = async |floors: usize| {
        // Keys of 450 bytes, in hexadecimal.
        let floor = format!("key={};conf_ver=1;version=1", "61".repeat(450));
        let mut request = Request::new(GetRegionRequest {
            header: header(),
            region_key: "0002".into(),
            need_buckets: false,
        });
        for _ in 0..floors {
            request
                .metadata_mut()
                .append("tidegate-floor", floor.parse().expect("ascii"));
        }
        router.get_region(request).await
    };
    let answer = asked(64).await.expect("served").into_inner();
    assert_eq!(answer.region.expect("a region").id, 2);
    let status = asked(65).await.expect_err("one too many");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("at most 64 floors"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_and_cluster_info_are_pds_own() {
    let leader = leader(CLUSTER, 1).await;
    let replica = replica(&leader).await;
    let mut pd = PdClient::new(channel(leader.addr()).await);
    let mut follower = PdClient::new(channel(replica.addr()).await);
    let expected = pd
        .get_members(GetMembersRequest::default())
        .await
        .expect("a leader");
    let got = follower
        .get_members(GetMembersRequest::default())
        .await
        .expect("passed on");
    assert_eq!(got.into_inner(), expected.into_inner());
    let expected = pd
        .get_cluster_info(GetClusterInfoRequest::default())
        .await
        .expect("a leader");
    let got = follower
        .get_cluster_info(GetClusterInfoRequest::default())
        .await
        .expect("passed on");
    assert_eq!(got.into_inner(), expected.into_inner());

    leader.stop().await;
    let alone = follower
        .get_members(GetMembersRequest::default())
        .await
        .expect_err("nobody left");
    assert_eq!(alone.code(), Code::Unavailable);
    assert!(alone.message().contains("no PD member"), "{alone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_has_is_unimplemented_and_the_leader_says_so_of_its_own() {
    let leader = leader(CLUSTER, 1).await;
    let replica = replica(&leader).await;
    let channel = channel(replica.addr()).await;
    let call = async |path: &'static str| {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.expect("connected");
        let codec = tonic_prost::ProstCodec::<GetRegionRequest, GetRegionResponse>::default();
        let request = Request::new(GetRegionRequest::default());
        let path = http::uri::PathAndQuery::from_static(path);
        grpc.unary(request, path, codec)
            .await
            .expect_err("not ours")
    };
    let before = replica.status().forwarded.forwarded;
    // The embedded leader does not have it.
    let unknown = call("/pdpb.PD/ScatterRegion").await;
    assert_eq!(unknown.code(), Code::Unimplemented);
    assert_eq!(replica.status().forwarded.forwarded, before + 1);
    assert_eq!(call("/tsopb.TSO/Tso").await.code(), Code::Unimplemented);
    assert_eq!(
        call("/routerpb.Router/ScanRegions").await.code(),
        Code::Unimplemented
    );
    assert_eq!(replica.status().forwarded.forwarded, before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_status_and_health_share_the_port() {
    let leader = leader(CLUSTER, 100).await;
    let replica = replica(&leader).await;
    let addr = replica.addr();
    let mut router = RouterClient::new(channel(addr).await);
    let by_id = |region_id| GetRegionByIdRequest {
        header: header(),
        region_id,
        need_buckets: false,
    };
    for id in [1, 2, 3, 999] {
        router.get_region_by_id(by_id(id)).await.expect("a header");
    }
    let mut follower = PdClient::new(channel(addr).await);
    follower
        .get_region_by_id(by_id(1))
        .await
        .expect_err("without the follower key");

    // Noted a moment after the gate has opened.
    while replica.status().ready.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let metrics = get(addr, "/metrics").await;
    assert!(metrics.contains("\ntidegate_ready_seconds{start=\"cold\"} "));
    assert!(metrics.starts_with("HTTP/1.1 200 OK"), "{metrics}");
    for line in [
        "tidegate_server_region_request_cnt{event=\"served\",request=\"GetRegionByID\"} 3",
        "tidegate_server_region_request_cnt{event=\"missed\",request=\"GetRegionByID\"} 1",
        "tidegate_server_region_rejected_cnt{cause=\"follower_handle\",request=\"GetRegionByID\"} 1",
        "tidegate_server_region_request_cnt{event=\"refused\",request=\"ScanRegions\"} 0",
        "tidegate_server_region_refused_cnt{reason=\"age\",request=\"GetRegion\"} 0",
        "tidegate_gate_open 1",
        "tidegate_gate_off 0",
        "tidegate_gate_shut{reason=\"age\"} 0",
        "tidegate_map_regions 100",
        "tidegate_sync_lag 0",
        "tidegate_sync_state{state=\"live\"} 1",
        "tidegate_sync_dialect{dialect=\"release-8.5\"} 0",
        "tidegate_sync_dialect{dialect=\"master\"} 1",
        "tidegate_region_syncer_status{type=\"sync_index\"} 101",
        "tidegate_region_syncer_status{type=\"last_index\"} 101",
        "tidegate_sync_total{event=\"full_syncs\"} 1",
    ] {
        assert!(
            metrics.contains(&format!("{line}\n")),
            "{line} in {metrics}"
        );
    }
    assert!(metrics.contains("\ntidegate_data_age_seconds "));
    assert!(metrics.contains("\ntidegate_map_bytes "));

    let page = get(addr, "/status").await;
    let body = page.split("\r\n\r\n").nth(1).expect("a body");
    assert!(body.starts_with("{\n") && body.ends_with("}\n"), "{body}");
    let status: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(status["name"], "under-test");
    assert_eq!(status["cluster_id"], CLUSTER);
    assert_eq!(status["leader"]["url"], leader.url());
    assert_eq!(status["leader"]["term"], leader.term());
    assert_eq!(status["state"], "live");
    assert_eq!(status["gate"]["open"], true);
    assert_eq!(status["gate"]["why"], "open: the map is proven to be fresh");
    assert_eq!(status["dialect"]["name"], "master");
    assert_eq!(status["dialect"]["shown"], true);
    assert_eq!(status["ready"]["start"], "cold");
    assert_eq!(status["lag"], 0);
    assert_eq!(status["regions"], 100);
    // An entry alone takes more than that.
    assert!(
        status["map_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 100 * 150)
    );
    assert_eq!(
        (&status["served"], &status["missed"], &status["refused"]),
        (&3.into(), &1.into(), &0.into())
    );
    assert_eq!(status["methods"]["GetRegionByID"]["served"], 3);
    assert!(status["age_ms"].as_u64().is_some_and(|age| age < 10_000));

    assert!(get(addr, "/health").await.starts_with("HTTP/1.1 200 OK"));
    assert!(get(addr, "/nothing").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_starts_before_its_leader_says_why_it_does_not_serve() {
    let config = ServeConfig {
        backend_endpoints: vec!["http://127.0.0.1:1".parse().expect("a URL")],
        listen: "http://127.0.0.1:0".parse().expect("a URL"),
        ..ServeConfig::default()
    };
    let replica = Replica::start(config, Hooks::default())
        .await
        .expect("no reason to fail");
    let mut router = RouterClient::new(channel(replica.addr()).await);
    let answer = router
        .get_region(GetRegionRequest::default())
        .await
        .expect("a header");
    assert_eq!(
        answer
            .into_inner()
            .header
            .expect("set")
            .error
            .expect("refused")
            .r#type,
        6
    );
    let health = get(replica.addr(), "/health").await;
    assert!(health.starts_with("HTTP/1.1 503"), "{health}");
    assert!(
        health.contains("no full sync has been proven to be fresh yet"),
        "{health}"
    );
    let stopped = replica.stop(PATIENCE).await;
    assert!(stopped.graceful);
    assert_eq!(
        stopped.status.lookups.refused_by_reason,
        [("not_proven", 1)].into()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_stands_for_all_of_the_hosts_is_noticed_unless_another_is_advertised() {
    let config = ServeConfig {
        backend_endpoints: vec!["http://127.0.0.1:1".parse().expect("a URL")],
        listen: "http://0.0.0.0:0".parse().expect("a URL"),
        ..ServeConfig::default()
    };
    let advertised = ServeConfig {
        advertise: Some("http://127.0.0.1:9".parse().expect("a URL")),
        ..config.clone()
    };
    let everywhere = Replica::start(config, Hooks::default())
        .await
        .expect("a free port");
    assert_eq!(everywhere.url(), format!("http://{}", everywhere.addr()));
    assert!(everywhere.is_advertised_nowhere());
    let advertised = Replica::start(advertised, Hooks::default())
        .await
        .expect("a free port");
    assert_eq!(advertised.url(), "http://127.0.0.1:9");
    assert!(!advertised.is_advertised_nowhere());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_too_large_gets_what_gos_servers_say() {
    let leader = leader(CLUSTER, 10).await;
    let mut config = config(&leader);
    config.limits.message = 1 << 20;
    let replica = Replica::start(config, Hooks::default())
        .await
        .expect("a free port");
    serving(replica.addr()).await;
    let channel = channel(replica.addr()).await;
    let (mut pd, mut router) = (
        PdClient::new(channel.clone()),
        RouterClient::new(channel.clone()),
    );
    let request = |bytes: usize| GetRegionRequest {
        header: header(),
        region_key: vec![b'x'; bytes].into(),
        need_buckets: false,
    };
    let exhausted = |status: tonic::Status| {
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(status.message().contains("larger than max"), "{status}");
    };
    // Some arrive whole before they are looked at, some in many pieces.
    for bytes in [1 << 20, 8 << 20] {
        let answer = pd.get_region(to_follower(request(bytes))).await;
        exhausted(answer.expect_err("too large"));
        let answer = router.get_region(request(bytes)).await;
        exhausted(answer.expect_err("too large"));
        let query = |keys: Vec<Vec<u8>>| QueryRegionRequest {
            header: header(),
            keys: keys.into_iter().map(Into::into).collect(),
            ..QueryRegionRequest::default()
        };
        let batches = [
            query(vec![b"0001".to_vec()]),
            query(vec![vec![b'x'; bytes]]),
        ];
        let answers = router.query_region(tokio_stream::iter(batches)).await;
        let mut answers = answers.expect("opened").into_inner();
        let first = answers
            .message()
            .await
            .expect("no status")
            .expect("a frame");
        assert_eq!(first.key_id_map.len(), 1);
        exhausted(answers.message().await.expect_err("too large"));
    }
    // The stores' service decodes by itself.
    let stores = GetAllStoresRequest {
        header: Some(RequestHeader {
            cluster_id: CLUSTER,
            caller_component: "x".repeat(2 << 20),
            ..RequestHeader::default()
        }),
        ..GetAllStoresRequest::default()
    };
    exhausted(pd.get_all_stores(stores).await.expect_err("too large"));
    let mut health = HealthClient::new(channel);
    let request = HealthCheckRequest {
        service: "x".repeat(4 << 10),
    };
    exhausted(health.check(request).await.expect_err("too large"));
    let answer = pd.get_region(to_follower(request_of_half_a_mib())).await;
    assert!(answer.is_ok());
}

fn request_of_half_a_mib() -> GetRegionRequest {
    GetRegionRequest {
        header: header(),
        region_key: vec![b'0'; 1 << 19].into(),
        need_buckets: false,
    }
}
