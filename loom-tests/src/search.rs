//! Running a model, and saying how much of it was searched.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

#[cfg(not(debug_assertions))]
compile_error!("the models rest on debug assertions: build them with `--profile loom`");

/// Preemptions a schedule may contain unless `LOOM_MAX_PREEMPTIONS` says otherwise.
const DEFAULT_PREEMPTIONS: usize = 2;

/// Runs `f` under every schedule within the preemption bound and prints how many there were.
///
/// # Panics
///
/// As soon as one schedule panics, deadlocks, leaks or races.
#[allow(
    clippy::disallowed_methods,
    reason = "the time is printed, nothing depends on it"
)]
pub fn model<F>(name: &str, f: F)
where
    F: Fn() + Send + Sync + 'static,
{
    let mut builder = loom::model::Builder::new();
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = Some(DEFAULT_PREEMPTIONS);
    }
    let bound = builder.preemption_bound.unwrap_or(DEFAULT_PREEMPTIONS);
    let iterations = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&iterations);
    let begun = Instant::now();
    let story = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_env("LOOM_LOG"))
        .with_test_writer()
        .without_time()
        .finish();
    let _story = story.set_default();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        f();
    });
    eprintln!(
        "model {name}: {} schedules, at most {bound} preemptions, {:.1?}",
        iterations.load(Ordering::Relaxed),
        begun.elapsed(),
    );
}
