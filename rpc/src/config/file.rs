//! The TOML file: our keys, and those of PD's router.
//!
//! The file is walked key by key against two tables, not deserialised into a struct: that is
//! what lets an unknown key be told from a known and unused one, and named with its table.
//!
//! # Our keys
//! `name`, `backend-endpoints` (text with commas, or a list), `listen-addr`,
//! `advertise-listen-addr`, `max-age`, `broadcast-max-age`, `max-outage`, `time-threshold`, `index-threshold`, `stall-threshold`,
//! `probe-interval`, `backend-timeout`, `max-backoff`, `full-sync-deadline`, `when-stale`, `present-as`,
//! `upstream`, `max-downstreams`,
//! `allow-bounded-staleness`, `shutdown-deadline`, `data-dir`, `audit-pass`, `audit-grace`,
//! `store-cache-ttl`, `register`, `max-connections`, `max-concurrent-streams`, `max-message-size`,
//! `max-scan-regions`, `max-scan-size`, `admin-addr`, `admin-writable`,
//! `[security]` `cacert-path`, `cert-path`, `key-path`, `cert-allowed-cn` and `redact-info-log`,
//! `[log]` `level` and `format`, `[log.file]` `filename`, `max-size`, `max-days` and `max-backups`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Value;

use super::address::{parse_dialled, parse_endpoint, parse_endpoints, parse_upstreams};
use super::duration::parse_duration;
use super::log::{LogFile, LogFormat, LogLevel};
use super::sense::MOST_CHANGES;
use super::shown::entries;
use super::{ConfigError, Parsed, PresentAs, WhenStale};
use crate::regular_file;
use crate::replica::sync::Upstream;

/// Keys that are ours, with their tables.
pub(super) const OURS: &[&str] = &[
    "name",
    "backend-endpoints",
    "listen-addr",
    "advertise-listen-addr",
    "max-age",
    "broadcast-max-age",
    "max-outage",
    "time-threshold",
    "index-threshold",
    "stall-threshold",
    "probe-interval",
    "backend-timeout",
    "max-backoff",
    "full-sync-deadline",
    "when-stale",
    "present-as",
    "allow-bounded-staleness",
    "audit-pass",
    "audit-grace",
    "shutdown-deadline",
    "data-dir",
    "admin-addr",
    "admin-writable",
    "store-cache-ttl",
    "register",
    "max-connections",
    "max-concurrent-streams",
    "max-message-size",
    "max-scan-regions",
    "max-scan-size",
    "security.cacert-path",
    "security.cert-path",
    "security.key-path",
    "security.cert-allowed-cn",
    "upstream",
    "max-downstreams",
    "log.level",
    "log.format",
    "log.file.filename",
    "log.file.max-size",
    "log.file.max-days",
    "log.file.max-backups",
    "security.redact-info-log",
];

/// What it comes to that these keys of the file are empty, a line for each of which something could be expected.
pub(super) fn comes_to(parsed: &Parsed, emptied: &[String]) -> Vec<String> {
    let shown = entries(parsed);
    let of = |(key, comes_to): &(&str, &str)| {
        // A flag may have given it a value.
        let is_empty = shown.iter().any(|(name, value)| name == key && value == "");
        (is_empty && emptied.iter().any(|name| name == key))
            .then(|| format!("{key} is empty, as if it were left out: {comes_to}"))
    };
    EMPTY.iter().filter_map(of).collect()
}

/// The word for a `broadcast-max-age` that comes of `max-age`, as it does by default.
pub(super) const DERIVED: &str = "auto";

/// Keys that PD's router knows and that have no effect here yet. One that ends in a dot stands
/// for all below it.
const PDS: &[&str] = &[
    "cluster-version",
    "enable-grpc-gateway",
    "metrics-addr",
    "metric.address",
    "metric.interval",
    "metric.job",
    "log.disable-caller",
    "log.disable-error-verbose",
    "log.disable-stacktrace",
    "log.disable-timestamp",
    "log.development",
    "log.error-output-path",
    "log.timeout",
    "log.sampling.",
    "log.file.compression",
    "security.encryption.",
];

/// Keys of ours that ask for something, and what it comes to when they have no value.
const EMPTY: &[(&str, &str)] = &[
    (
        "data-dir",
        "regions are not kept, and every start is a full sync; name a directory to keep them",
    ),
    (
        "admin-addr",
        "settings are neither shown nor changed over HTTP; give an address for that, as http://127.0.0.1:3380",
    ),
];

/// Reads the file at `path` into `parsed`. The keys that are there without a value come back.
///
/// # Errors
/// [`ConfigError`]: the file cannot be read, is no TOML, has a key that nobody knows or a value
/// that its key cannot have.
pub(super) fn apply(path: &Path, parsed: &mut Parsed) -> Result<Vec<String>, ConfigError> {
    let bytes = regular_file::read(path).map_err(|source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => apply_text(path, text, parsed),
        Err(error) => Err(ConfigError::NotText {
            path: path.to_owned(),
            line: line_at(&bytes, error.valid_up_to()),
        }),
    }
}

pub(super) fn apply_text(
    path: &Path,
    text: &str,
    parsed: &mut Parsed,
) -> Result<Vec<String>, ConfigError> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        ConfigError::Syntax {
            path: path.to_owned(),
            line: line_at(text.as_bytes(), at),
            message: in_words(&error, text, at),
        }
    })?;
    let mut leaves = Vec::new();
    flatten("", &table, &mut leaves);
    let (mut unused, mut emptied) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for (key, value) in leaves {
        // TOML refuses a key that comes twice, but not a quoted one that has its table in its name.
        if !seen.insert(key.clone()) {
            return Err(ConfigError::Twice {
                path: path.to_owned(),
                key,
            });
        }
        if value.as_str() == Some("") {
            emptied.push(key.clone());
        }
        if set(&key, value, parsed).map_err(|error| error.in_file(path))? {
            continue;
        }
        if PDS
            .iter()
            .any(|pd| *pd == key || (pd.ends_with('.') && key.starts_with(pd)))
        {
            if !is_unset(value) {
                unused.push(key);
            }
            continue;
        }
        return Err(ConfigError::UnknownKey {
            path: path.to_owned(),
            hint: nearest(&key)
                .map_or_else(String::new, |near| format!(", did you mean `{near}`?")),
            key,
        });
    }
    if !unused.is_empty() {
        parsed.warnings.push(format!(
            "config file {}: accepted but without effect yet: {}",
            path.display(),
            unused.join(", "),
        ));
    }
    Ok(emptied)
}

/// What is wrong with the TOML at that byte, with the key where it is one's value.
fn in_words(error: &toml::de::Error, text: &str, at: usize) -> String {
    let message = one_line(error.message());
    let line = text[..at].rsplit('\n').next().unwrap_or_default();
    match line.split_once('=') {
        Some((key, _)) if message.contains("too large") => {
            format!("{}: {message} for TOML", key.trim())
        }
        _ => message,
    }
}

/// The line, from 1, that the byte at `at` is in.
fn line_at(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Sets one of our own keys; false if it is none of them.
pub(super) fn set(key: &str, value: &Value, parsed: &mut Parsed) -> Result<bool, ConfigError> {
    let serve = &mut parsed.serve;
    match key {
        "name" => match text(key, value)? {
            "" => {}
            name => name.clone_into(&mut serve.name),
        },
        "backend-endpoints" => serve.backend_endpoints = endpoints(key, value)?,
        "listen-addr" => serve.listen = parse_endpoint(key, text(key, value)?)?,
        "advertise-listen-addr" => match text(key, value)? {
            "" => {}
            url => serve.advertise = Some(parse_dialled(key, url)?),
        },
        "upstream" => serve.upstreams = upstreams(key, value)?,
        "max-downstreams" => {
            serve.max_downstreams = value
                .as_integer()
                .and_then(|count| usize::try_from(count).ok())
                .filter(|count| *count <= 1_000)
                .ok_or_else(|| {
                    ConfigError::value(key, shown(value), "a whole number from 0 to 1000")
                })?;
        }
        "data-dir" => match text(key, value)? {
            "" => {}
            path => serve.data_dir = Some(path.into()),
        },
        "max-age" => serve.max_age = duration(key, value)?,
        "broadcast-max-age" => {
            serve.broadcast_max_age = match value.as_str() {
                Some(DERIVED) => None,
                _ => Some(duration(key, value).map_err(|_| {
                    let expected = "a duration in quotes, as \"30s\", or \"auto\"";
                    ConfigError::value(key, shown(value), expected)
                })?),
            };
        }
        "max-outage" => {
            serve.max_outage = match value.as_str() {
                Some("max-age") => None,
                _ => Some(duration(key, value)?),
            };
        }
        "time-threshold" => serve.time_threshold = duration(key, value)?,
        "stall-threshold" => serve.stall_threshold = duration(key, value)?,
        "probe-interval" => serve.probe_interval = duration(key, value)?,
        "backend-timeout" => serve.backend_timeout = duration(key, value)?,
        "max-backoff" => serve.max_backoff = duration(key, value)?,
        "full-sync-deadline" => serve.full_sync_deadline = duration(key, value)?,
        "shutdown-deadline" => serve.shutdown_deadline = duration(key, value)?,
        "audit-grace" => serve.audit.grace = duration(key, value)?,
        "audit-pass" => {
            serve.audit.pass = match value.as_str() {
                Some("off") => None,
                _ => Some(duration(key, value).map_err(|_| {
                    let expected = "a duration in quotes, as \"10m\", or \"off\"";
                    ConfigError::value(key, shown(value), expected)
                })?),
            };
        }
        "index-threshold" => {
            serve.index_threshold = match value.as_integer().map(u64::try_from) {
                Some(Ok(count @ 1..=MOST_CHANGES)) => count,
                _ => {
                    let expected = format!("a whole number of changes from 1 to {MOST_CHANGES}");
                    return Err(ConfigError::value(key, shown(value), &expected));
                }
            };
        }
        "when-stale" => serve.when_stale = WhenStale::parse(key, text(key, value)?)?,
        "present-as" => serve.present_as = PresentAs::parse(key, text(key, value)?)?,
        "allow-bounded-staleness" => serve.allow_bounded_staleness = switch(key, value)?,
        "store-cache-ttl" => {
            serve.store_cache_ttl = match value.as_str() {
                Some("0s" | "0") => Duration::ZERO,
                _ => duration(key, value)?,
            }
        }
        "register" => serve.register = switch(key, value)?,
        "security.cacert-path" => serve.security.ca = path(key, value)?,
        "security.cert-path" => serve.security.cert = path(key, value)?,
        "security.key-path" => serve.security.key = path(key, value)?,
        "security.cert-allowed-cn" => serve.security.allowed_cn = names(key, value)?,
        _ if key.starts_with("max-") && serve.limits.set(key, value.as_integer())? => {}
        "log.level" => parsed.log.level = LogLevel::parse(key, text(key, value)?)?,
        "admin-addr" => match text(key, value)? {
            "" => {}
            url => parsed.admin.addr = Some(parse_endpoint(key, url)?),
        },
        "admin-writable" => parsed.admin.writable = switch(key, value)?,
        "log.file.filename" => log_file(parsed).filename = text(key, value)?.into(),
        "log.file.max-size" => log_file(parsed).max_size = count(key, value)?,
        "log.file.max-days" => log_file(parsed).max_days = count(key, value)?,
        "log.file.max-backups" => log_file(parsed).max_backups = count(key, value)?,
        // No line has a key in it, so that each of PD's values is kept to.
        "security.redact-info-log" => {
            let marker = value
                .as_str()
                .is_some_and(|text| matches!(text, "MARKER" | "marker" | "on" | "off" | ""));
            if !marker {
                switch(key, value)?;
            }
        }
        "log.format" => parsed.log.format = LogFormat::parse(key, text(key, value)?)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn text<'v>(key: &str, value: &'v Value) -> Result<&'v str, ConfigError> {
    value
        .as_str()
        .ok_or_else(|| ConfigError::value(key, shown(value), "text in quotes"))
}

/// A path; nothing where the text is empty.
fn path(key: &str, value: &Value) -> Result<Option<PathBuf>, ConfigError> {
    let text = text(key, value)?;
    Ok((!text.is_empty()).then(|| PathBuf::from(text)))
}

fn names(key: &str, value: &Value) -> Result<Vec<String>, ConfigError> {
    let list = value.as_array().ok_or_else(|| {
        ConfigError::value(
            key,
            shown(value),
            "a list of names, as [\"tidb\", \"tikv\"]",
        )
    })?;
    let names = list.iter().map(|name| match text(key, name)?.trim() {
        "" => Err(ConfigError::value(
            key,
            "",
            "names of at least one letter, or an empty list for everyone with a good certificate",
        )),
        name => Ok(name.to_owned()),
    });
    names.collect()
}

fn switch(key: &str, value: &Value) -> Result<bool, ConfigError> {
    value
        .as_bool()
        .ok_or_else(|| ConfigError::value(key, shown(value), "true or false, without quotes"))
}

fn log_file(parsed: &mut Parsed) -> &mut LogFile {
    parsed.log.file.get_or_insert_default()
}

/// A count; 0 is one.
fn count<N: TryFrom<i64>>(key: &str, value: &Value) -> Result<N, ConfigError> {
    let count = value.as_integer().and_then(|count| N::try_from(count).ok());
    count.ok_or_else(|| ConfigError::value(key, shown(value), "a whole number, 0 for no bound"))
}

fn duration(key: &str, value: &Value) -> Result<Duration, ConfigError> {
    value
        .as_str()
        .and_then(|text| parse_duration(text).ok())
        .ok_or_else(|| {
            ConfigError::value(
                key,
                shown(value),
                "a duration in quotes, as \"20s\", \"500ms\" or \"1m\"",
            )
        })
}

fn endpoints(key: &str, value: &Value) -> Result<Vec<url::Url>, ConfigError> {
    match value {
        Value::Array(list) => {
            let texts: Result<Vec<&str>, _> = list.iter().map(|item| text(key, item)).collect();
            parse_endpoints(key, &texts?.join(","))
        }
        other => parse_endpoints(key, text(key, other)?),
    }
}

fn upstreams(key: &str, value: &Value) -> Result<Vec<Upstream>, ConfigError> {
    match value {
        Value::Array(list) => {
            let texts: Result<Vec<&str>, _> = list.iter().map(|item| text(key, item)).collect();
            parse_upstreams(key, &texts?.join(","))
        }
        other => parse_upstreams(key, text(key, other)?),
    }
}

/// A file made from a template sets everything to nothing; that asks for nothing.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Boolean(on) => !on,
        _ => false,
    }
}

fn flatten<'t>(prefix: &str, table: &'t toml::Table, leaves: &mut Vec<(String, &'t Value)>) {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}.{name}")
        };
        match value {
            Value::Table(inner) if !inner.is_empty() => flatten(&key, inner, leaves),
            // An empty table asks for nothing, but its name has to be known.
            Value::Table(_) if is_table_of_keys(&key) => {}
            _ => leaves.push((key, value)),
        }
    }
}

fn is_table_of_keys(name: &str) -> bool {
    OURS.iter().chain(PDS).any(|key| {
        key.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => one_line(&other.to_string()),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The known key that differs least from `key`, if it differs by a slip of the hand.
fn nearest(key: &str) -> Option<&'static str> {
    OURS.iter()
        .chain(PDS)
        .filter(|known| !known.ends_with('.'))
        .map(|&known| (distance(key, known), known))
        .filter(|&(slips, known)| slips <= 2 && slips < known.len() / 2)
        .min()
        .map(|(_, known)| known)
}

/// Edits (insert, delete, replace) between two words.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
