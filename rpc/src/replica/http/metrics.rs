//! The metrics, made from a status when they are asked for.
//!
//! | name | labels | meaning |
//! |---|---|---|
//! | `tidegate_region_syncer_status` | type = `sync_index`, `last_index` | our next index; the leader's, as far as it is known |
//! | `tidegate_server_region_request_cnt` | request, event = `served` (from the map), `confirmed` (from entries that the leader confirmed), `asked` (of the leader), `missed`, `refused`, `invalid`, `rejected` | lookups |
//! | `tidegate_server_region_refused_cnt` | request, reason | lookups that the gate refused |
//! | `tidegate_server_region_rejected_cnt` | request, cause | requests turned away before the gate |
//! | `tidegate_server_region_request_duration_seconds` | request | histogram: how long lookups take; QueryRegion by the batch |
//! | `tidegate_forward_total` | event = `forwarded`, `refused`, `broken`, `deposed` | calls that are the leader's to answer |
//! | `tidegate_connections` | | open connections of clients |
//! | `tidegate_connections_refused_total` | cause = `full`, `handshake` | connections that were not let in |
//! | `tidegate_registered` | | 1 while PD's etcd names us as a router; absent where it is not to |
//! | `tidegate_gate_open` | | 1 while lookups are answered from the map |
//! | `tidegate_gate_off` | | 1 when the gate is switched off, as only the playground can: nothing is refused |
//! | `tidegate_gate_shut` | reason | 1 for the reason why not |
//! | `tidegate_data_age_seconds` | | how old the data can be; absent while nothing is proven |
//! | `tidegate_sync_silence_seconds` | | since the receipt of the last applied message; absent before the first |
//! | `tidegate_sync_lag` | | changes known and not applied; absent while unknown |
//! | `tidegate_sync_apply_seconds` | | how long the apply in progress has been running; 0 without one |
//! | `tidegate_sync_state` | state | 1 for where the sync stream stands |
//! | `tidegate_sync_dialect` | dialect = `master`, `release-8.5` | 1 for the dialect of the stream; 8.5's until master's is shown |
//! | `tidegate_ready_seconds` | start = `warm` (from disk), `cold` (by a full sync) | from the start to the first proof; absent before |
//! | `tidegate_sync_total` | event | what the sync stream did |
//! | `tidegate_audit_differences_total` | kind, event = `found`, `healed` | differences from the leader's map older than the grace |
//! | `tidegate_audit_total` | event | what the comparison with the leader's map did |
//! | `tidegate_audit_running` | | 1 while it compares; 0 when it is off or waits |
//! | `tidegate_audit_open`, `tidegate_audit_oldest_seconds` | | differences that are being followed, the age of the oldest |
//! | `tidegate_audit_pass_seconds` | | how long the last whole comparison took |
//! | `tidegate_read_through` | | 1 while there is a leader to ask for what the map may not answer |
//! | `tidegate_ask_total` | event | what was asked of the leader on behalf of lookups: `asked`, `coalesced` with an equal question, `batches` and what was `batched` in them, `unary`, `scans`, `looks` at the leader key, `disowned` answers, and the errors `overflow`, `no_leader`, `deadline`, `failed`, `unfit` (an answer to something else) |
//! | `tidegate_heal_total` | kind | what the leader's own answers did to the map |
//! | `tidegate_map_regions`, `tidegate_map_bytes`, `tidegate_map_garbage`, `tidegate_map_generation` | | the map |
//! | `tidegate_disk_index` | | the index that a restart would resume at; absent without `data-dir`, as all of these |
//! | `tidegate_disk_waiting`, `tidegate_disk_file_bytes` | | regions that wait to be written; the size of the file |
//! | `tidegate_disk_total` | event = `flushes`, `rewrites`, `records`, `written_bytes`, `milliseconds` (of a thread that writes), `errors`, `set_aside` | what was done |
//! | `tidegate_chain_followers`, `tidegate_chain_depth` | | replicas that follow this one; replicas between it and PD |
//! | `tidegate_certificate_expiry_timestamp_seconds` | file = `cert-path`, `cacert-path` | when the first certificate of the file ends, since 1970; absent without the file |
//! | `tidegate_log_lost_lines_total` | | log lines that came faster than they could be written |
//! | `tidegate_server_info` | version, commit, name | 1 |
//!
//! Every series of lookups is there from the start, at zero. A gauge without a value (age, silence, lag, those of a comparison) is absent, so
//! that nothing that is unknown looks fresh: alert on `absent()`, or on `tidegate_gate_open`.
//!
//! The first two are PD's own `pd_region_syncer_status` and `pd_server_region_request_cnt` with
//! our prefix, so that a dashboard for PD's followers needs little change.

use prometheus::{
    Encoder, Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use tidegate_core::gate::RefuseReason;

use crate::pd::Dialect;
use crate::replica::persist::PersistStatus;
use crate::replica::serve::counters::{Method, Rejection};
use crate::replica::state::StreamState;
use crate::replica::status::{CertificatesStatus, ReplicaStatus};

/// The type of what [`render`] gives.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What can become of a lookup.
const EVENTS: [&str; 7] = [
    "served",
    "confirmed",
    "asked",
    "missed",
    "refused",
    "invalid",
    "rejected",
];

/// The status in Prometheus' text format.
pub(super) fn render(status: &ReplicaStatus) -> prometheus::Result<String> {
    let page = Page(Registry::new());
    page.lookups(status)?;
    page.gate(status)?;
    page.sync(status)?;
    page.int(
        "tidegate_chain_followers",
        "Replicas that follow this one.",
        status.followers as u64,
    )?;
    page.int(
        "tidegate_chain_depth",
        "Replicas that the data comes through before it gets here.",
        status.path.len() as u64,
    )?;
    if let Some(disk) = &status.persist {
        page.disk(disk)?;
    }
    page.int(
        "tidegate_map_regions",
        "Regions in the map.",
        status.regions as u64,
    )?;
    page.int(
        "tidegate_map_bytes",
        "Memory of the map, without garbage and what is kept for reuse.",
        status.map_bytes as u64,
    )?;
    page.int(
        "tidegate_map_garbage",
        "Map nodes and entries that wait to be freed.",
        status.garbage,
    )?;
    page.int(
        "tidegate_map_generation",
        "The full sync that answers.",
        status.generation,
    )?;
    if let Some(certificates) = status.certificates {
        page.certificates(certificates)?;
    }
    if let Some(lost) = status.lost_log_lines {
        let help = "Log lines that came faster than they could be written.";
        let counter = IntCounter::new("tidegate_log_lost_lines_total", help)?;
        counter.inc_by(lost);
        page.0.register(Box::new(counter))?;
    }
    page.gauges(
        "tidegate_server_info",
        "What is running here.",
        &["version", "commit", "name"],
    )?
    .with_label_values(&[status.version, status.commit, &status.name])
    .set(1);
    let mut text = Vec::new();
    TextEncoder::new().encode(&page.0.gather(), &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The metrics of one scrape.
struct Page(Registry);

impl Page {
    fn lookups(&self, status: &ReplicaStatus) -> prometheus::Result<()> {
        let requests = self.counters(
            "tidegate_server_region_request_cnt",
            "Region lookups by what became of them.",
            &["request", "event"],
        )?;
        let refused = self.counters(
            "tidegate_server_region_refused_cnt",
            "Region lookups that the gate refused.",
            &["request", "reason"],
        )?;
        let rejected = self.counters(
            "tidegate_server_region_rejected_cnt",
            "Region lookups turned away before the gate was asked.",
            &["request", "cause"],
        )?;
        // A series that appears with its first event has no rate for it: all are there from the start.
        for method in Method::ALL.map(Method::as_str) {
            for event in EVENTS {
                requests.with_label_values(&[method, event]);
            }
            for reason in RefuseReason::ALL {
                refused.with_label_values(&[method, reason.as_str()]);
            }
            for cause in Rejection::ALL {
                rejected.with_label_values(&[method, cause.as_str()]);
            }
        }
        for (method, counts) in &status.methods {
            for (event, count) in [
                ("served", counts.served),
                ("confirmed", counts.confirmed),
                ("asked", counts.asked),
                ("missed", counts.missed),
                ("refused", counts.refused),
                ("invalid", counts.invalid),
                ("rejected", counts.rejected),
            ] {
                requests.with_label_values(&[method, event]).inc_by(count);
            }
            for (reason, count) in &counts.refused_by_reason {
                refused.with_label_values(&[method, reason]).inc_by(*count);
            }
            for (cause, count) in &counts.rejected_by_cause {
                rejected.with_label_values(&[method, cause]).inc_by(*count);
            }
        }
        Ok(())
    }

    fn gate(&self, status: &ReplicaStatus) -> prometheus::Result<()> {
        self.int(
            "tidegate_gate_open",
            "1 while lookups are answered from the map; behind a shut gate they are read through or refused.",
            status.gate.open.into(),
        )?;
        self.int(
            "tidegate_gate_off",
            "1 when the gate is switched off and lookups are answered whatever it says.",
            status.gate.off.into(),
        )?;
        self.int(
            "tidegate_read_through",
            "1 while there is a leader to ask for what the map may not answer.",
            status.reading_through.into(),
        )?;
        let shut = self.gauges(
            "tidegate_gate_shut",
            "1 for the reason why lookups are refused.",
            &["reason"],
        )?;
        for reason in RefuseReason::ALL {
            let reason = reason.as_str();
            let is_it = status.gate.reason == Some(reason);
            shut.with_label_values(&[reason]).set(is_it.into());
        }
        if let Some(age) = status.age_ms {
            self.seconds("tidegate_data_age_seconds", "How old the data can be.", age)?;
        }
        if let Some(silence) = status.silence_ms {
            let help = "Since the receipt of the last applied sync message.";
            self.seconds("tidegate_sync_silence_seconds", help, silence)?;
        }
        if let Some(lag) = status.lag {
            self.int("tidegate_sync_lag", "Changes known and not applied.", lag)?;
        }
        let help = "How long the apply in progress has been running.";
        self.seconds(
            "tidegate_sync_apply_seconds",
            help,
            status.apply_running_ms.unwrap_or(0),
        )
    }

    fn sync(&self, status: &ReplicaStatus) -> prometheus::Result<()> {
        let help =
            "Our next index (sync_index), and the leader's as far as it is known (last_index).";
        let indexes = self.gauges("tidegate_region_syncer_status", help, &["type"])?;
        for (kind, index) in [("sync_index", status.applied), ("last_index", status.head)] {
            indexes.with_label_values(&[kind]).set(signed(index));
        }
        let states = self.gauges(
            "tidegate_sync_state",
            "1 for where the sync stream stands.",
            &["state"],
        )?;
        for state in [
            StreamState::Connecting,
            StreamState::Snapshot,
            StreamState::CatchUp,
            StreamState::Live,
        ] {
            states
                .with_label_values(&[state.as_str()])
                .set((status.state == state).into());
        }
        let dialects = self.gauges(
            "tidegate_sync_dialect",
            "1 for the dialect of the sync stream; release 8.5's until master's has been shown.",
            &["dialect"],
        )?;
        for dialect in [Dialect::Master, Dialect::Release85] {
            let is_it = status.dialect.is_some_and(|seen| seen.name == dialect);
            dialects
                .with_label_values(&[dialect.as_str()])
                .set(is_it.into());
        }
        if let Some(ready) = status.ready {
            let help = "From the start until the map was first proven fresh.";
            let opts = Opts::new("tidegate_ready_seconds", help);
            let gauges = GaugeVec::new(opts, &["start"])?;
            self.0.register(Box::new(gauges.clone()))?;
            gauges
                .with_label_values(&[ready.start])
                .set(ready.after_ms as f64 / 1000.0);
        }
        let forwarded = self.counters(
            "tidegate_forward_total",
            "What became of calls that are the PD leader's to answer.",
            &["event"],
        )?;
        for (event, count) in status.forwarded.each() {
            forwarded.with_label_values(&[event]).inc_by(count);
        }
        if let Some(registration) = &status.registration {
            let help = "1 while PD's etcd names us as a router.";
            self.int(
                "tidegate_registered",
                help,
                registration.key.is_some().into(),
            )?;
        }
        let connections = status.connections;
        let help = "Open connections of clients.";
        self.int("tidegate_connections", help, connections.open as u64)?;
        let refused = self.counters(
            "tidegate_connections_refused_total",
            "Connections that were not let in.",
            &["cause"],
        )?;
        for (cause, count) in [
            ("full", connections.refused_full),
            ("handshake", connections.refused_handshake),
        ] {
            refused.with_label_values(&[cause]).inc_by(count);
        }
        let events = self.counters(
            "tidegate_sync_total",
            "What the sync stream did.",
            &["event"],
        )?;
        for (event, count) in status.sync.each() {
            events.with_label_values(&[event]).inc_by(count);
        }
        self.audit(status)?;
        let asks = self.counters(
            "tidegate_ask_total",
            "What was asked of the leader on behalf of lookups.",
            &["event"],
        )?;
        for (event, count) in status.asks.unwrap_or_default().each() {
            asks.with_label_values(&[event]).inc_by(count);
        }
        let heals = self.counters(
            "tidegate_heal_total",
            "What the leader's own answers did to the map.",
            &["kind"],
        )?;
        for (kind, count) in &status.heals {
            heals.with_label_values(&[kind]).inc_by(*count);
        }
        Ok(())
    }

    fn audit(&self, status: &ReplicaStatus) -> prometheus::Result<()> {
        let audit = &status.audit;
        let help = "Differences from the leader's map that grew older than the grace.";
        let differences =
            self.counters("tidegate_audit_differences_total", help, &["kind", "event"])?;
        for (event, counts) in [("found", &audit.found), ("healed", &audit.healed)] {
            for (kind, count) in counts {
                differences.with_label_values(&[kind, event]).inc_by(*count);
            }
        }
        let events = self.counters(
            "tidegate_audit_total",
            "What the comparison with the leader's map did.",
            &["event"],
        )?;
        for (event, count) in [
            ("pass", audit.passes),
            ("region", audit.compared),
            ("failed", audit.failed),
            ("overtaken", audit.overtaken),
            ("full_sync", audit.full_syncs),
            ("full_sync_held", audit.full_syncs_held),
        ] {
            events.with_label_values(&[event]).inc_by(count);
        }
        self.int(
            "tidegate_audit_running",
            "1 while the map is compared with the leader's.",
            audit.running.into(),
        )?;
        self.int(
            "tidegate_audit_open",
            "Differences from the leader's map that are being followed.",
            audit.open,
        )?;
        if let Some(age) = audit.oldest_ms {
            self.seconds(
                "tidegate_audit_oldest_seconds",
                "The age of the oldest difference that is being followed.",
                age,
            )?;
        }
        if let Some(took) = audit.last_pass_ms {
            self.seconds(
                "tidegate_audit_pass_seconds",
                "How long the last whole comparison took.",
                took,
            )?;
        }
        Ok(())
    }

    fn disk(&self, disk: &PersistStatus) -> prometheus::Result<()> {
        self.int(
            "tidegate_disk_index",
            "The index that a restart would resume at; 0 when it would not.",
            disk.index,
        )?;
        self.int(
            "tidegate_disk_waiting",
            "Regions that changed and wait to be written to disk.",
            disk.waiting,
        )?;
        self.int(
            "tidegate_disk_file_bytes",
            "The size of the file of regions.",
            disk.file_bytes,
        )?;
        let events = self.counters(
            "tidegate_disk_total",
            "What was done with the file of regions.",
            &["event"],
        )?;
        for (event, count) in [
            ("flushes", disk.flushes),
            ("rewrites", disk.rewrites),
            ("records", disk.records),
            ("written_bytes", disk.written_bytes),
            ("milliseconds", disk.writing_ms),
            ("errors", disk.errors),
            ("set_aside", disk.set_aside),
        ] {
            events.with_label_values(&[event]).inc_by(count);
        }
        Ok(())
    }

    fn certificates(&self, certificates: CertificatesStatus) -> prometheus::Result<()> {
        let ends = self.gauges(
            "tidegate_certificate_expiry_timestamp_seconds",
            "When the first certificate of a file ends, since 1970.",
            &["file"],
        )?;
        let CertificatesStatus {
            cert_path_ends,
            cacert_path_ends,
        } = certificates;
        for (file, end) in [
            ("cert-path", cert_path_ends),
            ("cacert-path", cacert_path_ends),
        ] {
            if let Some(end) = end {
                ends.with_label_values(&[file]).set(signed(end));
            }
        }
        Ok(())
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntCounterVec> {
        let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(counters.clone()))?;
        Ok(counters)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        let gauges = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(gauges.clone()))?;
        Ok(gauges)
    }

    fn int(&self, name: &str, help: &str, value: u64) -> prometheus::Result<()> {
        let gauge = IntGauge::new(name, help)?;
        gauge.set(signed(value));
        self.0.register(Box::new(gauge))
    }

    fn seconds(&self, name: &str, help: &str, millis: u64) -> prometheus::Result<()> {
        let gauge = Gauge::new(name, help)?;
        gauge.set(millis as f64 / 1000.0);
        self.0.register(Box::new(gauge))
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
