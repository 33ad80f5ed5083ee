//! The command line: what is said on it, and how the process ends.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | asked for help or version, or stopped by SIGINT or SIGTERM |
//! | 1 | the run itself failed, or the playground found a stale or wrong answer |
//! | 2 | it could not start: a flag, the config, an address, the endpoints |
//!
//! A start that fails says so in exactly one line on stderr, which names the thing and the
//! remedy; whoever runs us from a supervisor sees that line and nothing else. A PD that cannot be
//! reached is no such failure: it is retried.

mod playground;
mod serve;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::config::Overrides;

/// Exit code of a start that failed.
const BAD_START: u8 = 2;

/// Fresh region routing for TiKV.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    propagate_version = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow a PD leader and answer region lookups while they are fresh.
    #[command(display_name = "tidegate")]
    Serve(ServeArgs),
    /// Watch a PD leader under churn, two replicas and a load that checks every answer.
    #[command(display_name = "tidegate")]
    Playground(crate::playground::Args),
}

/// What `tidegate serve` is started with: the flags of PD's microservices.
#[derive(Debug, clap::Args)]
#[command(after_help = SERVE_KEYS)]
struct ServeArgs {
    /// Name of this replica [default: tidegate- and the host's name]
    #[arg(long)]
    name: Option<String>,
    /// Client URLs of PD members, with commas [default: http://127.0.0.1:2379]
    #[arg(long, value_name = "URLS")]
    backend_endpoints: Option<String>,
    /// Where to listen, gRPC and HTTP [default: http://127.0.0.1:3379]
    #[arg(long, value_name = "URL")]
    listen_addr: Option<String>,
    /// Where others reach us [default: the address listened on]
    #[arg(long, value_name = "URL")]
    advertise_listen_addr: Option<String>,
    /// TOML file; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// debug, info, warn, error or fatal [default: info]
    #[arg(short = 'L', long, value_name = "LEVEL")]
    log_level: Option<String>,
}

const SERVE_KEYS: &str = "\
Keys of the config file: the flags' names, and
  max-age = \"10s\"            age from which on data is not served
  time-threshold = \"30s\"     silence of the sync stream from which on data is not served
  index-threshold = 20000    changes behind from which on data is not served
  stall-threshold = \"3s\"     longest time for one apply
  probe-interval = \"3s\"      how often the leader's head is asked for
  when-stale = \"refuse\"      what a lookup gets while the gate is shut
  shutdown-deadline = \"5s\"   longest time for a graceful stop
  backend-timeout = \"3s\"     longest time for one call to PD
  max-backoff = \"3s\"         longest pause between attempts to reach PD
  [log] level, format        format: text or json
The keys of PD's own router are accepted.";

/// Runs the process with its arguments, the program's name first, and tells how it ended.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let command = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli.command,
        Err(error) => return refuse_arguments(&error, &arguments),
    };
    match command {
        Command::Serve(arguments) => {
            serve::run(&arguments.overrides(), arguments.config.as_deref())
        }
        Command::Playground(arguments) => playground::run(arguments),
    }
}

impl ServeArgs {
    fn overrides(&self) -> Overrides {
        Overrides {
            name: self.name.clone(),
            backend_endpoints: self.backend_endpoints.clone(),
            listen_addr: self.listen_addr.clone(),
            advertise_listen_addr: self.advertise_listen_addr.clone(),
            log_level: self.log_level.clone(),
        }
    }
}

/// Help and version go out as they are; the rest becomes one line.
fn refuse_arguments(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that has gone away is no failure of ours.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            bad_start("no command given; see `tidegate --help`")
        }
        _ => {
            let command = arguments
                .get(1)
                .and_then(|first| first.to_str())
                .unwrap_or_default();
            bad_start(&condensed(&error.render().to_string(), command))
        }
    }
}

/// The one line of a start that failed.
fn bad_start(message: &str) -> ExitCode {
    eprintln!(
        "tidegate: {}",
        message.split_whitespace().collect::<Vec<_>>().join(" ")
    );
    ExitCode::from(BAD_START)
}

/// The parser's message without its usage and hints, and with where to find them.
fn condensed(rendered: &str, command: &str) -> String {
    let message = rendered.split("\n\n").next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message).trim();
    let known = ["serve", "playground"].contains(&command);
    let command = if known { command } else { "" };
    let space = if known { " " } else { "" };
    format!("{message}; see `tidegate{space}{command} --help`")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_declared_arguments_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_parsers_message_becomes_one_line_with_the_remedy() {
        let line = |arguments: &[&str]| {
            let error = Cli::try_parse_from(arguments).expect_err("wrong");
            condensed(
                &error.render().to_string(),
                arguments.get(1).copied().unwrap_or_default(),
            )
        };
        assert_eq!(
            line(&["tidegate", "serve", "--nmae", "x"]),
            "unexpected argument '--nmae' found; see `tidegate serve --help`"
        );
        assert!(line(&["tidegate", "sreve"]).ends_with("see `tidegate --help`"));
        assert!(line(&["tidegate", "serve", "--config"]).contains("--config <FILE>"));
    }
}
