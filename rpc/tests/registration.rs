//! A replica as stock clients find it: a key in PD's etcd, read through PD's MetaStorage.

mod support;

use std::time::Duration;

use support::{CLUSTER, PATIENCE, Served, channel, leader, serving};
use tidegate::leader::EmbeddedLeader;
use tidegate::proto::meta_storagepb::meta_storage_client::MetaStorageClient;
use tidegate::proto::meta_storagepb::{GetRequest, KeyValue};
use tonic::transport::Channel;

/// The routers that a client would find.
async fn routers(channel: &Channel) -> Vec<KeyValue> {
    let prefix = format!("/ms/{CLUSTER}/router/registry/");
    let mut end = prefix.clone().into_bytes();
    // The end of a prefix is the prefix with its last byte one higher.
    *end.last_mut().expect("not empty") += 1;
    let request = GetRequest {
        key: prefix.into(),
        range_end: end.into(),
        ..GetRequest::default()
    };
    let found = MetaStorageClient::new(channel.clone()).get(request).await;
    found.expect("keys").into_inner().kvs
}

async fn until(leader: &EmbeddedLeader, there: usize) -> Vec<KeyValue> {
    let channel = channel(leader.addr()).await;
    let wait = async {
        loop {
            let found = routers(&channel).await;
            if found.len() == there {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_found_while_it_serves_and_not_after_its_stop() {
    let leader = leader(CLUSTER, 10).await;
    let served = Served::start(&["--backend-endpoints", &leader.url(), "--name", "found"]);
    serving(served.addr).await;
    let found = until(&leader, 1).await;
    let value: serde_json::Value = serde_json::from_slice(&found[0].value).expect("JSON");
    assert_eq!(value["name"], "found");
    assert_eq!(value["service-addr"], format!("http://{}", served.addr));
    // A client that has the replica for its PD finds it, too.
    assert_eq!(routers(&channel(served.addr).await).await, found);
    served.signal("TERM");
    assert_eq!(served.wait(), Some(0));
    assert!(routers(&channel(leader.addr()).await).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_not_to_be_found_is_not() {
    let leader = leader(CLUSTER, 10).await;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidegate.toml");
    std::fs::write(&path, "register = false").expect("written");
    let path = path.to_str().expect("text");
    let hidden = Served::start(&["--backend-endpoints", &leader.url(), "--config", path]);
    serving(hidden.addr).await;
    // One that is registers in the meantime.
    let _found = Served::start(&["--backend-endpoints", &leader.url()]);
    let found = until(&leader, 1).await;
    assert!(!found[0].key.ends_with(hidden.addr.to_string().as_bytes()));
}
