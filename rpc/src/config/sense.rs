//! What settings come to together: what can never work is refused, what is merely unwise is said.
//!
//! It holds for a start, a reload and a change over HTTP alike, so that no way leads to a replica that answers nothing,
//! or that asks PD a million times a second.

use std::time::Duration;

use url::{Host, Url};

use super::address::{is_loopback, names_no_host};
use super::{ConfigError, Parsed, PresentAs, ServeConfig, WhenStale};
use crate::replica::sync::Upstream;

/// Changes in the largest frame of release 8.5, and a moment more.
const LARGEST_FRAME: u64 = 11_000;
/// Bytes of a name.
const LONGEST_NAME: usize = 200;
/// The most changes that one may be behind by; what counts as fresh beyond it is not.
pub(super) const MOST_CHANGES: u64 = 1_000_000_000;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl Parsed {
    /// What works and is not wise, a line each.
    #[must_use]
    pub fn unwise(&self) -> Vec<String> {
        unwise(self)
    }

    /// What can never work.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.serve.check()?;
        self.check_admin_address()?;
        let follows_secured = self.serve.upstreams.iter().any(is_secured_replica);
        let dials = follows_secured || self.serve.backend_endpoints.iter().any(is_secured);
        self.serve.security.check(
            is_secured(&self.serve.listen),
            self.admin.addr.as_ref().is_some_and(is_secured),
            dials,
        )
    }
}

impl Parsed {
    /// The admin address is nobody else's: not that of the lookups, and none that anybody is sent to or that is dialled.
    fn check_admin_address(&self) -> Result<(), ConfigError> {
        let Some(admin) = &self.admin.addr else {
            return Ok(());
        };
        let serve = &self.serve;
        let is_admin = |url: &Url| is_same(admin, url);
        let replicas = serve
            .upstreams
            .iter()
            .filter_map(|upstream| match upstream {
                Upstream::Replica(url) => Url::parse(url).ok(),
                Upstream::Pd => None,
            });
        let taken = if is_taken(&serve.listen, admin) {
            "listen-addr"
        } else if serve.advertise.as_ref().is_some_and(is_admin) {
            "advertise-listen-addr"
        } else if serve.backend_endpoints.iter().any(is_admin) {
            "backend-endpoints"
        } else if replicas.into_iter().any(|url| is_admin(&url)) {
            "upstream"
        } else {
            return Ok(());
        };
        Err(ConfigError::Conflict {
            what: format!("admin-addr {} is what {taken} names, too", written(admin)),
            remedy: "give admin-addr a port of its own, as http://127.0.0.1:3380",
        })
    }
}

fn is_secured(url: &Url) -> bool {
    url.scheme() == "https"
}

fn is_secured_replica(upstream: &Upstream) -> bool {
    matches!(upstream, Upstream::Replica(url) if url.starts_with("https://"))
}

impl ServeConfig {
    fn check(&self) -> Result<(), ConfigError> {
        if self.name.trim().is_empty() || self.name.len() > LONGEST_NAME {
            let expected =
                format!("a name of at least one letter and {LONGEST_NAME} bytes at most");
            return Err(ConfigError::value("name", self.name.as_str(), &expected));
        }
        if self.name.chars().any(char::is_control) {
            let expected =
                "a name in one line: it is shown in logs, metrics and PD's list of followers";
            return Err(ConfigError::value("name", self.name.as_str(), expected));
        }
        if self.backend_endpoints.is_empty() {
            let expected = "at least one PD client URL, as http://127.0.0.1:2379";
            return Err(ConfigError::value("backend-endpoints", "", expected));
        }
        self.check_durations()?;
        self.check_own_address()?;
        if self.present_as == PresentAs::Me
            && names_no_host(self.advertise.as_ref().unwrap_or(&self.listen))
        {
            return Err(ConfigError::Conflict {
                what: "present-as = self tells clients an address that stands for every address \
                       of this host, which is none to them"
                    .to_owned(),
                remedy: "give the one that they reach us at with --advertise-listen-addr",
            });
        }
        self.check_probes()
    }

    /// Times below which nothing is ever fresh, in time or at rest.
    fn check_durations(&self) -> Result<(), ConfigError> {
        let least = [
            ("max-age", Some(self.max_age), millis(100)),
            ("max-outage", self.max_outage, millis(100)),
            ("time-threshold", Some(self.time_threshold), millis(100)),
            ("stall-threshold", Some(self.stall_threshold), millis(10)),
            ("probe-interval", Some(self.probe_interval), millis(50)),
            ("backend-timeout", Some(self.backend_timeout), millis(10)),
            ("max-backoff", Some(self.max_backoff), millis(10)),
            ("full-sync-deadline", Some(self.full_sync_deadline), secs(1)),
            ("audit-pass", self.audit.pass, secs(1)),
            ("audit-grace", Some(self.audit.grace), millis(100)),
        ];
        for (key, value, least) in least {
            if let Some(value) = value.filter(|value| *value < least) {
                let expected = format!("{least:?} or more");
                return Err(ConfigError::value(key, format!("{value:?}"), &expected));
            }
        }
        Ok(())
    }

    /// Following or asking oneself leads nowhere.
    fn check_own_address(&self) -> Result<(), ConfigError> {
        let own = |url: &Url| {
            is_same(&self.listen, url)
                || self.advertise.as_ref().is_some_and(|own| is_same(own, url))
        };
        for upstream in &self.upstreams {
            if let Upstream::Replica(url) = upstream
                && Url::parse(url).is_ok_and(|url| own(&url))
            {
                return Err(ConfigError::Conflict {
                    what: format!("upstream names {url}, which is this replica itself"),
                    remedy: "name pd, or another replica",
                });
            }
        }
        match self.backend_endpoints.iter().find(|url| own(url)) {
            None => Ok(()),
            Some(url) => Err(ConfigError::Conflict {
                what: format!(
                    "backend-endpoints name {}, which is this replica itself",
                    written(url)
                ),
                remedy: "name PD's members, as http://127.0.0.1:2379",
            }),
        }
    }

    fn check_probes(&self) -> Result<(), ConfigError> {
        let on_release85 = self.broadcast_max_age();
        if self.probe_interval < self.max_age {
            if self.probe_interval < on_release85 {
                return Ok(());
            }
            return Err(ConfigError::Conflict {
                what: format!(
                    "probe-interval {:?} is not below broadcast-max-age {on_release85:?}, so nothing of a leader of \
                     release 8.5 would ever be fresh enough to serve",
                    self.probe_interval,
                ),
                remedy: "set broadcast-max-age to 30s or leave it out, or lower probe-interval to a third of it",
            });
        }
        let default = Self::default();
        let shown = |value: Duration, default: Duration| {
            let note = if value == default {
                " (the default)"
            } else {
                ""
            };
            format!("{value:?}{note}")
        };
        Err(ConfigError::Conflict {
            what: format!(
                "probe-interval {} is not below max-age {}, so nothing would ever be fresh \
                 enough to serve",
                shown(self.probe_interval, default.probe_interval),
                shown(self.max_age, default.max_age),
            ),
            remedy: "set both, with a probe-interval of at most a third of max-age",
        })
    }
}

/// What works and is not wise, a line each.
pub(super) fn unwise(parsed: &Parsed) -> Vec<String> {
    let mut said = thresholds(&parsed.serve);
    said.extend(long_times(&parsed.serve));
    said.extend(addresses(parsed));
    said.extend(answers(&parsed.serve));
    said
}

/// A remark for each that holds.
fn held<const N: usize>(remarks: [(bool, String); N]) -> Vec<String> {
    let held = remarks.into_iter().filter(|(is_so, _)| *is_so);
    held.map(|(_, remark)| remark).collect()
}

/// Times that are longer than what they are there for.
fn long_times(serve: &ServeConfig) -> Vec<String> {
    let minutes = |minutes: u64| secs(minutes * 60);
    let wrong = "answers may be wrong for as long";
    let longest = [
        ("max-age", Some(serve.max_age), minutes(10), wrong),
        (
            "broadcast-max-age",
            serve.broadcast_max_age,
            minutes(10),
            "behind a leader of release 8.5 answers may be wrong for as long",
        ),
        (
            "max-outage",
            serve.max_outage,
            minutes(60),
            "while PD has no leader answers may be wrong for as long; an election takes seconds",
        ),
        (
            "time-threshold",
            Some(serve.time_threshold),
            minutes(10),
            "a stream that hangs is left as late; PD's keepalive comes every 10s",
        ),
        (
            "stall-threshold",
            Some(serve.stall_threshold),
            minutes(1),
            "an apply that hangs is noticed as late; a full frame takes milliseconds",
        ),
        (
            "full-sync-deadline",
            Some(serve.full_sync_deadline),
            minutes(24 * 60),
            "a full sync that hangs is begun again as late",
        ),
        (
            "shutdown-deadline",
            Some(serve.shutdown_deadline),
            minutes(10),
            "a stop may take as long, and a supervisor may not wait for it",
        ),
        (
            "store-cache-ttl",
            Some(serve.store_cache_ttl),
            minutes(1),
            "a store that moves is found as late",
        ),
        (
            "audit-pass",
            serve.audit.pass,
            minutes(24 * 60),
            "what the stream has lost is found as late",
        ),
        (
            "audit-grace",
            Some(serve.audit.grace),
            minutes(60),
            "what the stream has lost is healed as late",
        ),
    ];
    longest
        .into_iter()
        .filter_map(|(key, value, longest, why)| {
            let value = value.filter(|value| *value > longest)?;
            Some(format!("{key} {value:?} is more than {longest:?}: {why}"))
        })
        .collect()
}

/// What clients get that may not be what they expect.
fn answers(serve: &ServeConfig) -> Vec<String> {
    let of_self = serve.allow_bounded_staleness && serve.present_as == PresentAs::Me;
    held([
        (
            serve.allow_bounded_staleness && serve.present_as != PresentAs::Me,
            "allow-bounded-staleness has no effect without present-as = self".to_owned(),
        ),
        (
            of_self && serve.when_stale == WhenStale::Refuse,
            "present-as = self with allow-bounded-staleness and when-stale = refuse: clients take this replica for the \
             leader and have nobody else to ask, so that each refusal costs them seconds of retries, and then fails; set \
             when-stale = read-through, or leave allow-bounded-staleness out"
                .to_owned(),
        ),
    ])
}

fn thresholds(serve: &ServeConfig) -> Vec<String> {
    let ServeConfig {
        max_age,
        time_threshold,
        index_threshold,
        stall_threshold,
        probe_interval,
        backend_timeout,
        max_backoff,
        full_sync_deadline,
        audit,
        ..
    } = serve;
    let on_release85 = serve.broadcast_max_age();
    held([
        (
            *max_age < *probe_interval * 3,
            format!(
                "max-age {max_age:?} is less than three times probe-interval {probe_interval:?}: one lost probe stops \
                 answers from the map"
            ),
        ),
        (
            on_release85 < secs(25),
            format!(
                "broadcast-max-age {on_release85:?} is less than 25s: a quiet leader of release 8.5 stops answers from \
                 the map"
            ),
        ),
        (
            serve.max_outage.is_some_and(|outage| outage < *max_age),
            format!(
                "max-outage {:?} is less than max-age {max_age:?}: an election stops answers sooner than anything else",
                serve.max_outage.unwrap_or_default()
            ),
        ),
        (
            *time_threshold < secs(20),
            format!(
                "time-threshold {time_threshold:?} is less than 20s: PD's keepalive comes every 10s, and late under load"
            ),
        ),
        (
            *index_threshold < LARGEST_FRAME,
            format!(
                "index-threshold {index_threshold} is less than {LARGEST_FRAME}: one large frame stops answers from the map"
            ),
        ),
        (
            *stall_threshold < secs(1),
            format!(
                "stall-threshold {stall_threshold:?} is less than 1s: a busy machine alone stops answers from the map"
            ),
        ),
        (
            *backend_timeout < millis(200),
            format!("backend-timeout {backend_timeout:?}: a slow answer of PD counts as none"),
        ),
        (
            *backend_timeout >= *max_age,
            format!(
                "backend-timeout {backend_timeout:?} is not below max-age {max_age:?}: a PD member that hangs stops \
                 answers from the map before another is asked"
            ),
        ),
        (
            *max_backoff >= *max_age,
            format!(
                "max-backoff {max_backoff:?} is not below max-age {max_age:?}: after an outage the pause alone stops \
                 answers from the map"
            ),
        ),
        (
            *full_sync_deadline < secs(60),
            format!(
                "full-sync-deadline {full_sync_deadline:?}: a leader sends 20 MiB in a second, so a large cluster's \
                 full sync may never be complete"
            ),
        ),
        (
            audit.grace < secs(1),
            format!(
                "audit-grace {:?}: what is on its way counts as a difference",
                audit.grace
            ),
        ),
    ])
}

fn addresses(parsed: &Parsed) -> Vec<String> {
    let Parsed { serve, admin, .. } = parsed;
    let advertised = serve.advertise.as_ref();
    let uses_tls = is_secured(&serve.listen)
        || serve.backend_endpoints.iter().any(is_secured)
        || admin.addr.as_ref().is_some_and(is_secured)
        || serve.upstreams.iter().any(is_secured_replica);
    held([
        (
            advertised.is_some_and(|url| is_secured(url) != is_secured(&serve.listen)),
            "advertise-listen-addr and listen-addr are not both http:// or both https://: clients that take us at our \
             word may not get through"
                .to_owned(),
        ),
        (
            serve.security.names_files() && !uses_tls,
            "the files of TLS are used by nobody: no address is https://".to_owned(),
        ),
        (
            admin.writable && admin.addr.is_none(),
            "admin-writable has no effect without admin-addr".to_owned(),
        ),
        (
            admin.writable
                && admin.addr.as_ref().is_some_and(|addr| {
                    !is_loopback(addr) && (!is_secured(addr) || serve.security.ca.is_none())
                }),
            "admin-addr is not of this host alone and knows no users: whoever reaches it may change settings; let it \
             ask for certificates, with https:// and cacert-path"
                .to_owned(),
        ),
    ])
}

/// A URL without the slash behind the port.
fn written(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

/// Whether who listens at `one` leaves nothing to listen on at `other`.
fn is_taken(one: &Url, other: &Url) -> bool {
    is_same(one, other)
        || is_same(other, one)
        || ((names_no_host(one) || names_no_host(other)) && is_same_port(one, other))
}

fn is_same_port(one: &Url, other: &Url) -> bool {
    let port = one.port_or_known_default();
    port != Some(0) && port == other.port_or_known_default()
}

/// Whether who dials `url` gets to who listens at `own`.
fn is_same(own: &Url, url: &Url) -> bool {
    if !is_same_port(own, url) {
        return false;
    }
    let is_this_host = |url: &Url| is_loopback(url) || names_no_host(url);
    let is_named = |url: &Url| matches!(url.host(), Some(Host::Domain(_)));
    own.host() == url.host()
        || (names_no_host(own) && is_this_host(url))
        || (is_loopback(own) && is_loopback(url) && (is_named(own) || is_named(url)))
}

#[cfg(test)]
mod tests;
