//! Making a region, reading it and making another one of it allocate nothing, as
//! long as its peers have room in it and its keys are short.
#![cfg(not(tidegate_loom))]

mod counting;

use counting::calls_during;
use tidegate_core::{KeyRange, Peer, PeerRole, Region, RegionEpoch};

fn peer(id: u64) -> Peer {
    Peer {
        id,
        store_id: u64::from(u32::MAX) - id,
        role: PeerRole::Voter,
        is_witness: false,
    }
}

fn region(peers: u64, leader: u64) -> Region {
    let range = KeyRange::new("a", "b").expect("a valid range");
    Region::builder(1, range, RegionEpoch::new(1, 2))
        .leader(Some(peer(leader)))
        .peers((1..=peers).map(peer))
        .build()
        .expect("an id above 0")
}

#[test]
fn up_to_four_peers_allocate_nothing() {
    let calls = calls_during(|| {
        for peers in 1..=4 {
            let first = region(peers, peers);
            assert!(first.peers().iter().eq((1..=peers).map(peer)));
            let moved = first.to_builder().leader(Some(peer(1))).build();
            let moved = moved.expect("an id above 0");
            assert_eq!(moved.leader(), Some(peer(1)));
            assert_eq!(moved.clone().peers(), first.peers());
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn reading_allocates_nothing_however_many_peers_there_are() {
    let many = [region(5, 3), region(3, 4)];
    let calls = calls_during(|| {
        for (region, peers) in many.iter().zip([5, 3]) {
            assert!(region.peers().iter().eq((1..=peers).map(peer)));
            assert!(region.leader().is_some());
        }
    });
    assert_eq!(calls, 0);
}
