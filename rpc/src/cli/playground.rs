//! `tidegate playground`: the runtime around it, and its exit code.

use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use super::bad_start;
use crate::playground::{self, Args, PlaygroundError, Swept};

/// Makes the runs of a sweep until Ctrl-C.
async fn sweep(arguments: &Args, threshold: Swept) -> Result<bool, PlaygroundError> {
    let stop = CancellationToken::new();
    let runs = playground::sweep(arguments, threshold, stop.clone());
    let mut runs = std::pin::pin!(runs);
    tokio::select! {
        ended = &mut runs => return ended,
        _ = tokio::signal::ctrl_c() => stop.cancel(),
    }
    runs.await
}

/// Runs the command. Nothing is logged: the view and the report have the terminal.
pub(super) fn run(arguments: Args) -> ExitCode {
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
    let played = runtime.block_on(async {
        match arguments.sweep {
            Some(threshold) => sweep(&arguments, threshold).await,
            None => playground::run(arguments)
                .await
                .map(|report| report.passed()),
        }
    });
    // A task that hangs must not hold up the exit.
    runtime.shutdown_background();
    match played {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => bad_start(&error.to_string()),
    }
}
