//! `tidegate audit`: the runtime around it, its report and its exit code.

use std::io::Write;
use std::process::ExitCode;

use super::bad_start;
use super::serve::Signals;
use crate::audit::{self, Args, Output, Verdict};

/// Exit code of an audit in which there was nothing to compare.
const NOTHING_COMPARED: u8 = 3;

/// Runs the command. Nothing is logged: the report has the terminal.
pub(super) fn run(arguments: Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return bad_start(&format!("cannot start: {error}; raise the process limits"));
        }
    };
    let output = arguments.output;
    let audited = runtime.block_on(async {
        let mut signals = match Signals::new() {
            Ok(signals) => signals,
            Err(error) => return Err(format!("cannot listen for signals: {error}")),
        };
        let stop = async {
            signals.next().await;
        };
        audit::run(arguments, stop)
            .await
            .map_err(|error| error.to_string())
    });
    runtime.shutdown_background();
    let report = match audited {
        Ok(report) => report,
        Err(error) => return bad_start(&error),
    };
    let text = match output {
        Output::Text => report.to_string(),
        Output::Json => match serde_json::to_string_pretty(&report) {
            Ok(text) => text + "\n",
            Err(error) => {
                eprintln!("tidegate: the report cannot be written: {error}");
                return ExitCode::FAILURE;
            }
        },
    };
    // A reader that has gone away is no failure of ours; the exit code tells the verdict.
    let _ = std::io::stdout().write_all(text.as_bytes());
    match report.verdict {
        Verdict::Fresh => ExitCode::SUCCESS,
        Verdict::Stale => ExitCode::FAILURE,
        Verdict::NothingCompared => ExitCode::from(NOTHING_COMPARED),
    }
}
