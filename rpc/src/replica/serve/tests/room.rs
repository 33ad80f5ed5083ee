use tokio::time::Instant;

use super::super::room::{MOST_WAITING, PATIENCE};
use super::*;

fn scan(limit: i32) -> Request<ScanRegionsRequest> {
    to_follower(ScanRegionsRequest {
        header: header(),
        limit,
        ..ScanRegionsRequest::default()
    })
}

#[tokio::test(start_paused = true)]
async fn heavy_scans_beyond_the_room_are_told_so_and_light_ones_are_answered() {
    let bench = Bench::fresh();
    let pd = bench.pd();
    let mut places = vec![];
    for _ in 0..SCANS {
        let place = bench.serving.scans.enter(Weight::Heavy, 0).await;
        places.push(place.expect("room"));
    }
    let asked = Instant::now();
    let (code, text) = failure(pd.scan_regions(scan(0)).await);
    assert_eq!(code, Code::ResourceExhausted);
    assert!(text.starts_with("too many large requests"), "{text}");
    assert_eq!(asked.elapsed().as_millis(), PATIENCE.as_millis());
    let batch = BatchScanRegionsRequest {
        header: header(),
        ..BatchScanRegionsRequest::default()
    };
    let busy = bench.router().batch_scan_regions(Request::new(batch)).await;
    assert_eq!(failure(busy).0, Code::ResourceExhausted);
    let rejected = bench.serving.counters.total().rejected_by_cause;
    assert_eq!(rejected, [("busy", 2)].into());
    assert!(pd.scan_regions(scan(10)).await.is_ok());
    assert!(pd.get_region(to_follower(key(b"a"))).await.is_ok());

    // A place that becomes free in time is taken, and given back.
    let freed = async {
        tokio::time::sleep(PATIENCE / 2).await;
        places.pop();
    };
    let (answer, ()) = tokio::join!(pd.scan_regions(scan(0)), freed);
    assert_eq!(answer.expect("room").get_ref().regions.len(), 3);
    assert!(pd.scan_regions(scan(0)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_heavy_batch_waits_for_room_and_ends_the_stream_if_there_is_none() {
    let bench = Bench::fresh();
    let batch = |items| QueryRegionRequest {
        header: header(),
        ids: vec![1; items],
        ..QueryRegionRequest::default()
    };
    let mut places = vec![];
    for _ in 0..BATCHES {
        let place = bench.serving.batches.enter(Weight::Heavy, 0).await;
        places.push(place.expect("room"));
    }
    let mut stream = QueryOf(&bench).stream(vec![batch(10), batch(2_000), batch(2_000)]);
    let light = stream.next().await.expect("a frame");
    assert!(light.is_ok());
    let freed = async {
        tokio::time::sleep(PATIENCE / 2).await;
        places.pop();
    };
    let (answer, ()) = tokio::join!(stream.next(), freed);
    let answer = answer.expect("a frame").expect("room");
    assert_eq!(answer.regions_by_id.len(), 1);
    let again = bench.serving.batches.enter(Weight::Heavy, 0).await;
    let end = stream.next().await.expect("an end");
    assert_eq!(end.expect_err("no room").code(), Code::ResourceExhausted);
    assert!(stream.next().await.is_none());
    drop(again);
    let rejected = bench.serving.counters.total().rejected_by_cause;
    assert_eq!(rejected, [("busy", 1)].into());
}

#[tokio::test(start_paused = true)]
async fn answers_to_heavy_batches_that_nobody_reads_are_bounded() {
    let bench = Bench::fresh();
    let batch = |items| QueryRegionRequest {
        header: header(),
        ids: vec![1; items],
        ..QueryRegionRequest::default()
    };
    let heavy = || QueryOf(&bench).stream(vec![batch(1_001), batch(1_001)]);
    let mut unread = vec![];
    for _ in 0..UNREAD {
        let mut stream = heavy();
        assert!(stream.next().await.expect("a frame").is_ok());
        unread.push(stream);
    }
    let status = heavy().next().await.expect("an end").expect_err("no place");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let light = QueryOf(&bench).stream(vec![batch(1)]).next().await;
    assert!(light.expect("a frame").is_ok(), "takes no place");
    // Who asks for the next answer has taken the last one.
    assert!(unread[0].next().await.expect("a frame").is_ok());
    assert!(unread[0].next().await.is_none());
    assert!(heavy().next().await.expect("a frame").is_ok());
    // And who goes away leaves its place.
    drop(unread.pop());
    assert!(heavy().next().await.expect("a frame").is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_bounded_in_bytes_for_all_rooms_together() {
    let bench = Bench::fresh();
    let serving = &bench.serving;
    let mut places = vec![];
    for _ in 0..BATCHES {
        // However large: it does not wait.
        let place = serving.batches.enter(Weight::Heavy, MOST_WAITING).await;
        places.push(place.expect("room"));
    }
    for _ in 0..SCANS {
        let place = serving.scans.enter(Weight::Heavy, 0).await;
        places.push(place.expect("room"));
    }
    let asked = Instant::now();
    let large = serving.batches.enter(Weight::Heavy, MOST_WAITING / 2);
    let behind = async {
        tokio::task::yield_now().await;
        // Would be too much together with the one that waits, before whichever room: told so at once.
        let refused = serving
            .scans
            .enter(Weight::Heavy, MOST_WAITING / 2 + 1)
            .await;
        assert!(refused.is_err());
        assert_eq!(asked.elapsed().as_millis(), 0);
        let small = serving.scans.enter(Weight::Heavy, MOST_WAITING / 4).await;
        assert!(small.is_err(), "waits, and finds no room");
        assert_eq!(asked.elapsed(), PATIENCE);
    };
    let (large, ()) = tokio::join!(large, behind);
    assert!(large.is_err());
    // Who has waited is no longer in the queue.
    let asked = Instant::now();
    let again = serving.scans.enter(Weight::Heavy, MOST_WAITING / 2 + 1);
    assert!(again.await.is_err());
    assert_eq!(asked.elapsed(), PATIENCE);
}

#[test]
fn the_size_of_a_request_is_what_its_keys_take() {
    use crate::lookup::size;
    let batch = QueryRegionRequest {
        keys: vec![vec![0; 10].into(); 3],
        prev_keys: vec![vec![0; 5].into()],
        ids: vec![1; 4],
        ..QueryRegionRequest::default()
    };
    assert_eq!(size(&batch), 30 + 5 + 4 * size_of::<bytes::Bytes>() + 4 * 8);
}
