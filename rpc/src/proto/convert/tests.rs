use super::*;

fn message() -> metapb::Region {
    metapb::Region {
        id: 4,
        start_key: Bytes::from_static(b"a"),
        end_key: Bytes::from_static(b"m"),
        region_epoch: Some(metapb::RegionEpoch {
            conf_ver: 2,
            version: 3,
        }),
        peers: vec![
            metapb::Peer {
                id: 41,
                store_id: 1,
                role: 0,
                is_witness: false,
            },
            metapb::Peer {
                id: 42,
                store_id: 2,
                role: 1,
                is_witness: true,
            },
        ],
        is_in_flashback: true,
        flashback_start_ts: 99,
    }
}

fn fault(region: &metapb::Region) -> (u64, &'static str) {
    let malformed = region_from_pb(region, None, None, None).unwrap_err();
    (malformed.region_id, malformed.field)
}

#[test]
fn a_region_comes_back_as_it_was_said() {
    let message = message();
    let leader = message.peers[0];
    let buckets = metapb::Buckets {
        region_id: 4,
        version: 7,
        keys: vec![Bytes::from_static(b"a"), Bytes::from_static(b"m")],
        period_in_ms: 0,
    };
    let stats = pdpb::RegionStat {
        bytes_written: 1,
        bytes_read: 2,
        keys_written: 3,
        keys_read: 4,
    };
    let down = [pdpb::PeerStats {
        peer: Some(message.peers[1]),
        down_seconds: 30,
    }];
    let pending = [message.peers[1]];
    let region = region_with(
        &message,
        Extras {
            leader: Some(&leader),
            buckets: Some(&buckets),
            stats: Some(&stats),
            down_peers: &down,
            pending_peers: &pending,
        },
    )
    .unwrap();
    assert_eq!(region_to_pb(&region), message);
    assert_eq!(leader_to_pb(&region), Some(leader));
    assert_eq!(buckets_to_pb(&region), Some(buckets.clone()));
    assert_eq!(stats_to_pb(&region), stats);
    assert_eq!(down_peers_to_pb(&region), down);
    assert_eq!(pending_peers_to_pb(&region), pending);
    assert_eq!(pdpb_region(&region, true).buckets, Some(buckets));
    assert_eq!(pdpb_region(&region, false).buckets, None);
}

#[test]
fn placeholders_are_no_leader_and_no_buckets() {
    let region = region_from_pb(
        &message(),
        Some(&metapb::Peer::default()),
        Some(&metapb::Buckets::default()),
        None,
    )
    .unwrap();
    assert_eq!(region.leader(), None);
    assert_eq!(buckets_to_pb(&region), None);
    assert_eq!(pdpb_region(&region, true).leader, None);
}

#[test]
fn a_malformed_region_is_refused_by_field() {
    assert_eq!(fault(&metapb::Region { id: 0, ..message() }), (0, "id"));
    assert_eq!(
        fault(&metapb::Region {
            region_epoch: None,
            ..message()
        }),
        (4, "region_epoch")
    );
    let inverted = metapb::Region {
        start_key: Bytes::from_static(b"z"),
        ..message()
    };
    assert_eq!(fault(&inverted), (4, "end_key"));
    let empty = metapb::Region {
        start_key: Bytes::from_static(b"m"),
        ..message()
    };
    assert_eq!(fault(&empty), (4, "end_key"));
    let mut role = message();
    role.peers[1].role = 17;
    assert_eq!(fault(&role), (4, "peers"));
    let text = region_from_pb(&empty, None, None, None)
        .unwrap_err()
        .to_string();
    assert_eq!(text, "malformed region 4: end_key is not above start_key");
}

#[test]
fn the_whole_key_space_and_an_open_end_are_ranges() {
    let whole = metapb::Region {
        start_key: Bytes::new(),
        end_key: Bytes::new(),
        ..message()
    };
    assert!(
        region_from_pb(&whole, None, None, None)
            .unwrap()
            .range()
            .is_all()
    );
    let tail = metapb::Region {
        end_key: Bytes::new(),
        ..message()
    };
    let tail = region_from_pb(&tail, None, None, None).unwrap();
    assert!(tail.range().contains(b"zzz"));
}

#[test]
fn a_heartbeat_brings_buckets_stats_and_sick_peers() {
    let report = pdpb::RegionHeartbeatRequest {
        region: Some(message()),
        leader: Some(message().peers[0]),
        pending_peers: vec![message().peers[1]],
        bytes_written: 5,
        bucket_meta: Some(metapb::BucketMeta {
            version: 9,
            keys: vec![Bytes::from_static(b"c")],
        }),
        ..pdpb::RegionHeartbeatRequest::default()
    };
    let region = region_from_heartbeat(&report).unwrap();
    assert_eq!(stats_to_pb(&region).bytes_written, 5);
    assert_eq!(buckets_to_pb(&region).unwrap().version, 9);
    assert_eq!(pending_peers_to_pb(&region).len(), 1);
    let absent = region_from_heartbeat(&pdpb::RegionHeartbeatRequest::default()).unwrap_err();
    assert_eq!(absent.field, "region");
}

#[test]
fn a_converted_region_does_not_keep_the_frame_alive() {
    let frame = Bytes::from(vec![b'k'; 4096]);
    let message = metapb::Region {
        start_key: frame.slice(0..40),
        end_key: Bytes::new(),
        ..message()
    };
    let region = region_from_pb(&message, None, None, None).unwrap();
    drop(message);
    assert!(
        frame.is_unique(),
        "a key of the region still points into the frame"
    );
    assert_eq!(region.start().len(), 40);
}
