//! Scans that are too large, that nobody waits for any more, or whose answer nobody reads.

use std::sync::Mutex;
use std::sync::mpsc;

use tidegate_core::Snapshot;
use tokio::sync::oneshot;
use tonic::body::Body;

use super::super::evidence::Evidence;
use super::super::through::Inquiry;
use super::super::unread::{Unread, keep_place};
use super::*;
use crate::lookup::Reach;
use crate::replica::ask::{Answer, Question};

/// A scan of everything that says when it has begun, goes on when it is told to, and tells how it ended.
struct Held {
    begun: Mutex<Option<oneshot::Sender<()>>>,
    go_on: Mutex<mpsc::Receiver<()>>,
    ended: Mutex<Option<oneshot::Sender<Result<usize, LookupError>>>>,
}

/// Whoever holds it up.
struct Holder {
    begun: oneshot::Receiver<()>,
    go_on: mpsc::Sender<()>,
    ended: oneshot::Receiver<Result<usize, LookupError>>,
}

fn held() -> (Held, Holder) {
    let (begun, has_begun) = oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let (ended, has_ended) = oneshot::channel();
    let held = Held {
        begun: Mutex::new(Some(begun)),
        go_on: Mutex::new(may_go_on),
        ended: Mutex::new(Some(ended)),
    };
    let holder = Holder {
        begun: has_begun,
        go_on,
        ended: has_ended,
    };
    (held, holder)
}

impl Inquiry for Held {
    type Response = ScanRegionsResponse;
    const METHOD: Method = Method::ScanRegions;

    fn weight(&self) -> Weight {
        Weight::Heavy
    }

    fn lookup(
        &self,
        lookup: &Lookup<'_, '_>,
        _: u64,
        reach: Reach<'_>,
    ) -> Found<ScanRegionsResponse> {
        if let Some(begun) = self.begun.lock().expect("unpoisoned").take() {
            begun.send(()).expect("a waiter");
        }
        let told = self.go_on.lock().expect("unpoisoned").recv();
        told.expect("told to go on");
        let found = lookup.scan_within(&ScanRegionsRequest::default(), reach);
        if let Some(ended) = self.ended.lock().expect("unpoisoned").take() {
            let found = found.as_ref().map(|found| found.regions.len());
            let _ = ended.send(found.map_err(Clone::clone));
        }
        found.map_or_else(Found::Unfinished, Found::Answer)
    }

    fn evidence(&self, _: &Snapshot<'_>, _: &mut Evidence) {}

    fn question(&self) -> Question {
        Question::Scan(ScanRegionsRequest::default())
    }

    fn read(&self, _: &Answer, _: u64) -> Option<ScanRegionsResponse> {
        None
    }
}

/// A map of so many regions, proven fresh.
fn large(regions: u64) -> Bench {
    let bench = Bench::with(false);
    let ends: Vec<_> = (0..=regions).map(|n| n.to_be_bytes()).collect();
    let regions: Vec<(u64, &[u8], &[u8])> = (1..)
        .zip(ends.windows(2))
        .map(|(id, ends)| (id, &ends[0][..], &ends[1][..]))
        .collect();
    bench.full_sync(1, &regions);
    bench
}

#[tokio::test]
async fn a_scan_of_everything_does_not_hold_up_other_lookups() {
    assert_eq!(Weight::of_scan(100, 1), Weight::Light);
    for limit in [0, -1, i32::MAX] {
        assert_eq!(Weight::of_scan(limit, 1), Weight::Heavy, "{limit}");
    }
    assert_eq!(Weight::of_scan(100, 1_024), Weight::Light);
    assert_eq!(Weight::of_scan(100, 1_025), Weight::Heavy);
    let bench = Bench::fresh();
    let (scan, holder) = held();
    let serving = Arc::clone(&bench.serving);
    let scan = tokio::spawn(async move { serving.inquire(&Demand::default(), scan).await });
    // The scan takes until another lookup has been answered, on the only thread of the runtime.
    holder.begun.await.expect("the scan has begun");
    let other = bench.pd().get_region(to_follower(key(b"a"))).await;
    assert_eq!(id_of(other.expect("answered").get_ref()), 1);
    holder.go_on.send(()).expect("the scan waits");
    let answer = scan.await.expect("no panic").expect("an answer");
    assert_eq!(answer.get_ref().regions.len(), 3);
}

#[tokio::test]
async fn a_scan_stops_once_its_caller_has_gone_or_its_deadline_has_passed() {
    let bench = large(3_000);
    // Whoever waits on gets all of it.
    let (scan, holder) = held();
    holder.go_on.send(()).expect("the scan is to come");
    let answer = bench.serving.inquire(&Demand::default(), scan).await;
    assert_eq!(answer.expect("an answer").get_ref().regions.len(), 3_000);

    let (scan, holder) = held();
    let serving = Arc::clone(&bench.serving);
    let call = tokio::spawn(async move { serving.inquire(&Demand::default(), scan).await });
    holder.begun.await.expect("the scan has begun");
    // A stream that is reset, a connection that breaks and a deadline that passes all drop the call.
    call.abort();
    assert!(call.await.expect_err("dropped").is_cancelled());
    holder.go_on.send(()).expect("the scan waits");
    let ended = holder.ended.await.expect("an end");
    assert_eq!(ended, Err(LookupError::Abandoned));
    // Its places are free again once it has stopped.
    for _ in 0..SCANS {
        let place = bench.serving.scans.enter(Weight::Heavy, 0).await;
        std::mem::forget(place.expect("room"));
    }
    let counts = bench.counts(Method::ScanRegions);
    assert_eq!((counts.all(), counts.served), (1, 1), "{counts:?}");
}

fn scan(limit: i32) -> Request<ScanRegionsRequest> {
    to_follower(ScanRegionsRequest {
        header: header(),
        limit,
        ..ScanRegionsRequest::default()
    })
}

fn scans(ranges: &[(&'static [u8], &'static [u8])]) -> Request<BatchScanRegionsRequest> {
    let range = |&(start, end): &(&'static [u8], &'static [u8])| PbRange {
        start_key: start.into(),
        end_key: end.into(),
    };
    to_follower(BatchScanRegionsRequest {
        header: header(),
        ranges: ranges.iter().map(range).collect(),
        ..BatchScanRegionsRequest::default()
    })
}

#[tokio::test]
async fn a_scan_beyond_its_bounds_is_told_so_and_never_cut_short() {
    let bench = Bench::bounded(2, usize::MAX);
    let pd = bench.pd();
    for limit in [0, 3, 1_000, i32::MAX] {
        let (code, text) = failure(pd.scan_regions(scan(limit)).await);
        assert_eq!(code, Code::ResourceExhausted, "limit {limit}");
        assert!(
            text.starts_with(
                "the answer has more than 2 regions (max-scan-regions); ask with a limit"
            ),
            "{text}"
        );
    }
    let (code, _) = failure(pd.batch_scan_regions(scans(&[(b"", b"")])).await);
    assert_eq!(code, Code::ResourceExhausted);
    let rejected = bench.serving.counters.total().rejected_by_cause;
    assert_eq!(rejected, [("too_large", 5)].into());

    // What the limit of the request stops is whole, and so is what has no more than that.
    let page = pd.scan_regions(scan(2)).await.expect("within");
    assert_eq!(page.get_ref().regions.len(), 2);
    // A region that two ranges share counts once.
    let shared = scans(&[(b"a", b"bb"), (b"c", b"d")]);
    let shared = pd.batch_scan_regions(shared).await.expect("within");
    assert_eq!(shared.get_ref().regions.len(), 2);
}

#[tokio::test]
async fn the_bytes_of_a_scan_are_bounded_as_they_go_over_the_wire() {
    use prost::Message;
    let bench = Bench::fresh();
    let whole = bench.pd().scan_regions(scan(0)).await.expect("an answer");
    let bytes = whole.get_ref().encoded_len();
    let generous = Bench::bounded(3, bytes + 6 * 20).pd();
    assert!(generous.scan_regions(scan(0)).await.is_ok());
    let strict = Bench::bounded(3, bytes - 1);
    for weight in [0, 100] {
        let (code, text) = failure(strict.pd().scan_regions(scan(weight)).await);
        assert_eq!(code, Code::ResourceExhausted);
        assert!(
            text.contains("bytes (max-scan-size); ask with a lower limit"),
            "{text}"
        );
    }
    assert!(strict.pd().scan_regions(scan(1)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn answers_to_heavy_scans_that_nobody_reads_are_bounded() {
    let bench = Bench::fresh();
    let pd = bench.pd();
    let mut unread = vec![];
    for _ in 0..UNREAD {
        let answer = pd.scan_regions(scan(0)).await.expect("a place");
        // What becomes of it on its way out: the place goes over to the body.
        let (_, message, extensions) = answer.into_parts();
        let mut response = http::Response::new(Body::new("bytes".to_owned()));
        let place = extensions.get::<Unread>().expect("a place");
        response.extensions_mut().insert(place.clone());
        unread.push((message, keep_place(response)));
    }
    let (code, _) = failure(pd.scan_regions(scan(0)).await);
    assert_eq!(code, Code::ResourceExhausted);
    assert!(pd.scan_regions(scan(10)).await.is_ok(), "takes no place");
    let (_, response) = unread.pop().expect("an answer");
    let (head, body) = response.into_parts();
    assert!(head.extensions.get::<Unread>().is_none());
    assert!(pd.scan_regions(scan(0)).await.is_err(), "not read yet");
    drop(body);
    assert!(pd.scan_regions(scan(0)).await.is_ok());
}

#[tokio::test]
async fn a_batch_whose_answer_would_be_too_large_ends_its_stream() {
    let bench = Bench::bounded(1, 100);
    let batch = |ids: &[u64], items| QueryRegionRequest {
        header: header(),
        ids: ids.iter().copied().cycle().take(items).collect(),
        ..QueryRegionRequest::default()
    };
    // Three regions of some thirty bytes each; one of them, however often, is little, and so is a light batch.
    let batches = vec![
        batch(&[1, 2, 3], 9),
        batch(&[1], 2_000),
        batch(&[1, 2, 3], 2_000),
    ];
    let mut stream = QueryOf(&bench).stream(batches);
    for regions in [3, 1] {
        let answer = stream.next().await.expect("a frame").expect("an answer");
        assert_eq!(answer.regions_by_id.len(), regions);
    }
    let status = stream.next().await.expect("an end").expect_err("too large");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("max-scan-size"), "{status}");
    assert!(stream.next().await.is_none());
    let rejected = bench.serving.counters.total().rejected_by_cause;
    assert_eq!(rejected, [("too_large", 1)].into());
}
