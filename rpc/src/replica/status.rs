//! What a replica tells about itself: the status page, and the figures behind the metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tidegate_core::gate::{GateView, Lag, RefuseReason, Thresholds};
use tidegate_core::{MapStats, Moment};

use super::ask::{AskCounts, Asker};
use super::audit::AuditStatus;
use super::forward::ForwardCounts;
use super::http::Pages;
use super::persist::PersistStatus;
use super::register::RegistrationStatus;
use super::serve::counters::{Counts, Method};
use super::state::{StreamState, SyncCounts};
use crate::config::LogHandle;
use crate::pd::Dialect;
use crate::tls::Ends;

/// A replica at one time. Each figure is exact; together they need not be of one instant.
#[derive(Clone, Debug, Serialize)]
pub struct ReplicaStatus {
    /// The name it goes by.
    pub name: String,
    /// The version of this program.
    pub version: &'static str,
    /// The commit that it was built from.
    pub commit: &'static str,
    /// What this process is known by to replicas that follow it, until it ends: see `path`.
    pub id: String,
    /// Where it listens.
    pub listen: String,
    /// Where others reach it.
    pub advertise: String,
    /// The cluster it follows; `None` until a PD member has told.
    pub cluster_id: Option<u64>,
    /// The PD leader it follows.
    pub leader: Option<LeaderStatus>,
    /// Where the sync stream stands.
    pub state: StreamState,
    /// The dialect of the stream; `None` before the first.
    pub dialect: Option<DialectStatus>,
    /// How the start went; `None` until the map has first been proven fresh.
    pub ready: Option<ReadyStatus>,
    /// The last reason why the leader was not followed, or no longer; it stays once it is.
    pub last_connection_error: Option<ConnectionError>,
    /// What is unwise about the settings in effect, a line each; said in the log when it began.
    pub warnings: Vec<String>,
    /// Whether lookups are answered from the map.
    pub gate: GateStatus,
    /// Whether the leader is asked for what the map may not answer.
    pub reading_through: bool,
    /// How old the data can be, in milliseconds; `None` while nothing is proven.
    pub age_ms: Option<u64>,
    /// Changes that are known and not applied; `None` while unknown.
    pub lag: Option<u64>,
    /// Milliseconds since the receipt of the last applied stream message.
    pub silence_ms: Option<u64>,
    /// For how many milliseconds the apply in progress has been running.
    pub apply_running_ms: Option<u64>,
    /// The highest index that the leader has told; 0 while none is known.
    pub head: u64,
    /// The next index to apply; 0 while none is known.
    pub applied: u64,
    /// The life of the map that answers; 0 before the first.
    pub generation: u64,
    /// Regions in the map.
    pub regions: usize,
    /// Bytes of the map, without garbage and what is kept for reuse.
    pub map_bytes: usize,
    /// Nodes and entries that wait to be freed.
    pub garbage: u64,
    /// Sums over all lookups.
    #[serde(flatten)]
    pub lookups: Counts,
    /// The same by method.
    pub methods: BTreeMap<&'static str, Counts>,
    /// How clients see this replica: `backend` or `self`.
    pub present_as: &'static str,
    /// What became of calls that are the leader's to answer.
    pub forwarded: ForwardCounts,
    /// Whether clients find us through PD; `None` where they are not to.
    pub registration: Option<RegistrationStatus>,
    /// Clients' connections.
    pub connections: ConnectionsStatus,
    /// What the sync stream did.
    pub sync: SyncCounts,
    /// The comparison of the map with the leader's.
    pub audit: AuditStatus,
    /// What was asked of the leader on behalf of lookups; `None` where lookups are refused instead.
    pub asks: Option<AskCounts>,
    /// What the leader's own answers did to the map, by kind.
    pub heals: BTreeMap<&'static str, u64>,
    /// Replicas that follow this one.
    pub followers: usize,
    /// The `id`s of the replicas that the data comes through, the nearest first; none when it comes from PD.
    pub path: Vec<String>,
    /// The regions on disk; `None` without a data directory.
    pub persist: Option<PersistStatus>,
    /// When the certificates in use end; `None` where no file names any.
    pub certificates: Option<CertificatesStatus>,
    /// Log lines that were lost because they came faster than they could be written; `None` where the process logs in
    /// a way that is not ours.
    pub lost_log_lines: Option<u64>,
}

/// When the first certificate of each file ends, in seconds since 1970; `None` for a file that is not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CertificatesStatus {
    /// Of `cert-path`.
    pub cert_path_ends: Option<u64>,
    /// Of `cacert-path`.
    pub cacert_path_ends: Option<u64>,
}

impl From<Ends> for CertificatesStatus {
    fn from(ends: Ends) -> Self {
        let seconds = |end: Option<Duration>| end.map(|end| end.as_secs());
        Self {
            cert_path_ends: seconds(ends.own),
            cacert_path_ends: seconds(ends.authorities),
        }
    }
}

/// The PD leader that is followed.
#[derive(Clone, Debug, Serialize)]
pub struct LeaderStatus {
    /// The member's name.
    pub name: String,
    /// The address it is reached at.
    pub url: String,
    /// Its reign, as the create-revision of PD's leader key; `None` when it could not be read.
    pub term: Option<i64>,
}

/// The dialect of the sync stream that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DialectStatus {
    /// Which.
    pub name: Dialect,
    /// The stream has shown it. Release 8.5's is what a stream is taken for that has shown nothing of master's.
    pub shown: bool,
    /// For how many milliseconds that has been so.
    pub for_ms: u64,
}

/// How the start went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReadyStatus {
    /// Milliseconds from the start until the map was first proven fresh.
    pub after_ms: u64,
    /// `warm`: with what was on disk; `cold`: after a full sync.
    pub start: &'static str,
}

/// Why the PD leader was not followed, or no longer.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionError {
    /// The kind of reason.
    pub reason: &'static str,
    /// What is known beyond it, and what helps; may be empty.
    pub detail: String,
    /// Milliseconds since it was found.
    pub ago_ms: u64,
}

/// Clients' connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ConnectionsStatus {
    /// Open now.
    pub open: usize,
    /// Turned away because there were as many as `max-connections`.
    pub refused_full: u64,
    /// Turned away because no TLS was agreed on.
    pub refused_handshake: u64,
}

/// Whether lookups are answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GateStatus {
    /// They are.
    pub open: bool,
    /// The gate is switched off: they are, whatever it says.
    pub off: bool,
    /// The name of the reason why not.
    pub reason: Option<&'static str>,
    /// The same in words, with the figures that decide it.
    pub why: String,
}

/// What the gate goes by, for its reasons in words.
struct Seen<'g> {
    view: &'g GateView,
    now: Moment,
    thresholds: Thresholds,
    /// PD has no leader: `max-outage` is the bound on age and silence.
    is_outage: bool,
}

impl GateStatus {
    fn of(shut: Option<RefuseReason>, regardless: bool, seen: &Seen<'_>) -> Self {
        let Thresholds {
            max_age,
            time_threshold,
            index_threshold,
            stall_threshold,
        } = seen.thresholds;
        let (of_age, of_silence) = if seen.is_outage {
            let bound = "max-outage, while PD has no leader";
            (bound, bound)
        } else {
            ("max-age", "time-threshold")
        };
        let for_how_long = |moment: Option<Moment>| match moment {
            Some(then) => format!("{:.1} s", seen.now.saturating_since(then).as_secs_f64()),
            None => "an unknown time".to_owned(),
        };
        let why = match shut {
            None if regardless => "open whatever the data: the gate is switched off".to_owned(),
            None => "open: the map is proven to be fresh".to_owned(),
            Some(RefuseReason::Age) => format!(
                "shut: the latest proof that the map is fresh is {} old, more than {of_age} ({max_age:?})",
                for_how_long(seen.view.proven_at),
            ),
            Some(RefuseReason::ApplyStall) => format!(
                "shut: one apply has been running for {}, longer than stall-threshold ({stall_threshold:?})",
                for_how_long(seen.view.apply_since),
            ),
            Some(RefuseReason::Gap) => {
                "shut: changes were skipped and have not been recovered yet".to_owned()
            }
            Some(RefuseReason::IndexLag) => format!(
                "shut: {} changes are known and not applied, more than index-threshold ({index_threshold})",
                seen.view.head.saturating_sub(seen.view.applied),
            ),
            Some(RefuseReason::NotProven) => {
                "shut: no full sync has been proven to be fresh yet".to_owned()
            }
            Some(RefuseReason::Silence) => format!(
                "shut: the sync stream has been silent for {}, longer than {of_silence} ({time_threshold:?})",
                for_how_long(seen.view.last_sync),
            ),
        };
        Self {
            open: shut.is_none(),
            off: regardless,
            reason: shut.map(RefuseReason::as_str),
            why,
        }
    }
}

/// What a replica is called and where it is found.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) listen: String,
    pub(super) advertise: String,
}

impl ReplicaStatus {
    pub(super) fn read(pages: &Pages) -> Self {
        let Pages {
            identity,
            serving,
            gateway,
            door,
            registrar,
            tls,
            log,
        } = pages;
        let shared = &serving.shared;
        let gate: GateView = shared.gate.view();
        let now = shared.clock.now();
        let since = |moment: Option<Moment>| moment.map(|then| now.saturating_since(then));
        let pd = shared.pd();
        let leader = pd.as_deref().and_then(|pd| pd.leader.as_ref());
        let map: MapStats = shared.map.stats();
        Self {
            name: identity.name.clone(),
            version: env!("CARGO_PKG_VERSION"),
            commit: crate::COMMIT,
            id: shared
                .chain()
                .map_or_else(String::new, |chain| chain.id().to_owned()),
            listen: identity.listen.clone(),
            advertise: identity.advertise.clone(),
            cluster_id: shared.cluster_id(),
            leader: leader.map(|leader| LeaderStatus {
                name: leader.member.name.clone(),
                url: leader.url.clone(),
                term: leader.term.map(|term| term.create_revision()),
            }),
            state: shared.stream(),
            dialect: shared.dialect().map(|seen| DialectStatus {
                name: seen.dialect,
                shown: seen.dialect == Dialect::Master,
                for_ms: millis(now.saturating_since(seen.since)),
            }),
            ready: shared.ready().map(|ready| ReadyStatus {
                after_ms: millis(ready.after),
                start: ready.start(),
            }),
            last_connection_error: shared.last_broken().map(|broken| ConnectionError {
                reason: broken.reason,
                detail: broken.detail,
                ago_ms: millis(now.saturating_since(broken.at)),
            }),
            warnings: shared.unwise(),
            reading_through: serving.is_reading_through(),
            gate: GateStatus::of(
                serving.shut(),
                serving.is_regardless(),
                &Seen {
                    view: &gate,
                    now,
                    thresholds: shared.limits(now),
                    is_outage: shared.is_outage(now),
                },
            ),
            age_ms: since(gate.proven_at).map(millis),
            lag: match gate.lag {
                Lag::Known(lag) => Some(lag),
                Lag::Unknown => None,
            },
            silence_ms: since(gate.last_sync).map(millis),
            apply_running_ms: since(gate.apply_since).map(millis),
            head: gate.head,
            applied: gate.applied,
            generation: gate.generation,
            regions: map.regions,
            map_bytes: map.bytes,
            garbage: map.retired.saturating_sub(map.freed),
            lookups: serving.counters.total(),
            methods: Method::ALL
                .into_iter()
                .map(|method| (method.as_str(), serving.counters.of(method)))
                .filter(|(_, counts)| counts.all() > 0)
                .collect(),
            present_as: gateway.presence().present_as.as_str(),
            forwarded: gateway.counters.read(),
            registration: registrar.as_ref().map(|registrar| registrar.status()),
            connections: ConnectionsStatus {
                open: door.open(),
                refused_full: door.counters().full.get(),
                refused_handshake: door.counters().handshake.get(),
            },
            sync: shared.counters.read(),
            audit: shared.audit.read(),
            asks: serving.asked().map(Asker::counters).map(|asks| asks.read()),
            heals: shared.heals.each().collect(),
            followers: shared.chain().map_or(0, |chain| chain.followers()),
            path: shared.chain().map_or_else(Vec::new, |chain| chain.path()),
            persist: shared.persist().map(|persist| persist.status()),
            certificates: tls.as_ref().map(|tls| tls.ends().into()),
            lost_log_lines: log.get().and_then(LogHandle::lost_lines),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_that_shut_the_gate_is_named_with_its_value() {
        let view = GateView {
            generation: 1,
            head: 5,
            applied: 5,
            lag: Lag::Known(0),
            proven_at: Some(Moment::from_nanos(0)),
            last_sync: Some(Moment::from_nanos(0)),
            apply_since: None,
            gap: false,
        };
        let limits = crate::replica::limits::Limits::new(Thresholds::default());
        limits.set_max_outage(Some(Duration::from_secs(14)));
        let why = |reason, is_outage| {
            let seen = Seen {
                view: &view,
                now: Moment::from_nanos(14_400_000_000),
                thresholds: if is_outage {
                    limits.in_outage()
                } else {
                    limits.get()
                },
                is_outage,
            };
            GateStatus::of(Some(reason), false, &seen).why
        };
        assert_eq!(
            why(RefuseReason::Age, false),
            "shut: the latest proof that the map is fresh is 14.4 s old, more than max-age (10s)"
        );
        let outage = "max-outage, while PD has no leader (14s)";
        assert_eq!(
            why(RefuseReason::Age, true),
            format!(
                "shut: the latest proof that the map is fresh is 14.4 s old, more than {outage}"
            )
        );
        assert_eq!(
            why(RefuseReason::Silence, true),
            format!("shut: the sync stream has been silent for 14.4 s, longer than {outage}")
        );
    }
}
