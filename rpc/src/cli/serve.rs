//! `tidegate serve`: start, run until a signal, stop.
//!
//! Nothing is logged before the start can no longer fail, so that a start that fails says one
//! line and no more. SIGINT and SIGTERM stop gracefully; a second one stops at once.

use std::path::Path;
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use super::{BAD_START, bad_start};
use crate::config::{self, Overrides, Parsed};
use crate::replica::hooks::Hooks;
use crate::replica::{Bound, Counts, Failure};

/// Runs the command.
pub(super) fn run(overrides: &Overrides, path: Option<&Path>) -> ExitCode {
    let parsed = match config::load(overrides, path) {
        Ok(parsed) => parsed,
        Err(error) => return bad_start(&error.to_string()),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return bad_start(&format!(
                "cannot start threads: {error}; raise the process limits"
            ));
        }
    };
    let code = runtime.block_on(serve(parsed));
    // A task that hangs must not hold up the exit.
    runtime.shutdown_background();
    code
}

async fn serve(parsed: Parsed) -> ExitCode {
    let Parsed {
        serve,
        log,
        warnings,
    } = parsed;
    let deadline = serve.shutdown_deadline;
    let endpoints = serve.backend_endpoints.len();
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return bad_start(&format!("cannot listen for signals: {error}")),
    };
    let bound = match Bound::new(serve, Hooks::default()).await {
        Ok(bound) => bound,
        Err(error) => return bad_start(&error.to_string()),
    };
    tokio::select! {
        checked = bound.check_endpoints() => {
            if let Err(error) = checked {
                return bad_start(&error.to_string());
            }
        }
        _ = signals.next() => return ExitCode::SUCCESS,
    }
    config::log::init(log);
    for warning in warnings {
        warn!("{warning}");
    }
    let mut replica = bound.run();
    if replica.is_advertised_nowhere() {
        warn!(
            advertise = replica.url(),
            "others cannot reach the advertised address; give one with --advertise-listen-addr"
        );
    }
    info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %replica.addr(),
        advertise = replica.url(),
        endpoints,
        "serving",
    );
    tokio::select! {
        signal = signals.next() => info!(signal, ?deadline, "stopping"),
        failure = replica.failed() => {
            error!(%failure, "giving up");
            return match failure {
                Failure::Clusters(_) => ExitCode::from(BAD_START),
                _ => ExitCode::FAILURE,
            };
        }
    }
    tokio::select! {
        stopped = replica.stop(deadline) => {
            let Counts { served, refused, missed, .. } = stopped.status.lookups;
            if stopped.graceful {
                info!(served, refused, missed, "stopped");
            } else {
                warn!(served, refused, missed, ?deadline, "stopped; what was left was cut");
            }
        }
        signal = signals.next() => warn!(signal, "stopped at once"),
    }
    ExitCode::SUCCESS
}

/// The signals that end the process.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The name of the next one.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
