//! Settings of `tidegate serve`: command line over file over default.
//!
//! A setting comes from one of three places, in this order: a flag, a key of the TOML file
//! ([`mod@file`]), a default. The names are those of PD's own microservices, so that a router's file
//! can be taken over as it is; what PD knows and we do not use yet is accepted and said so
//! ([`Parsed::warnings`]), and a key that neither knows is an error, because a misspelt
//! threshold would otherwise run with its default.
//!
//! Everything here is checked before anything is started: a [`ConfigError`] names the setting
//! and what to do about it, in one line.

mod address;
mod duration;
pub mod file;
mod limits;
pub mod log;
mod log_writer;
mod presence;
mod rotate;
mod security;
mod sense;
pub mod shown;
pub mod tune;
mod when_stale;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::gate::Thresholds;
use url::Url;

use crate::replica::audit::Knobs;
use crate::replica::sync::Upstream;

pub use address::{
    is_loopback, names_no_host, parse_dialled, parse_endpoint, parse_endpoints, parse_upstreams,
};
pub use duration::{InvalidDuration, parse_duration};
pub use limits::LimitsConfig;
pub use log::{LogConfig, LogFile, LogFormat, LogHandle, LogLevel, LogSink};
pub use presence::PresentAs;
pub use security::SecurityConfig;
pub use when_stale::WhenStale;

/// Where PD listens when nothing is said.
pub const DEFAULT_BACKEND: &str = "http://127.0.0.1:2379";
/// Where a PD router listens when nothing is said; so do we.
pub const DEFAULT_LISTEN: &str = "http://127.0.0.1:3379";

/// What the replica runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeConfig {
    /// The name we go by: in logs, on the status page and, made unique, in the sync stream.
    pub name: String,
    /// Client URLs of PD members; at least one.
    pub backend_endpoints: Vec<Url>,
    /// Where to listen; port 0 takes any free one.
    pub listen: Url,
    /// Where others reach us; the address listened on when nothing is said.
    pub advertise: Option<Url>,
    /// The age from which on data is not served (`max-age`).
    pub max_age: Duration,
    /// What takes its place while the PD leader is one of release 8.5 (`broadcast-max-age`); `None`: see
    /// [`ServeConfig::broadcast_max_age`].
    pub broadcast_max_age: Option<Duration>,
    /// The age up to which data is served while PD has no leader at all (`max-outage`); as `max-age` when nothing is
    /// said.
    pub max_outage: Option<Duration>,
    /// The silence of the sync stream from which on data is not served (`time-threshold`).
    pub time_threshold: Duration,
    /// The number of changes we may be behind and still serve (`index-threshold`).
    pub index_threshold: u64,
    /// The time one apply may take (`stall-threshold`).
    pub stall_threshold: Duration,
    /// How often the leader's head is asked for (`probe-interval`).
    pub probe_interval: Duration,
    /// How long a connection attempt or a unary call to PD may take (`backend-timeout`).
    pub backend_timeout: Duration,
    /// The longest pause between two attempts to reach PD (`max-backoff`); the first is a thirtieth.
    pub max_backoff: Duration,
    /// How long a full sync may take before it is begun again (`full-sync-deadline`).
    pub full_sync_deadline: Duration,
    /// What happens to a lookup that the map may not answer (`when-stale`).
    pub when_stale: WhenStale,
    /// Where regions are kept for the next start (`data-dir`); nowhere when nothing is said.
    pub data_dir: Option<PathBuf>,
    /// How clients see us (`present-as`).
    pub present_as: PresentAs,
    /// Under `present-as = "self"`: a lookup that asks for the leader's answer may be given ours, which is fresh within
    /// the gate's bounds (`allow-bounded-staleness`).
    pub allow_bounded_staleness: bool,
    /// How long the leader's answers about stores are given again (`store-cache-ttl`); zero: no longer than to those who
    /// wait for them.
    pub store_cache_ttl: Duration,
    /// Whether to register as a router in PD's etcd, where stock clients find us (`register`).
    pub register: bool,
    /// TLS (`[security]`); an address with `https://` uses it.
    pub security: SecurityConfig,
    /// What clients may take.
    pub limits: LimitsConfig,
    /// How the map is compared with the leader (`audit-pass`, `audit-grace`).
    pub audit: Knobs,
    /// Whom to follow, in turn (`upstream`): PD, or replicas that follow it.
    pub upstreams: Vec<Upstream>,
    /// How many replicas may follow this one (`max-downstreams`); none at 0.
    pub max_downstreams: usize,
    /// How long a stop may take before it stops being graceful (`shutdown-deadline`).
    pub shutdown_deadline: Duration,
}

/// Three keepalives of a leader of release 8.5: two are a proof, of up to two probes before the first.
const BROADCAST_MAX_AGE: Duration = Duration::from_secs(30);

impl Default for ServeConfig {
    fn default() -> Self {
        let thresholds = Thresholds::default();
        Self {
            name: format!("tidegate-{}", hostname()),
            backend_endpoints: vec![known_good(DEFAULT_BACKEND)],
            listen: known_good(DEFAULT_LISTEN),
            advertise: None,
            max_age: thresholds.max_age,
            broadcast_max_age: None,
            max_outage: None,
            time_threshold: thresholds.time_threshold,
            index_threshold: thresholds.index_threshold,
            stall_threshold: thresholds.stall_threshold,
            probe_interval: Duration::from_secs(3),
            backend_timeout: Duration::from_secs(3),
            max_backoff: Duration::from_secs(3),
            full_sync_deadline: Duration::from_secs(30 * 60),
            when_stale: WhenStale::default(),
            data_dir: None,
            upstreams: vec![Upstream::Pd],
            max_downstreams: 16,
            present_as: PresentAs::default(),
            allow_bounded_staleness: false,
            // Stores change by hand; a client that keeps them for minutes does not notice a second.
            store_cache_ttl: Duration::from_secs(1),
            register: true,
            security: SecurityConfig::default(),
            limits: LimitsConfig::default(),
            audit: Knobs::default(),
            shutdown_deadline: Duration::from_secs(5),
        }
    }
}

impl ServeConfig {
    /// What the gate decides by.
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        Thresholds {
            max_age: self.max_age,
            time_threshold: self.time_threshold,
            index_threshold: self.index_threshold,
            stall_threshold: self.stall_threshold,
        }
    }

    /// The age from which on data is not served while the PD leader is one of release 8.5. Such a leader shows every ten
    /// seconds that nothing waits to be told, and only two such words are a proof: so 30 s unless it was set, or
    /// `max-age` where that allows more. A `max-age` below 30 s does not lower it: a quiet leader could not be proven
    /// in time, so who wants that has to say it of this bound.
    #[must_use]
    pub fn broadcast_max_age(&self) -> Duration {
        self.broadcast_max_age
            .unwrap_or_else(|| self.max_age.max(BROADCAST_MAX_AGE))
    }

    /// The same with every threshold of the gate, the interval of probes and the pauses between
    /// attempts divided by `divisor` (at least 1): for a cluster whose keepalives are as much
    /// faster.
    #[must_use]
    pub fn scaled(mut self, divisor: u32) -> Self {
        let divisor = divisor.max(1);
        let thresholds = self.thresholds().scaled(divisor);
        // Of the ages that were not scaled yet: what it comes to by itself is as much shorter.
        self.broadcast_max_age = Some(self.broadcast_max_age() / divisor);
        self.max_age = thresholds.max_age;
        self.max_outage = self.max_outage.map(|time| time / divisor);
        self.time_threshold = thresholds.time_threshold;
        self.index_threshold = thresholds.index_threshold;
        self.stall_threshold = thresholds.stall_threshold;
        self.probe_interval /= divisor;
        self.audit.pass = self.audit.pass.map(|pass| pass / divisor);
        self.audit.grace /= divisor;
        self.max_backoff /= divisor;
        self
    }
}

/// What was said on the command line; `None` leaves it to the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--name`
    pub name: Option<String>,
    /// `--backend-endpoints`
    pub backend_endpoints: Option<String>,
    /// `--listen-addr`
    pub listen_addr: Option<String>,
    /// `--advertise-listen-addr`
    pub advertise_listen_addr: Option<String>,
    /// `--upstream`
    pub upstream: Option<String>,
    /// `--data-dir`
    pub data_dir: Option<PathBuf>,
    /// `--present-as`
    pub present_as: Option<String>,
    /// `--cacert`
    pub ca: Option<PathBuf>,
    /// `--cert`
    pub cert: Option<PathBuf>,
    /// `--key`
    pub key: Option<PathBuf>,
    /// `--when-stale`
    pub when_stale: Option<String>,
    /// `-L`, `--log-level`
    pub log_level: Option<String>,
    /// `--log-file`
    pub log_file: Option<PathBuf>,
}

/// The address for what changes a running replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminConfig {
    /// Where to listen (`admin-addr`); nowhere when nothing is said.
    pub addr: Option<Url>,
    /// Whether it may change anything (`admin-writable`), or only show.
    pub writable: bool,
}

/// The settings to run with, and what to tell the operator about them.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// What the replica runs with.
    pub serve: ServeConfig,
    /// How it logs.
    pub log: LogConfig,
    /// Where it can be changed.
    pub admin: AdminConfig,
    /// Settings that were accepted and have no effect yet, or are unwise.
    pub warnings: Vec<String>,
}

/// Puts the three sources together.
///
/// # Errors
/// Whatever [`ConfigError`] lists; the first one found.
pub fn load(overrides: &Overrides, path: Option<&Path>) -> Result<Parsed, ConfigError> {
    let mut parsed = Parsed {
        serve: ServeConfig::default(),
        log: LogConfig::default(),
        admin: AdminConfig::default(),
        warnings: Vec::new(),
    };
    let emptied = match path {
        Some(path) => file::apply(path, &mut parsed)?,
        None => Vec::new(),
    };
    let serve = &mut parsed.serve;
    if let Some(name) = &overrides.name {
        if name.trim().is_empty() {
            let expected = "a name of at least one letter";
            return Err(ConfigError::value("--name", name.as_str(), expected));
        }
        serve.name.clone_from(name);
    }
    if let Some(list) = &overrides.backend_endpoints {
        serve.backend_endpoints = parse_endpoints("--backend-endpoints", list)?;
    }
    if let Some(text) = &overrides.listen_addr {
        serve.listen = parse_endpoint("--listen-addr", text)?;
    }
    if let Some(text) = &overrides.advertise_listen_addr {
        serve.advertise = Some(parse_dialled("--advertise-listen-addr", text)?);
    }
    if let Some(list) = &overrides.upstream {
        serve.upstreams = parse_upstreams("--upstream", list)?;
    }
    if let Some(path) = &overrides.data_dir {
        serve.data_dir = Some(path.clone());
    }
    if let Some(text) = &overrides.when_stale {
        serve.when_stale = WhenStale::parse("--when-stale", text)?;
    }
    if let Some(text) = &overrides.present_as {
        serve.present_as = PresentAs::parse("--present-as", text)?;
    }
    let security = &mut serve.security;
    for (flag, path) in [
        (&overrides.ca, &mut security.ca),
        (&overrides.cert, &mut security.cert),
        (&overrides.key, &mut security.key),
    ] {
        if flag.is_some() {
            path.clone_from(flag);
        }
    }
    if let Some(text) = &overrides.log_level {
        parsed.log.level = LogLevel::parse("--log-level", text)?;
    }
    if let Some(path) = &overrides.log_file {
        if path.as_os_str().is_empty() {
            return Err(ConfigError::value("--log-file", "", "a file"));
        }
        parsed
            .log
            .file
            .get_or_insert_default()
            .filename
            .clone_from(path);
    }
    // Bounds of a file that is not named ask for nothing.
    if parsed
        .log
        .file
        .as_ref()
        .is_some_and(|file| file.filename.as_os_str().is_empty())
    {
        parsed.log.file = None;
    }
    parsed.check().map_err(|error| match path {
        // Only the file can set what contradicts.
        Some(path) => error.in_file(path),
        None => error,
    })?;
    let comes_to = file::comes_to(&parsed, &emptied);
    let unwise = sense::unwise(&parsed);
    parsed.warnings.extend(comes_to);
    parsed.warnings.extend(unwise);
    Ok(parsed)
}

/// A setting that cannot be used. One line: what, and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read config file {}: {source}; check the path given with --config", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file has bytes that are no text.
    #[error("config file {} line {line}: it is not UTF-8 text; save it as UTF-8", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The log file cannot be opened.
    #[error("cannot open the log file {}: {source}; give another with --log-file or log.file.filename, or none for stderr", path.display())]
    LogFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no thread to write the log.
    #[error("cannot start the thread that writes the log: {source}; raise the process limits")]
    LogThread {
        /// Why not.
        source: std::io::Error,
    },
    /// The file is no TOML.
    #[error("config file {} line {line}: {message}; correct the TOML", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// A key that neither PD's router nor we know.
    #[error("config file {}: unknown key `{key}`{hint}; correct or remove it", path.display())]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key with its tables.
        key: String,
        /// What may have been meant.
        hint: String,
    },
    /// A key that comes twice, once with its table in its name.
    #[error("config file {}: `{key}` is set twice; remove one", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The key with its tables.
        key: String,
    },
    /// A value that the setting cannot have.
    #[error("{setting}: {value:?} cannot be used; give {expected}")]
    Value {
        /// The flag or key.
        setting: String,
        /// What was given.
        value: String,
        /// What is needed instead.
        expected: String,
    },
    /// What is wrong in a file that is otherwise well formed.
    #[error("config file {}: {error}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        error: Box<Self>,
    },
    /// Settings that contradict each other.
    #[error("{what}; {remedy}")]
    Conflict {
        /// The contradiction.
        what: String,
        /// The way out.
        remedy: &'static str,
    },
}

impl ConfigError {
    pub(crate) fn in_file(self, path: &Path) -> Self {
        Self::InFile {
            path: path.to_owned(),
            error: Box::new(self),
        }
    }

    pub(crate) fn value(setting: &str, value: impl Into<String>, expected: &str) -> Self {
        Self::Value {
            setting: setting.to_owned(),
            value: value.into(),
            expected: expected.to_owned(),
        }
    }
}

/// The machine's name as the kernel has it.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

fn known_good(url: &str) -> Url {
    Url::parse(url).expect("a constant of this file")
}

#[cfg(test)]
mod tests;
