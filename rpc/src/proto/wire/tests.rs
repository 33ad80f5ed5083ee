use proptest::prelude::*;
use prost::Message;
use tidegate_core::{Details, Flashback, KeyRange, RegionEpoch};

use super::*;
use crate::proto::convert::pdpb_region;
use crate::proto::pdpb::{GetRegionResponse, QueryRegionResponse, RegionResponse};

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 1..48),
        prop::collection::vec(any::<u8>(), 120..300),
    ]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0u64..300, any::<u64>()]
}

fn peer() -> impl Strategy<Value = Peer> {
    const ROLES: [PeerRole; 4] = [
        PeerRole::Voter,
        PeerRole::Learner,
        PeerRole::IncomingVoter,
        PeerRole::DemotingVoter,
    ];
    let role = prop::sample::select(&ROLES[..]);
    (number(), number(), role, any::<bool>()).prop_map(|(id, store_id, role, is_witness)| Peer {
        id,
        store_id,
        role,
        is_witness,
    })
}

fn details() -> impl Strategy<Value = Details> {
    let down = (peer(), number()).prop_map(|(peer, down_seconds)| DownPeer { peer, down_seconds });
    let buckets = (number(), prop::collection::vec(key(), 0..4));
    let buckets = buckets.prop_map(|(version, keys)| Buckets {
        version,
        keys: keys.iter().map(|key| Key::from(&key[..])).collect(),
    });
    (
        prop::collection::vec(down, 0..3),
        prop::collection::vec(peer(), 0..3),
        prop::option::of(buckets),
        prop::option::of(number().prop_map(|start_ts| Flashback { start_ts })),
    )
        .prop_map(|(down_peers, pending_peers, buckets, flashback)| Details {
            down_peers,
            pending_peers,
            buckets,
            flashback,
            ..Details::default()
        })
}

/// Which of the peers leads, and who does if they are not as many.
fn leader() -> impl Strategy<Value = Option<(usize, Peer)>> {
    prop::option::of((0..7usize, peer()))
}

fn region() -> impl Strategy<Value = Region> {
    (
        number(),
        (key(), key()),
        (number(), number()),
        prop::collection::vec(peer(), 0..7),
        leader(),
        prop::option::of(details()),
    )
        .prop_filter_map("a region", |(id, keys, epoch, peers, leader, details)| {
            let range = KeyRange::new(&keys.0[..], &keys.1[..]).ok()?;
            let epoch = RegionEpoch::new(epoch.0, epoch.1);
            let leader = leader.map(|(which, other)| match peers.get(which) {
                Some(one_of_them) => *one_of_them,
                None => other,
            });
            let region = Region::builder(id, range, epoch)
                .peers(peers)
                .leader(leader);
            let region = match details {
                Some(details) => region.details(details),
                None => region,
            };
            region.build().ok()
        })
}

fn item(region: &Region, with_buckets: bool) -> RegionResponse {
    let it = pdpb_region(region, with_buckets);
    RegionResponse {
        region: it.region,
        leader: it.leader,
        down_peers: it.down_peers,
        pending_peers: it.pending_peers,
        buckets: it.buckets,
    }
}

proptest! {
    #[test]
    fn what_is_written_is_what_the_message_is_encoded_to(
        region in region(),
        with_buckets in any::<bool>(),
    ) {
        let as_item = item(&region, with_buckets);
        let told = Told { region: &region, with_buckets, always_led: false, tags: Tags::ITEM };
        let mut bytes = Vec::new();
        told.put(&mut bytes);
        prop_assert_eq!(told.len(), bytes.len());
        prop_assert_eq!(&bytes, &as_item.encode_to_vec());

        let it = as_item.clone();
        let answer = GetRegionResponse {
            header: None,
            region: it.region,
            leader: it.leader,
            down_peers: it.down_peers,
            pending_peers: it.pending_peers,
            buckets: it.buckets,
        };
        let told = Told { tags: Tags::ANSWER, ..told };
        let mut bytes = Vec::new();
        told.put(&mut bytes);
        prop_assert_eq!(told.len(), bytes.len());
        prop_assert_eq!(&bytes, &answer.encode_to_vec());

        let mut query = QueryRegionResponse::default();
        query.regions_by_id.insert(region.id(), as_item);
        let told = Told { tags: Tags::ITEM, ..told };
        let mut bytes = Vec::new();
        put_element(4, region.id(), Some(&told), &mut bytes);
        prop_assert_eq!(&bytes, &query.encode_to_vec());
        query.regions_by_id.insert(region.id(), RegionResponse::default());
        let mut bytes = Vec::new();
        put_element(4, region.id(), None, &mut bytes);
        prop_assert_eq!(&bytes, &query.encode_to_vec());
    }

    #[test]
    fn a_list_of_numbers_is_packed(numbers in prop::collection::vec(number(), 0..9)) {
        let mut bytes = Vec::new();
        put_numbers(2, numbers.iter().copied(), &mut bytes);
        let query = QueryRegionResponse {
            key_id_map: numbers,
            ..QueryRegionResponse::default()
        };
        prop_assert_eq!(bytes, query.encode_to_vec());
    }
}
