use std::path::Path;

use super::super::{LogConfig, file};
use super::*;

fn parsed(text: &str) -> Parsed {
    let mut parsed = Parsed {
        serve: ServeConfig::default(),
        log: LogConfig::default(),
        admin: Default::default(),
        warnings: Vec::new(),
    };
    file::apply_text(Path::new("t.toml"), text, &mut parsed).expect(text);
    parsed
}

#[test]
fn the_defaults_are_wise() {
    let parsed = parsed("");
    parsed.check().expect("good");
    assert_eq!(unwise(&parsed), [""; 0]);
}

#[test]
fn what_can_never_work_is_refused() {
    for (text, words) in [
        (
            "max-age = '1ns'",
            "max-age: \"1ns\" cannot be used; give 100ms or more",
        ),
        ("max-outage = '1ms'", "max-outage: \"1ms\""),
        ("time-threshold = '1ns'", "time-threshold: \"1ns\""),
        ("stall-threshold = '1us'", "stall-threshold: \"1µs\""),
        ("probe-interval = '1ns'", "give 50ms or more"),
        (
            "backend-timeout = '1ms'",
            "backend-timeout: \"1ms\" cannot be used; give 10ms or more",
        ),
        ("max-backoff = '1ms'", "max-backoff: \"1ms\""),
        ("full-sync-deadline = '1ms'", "full-sync-deadline: \"1ms\""),
        ("audit-pass = '1ms'", "audit-pass: \"1ms\""),
        ("audit-grace = '1ms'", "audit-grace: \"1ms\""),
        (
            "max-age = '3s'",
            "probe-interval 3s (the default) is not below max-age 3s",
        ),
        (
            "upstream = 'http://127.0.0.1:3379'",
            "upstream names http://127.0.0.1:3379, which is this replica itself; name pd",
        ),
        ("upstream = 'http://localhost:3379'", "this replica itself"),
        (
            "listen-addr = 'http://0.0.0.0:3400'\nupstream = 'pd,http://127.0.0.1:3400'",
            "this replica itself",
        ),
        (
            "advertise-listen-addr = 'http://a:1'\nupstream = 'http://a:1'",
            "upstream names http://a:1",
        ),
        (
            "admin-addr = 'https://127.0.0.1:1'",
            "admin-addr is https and there is no certificate for it",
        ),
        (
            "upstream = 'https://other:1'",
            "nothing says whose certificates to trust",
        ),
        (
            "backend-endpoints = 'http://127.0.0.1:3379'",
            "backend-endpoints name http://127.0.0.1:3379, which is this replica itself; name PD's members",
        ),
        (
            "admin-addr = 'http://127.0.0.1:3379'",
            "admin-addr http://127.0.0.1:3379 is what listen-addr names, too; give admin-addr a port of its own",
        ),
        ("admin-addr = 'http://localhost:3379'", "listen-addr"),
        ("admin-addr = 'http://0.0.0.0:3379'", "listen-addr"),
        (
            "listen-addr = 'http://0.0.0.0:1'\nadmin-addr = 'http://10.0.0.7:1'",
            "listen-addr",
        ),
        (
            "advertise-listen-addr = 'http://127.0.0.1:1'\nadmin-addr = 'http://127.0.0.1:1'",
            "what advertise-listen-addr names",
        ),
        (
            "upstream = 'pd,http://127.0.0.1:1'\nadmin-addr = 'http://127.0.0.1:1'",
            "what upstream names",
        ),
        (
            "admin-addr = 'http://localhost:2379'",
            "what backend-endpoints names",
        ),
        (
            "broadcast-max-age = '1s'",
            "set broadcast-max-age to 30s or leave it out, or lower probe-interval to a third of it",
        ),
    ] {
        let error = parsed(text).check().expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn another_replica_of_this_host_is_another() {
    for text in [
        "upstream = 'http://127.0.0.1:3380'",
        "upstream = 'http://127.0.0.2:3379'",
        "upstream = 'http://other:3379'",
        "listen-addr = 'http://127.0.0.1:0'\nupstream = 'http://127.0.0.1:3379'",
        "listen-addr = 'http://127.0.0.1:0'\nadmin-addr = 'http://127.0.0.1:0'",
        "admin-addr = 'http://127.0.0.2:3379'",
        "admin-addr = 'http://127.0.0.1:3380'",
    ] {
        parsed(text).check().expect(text);
    }
}

#[test]
fn what_is_unwise_is_said_and_accepted() {
    for (text, words) in [
        ("max-age = '5s'", "one lost probe"),
        (
            "max-age = '1h'",
            "max-age 3600s is more than 600s: answers may be wrong for as long",
        ),
        ("broadcast-max-age = '1h'", "behind a leader of release 8.5"),
        (
            "max-outage = '200h'",
            "max-outage 720000s is more than 3600s: while PD has no leader answers may be wrong for as long",
        ),
        (
            "time-threshold = '1h'",
            "a stream that hangs is left as late",
        ),
        ("stall-threshold = '1h'", "an apply that hangs"),
        ("full-sync-deadline = '100h'", "begun again as late"),
        ("shutdown-deadline = '1h'", "a supervisor may not wait"),
        ("audit-pass = '100h'", "found as late"),
        ("audit-grace = '2h'", "healed as late"),
        (
            "broadcast-max-age = '15s'",
            "broadcast-max-age 15s is less than 25s",
        ),
        ("max-outage = '9s'", "an election"),
        ("time-threshold = '5s'", "PD's keepalive comes every 10s"),
        ("index-threshold = 10", "one large frame"),
        ("stall-threshold = '50ms'", "a busy machine"),
        ("backend-timeout = '50ms'", "counts as none"),
        ("backend-timeout = '20s'", "a PD member that hangs"),
        ("max-backoff = '1m'", "after an outage"),
        ("full-sync-deadline = '2s'", "20 MiB in a second"),
        ("audit-grace = '200ms'", "on its way"),
        ("store-cache-ttl = '1h'", "a store that moves"),
        ("advertise-listen-addr = 'https://a:1'", "not both http://"),
        ("[security]\ncacert-path = 'x'", "used by nobody"),
        (
            "allow-bounded-staleness = true",
            "no effect without present-as",
        ),
        (
            "present-as = 'self'\nallow-bounded-staleness = true\nwhen-stale = 'refuse'",
            "set when-stale = read-through, or leave allow-bounded-staleness out",
        ),
        ("admin-writable = true", "no effect without admin-addr"),
        (
            "admin-addr = 'http://10.0.0.1:1'\nadmin-writable = true",
            "whoever reaches it may change settings",
        ),
    ] {
        let parsed = parsed(text);
        parsed.check().expect(text);
        let said = unwise(&parsed);
        assert_eq!(said.len(), 1, "{text}: {said:?}");
        assert!(said[0].contains(words), "{text}: {said:?}");
    }
}

#[test]
fn what_is_at_a_bound_is_not_unwise() {
    for text in [
        "max-age = '10m'",
        "max-outage = '1h'",
        "audit-pass = '24h'",
        "audit-pass = 'off'",
        "present-as = 'self'\nallow-bounded-staleness = true",
        "present-as = 'self'\nwhen-stale = 'refuse'",
        "when-stale = 'refuse'",
    ] {
        assert_eq!(unwise(&parsed(text)), [""; 0], "{text}");
    }
}
