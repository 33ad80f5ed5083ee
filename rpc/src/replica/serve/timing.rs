//! How long lookups take, from the arrival of the request to the answer, by method.
//!
//! A batch of QueryRegion arrives when it is read from its stream; the rest is timed around the service. The time of a
//! request that was turned away counts too; that of one that was passed on to the PD leader does not begin here. Two
//! additions a request; nothing is sampled, so that the counts are those of the requests.

use std::fmt::{self, Write};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_core::Moment;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use super::Serving;
use super::counters::Method;
use super::unread::keep_place;

/// The upper bounds of the buckets are `FIRST << n`: from 10 us, about what a lookup in the map takes, to 2.6 s, more than
/// one that waits for room and then for the leader.
const FIRST: Duration = Duration::from_micros(10);
const BOUNDS: usize = 19;
const NAME: &str = "tidegate_server_region_request_duration_seconds";

/// Histograms of one replica, by method.
#[derive(Debug, Default)]
pub(in crate::replica) struct Latencies([Histogram; Method::ALL.len()]);

#[derive(Debug, Default)]
struct Histogram {
    /// The last one has no bound.
    buckets: [AtomicU64; BOUNDS + 1],
    sum_nanos: AtomicU64,
}

impl Latencies {
    pub(in crate::replica) fn record(&self, method: Method, took: Duration) {
        let histogram = &self.0[method as usize];
        let bucket = (0..BOUNDS)
            .find(|n| took <= FIRST * (1 << n))
            .unwrap_or(BOUNDS);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: counts for display.
        histogram.buckets[bucket].fetch_add(1, Relaxed);
        histogram.sum_nanos.fetch_add(nanos, Relaxed);
    }

    /// In Prometheus' text format.
    pub(in crate::replica) fn render(&self) -> String {
        let mut text = format!(
            "# HELP {NAME} How long lookups take, from their arrival to the answer; QueryRegion by the batch.\n# TYPE {NAME} histogram\n"
        );
        for method in Method::ALL {
            // Writing to a string cannot fail.
            let _ = self.render_one(method, &mut text);
        }
        text
    }

    fn render_one(&self, method: Method, text: &mut String) -> fmt::Result {
        let (histogram, method) = (&self.0[method as usize], method.as_str());
        let mut count = 0;
        for (n, bucket) in histogram.buckets.iter().enumerate() {
            // Relaxed: see `record`.
            count += bucket.load(Relaxed);
            let bound = match n {
                BOUNDS => "+Inf".to_owned(),
                // Divided once, so that it is written as short as it is.
                n => ((FIRST.as_micros() << n) as f64 / 1e6).to_string(),
            };
            writeln!(
                text,
                "{NAME}_bucket{{request=\"{method}\",le=\"{bound}\"}} {count}"
            )?;
        }
        let sum = Duration::from_nanos(histogram.sum_nanos.load(Relaxed)).as_secs_f64();
        writeln!(text, "{NAME}_sum{{request=\"{method}\"}} {sum}")?;
        writeln!(text, "{NAME}_count{{request=\"{method}\"}} {count}")
    }
}

/// The method of a unary lookup, by the path of its request.
fn method_of(path: &str) -> Option<Method> {
    let method = match path.rsplit('/').next()? {
        "GetRegion" => Method::GetRegion,
        "GetPrevRegion" => Method::GetPrevRegion,
        "GetRegionByID" => Method::GetRegionById,
        "ScanRegions" => Method::ScanRegions,
        "BatchScanRegions" => Method::BatchScanRegions,
        _ => return None,
    };
    Some(method)
}

/// A service whose lookups are timed.
#[derive(Clone)]
pub(in crate::replica) struct Timed<S> {
    inner: S,
    serving: Arc<Serving>,
}

impl<S> Timed<S> {
    pub(in crate::replica) fn new(inner: S, serving: Arc<Serving>) -> Self {
        Self { inner, serving }
    }
}

impl<S> fmt::Debug for Timed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timed").finish_non_exhaustive()
    }
}

impl<S: NamedService> NamedService for Timed<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<http::Request<B>> for Timed<S>
where
    S: Service<http::Request<B>, Response = http::Response<Body>>,
    S::Future: Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Timing<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Timing<S::Future> {
        let timed = method_of(request.uri().path()).map(|method| {
            let serving = Arc::clone(&self.serving);
            let begun = serving.shared.clock.now();
            (method, begun, serving)
        });
        Timing {
            inner: self.inner.call(request),
            timed,
        }
    }
}

/// An answer on its way.
pub(in crate::replica) struct Timing<F> {
    inner: F,
    timed: Option<(Method, Moment, Arc<Serving>)>,
}

impl<F> fmt::Debug for Timing<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timing").finish_non_exhaustive()
    }
}

impl<F, E> Future for Timing<F>
where
    F: Future<Output = Result<http::Response<Body>, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.inner).poll(cx));
        let answer = answer.map(keep_place);
        if let Some((method, begun, serving)) = self.timed.take() {
            let took = serving.shared.clock.now().saturating_since(begun);
            serving.counters.latencies.record(method, took);
        }
        Poll::Ready(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_in_its_bucket_and_in_all_above() {
        let latencies = Latencies::default();
        latencies.record(Method::GetRegion, Duration::from_micros(10));
        latencies.record(Method::GetRegion, Duration::from_micros(11));
        latencies.record(Method::GetRegion, Duration::from_secs(9));
        let text = latencies.render();
        for line in [
            "_bucket{request=\"GetRegion\",le=\"0.00001\"} 1",
            "_bucket{request=\"GetRegion\",le=\"0.00002\"} 2",
            "_bucket{request=\"GetRegion\",le=\"2.62144\"} 2",
            "_bucket{request=\"GetRegion\",le=\"+Inf\"} 3",
            "_sum{request=\"GetRegion\"} 9.000021",
            "_count{request=\"GetRegion\"} 3",
            "_count{request=\"ScanRegions\"} 0",
        ] {
            assert!(
                text.contains(&format!("{NAME}{line}\n")),
                "{line} in {text}"
            );
        }
    }

    #[test]
    fn unary_lookups_of_both_services_are_timed() {
        assert_eq!(method_of("/pdpb.PD/GetRegion"), Some(Method::GetRegion));
        assert_eq!(
            method_of("/routerpb.Router/GetRegionByID"),
            Some(Method::GetRegionById)
        );
        // Timed by the batch: the call itself lasts as long as its client likes.
        assert_eq!(method_of("/pdpb.PD/QueryRegion"), None);
        assert_eq!(method_of("/pdpb.PD/Tso"), None);
    }
}
