//! The settings as an operator sees them: every key of ours with its value now.

use serde_json::{Map, Value, json};

use super::Parsed;
use super::log::LogFile;
use crate::replica::sync::Upstream;

/// Every key with its value, in the form that the file takes.
#[must_use]
pub fn entries(parsed: &Parsed) -> Vec<(&'static str, Value)> {
    let Parsed {
        serve, log, admin, ..
    } = parsed;
    let time = |time: std::time::Duration| json!(format!("{time:?}"));
    let url = |url: &url::Url| url.as_str().trim_end_matches('/').to_owned();
    let optional = |address: Option<&url::Url>| json!(address.map(url).unwrap_or_default());
    let path = |path: Option<&std::path::PathBuf>| {
        json!(
            path.map(|path| path.display().to_string())
                .unwrap_or_default()
        )
    };
    let file = log.file.clone().unwrap_or_default();
    let LogFile {
        filename,
        max_size,
        max_days,
        max_backups,
    } = &file;
    vec![
        ("name", json!(serve.name)),
        (
            "backend-endpoints",
            json!(serve.backend_endpoints.iter().map(url).collect::<Vec<_>>()),
        ),
        ("listen-addr", json!(url(&serve.listen))),
        ("advertise-listen-addr", optional(serve.advertise.as_ref())),
        ("max-age", time(serve.max_age)),
        ("broadcast-max-age", time(serve.broadcast_max_age())),
        (
            "max-outage",
            serve.max_outage.map_or(json!("max-age"), time),
        ),
        ("time-threshold", time(serve.time_threshold)),
        ("index-threshold", json!(serve.index_threshold)),
        ("stall-threshold", time(serve.stall_threshold)),
        ("probe-interval", time(serve.probe_interval)),
        ("backend-timeout", time(serve.backend_timeout)),
        ("max-backoff", time(serve.max_backoff)),
        ("full-sync-deadline", time(serve.full_sync_deadline)),
        ("when-stale", json!(serve.when_stale.as_str())),
        ("present-as", json!(serve.present_as.as_str())),
        (
            "allow-bounded-staleness",
            json!(serve.allow_bounded_staleness),
        ),
        ("audit-pass", serve.audit.pass.map_or(json!("off"), time)),
        ("audit-grace", time(serve.audit.grace)),
        ("shutdown-deadline", time(serve.shutdown_deadline)),
        ("data-dir", path(serve.data_dir.as_ref())),
        ("store-cache-ttl", time(serve.store_cache_ttl)),
        ("register", json!(serve.register)),
        (
            "upstream",
            json!(
                serve
                    .upstreams
                    .iter()
                    .map(Upstream::as_str)
                    .collect::<Vec<_>>()
            ),
        ),
        ("max-downstreams", json!(serve.max_downstreams)),
        ("max-connections", json!(serve.limits.connections)),
        ("max-concurrent-streams", json!(serve.limits.streams)),
        ("max-message-size", json!(serve.limits.message)),
        ("max-scan-regions", json!(serve.limits.scan.regions)),
        ("max-scan-size", json!(serve.limits.scan.bytes)),
        ("security.cacert-path", path(serve.security.ca.as_ref())),
        ("security.cert-path", path(serve.security.cert.as_ref())),
        ("security.key-path", path(serve.security.key.as_ref())),
        ("security.cert-allowed-cn", json!(serve.security.allowed_cn)),
        ("admin-addr", optional(admin.addr.as_ref())),
        ("admin-writable", json!(admin.writable)),
        ("log.level", json!(log.level.as_str())),
        ("log.format", json!(log.format.as_str())),
        ("log.file.filename", json!(filename.display().to_string())),
        ("log.file.max-size", json!(max_size)),
        ("log.file.max-days", json!(max_days)),
        ("log.file.max-backups", json!(max_backups)),
        ("security.redact-info-log", json!(true)),
    ]
}

/// The same as PD shows its own: an object for each table.
#[must_use]
pub fn page(parsed: &Parsed) -> Value {
    let mut page = Map::new();
    for (key, value) in entries(parsed) {
        let mut table = &mut page;
        let mut names = key.split('.').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                table.insert(name.to_owned(), value);
                break;
            }
            let inner = table
                .entry(name)
                .or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(inner) = inner else { break };
            table = inner;
        }
    }
    Value::Object(page)
}
