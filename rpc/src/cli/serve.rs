//! `tidegate serve`: start, run until a signal, stop.
//!
//! Nothing is logged before the start can no longer fail, so that a start that fails says one
//! line and no more. SIGINT and SIGTERM stop gracefully; a second one stops at once. SIGHUP reads the settings again.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{BAD_START, bad_start};
use crate::admin::{self, Tuner};
use crate::config::{self, LogSink, Overrides, Parsed};
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
    let code = runtime.block_on(serve(parsed, overrides, path));
    // A task that hangs must not hold up the exit.
    runtime.shutdown_background();
    code
}

async fn serve(parsed: Parsed, overrides: &Overrides, path: Option<&Path>) -> ExitCode {
    let tuned = parsed.clone();
    let Parsed {
        serve,
        log,
        admin,
        warnings,
    } = parsed;
    let deadline = serve.shutdown_deadline;
    let endpoints = serve.backend_endpoints.len();
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return bad_start(&format!("cannot listen for signals: {error}")),
    };
    let hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => return bad_start(&format!("cannot listen for signals: {error}")),
    };
    let admin = match admin::bind(&admin).await {
        Ok(listener) => listener,
        Err(error) => return bad_start(&error.to_string()),
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
    let sink = match LogSink::open(&log) {
        Ok(sink) => sink,
        Err(error) => return bad_start(&error.to_string()),
    };
    let log = config::log::init(&log, sink);
    for warning in warnings {
        warn!("{warning}");
    }
    let mut replica = bound.run();
    if let Some(reason) = replica.not_registered() {
        warn!(
            reason,
            "not registered with PD; clients do not find this replica by themselves"
        );
    }
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
    let shared = Arc::clone(replica.shared());
    let path = path.map(Path::to_owned);
    let tuner = Arc::new(Tuner::new(tuned, overrides.clone(), path, shared, log));
    let stop_admin = CancellationToken::new();
    // Ends with this function, however it returns.
    let _stop_admin = stop_admin.clone().drop_guard();
    if let Some(listener) = admin {
        if let Ok(addr) = listener.local_addr() {
            info!(admin = %addr, "settings are shown, and changed if they may be");
        }
        admin::spawn(listener, Arc::clone(&tuner), stop_admin.clone());
    }
    tokio::spawn(reload_at(hangup, tuner, stop_admin));
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
            let Counts { refused, missed, .. } = stopped.status.lookups;
            let served = stopped.status.lookups.answered();
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

/// Reads the settings again at each SIGHUP, until `stop`.
async fn reload_at(mut hangup: Signal, tuner: Arc<Tuner>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            signal = hangup.recv() => match signal {
                Some(()) => tuner.reload(),
                None => return,
            },
        }
    }
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
