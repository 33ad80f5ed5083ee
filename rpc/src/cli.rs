//! The command line: what is said on it, and how the process ends.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | asked for help or version, or stopped by SIGINT or SIGTERM |
//! | 1 | the run itself failed, the playground found a stale or wrong answer, or the audit a stale server |
//! | 2 | it could not start: a flag, the config, an address, the endpoints |
//! | 3 | the audit found nothing to compare |
//!
//! A start that fails says so in exactly one line on stderr, which names the thing and the
//! remedy; whoever runs us from a supervisor sees that line and nothing else. A PD that cannot be
//! reached is no such failure: it is retried.

mod audit;
mod playground;
mod serve;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use crate::config::{self, Overrides};

/// Exit code of a start that failed.
const BAD_START: u8 = 2;

/// Fresh region routing for TiKV.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version = crate::VERSION,
    propagate_version = true,
    after_help = EXAMPLES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  tidegate playground --duration 20s --scenario stall
  tidegate serve --backend-endpoints http://127.0.0.1:2379 --listen-addr http://127.0.0.1:3379
  tidegate audit --leader http://127.0.0.1:2379 --against http://127.0.0.1:3379

`tidegate COMMAND --help` tells a command's flags; `tidegate serve --help` the config file's keys too.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow a PD leader and answer region lookups while they are fresh.
    #[command(display_name = "tidegate")]
    Serve(Box<ServeArgs>),
    /// Watch a PD leader under churn, two replicas and a load that checks every answer.
    #[command(display_name = "tidegate")]
    Playground(crate::playground::Args),
    /// Measure how far a PD follower, a router or a replica is behind the PD leader.
    #[command(display_name = "tidegate")]
    Audit(crate::audit::Args),
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
    /// Whom to follow, with commas and in turn: pd, or URLs of replicas that follow it [default: pd]
    #[arg(long, value_name = "LIST")]
    upstream: Option<String>,
    /// Where regions are kept for the next start, which then needs no full sync [default: nowhere]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// What clients are told: backend, the real PD members, or self, us alone [default: backend]
    #[arg(long, value_name = "WHO")]
    present_as: Option<String>,
    /// PEM file of the authorities to trust, for https:// addresses
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// PEM file of our certificate
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// PEM file of our certificate's key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// What the map may not answer: read-through, ask the PD leader, or refuse [default: read-through]
    #[arg(long, value_name = "WHAT")]
    when_stale: Option<String>,
    /// TOML file; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// trace, debug, info, warn, error or fatal [default: info]
    #[arg(short = 'L', long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Where log lines go, begun anew at 300 MiB [default: stderr]
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
}

const SERVE_KEYS: &str = "\
Keys of the config file: the flags' names, and
  max-age = \"10s\"            age from which on data is not served
  broadcast-max-age = \"30s\"  the same while the PD leader is one of release 8.5, which proves a quiet
                             time 10 to 23 s late; unless set, or with \"auto\", max-age where that is
                             longer than 30s
  max-outage = \"max-age\"     the same while PD has no leader at all
  time-threshold = \"30s\"     silence of the sync stream from which on data is not served
  index-threshold = 20000    changes behind from which on data is not served
  stall-threshold = \"3s\"     longest time for one apply
  probe-interval = \"3s\"      how often the leader's head is asked for
  allow-bounded-staleness = false
                             with present-as = self: answer from the map what asks the leader
  audit-pass = \"10m\"         one comparison of the whole map with the leader's; \"off\" for none
  audit-grace = \"10s\"        age from which on a difference is healed
  shutdown-deadline = \"5s\"   longest time for a graceful stop
  backend-timeout = \"3s\"     longest time for one call to PD
  max-backoff = \"3s\"         longest pause between attempts to reach PD
  full-sync-deadline = \"30m\" longest time for a full sync; then it begins again
  admin-addr = \"\"            where GET and POST /router/api/v1/config are answered; nowhere by default;
                             https:// for TLS
  admin-writable = false     whether POST may change anything
  store-cache-ttl = \"1s\"     how long the leader's answers about stores are given again; 0s: not at all
  register = true            tell PD's etcd of us while lookups are answered, so that clients find us
  max-connections = 10000    open connections
  max-concurrent-streams = 1000
                             open calls of one connection
  max-message-size = 16777216
                             bytes of one request
  max-scan-regions = 100000  regions that one scan may answer; who asks for more is told so
  max-scan-size = 67108864   bytes that one scan may answer
  max-downstreams = 16       replicas that may follow this one
  [security] cacert-path, cert-path, key-path, cert-allowed-cn
                             files of TLS, and clients' names that are let in
  [log] level, format        format: text or json
  [log.file] filename, max-size, max-days, max-backups
                             MiB of the file; days and number of old ones; 0 for no bound
SIGHUP reads the file again; what needs a start is named in the log. It opens the log file again, too.
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
        Command::Audit(arguments) => audit::run(arguments),
    }
}

impl ServeArgs {
    fn overrides(&self) -> Overrides {
        Overrides {
            name: self.name.clone(),
            backend_endpoints: self.backend_endpoints.clone(),
            listen_addr: self.listen_addr.clone(),
            advertise_listen_addr: self.advertise_listen_addr.clone(),
            upstream: self.upstream.clone(),
            data_dir: self.data_dir.clone(),
            present_as: self.present_as.clone(),
            ca: self.cacert.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            when_stale: self.when_stale.clone(),
            log_level: self.log_level.clone(),
            log_file: self.log_file.clone(),
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
            bad_start(&condensed(error, command, arguments))
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

/// The parser's message without its usage, with what may have been meant and where to look.
fn condensed(error: &clap::Error, command: &str, arguments: &[OsString]) -> String {
    let rendered = error.render().to_string();
    let message = rendered.split("\n\n").next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message).trim();
    let meant = meant(error, command, arguments);
    let known = ["serve", "playground", "audit"].contains(&command);
    let command = if known { command } else { "" };
    let space = if known { " " } else { "" };
    format!("{message}{meant}; see `tidegate{space}{command} --help`")
}

/// What may have been meant by an argument that the parser does not know.
fn meant(error: &clap::Error, command: &str, arguments: &[OsString]) -> String {
    let unknown = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let cli = Cli::command();
    if let Some(unknown) = unknown(ContextKind::InvalidSubcommand) {
        let names = cli.get_subcommands().map(clap::Command::get_name);
        return likest(unknown, names)
            .map_or_else(String::new, |name| format!("; did you mean {name}?"));
    }
    let (ErrorKind::UnknownArgument, Some(unknown)) =
        (error.kind(), unknown(ContextKind::InvalidArg))
    else {
        return String::new();
    };
    if let (Some(word), Some(command)) = (unknown.strip_prefix("--"), cli.find_subcommand(command))
    {
        let flags = command.get_arguments().filter_map(clap::Arg::get_long);
        if let Some(flag) = likest(word, flags) {
            return format!("; did you mean --{flag}?");
        }
    }
    // A value that begins with a dash is taken for a flag of its own.
    let pair = arguments.windows(2).find_map(|pair| {
        let [flag, value] = pair else { return None };
        let (flag, value) = (flag.to_str()?, value.to_str()?);
        let is_it = flag.starts_with("--") && !flag.contains('=') && value.starts_with(unknown);
        is_it.then_some((flag, value))
    });
    pair.map_or_else(String::new, |(flag, value)| {
        format!("; if it is the value of {flag}, write {flag}={value}")
    })
}

/// The name that `word` is a slip of, or a part, as `endpoints` is of `backend-endpoints`.
fn likest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let near = |name: &str| {
        let slips = config::file::distance(word, name);
        let is_slip = slips <= 2 && slips * 2 <= name.len();
        let is_part = word.len() > 2 && (name.contains(word) || word.contains(name));
        (is_slip || is_part).then_some(slips)
    };
    names
        .filter_map(|name| Some((near(name)?, name)))
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declared_arguments_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_parsers_message_becomes_one_line_with_the_remedy() {
        let line = |arguments: &[&str]| {
            let error = Cli::try_parse_from(arguments).expect_err("wrong");
            let words: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            let command = arguments.get(1).copied().unwrap_or_default();
            condensed(&error, command, &words)
        };
        assert_eq!(
            line(&["tidegate", "serve", "--nmae", "x"]),
            "unexpected argument '--nmae' found; did you mean --name?; see `tidegate serve --help`"
        );
        assert!(
            line(&["tidegate", "serve", "--endpoints", "x"])
                .contains("did you mean --backend-endpoints?")
        );
        assert!(
            line(&["tidegate", "serve", "--name", "-one"])
                .contains("if it is the value of --name, write --name=-one")
        );
        assert!(line(&["tidegate", "playgroud"]).contains("did you mean playground?"));
        assert!(line(&["tidegate", "sreve"]).ends_with("see `tidegate --help`"));
        assert!(line(&["tidegate", "serve", "--config"]).contains("--config <FILE>"));
    }
}
