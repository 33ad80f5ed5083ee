//! The bytes that a map says it holds.

mod support;

use tidegate_core::{
    Batch, Buckets, BulkLoad, Details, DownPeer, Expect, Key, Peer, PeerRole, Region, RegionMap,
};

use support::{Shape, region, stream};

const PEER: usize = size_of::<Peer>();

fn bytes_after(map: &RegionMap, region: Region) -> usize {
    assert!(!map.put(region, stream(1)).is_refused());
    map.pin()
        .check_invariants()
        .expect("counts equal a recount");
    map.stats().bytes
}

#[test]
fn each_part_of_a_region_counts_while_it_is_live() {
    let map = RegionMap::new();
    let empty = map.stats().bytes;
    assert!(empty > 0, "the root record");
    let first = region(1, Shape::Record.range(1, Some(2)), 1);
    let one = bytes_after(&map, first.clone());
    assert!(one > empty);
    assert_eq!(bytes_after(&map, first.clone()), one, "the same again");

    let peer = Peer {
        id: 7,
        store_id: 1,
        role: PeerRole::Voter,
        is_witness: false,
    };
    // Up to four peers have room in the region; more are in a list of their own, behind
    // the list's pointer and length and the leader.
    let with_peers = |peers: &[Peer], leader| {
        let builder = first.to_builder().peers(peers.iter().copied());
        let region = builder.leader(leader).build().expect("valid");
        bytes_after(&map, region) - one
    };
    let boxed = |peers| size_of::<Box<[Peer]>>() + size_of::<Option<Peer>>() + peers * PEER;
    assert_eq!(with_peers(&[peer; 4], Some(peer)), 0);
    assert_eq!(with_peers(&[peer; 5], None), boxed(5));
    assert_eq!(with_peers(&[peer; 5], Some(peer)), boxed(5));
    let stranger = Peer { id: 8, ..peer };
    assert_eq!(with_peers(&[peer; 3], Some(stranger)), boxed(3));
    assert_eq!(with_peers(&[], None), 0);

    let details = Details {
        down_peers: vec![DownPeer {
            peer,
            down_seconds: 1,
        }],
        pending_peers: vec![peer; 2],
        buckets: Some(Buckets {
            version: 1,
            keys: vec![Key::from(&[1; 20]), Key::from(&[2; 40])],
        }),
        ..Details::default()
    };
    let lists = size_of::<DownPeer>() + 2 * PEER + 2 * size_of::<Key>() + 40;
    let detailed = first.to_builder().details(details).build().expect("valid");
    assert_eq!(
        bytes_after(&map, detailed),
        one + size_of::<Details>() + lists
    );

    // Two long keys in the place of two short ones.
    let long = region(1, Shape::Long.range(1, Some(2)), 2);
    let keys = long.start().heap_bytes() + long.end().heap_bytes();
    assert!(keys > 0);
    assert_eq!(bytes_after(&map, long), one + keys);

    let mut batch = Batch::new();
    batch.remove(1, Expect::Any);
    let _ = map.apply(batch);
    assert_eq!(map.stats().bytes, empty);
}

#[test]
fn however_a_map_came_to_its_content_its_entries_count_the_same() {
    for shape in Shape::ALL {
        let regions =
            || (1..4000).map(|n| (region(n.into(), shape.range(n, Some(n + 1)), 1), stream(1)));
        let loaded = regions().collect::<BulkLoad>().finish(0).map;
        let applied = RegionMap::new();
        let _ = applied.apply(regions().collect());
        for map in [&loaded, &applied] {
            map.pin()
                .check_invariants()
                .expect("counts equal a recount");
        }
        let (loaded, applied) = (loaded.stats(), applied.stats());
        assert_eq!(
            (loaded.regions, loaded.pages),
            (applied.regions, applied.pages)
        );
        // In ascending order an applied map's nodes are full, a loaded one's nearly.
        assert!(loaded.nodes > applied.nodes && loaded.bytes > applied.bytes);
        let replaced = RegionMap::new();
        replaced.replace_with(regions().collect::<BulkLoad>().finish(0).map, 1);
        assert_eq!(replaced.stats().bytes, loaded.bytes, "{shape:?}");
    }
}
