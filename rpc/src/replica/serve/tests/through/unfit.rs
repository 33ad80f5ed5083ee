//! A leader that answers something else than was asked: the caller gets what stock clients retry at the leader.

use std::sync::atomic::Ordering::SeqCst;

use super::*;
use crate::proto::pdpb::{BatchScanRegionsRequest, KeyRange as PbRange};
use crate::replica::ask::tests::script::Twist;

/// Behind a shut gate; every answer of the leader is of some other question.
async fn bench() -> Through {
    let bench = Through::new();
    bench.shut().await;
    bench.script.twist(Some(Twist {
        query: |answer| {
            for found in answer.regions_by_id.values_mut() {
                let region = found.region.as_mut().expect("found");
                region.id += 1;
                region.start_key = bytes::Bytes::from_static(b"zz");
                region.end_key = bytes::Bytes::new();
            }
        },
        one: |answer| {
            let region = answer.region.as_mut().expect("found");
            region.id += 1;
            region.start_key = bytes::Bytes::from_static(b"zz");
            region.end_key = bytes::Bytes::new();
        },
        scan: |regions| regions.reverse(),
    }));
    bench
}

fn asked_by_key() -> GetRegionRequest {
    GetRegionRequest {
        header: header(),
        region_key: b"e".to_vec().into(),
        need_buckets: false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_is_refused() {
    for is_old in [false, true] {
        let bench = bench().await;
        bench.script.is_old.store(is_old, SeqCst);
        let pd = PdService(Arc::clone(&bench.serving));
        let by_key = pd.get_region(to_follower(asked_by_key())).await;
        let prev = pd.get_prev_region(to_follower(asked_by_key())).await;
        let by_id = pd
            .get_region_by_id(to_follower(GetRegionByIdRequest {
                header: header(),
                region_id: 2,
                need_buckets: false,
            }))
            .await;
        for answer in [by_key, prev, by_id] {
            let got = Got::of(&answer.expect("a header"));
            assert_eq!(
                (got.id, got.error, got.source.as_str()),
                (0, Some(REGION_NOT_FOUND), "none")
            );
        }
        let asks = bench.serving.asked().expect("reads through").counters();
        assert_eq!(asks.read().unfit, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_is_refused() {
    let bench = bench().await;
    let pd = PdService(Arc::clone(&bench.serving));
    let scan = pd
        .scan_regions(to_follower(ScanRegionsRequest {
            header: header(),
            limit: 10,
            ..ScanRegionsRequest::default()
        }))
        .await;
    let scan = scan.expect("a header").into_inner();
    assert_eq!(error_of(scan.header.as_ref()), refused());
    assert!(scan.regions.is_empty());
    let scans = pd
        .batch_scan_regions(to_follower(BatchScanRegionsRequest {
            header: header(),
            ranges: vec![PbRange::default()],
            limit: 10,
            ..BatchScanRegionsRequest::default()
        }))
        .await;
    let scans = scans.expect("a header").into_inner();
    assert_eq!(error_of(scans.header.as_ref()), refused());
    assert!(scans.regions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_a_stream_is_refused_and_the_next_one_is_not() {
    let bench = bench().await;
    let answer = bench.query(keys(&["a", "e"])).await;
    assert_eq!(error_of(answer.header.as_ref()), refused());
    bench.script.twist(None);
    let answer = bench.query(keys(&["a", "e"])).await;
    assert_eq!(answer.key_id_map, [1, 2]);
}
