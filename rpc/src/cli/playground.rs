//! `tidegate playground`: the runtime around it, and its exit code.

use std::process::ExitCode;

use super::bad_start;
use crate::playground::{self, Args};

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
    let played = runtime.block_on(playground::run(arguments));
    // A task that hangs must not hold up the exit.
    runtime.shutdown_background();
    match played {
        Ok(report) if report.passed() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => bad_start(&error.to_string()),
    }
}
