//! Calls that a replica passes on to the PD leader, as stock clients make them.

mod support;

use std::time::Duration;

use support::{CLUSTER, PATIENCE, channel, header, leader, serving};
use tidegate::config::{PresentAs, ServeConfig, WhenStale};
use tidegate::leader::EmbeddedLeader;
use tidegate::proto::etcdserverpb::RangeRequest;
use tidegate::proto::etcdserverpb::kv_client::KvClient;
use tidegate::proto::metapb::Store;
use tidegate::proto::pdpb::pd_client::PdClient;
use tidegate::proto::pdpb::{
    AllocIdRequest, GetAllStoresRequest, GetMembersRequest, GetRegionRequest, PutStoreRequest,
    QueryRegionRequest, RequestHeader, TsoRequest,
};
use tidegate::replica::Replica;
use tidegate::replica::hooks::Hooks;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};

async fn replica(leader: &EmbeddedLeader, present_as: PresentAs) -> Replica {
    replica_with(leader, present_as, WhenStale::Refuse).await
}

async fn replica_with(
    leader: &EmbeddedLeader,
    present_as: PresentAs,
    when_stale: WhenStale,
) -> Replica {
    let config = ServeConfig {
        name: "under-test".to_owned(),
        backend_endpoints: vec![leader.url().parse().expect("a URL")],
        listen: "http://127.0.0.1:0".parse().expect("a URL"),
        probe_interval: Duration::from_millis(100),
        present_as,
        when_stale,
        ..ServeConfig::default()
    };
    let replica = Replica::start(config, Hooks::default())
        .await
        .expect("a free port");
    serving(replica.addr()).await;
    replica
}

fn tso(count: u32, cluster_id: u64) -> TsoRequest {
    TsoRequest {
        header: Some(RequestHeader {
            cluster_id,
            ..RequestHeader::default()
        }),
        count,
        dc_location: String::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn timestamps_through_a_replica_are_the_leaders_and_grow() {
    let leader = leader(CLUSTER, 1).await;
    let replica = replica(&leader, PresentAs::Backend).await;
    let mut through = PdClient::new(channel(replica.addr()).await);
    let mut direct = PdClient::new(channel(leader.addr()).await);
    let (ask, asked) = mpsc::channel(1);
    let (ask_direct, asked_direct) = mpsc::channel(1);
    let one = through.tso(ReceiverStream::new(asked)).await;
    let mut one = one.expect("a stream").into_inner();
    let other = direct.tso(ReceiverStream::new(asked_direct)).await;
    let mut other = other.expect("a stream").into_inner();
    let mut last = 0;
    for round in 0..200 {
        let count = round % 7 + 1;
        let (ask, stream) = if round % 3 == 0 {
            (&ask_direct, &mut other)
        } else {
            (&ask, &mut one)
        };
        ask.send(tso(count, CLUSTER)).await.expect("open");
        let answer = tokio::time::timeout(PATIENCE, stream.message()).await;
        let answer = answer
            .expect("in time")
            .expect("no error")
            .expect("an answer");
        assert_eq!(answer.count, count);
        let at = answer.timestamp.expect("set");
        let ts = (at.physical << 18) + at.logical;
        // The last of its block: the block begins above all that was given out before.
        assert!(ts - i64::from(count) >= last, "{ts} after {last}");
        last = ts;
    }
    // The leader's word ends the stream here as there.
    ask.send(tso(1, CLUSTER + 1)).await.expect("open");
    let status = one.message().await.expect_err("another cluster's");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.message(), "mismatch cluster id, need 7 but got 8");
}

#[tokio::test(flavor = "multi_thread")]
async fn unary_calls_and_the_other_services_reach_the_leader() {
    let leader = leader(CLUSTER, 1).await;
    let replica = replica(&leader, PresentAs::Backend).await;
    let channel = channel(replica.addr()).await;
    let mut pd = PdClient::new(channel.clone());
    let mut ids = Vec::new();
    for _ in 0..3 {
        let request = AllocIdRequest {
            header: header(),
            count: 1,
        };
        ids.push(pd.alloc_id(request).await.expect("an id").into_inner().id);
    }
    assert_eq!(leader.alloc_id(), Some(ids[2] + 1));
    let request = PutStoreRequest {
        header: header(),
        store: Some(Store {
            id: 1,
            address: "127.0.0.1:20160".to_owned(),
            ..Store::default()
        }),
    };
    let answer = pd.put_store(request).await.expect("taken").into_inner();
    assert_eq!(answer.header.expect("set").error, None);
    let request = GetAllStoresRequest {
        header: header(),
        ..GetAllStoresRequest::default()
    };
    let stores = pd
        .get_all_stores(request)
        .await
        .expect("stores")
        .into_inner();
    assert_eq!(stores.stores[0].address, "127.0.0.1:20160");

    let request = RangeRequest {
        key: format!("/pd/{CLUSTER}/leader").into_bytes().into(),
        ..RangeRequest::default()
    };
    let answer = KvClient::new(channel).range(request).await.expect("etcd's");
    assert_eq!(answer.get_ref().kvs[0].create_revision, leader.term());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_ask_a_replica_to_pass_a_lookup_on() {
    let leader = leader(CLUSTER, 10).await;
    let replica = replica(&leader, PresentAs::Backend).await;
    let mut pd = PdClient::new(channel(replica.addr()).await);
    let lookup = |host: &str| {
        let mut request = Request::new(GetRegionRequest {
            header: header(),
            region_key: "0003".into(),
            need_buckets: false,
        });
        request
            .metadata_mut()
            .insert("pd-forwarded-host", host.parse().expect("ascii"));
        request
    };
    let before = leader.lookups();
    let answer = pd
        .get_region(lookup(&leader.url()))
        .await
        .expect("passed on");
    assert_eq!(answer.into_inner().region.expect("found").id, 3);
    assert_eq!(leader.lookups(), before + 1);
    let other = pd.get_region(lookup("http://127.0.0.1:9")).await;
    assert_eq!(
        other.expect_err("no leader's").code(),
        Code::InvalidArgument
    );
    assert_eq!(leader.lookups(), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn presented_as_self_a_client_that_knows_nobody_else_gets_along() {
    let leader = leader(CLUSTER, 10).await;
    let replica = replica(&leader, PresentAs::Me).await;
    let mut pd = PdClient::new(channel(replica.addr()).await);
    let members = pd.get_members(GetMembersRequest { header: None }).await;
    let members = members.expect("members").into_inner();
    assert_eq!(members.members.len(), 1);
    let me = members.leader.expect("a leader");
    assert_eq!(me.client_urls, [replica.url()]);

    let key = || GetRegionRequest {
        header: header(),
        region_key: "0003".into(),
        need_buckets: false,
    };
    let before = leader.lookups();
    let answer = pd.get_region(key()).await.expect("the leader's answer");
    assert_eq!(answer.into_inner().region.expect("found").id, 3);
    assert_eq!(leader.lookups(), before + 1);
    let mut request = Request::new(key());
    request
        .metadata_mut()
        .insert("pd-allow-follower-handle", "".parse().expect("ascii"));
    let answer = pd.get_region(request).await.expect("ours");
    assert_eq!(answer.into_inner().region.expect("found").id, 3);
    assert_eq!(leader.lookups(), before + 1);

    let batch = QueryRegionRequest {
        header: header(),
        keys: vec!["0003".into(), "0007".into()],
        ..QueryRegionRequest::default()
    };
    let answers = pd
        .query_region(tokio_stream::once(batch))
        .await
        .expect("a stream");
    let answer = answers
        .into_inner()
        .message()
        .await
        .expect("no error")
        .expect("an answer");
    assert_eq!(answer.key_id_map, [3, 7]);
    assert_eq!(leader.lookups(), before + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_stops_in_good_order_although_a_stream_goes_through_it() {
    let leader = leader(CLUSTER, 1).await;
    let replica = replica(&leader, PresentAs::Backend).await;
    let mut pd = PdClient::new(channel(replica.addr()).await);
    let (ask, asked) = mpsc::channel(1);
    ask.send(tso(1, CLUSTER)).await.expect("open");
    let stream = pd.tso(ReceiverStream::new(asked)).await.expect("a stream");
    let mut stream = stream.into_inner();
    assert!(stream.message().await.expect("no error").is_some());
    let stopped = replica.stop(PATIENCE).await;
    assert!(stopped.graceful);
    let status = stream.message().await.expect_err("ended");
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn presented_as_self_the_leader_is_asked_for_those_who_mean_the_leader() {
    let leader = leader(CLUSTER, 10).await;
    let replica = replica_with(&leader, PresentAs::Me, WhenStale::ReadThrough).await;
    let mut pd = PdClient::new(channel(replica.addr()).await);
    let request = GetRegionRequest {
        header: header(),
        region_key: "0003".into(),
        need_buckets: false,
    };
    let forwarded = replica.status().forwarded.forwarded;
    let before = leader.lookups();
    let answer = pd.get_region(request).await.expect("the leader's answer");
    let source = answer.metadata().get("tidegate-source");
    assert_eq!(source.expect("told"), "leader");
    assert_eq!(answer.into_inner().region.expect("found").id, 3);
    assert_eq!(leader.lookups(), before + 1);
    assert_eq!(replica.status().forwarded.forwarded, forwarded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_method_that_nobody_has_is_unimplemented_and_an_unknown_page_is_not_found() {
    let leader = leader(CLUSTER, 1).await;
    let replica = replica(&leader, PresentAs::Backend).await;
    for path in [
        "/etcdserverpb.Cluster/MemberList",
        "/etcdserverpb.Maintenance/Status",
        "/etcdserverpb.Auth/Authenticate",
        "/nobody.Has/This",
        "/routerpb.Router/ScanRegions",
        "/routerpb.Router",
        "/grpc.health.v1.Health/List",
        "/pdpb.PD/NotYetInvented",
        "/metrics",
        "/status",
        "/",
    ] {
        let mut client = tonic::client::Grpc::new(channel(replica.addr()).await);
        client.ready().await.expect("ready");
        let codec = tonic_prost::ProstCodec::<GetMembersRequest, GetMembersRequest>::default();
        let called = client
            .unary(
                Request::new(GetMembersRequest::default()),
                path.parse().expect("a path"),
                codec,
            )
            .await;
        let status = called.expect_err(path);
        assert_eq!(status.code(), Code::Unimplemented, "{path}: {status}");
        // In trailers alone: they came as headers.
        let kind = status
            .metadata()
            .get("content-type")
            .map(|kind| kind.as_bytes());
        assert_eq!(kind, Some(&b"application/grpc"[..]), "{path}");
        let page = support::get(replica.addr(), path).await;
        let code = match path {
            "/metrics" | "/status" => "200",
            // Of a service that is here, and no call of it.
            _ if path.contains("Router/") || path.contains("PD/") => "415",
            _ if path.contains("Health/") => continue,
            _ => "404",
        };
        assert!(
            page.starts_with(&format!("HTTP/1.1 {code}")),
            "{path}: {page}"
        );
    }
    replica.stop(Duration::from_secs(1)).await;
    leader.stop().await;
}
