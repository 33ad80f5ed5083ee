use tokio_stream::iter;

use super::*;
use crate::proto::pdpb::{self, *};

/// Regions [b, d) and [d, f): a hole on either side.
async fn two() -> EmbeddedLeader {
    let leader = leader().await;
    for done in leader.report_regions(vec![region(1, "b", "d", 2), region(2, "d", "f", 2)]) {
        done.unwrap();
    }
    leader
}

fn at(key: &'static str) -> GetRegionRequest {
    GetRegionRequest {
        header: header(),
        region_key: key.into(),
        need_buckets: false,
    }
}

fn success() -> Option<ResponseHeader> {
    Some(ResponseHeader {
        cluster_id: CLUSTER,
        error: None,
    })
}

#[tokio::test]
async fn a_miss_is_a_success_without_a_region() {
    let leader = two().await;
    let mut client = client(&leader).await;
    let id = |response: tonic::Response<GetRegionResponse>| {
        let response = response.into_inner();
        assert_eq!(response.header, success());
        response.region.map(|region| region.id)
    };
    assert_eq!(id(client.get_region(at("c")).await.unwrap()), Some(1));
    assert_eq!(id(client.get_region(at("a")).await.unwrap()), None);
    assert_eq!(id(client.get_prev_region(at("e")).await.unwrap()), Some(1));
    assert_eq!(id(client.get_prev_region(at("c")).await.unwrap()), None);
    let by = |region_id| GetRegionByIdRequest {
        header: header(),
        region_id,
        ..Default::default()
    };
    assert_eq!(id(client.get_region_by_id(by(2)).await.unwrap()), Some(2));
    assert_eq!(id(client.get_region_by_id(by(3)).await.unwrap()), None);
    assert_eq!(id(client.get_region_by_id(by(0)).await.unwrap()), None);
    assert_eq!(leader.lookups(), 7);
    leader.stop().await;
}

#[tokio::test]
async fn an_empty_scan_is_a_success() {
    let leader = two().await;
    let mut client = client(&leader).await;
    let mut scan = async |start: &'static str, end: &'static str, limit| {
        let request = ScanRegionsRequest {
            header: header(),
            start_key: start.into(),
            end_key: end.into(),
            limit,
        };
        let found = client.scan_regions(request).await.unwrap().into_inner();
        assert_eq!(found.header, success());
        assert_eq!(found.region_metas.len(), found.regions.len());
        assert_eq!(found.leaders.len(), found.regions.len());
        found
            .region_metas
            .iter()
            .map(|region| region.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(scan("", "", 0).await, [1, 2]);
    assert_eq!(scan("", "", 1).await, [1]);
    assert_eq!(scan("x", "", 0).await, [0; 0]);
    leader.stop().await;
}

#[tokio::test]
async fn a_batch_scan_has_pds_errors() {
    let leader = two().await;
    let mut client = client(&leader).await;
    let range = |start: &'static str, end: &'static str| pdpb::KeyRange {
        start_key: start.into(),
        end_key: end.into(),
    };
    let mut scan = async |ranges: Vec<pdpb::KeyRange>, contain_all_key_range| {
        let request = BatchScanRegionsRequest {
            header: header(),
            ranges,
            contain_all_key_range,
            ..Default::default()
        };
        let found = client
            .batch_scan_regions(request)
            .await
            .unwrap()
            .into_inner();
        let kind = found.header.unwrap().error.map(|error| error.r#type());
        (kind, found.regions.len())
    };
    assert_eq!(
        scan(vec![range("b", "c"), range("d", "e")], true).await,
        (None, 2)
    );
    assert_eq!(scan(vec![range("x", "z")], false).await, (None, 0));
    assert_eq!(
        scan(vec![range("d", "e"), range("b", "c")], false).await.0,
        Some(ErrorType::Unknown)
    );
    let hole = Some(ErrorType::RegionsNotContainAllKeyRange);
    assert_eq!(scan(vec![range("e", "z")], true).await.0, hole);
    leader.stop().await;
}

#[tokio::test]
async fn a_query_answers_every_key_in_its_place() {
    let leader = two().await;
    let mut client = client(&leader).await;
    let batch = QueryRegionRequest {
        header: header(),
        need_buckets: false,
        ids: vec![2, 9, 0],
        keys: vec!["a".into(), "b".into(), "e".into()],
        prev_keys: vec!["d".into(), "b".into()],
    };
    let mut answers = client
        .query_region(iter([batch]))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    assert_eq!(answer.header, success());
    assert_eq!(answer.key_id_map, [0, 1, 2]);
    assert_eq!(answer.prev_key_id_map, [1, 0]);
    let mut ids: Vec<_> = answer.regions_by_id.keys().copied().collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 9]);
    assert_eq!(answer.regions_by_id[&9], RegionResponse::default());
    assert!(answers.message().await.unwrap().is_none());
    leader.stop().await;
}

#[tokio::test]
async fn queries_before_the_bootstrap_are_refused_and_the_stream_goes_on() {
    let leader = leader().await;
    let mut client = client(&leader).await;
    let batch = QueryRegionRequest {
        header: header(),
        ..QueryRegionRequest::default()
    };
    let batches = iter([batch.clone(), batch]);
    let mut answers = client.query_region(batches).await.unwrap().into_inner();
    for _ in 0..2 {
        let header = answers.message().await.unwrap().unwrap().header.unwrap();
        assert_eq!(header.error.unwrap().r#type(), ErrorType::NotBootstrapped);
    }
    leader.stop().await;
}
