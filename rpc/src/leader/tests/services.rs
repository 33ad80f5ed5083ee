use tokio_stream::iter;
use tonic::Code;

use super::*;
use crate::proto::pdpb::*;

#[tokio::test]
async fn the_only_member_is_the_leader_whatever_cluster_is_asked_for() {
    let leader = leader().await;
    let mut client = client(&leader).await;
    let members = client
        .get_members(GetMembersRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(members.header.unwrap().cluster_id, CLUSTER);
    let own = members.leader.unwrap();
    assert_eq!(members.members, std::slice::from_ref(&own));
    assert_eq!(members.etcd_leader, Some(own.clone()));
    assert_eq!(own.client_urls, [leader.url()]);
    assert_ne!(own.member_id, 0);
    let info = client
        .get_cluster_info(GetClusterInfoRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(info.service_modes, [i32::from(ServiceMode::PdSvcMode)]);
    leader.stop().await;
}

#[tokio::test]
async fn ids_come_in_blocks_that_end_with_the_answer() {
    let leader = leader().await;
    let mut client = client(&leader).await;
    let mut take = async |count| {
        let request = AllocIdRequest {
            header: header(),
            count,
        };
        let answer = client.alloc_id(request).await.unwrap().into_inner();
        (answer.id, answer.count)
    };
    assert_eq!(take(0).await, (1, 0));
    assert_eq!(take(1).await, (2, 0));
    assert_eq!(take(10).await, (12, 10));
    assert_eq!(leader.alloc_id(), Some(13));
    leader.stop().await;
}

#[tokio::test]
async fn a_foreign_cluster_is_refused_on_every_call() {
    let leader = leader().await;
    let mut client = client(&leader).await;
    let error = client
        .alloc_id(AllocIdRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!(error.message(), "mismatch cluster id, need 7 but got 0");
    let error = client
        .get_region(GetRegionRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    let mut tso = client
        .tso(iter([TsoRequest::default()]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        tso.message().await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    let query = iter([QueryRegionRequest::default()]);
    let mut query = client.query_region(query).await.unwrap().into_inner();
    assert_eq!(
        query.message().await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    leader.stop().await;
}

#[tokio::test]
async fn no_timestamps_is_an_error_that_ends_the_stream() {
    let leader = leader().await;
    let mut client = client(&leader).await;
    let none = TsoRequest {
        header: header(),
        count: 0,
        ..TsoRequest::default()
    };
    let mut tso = client.tso(iter([none])).await.unwrap().into_inner();
    let error = tso.message().await.unwrap_err();
    assert_eq!(error.code(), Code::Unknown);
    assert!(
        error.message().starts_with("generate timestamp failed"),
        "{error}"
    );
    let min = client
        .get_min_ts(GetMinTsRequest { header: header() })
        .await
        .unwrap()
        .into_inner();
    assert!(min.timestamp.unwrap().physical > 0);
    leader.stop().await;
}

fn first() -> BootstrapRequest {
    BootstrapRequest {
        header: header(),
        store: Some(store(1)),
        region: Some(metapb::Region {
            id: 2,
            region_epoch: Some(metapb::RegionEpoch {
                conf_ver: 1,
                version: 1,
            }),
            peers: vec![metapb::Peer {
                id: 3,
                store_id: 1,
                ..metapb::Peer::default()
            }],
            ..metapb::Region::default()
        }),
    }
}

fn error(header: Option<ResponseHeader>) -> (i32, String) {
    header
        .unwrap()
        .error
        .map_or((0, String::new()), |error| (error.r#type, error.message))
}

#[tokio::test]
async fn a_cluster_is_bootstrapped_once() {
    let leader = leader().await;
    let mut client = client(&leader).await;
    let is = IsBootstrappedRequest { header: header() };
    assert!(
        !client
            .is_bootstrapped(is.clone())
            .await
            .unwrap()
            .get_ref()
            .bootstrapped
    );
    let key = GetRegionRequest {
        header: header(),
        ..GetRegionRequest::default()
    };
    let before = client.get_region(key.clone()).await.unwrap().into_inner();
    assert_eq!(
        error(before.header),
        (2, "cluster is not bootstrapped".to_owned())
    );
    let sync = iter([SyncRegionRequest {
        header: header(),
        ..SyncRegionRequest::default()
    }]);
    let early = client.sync_regions(sync).await.unwrap_err();
    assert_eq!(
        (early.code(), early.message()),
        (Code::Unavailable, "server not started")
    );

    let bad = BootstrapRequest {
        store: None,
        ..first()
    };
    let bad = client.bootstrap(bad).await.unwrap().into_inner();
    assert_eq!(
        error(bad.header),
        (1, "missing store meta for bootstrap 7".to_owned())
    );
    let good = client.bootstrap(first()).await.unwrap().into_inner();
    assert_eq!(
        good.header,
        Some(ResponseHeader {
            cluster_id: 7,
            error: None
        })
    );
    let twice = client.bootstrap(first()).await.unwrap().into_inner();
    assert_eq!(
        error(twice.header),
        (4, "cluster is already bootstrapped".to_owned())
    );

    assert!(
        client
            .is_bootstrapped(is)
            .await
            .unwrap()
            .get_ref()
            .bootstrapped
    );
    let found = client.get_region(key).await.unwrap().into_inner();
    assert_eq!((found.region.unwrap().id, found.leader), (2, None));
    assert_eq!(leader.next_index(), 0, "the first region is no record");
    leader.stop().await;
}

#[tokio::test]
async fn stores_are_kept_by_pds_rules() {
    let leader = leader().await;
    let mut client = client(&leader).await;
    client.bootstrap(first()).await.unwrap();
    let mut put = async |store| {
        let request = PutStoreRequest {
            header: header(),
            store: Some(store),
        };
        error(client.put_store(request).await.unwrap().into_inner().header)
    };
    assert_eq!(put(store(2)).await.0, 0);
    assert_eq!(
        put(metapb::Store::default()).await,
        (1, "invalid put store".to_owned())
    );
    let twin = metapb::Store { id: 3, ..store(2) };
    assert_eq!(
        put(twin).await,
        (
            1,
            "duplicated store address: 127.0.0.1:20162, already registered by store 2".to_owned()
        )
    );
    let mut gone = store(4);
    gone.set_node_state(metapb::NodeState::Removed);
    gone.set_state(metapb::StoreState::Tombstone);
    assert_eq!(put(gone.clone()).await.0, 0);
    assert_eq!(put(gone).await, (3, "store is tombstone".to_owned()));

    let ask = |store_id| GetStoreRequest {
        header: header(),
        store_id,
    };
    let unknown = client.get_store(ask(9)).await.unwrap().into_inner();
    assert_eq!(
        error(unknown.header),
        (1, "invalid store ID 9, not found".to_owned())
    );
    assert_eq!(
        client.get_store(ask(2)).await.unwrap().into_inner().store,
        Some(store(2))
    );
    let mut all = async |exclude_tombstone_stores| {
        let request = GetAllStoresRequest {
            header: header(),
            exclude_tombstone_stores,
        };
        let stores = client
            .get_all_stores(request)
            .await
            .unwrap()
            .into_inner()
            .stores;
        stores.iter().map(|store| store.id).collect::<Vec<_>>()
    };
    assert_eq!(all(false).await, [1, 2, 4]);
    assert_eq!(all(true).await, [1, 2]);
    leader.stop().await;
}

#[tokio::test]
async fn a_store_heartbeat_leaves_its_stats_and_time() {
    let leader = leader().await;
    leader.put_store(store(1)).unwrap();
    let mut client = client(&leader).await;
    let beat = |store_id| StoreHeartbeatRequest {
        header: header(),
        stats: Some(StoreStats {
            store_id,
            capacity: 100,
            ..StoreStats::default()
        }),
    };
    let good = client.store_heartbeat(beat(1)).await.unwrap().into_inner();
    assert_eq!(good.header.unwrap().error, None);
    let stranger = client.store_heartbeat(beat(9)).await.unwrap().into_inner();
    assert_eq!(error(stranger.header), (1, "store 9 not found".to_owned()));
    let empty = StoreHeartbeatRequest {
        stats: None,
        ..beat(1)
    };
    assert_eq!(
        client.store_heartbeat(empty).await.unwrap_err().code(),
        Code::Unknown
    );
    let request = GetStoreRequest {
        header: header(),
        store_id: 1,
    };
    let known = client.get_store(request).await.unwrap().into_inner();
    assert_eq!(known.stats.unwrap().capacity, 100);
    assert!(known.store.unwrap().last_heartbeat > 0);
    leader.stop().await;
}
