//! `tidegate serve`: start, run until a signal, stop.
//!
//! Nothing is logged before the start can no longer fail, so that a start that fails says one
//! line and no more. SIGINT and SIGTERM stop gracefully; a second one stops at once. SIGHUP reads the settings again.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{BAD_START, bad_start};
use crate::admin::{self, Admin, Tuner};
use crate::config::{self, LogHandle, LogSink, Overrides, Parsed};
use crate::replica::hooks::Hooks;
use crate::replica::{Bound, Counts, Failure};

/// How long the last log lines may take to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

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
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return bad_start(&format!("cannot listen for signals: {error}")),
    };
    let hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => return bad_start(&format!("cannot listen for signals: {error}")),
    };
    // A write beyond the limit of file sizes would end the process; it is to be an error, as on a full disk.
    let _large_files = signal(SignalKind::from_raw(libc::SIGXFSZ));
    // Names, disks and PD may take their time; whoever has enough of that is heard.
    let prepared = tokio::select! {
        prepared = prepare(&parsed) => prepared,
        _ = signals.next() => return ExitCode::SUCCESS,
    };
    let (bound, admin, sink) = match prepared {
        Ok(prepared) => prepared,
        Err(line) => return bad_start(&line),
    };
    let log = config::log::init(&parsed.log, sink);
    let tune = |shared| {
        let path = path.map(Path::to_owned);
        Tuner::new(parsed.clone(), overrides.clone(), path, shared, log.clone())
    };
    let code = keep_serving(&parsed, bound, admin, signals, hangup, log.clone(), tune).await;
    let last = log.clone();
    // The disk may not answer.
    let _ = spawn_blocking(move || last.flush(LAST_LINES)).await;
    code
}

/// Takes what a start needs. What is wrong is one line.
async fn prepare(parsed: &Parsed) -> Result<(Bound, Option<Admin>, LogSink), String> {
    let said = |error: &dyn std::error::Error| error.to_string();
    let admin = admin::bind(&parsed.admin)
        .await
        .map_err(|error| said(&error))?;
    let bound = Bound::new(parsed.serve.clone(), Hooks::default())
        .await
        .map_err(|error| said(&error))?;
    bound
        .check_endpoints()
        .await
        .map_err(|error| said(&error))?;
    let log = parsed.log.clone();
    let sink = spawn_blocking(move || LogSink::open(&log))
        .await
        .map_err(|error| said(&error))?
        .map_err(|error| said(&error))?;
    Ok((bound, admin, sink))
}

/// Serves until a signal, or until the replica gives up.
async fn keep_serving(
    parsed: &Parsed,
    bound: Bound,
    admin: Option<Admin>,
    mut signals: Signals,
    hangup: Signal,
    log: LogHandle,
    tune: impl FnOnce(Arc<crate::replica::state::Shared>) -> Tuner,
) -> ExitCode {
    for warning in &parsed.warnings {
        warn!("{warning}");
    }
    if let Some(warning) = too_few_files(parsed.serve.limits.connections) {
        warn!("{warning}");
    }
    let deadline = parsed.serve.shutdown_deadline;
    let tls = bound.tls();
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
        version = crate::VERSION,
        listen = %replica.addr(),
        advertise = replica.url(),
        endpoints = parsed.serve.backend_endpoints.len(),
        "serving",
    );
    replica.logs_to(log);
    let tuner = Arc::new(tune(Arc::clone(replica.shared())));
    let stop_admin = CancellationToken::new();
    // Ends with this function, however it returns.
    let _stop_admin = stop_admin.clone().drop_guard();
    if let Some(admin) = admin {
        info!(
            admin = admin.url(),
            "settings are shown, and changed if they may be"
        );
        admin.spawn(tls, Arc::clone(&tuner), stop_admin.clone());
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
                Some(()) => Arc::clone(&tuner).reload().await,
                None => return,
            },
        }
    }
}

/// What to say where the system grants fewer open files than there may be connections.
fn too_few_files(connections: usize) -> Option<String> {
    /// For the log, the data, PD and the rest.
    const OTHERS: usize = 64;
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let granted = open_files(&limits)?;
    let needed = connections.saturating_add(OTHERS);
    (granted < needed).then(|| {
        format!(
            "this process may open {granted} files and max-connections is {connections}: raise the first to {needed} \
             (ulimit -n, LimitNOFILE), or lower the second"
        )
    })
}

/// The soft limit of open files, of the system's table of limits; `None` when there is none.
fn open_files(limits: &str) -> Option<usize> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::open_files;

    #[test]
    fn the_systems_limit_of_open_files_is_found() {
        let table = "Limit                     Soft Limit           Hard Limit           Units\n\
                     Max processes             96365                96365                processes\n\
                     Max open files            1024                 4096                 files\n";
        assert_eq!(open_files(table), Some(1_024));
        assert_eq!(
            open_files("Max open files  unlimited  unlimited  files"),
            None
        );
        assert_eq!(open_files(""), None);
    }
}
