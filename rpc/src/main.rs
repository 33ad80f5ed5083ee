//! The `tidegate` program; everything is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate::cli::run(std::env::args_os())
}
