//! Which calls go where.

use super::super::route::{Route, is_forwarded};
use super::*;

const LEADER: &str = "http://127.0.0.1:9";
const LOOKUPS: [&str; 5] = [
    "GetRegion",
    "GetPrevRegion",
    "GetRegionByID",
    "ScanRegions",
    "BatchScanRegions",
];

fn route(gateway: &Gateway, method: &str, metadata: &[(&'static str, &'static str)]) -> Route {
    let mut headers = HeaderMap::new();
    for (name, value) in metadata {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    gateway.route(&format!("/pdpb.PD/{method}"), &mut headers)
}

#[test]
fn a_backend_answers_lookups_and_passes_the_rest_on() {
    let gateway = gateway(PresentAs::Backend, OWN);
    leader_is(&gateway, 1, LEADER, 1);
    for method in LOOKUPS
        .into_iter()
        .chain(["QueryRegion", "GetMembers", "GetClusterInfo"])
    {
        assert!(
            matches!(route(&gateway, method, &[]), Route::Here),
            "{method}"
        );
    }
    for method in [
        "Tso",
        "RegionHeartbeat",
        "AllocID",
        "SplitRegions",
        "NotYetInvented",
    ] {
        assert!(
            matches!(route(&gateway, method, &[]), Route::Leader),
            "{method}"
        );
    }
}

#[test]
fn under_self_a_lookup_without_the_follower_key_means_the_leader() {
    let gateway = gateway(PresentAs::Me, OWN);
    leader_is(&gateway, 1, LEADER, 1);
    let key = [("pd-allow-follower-handle", "")];
    for method in LOOKUPS.into_iter().chain(["QueryRegion"]) {
        assert!(
            matches!(route(&gateway, method, &[]), Route::Leader),
            "{method}"
        );
        assert!(
            matches!(route(&gateway, method, &key), Route::Here),
            "{method}"
        );
    }
    assert!(matches!(route(&gateway, "GetMembers", &[]), Route::Myself));

    let presence = Presence {
        allow_bounded_staleness: true,
        ..gateway.presence.clone()
    };
    let remote = Arc::clone(&gateway.remote);
    let allowed = Gateway::new(Arc::clone(&gateway.serving), remote, presence);
    for method in LOOKUPS {
        assert!(
            matches!(route(&allowed, method, &[]), Route::HereAsFollower),
            "{method}"
        );
    }
}

#[test]
fn under_self_with_read_through_the_leader_is_asked_from_here_unless_a_replica_asks() {
    let gateway = gateway(PresentAs::Me, OWN);
    leader_is(&gateway, 1, LEADER, 1);
    let presence = Presence {
        reads_through: true,
        ..gateway.presence.clone()
    };
    let remote = Arc::clone(&gateway.remote);
    let through = Gateway::new(Arc::clone(&gateway.serving), remote, presence);
    let replica = [("tidegate-read-through", "1")];
    for method in LOOKUPS.into_iter().chain(["QueryRegion"]) {
        assert!(
            matches!(route(&through, method, &[]), Route::HereFromLeader),
            "{method}"
        );
        assert!(
            matches!(route(&through, method, &replica), Route::Leader),
            "{method}"
        );
    }
    assert!(matches!(route(&through, "Tso", &[]), Route::Leader));
}

#[test]
fn a_forwarded_host_is_the_leader_or_ourselves_or_refused() {
    for present_as in [PresentAs::Backend, PresentAs::Me] {
        let gateway = gateway(present_as, OWN);
        let other = [("pd-forwarded-host", "http://127.0.0.1:8")];
        let Route::Refused(unknown) = route(&gateway, "AllocID", &other) else {
            panic!("no leader is known");
        };
        assert_eq!(
            (unknown.code(), unknown.message()),
            (Code::Unavailable, "not leader")
        );
        leader_is(&gateway, 1, LEADER, 1);
        let Route::Refused(status) = route(&gateway, "AllocID", &other) else {
            panic!("not the leader's");
        };
        assert_eq!(status.code(), Code::InvalidArgument);
        // Lookups are turned away where they are counted.
        assert!(matches!(route(&gateway, "GetRegion", &other), Route::Here));
        // Clients write the scheme that suits their own settings.
        let leader = [("pd-forwarded-host", "https://127.0.0.1:9")];
        assert!(matches!(
            route(&gateway, "GetRegion", &leader),
            Route::Leader
        ));
        assert!(matches!(route(&gateway, "AllocID", &leader), Route::Leader));
        let own = [("pd-forwarded-host", OWN), ("pd-allow-follower-handle", "")];
        assert!(matches!(route(&gateway, "GetRegion", &own), Route::Here));
        let empty = [("pd-forwarded-host", "")];
        assert!(matches!(route(&gateway, "AllocID", &empty), Route::Leader));
    }
}

#[test]
fn of_the_other_services_those_that_a_client_needs_are_passed_on() {
    for path in [
        "/meta_storagepb.MetaStorage/Get",
        "/keyspacepb.Keyspace/LoadKeyspace",
        "/etcdserverpb.Watch/Watch",
    ] {
        assert!(is_forwarded(path), "{path}");
    }
    for path in [
        "/tsopb.TSO/Tso",
        "/etcdserverpb.Maintenance/Defragment",
        "/pdpb.PD",
        "/",
        "",
    ] {
        assert!(!is_forwarded(path), "{path}");
    }
}

#[test]
fn ourselves_as_the_only_member_and_the_leader() {
    let gateway = gateway(PresentAs::Me, OWN);
    leader_is(&gateway, 5, LEADER, 1);
    let told = gateway.myself().expect("the cluster is known");
    assert_eq!(told.header.expect("set").cluster_id, CLUSTER);
    let leader = told.leader.expect("set");
    assert_eq!(leader.client_urls, [OWN]);
    assert_eq!(leader.binary_version, "v8.5.3");
    assert_ne!(leader.member_id, 0);
    assert_eq!(told.members, [leader]);
}

#[test]
fn a_stopped_replica_passes_nothing_on() {
    let gateway = gateway(PresentAs::Me, OWN);
    leader_is(&gateway, 1, LEADER, 1);
    gateway.serving.close();
    for method in ["Tso", "GetMembers"] {
        let Route::Refused(status) = route(&gateway, method, &[]) else {
            panic!("{method} of a stopped replica");
        };
        assert_eq!(status.message(), "server not started");
    }
}
