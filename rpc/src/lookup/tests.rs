use std::collections::BTreeSet;

use proptest::prelude::*;
use prost::Message;
use tidegate_core::clock::Moment;
use tidegate_core::oracle::SequentialMap;
use tidegate_core::{
    Buckets, Details, KeyRange, Peer, PeerRole, Provenance, Region as Meta, RegionEpoch, RegionMap,
};

use super::*;
use crate::proto::pdpb::{ErrorType, KeyRange as PbRange};

const STREAM: Provenance = Provenance::Stream {
    received_at: Moment::from_nanos(1),
};

fn region(id: u64, start: &[u8], end: &[u8]) -> Meta {
    let peer = |id| Peer {
        id,
        store_id: id,
        role: PeerRole::Voter,
        is_witness: false,
    };
    let range = KeyRange::new(start, end).expect("a range");
    Meta::builder(
        id,
        range,
        RegionEpoch {
            conf_ver: 1,
            version: 2,
        },
    )
    .peers([peer(id * 10), peer(id * 10 + 1)])
    // Every third is between two leaders.
    .leader((!id.is_multiple_of(3)).then(|| peer(id * 10)))
    .details(Details {
        buckets: Some(Buckets {
            version: 7,
            keys: vec![start.into(), end.into()],
        }),
        ..Details::default()
    })
    .build()
    .expect("a region")
}

fn map_of(regions: &[(u64, &[u8], &[u8])]) -> RegionMap {
    let map = RegionMap::new();
    for &(id, start, end) in regions {
        assert!(!map.put(region(id, start, end), STREAM).is_refused());
    }
    map
}

fn ranges(pairs: &[(&[u8], &[u8])]) -> Vec<PbRange> {
    let range = |&(start, end): &(&[u8], &[u8])| PbRange {
        start_key: start.to_vec().into(),
        end_key: end.to_vec().into(),
    };
    pairs.iter().map(range).collect()
}

fn batch(
    map: &RegionMap,
    pairs: &[(&[u8], &[u8])],
    limit: i32,
    all: bool,
) -> Result<Vec<u64>, LookupError> {
    let request = BatchScanRegionsRequest {
        ranges: ranges(pairs),
        limit,
        contain_all_key_range: all,
        ..BatchScanRegionsRequest::default()
    };
    let snapshot = map.pin();
    let lookup = Lookup::new(&snapshot);
    let response = lookup.batch_scan(&request)?;
    let written = lookup.batch_scan_written(&request, Reach::within(Bounds::NONE))?;
    assert_eq!(written.to_vec(), response.encode_to_vec());
    Ok(response
        .regions
        .iter()
        .map(|r| r.region.as_ref().expect("set").id)
        .collect())
}

#[test]
fn ranges_that_overlap_or_are_inverted_get_pds_errors() {
    let map = map_of(&[(1, b"", b"")]);
    let overlap = batch(&map, &[(b"a", b"c"), (b"b", b"d")], 0, false).expect_err("overlap");
    assert_eq!(overlap.to_string(), "invalid key range, ranges overlapped");
    assert_eq!(overlap.error_type(), ErrorType::Unknown);
    assert!(overlap.is_bad_request());
    let inverted = batch(&map, &[(b"b", b"a")], 0, false).expect_err("inverted");
    assert_eq!(
        inverted.to_string(),
        "invalid key range, start key > end key"
    );
    assert_eq!(inverted.error_type(), ErrorType::Unknown);
    // Equal keys are no inversion.
    assert_eq!(batch(&map, &[(b"a", b"a")], 0, false), Ok(vec![1]));
    let most = vec![(&b"a"[..], &b"a"[..]); batch::MOST_RANGES];
    assert_eq!(batch(&map, &most, 0, false), Ok(vec![1]));
    let more = vec![(&b"a"[..], &b"a"[..]); batch::MOST_RANGES + 1];
    let more = batch(&map, &more, 0, false).expect_err("too many");
    assert!(more.is_bad_request());
    assert!(more.to_string().starts_with("invalid request, 100001 key"));
}

#[test]
fn no_request_makes_the_answer_ranges_times_regions() {
    let map = map_of(&[(1, b"", b"m"), (2, b"m", b"t"), (4, b"t", b"")]);
    let overlap = Err(LookupError::RangesOverlap);
    // To the end of the map again and again.
    for again in [
        &[(&b"a"[..], &b""[..]), (b"b", b"")][..],
        &[(b"x", b""), (b"a", b"b")],
    ] {
        assert_eq!(batch(&map, again, -1, false), overlap);
    }
    // Round and round: the end at infinity joined to the first key, and on from there.
    let round = [(&b"a"[..], &b"x"[..]), (b"y", b""), (b"", b"a")];
    assert_eq!(batch(&map, &round, -1, false), Ok(vec![1, 2, 4]));
    let rounds = [&round[..], &[(b"b", b"x")]].concat();
    assert_eq!(batch(&map, &rounds, -1, false), overlap);
    // What is joined is one range, however often.
    let everything = vec![(&b""[..], &b""[..]); 1_000];
    assert_eq!(batch(&map, &everything, -1, false), Ok(vec![1, 2, 4]));
}

#[test]
fn an_end_at_infinity_is_joined_to_a_start_at_the_first_key() {
    let map = map_of(&[(1, b"", b"m"), (2, b"m", b"")]);
    // [x, +inf) and ["", c) become [x, c), which holds the region of x only if it starts before c.
    assert_eq!(
        batch(&map, &[(b"x", b""), (b"", b"c")], 0, false),
        Ok(vec![])
    );
    assert_eq!(
        batch(&map, &[(b"x", b""), (b"", b"n")], 0, false),
        Ok(vec![2])
    );
}

#[test]
fn where_holes_are_forbidden_a_hole_is_pds_error() {
    let map = map_of(&[(1, b"b", b"d"), (2, b"d", b"f"), (4, b"h", b"k")]);
    let between = batch(&map, &[(b"b", b"i")], 0, true).expect_err("a hole");
    assert_eq!(
        between.to_string(),
        "[PD:region:ErrRegionNotAdjacent]key range[62, 69) found a hole region between \
         region[64, 66) and region[68, 6b)"
    );
    assert_eq!(
        between.error_type(),
        ErrorType::RegionsNotContainAllKeyRange
    );
    let header = between.header(7);
    assert_eq!(
        (header.cluster_id, header.error.expect("set").r#type),
        (7, 12)
    );
    let before = batch(&map, &[(b"a", b"c")], 0, true).expect_err("a hole");
    assert!(
        before.to_string().contains(
            "key range[61, 63) found a hole region between region[, 61) and region[62, 64)"
        ),
        "{before}"
    );
    let last = batch(&map, &[(b"h", b"z")], 0, true).expect_err("a hole");
    assert_eq!(
        last.to_string(),
        "[PD:region:ErrRegionNotAdjacent]key range[68, 7a) found a hole region in the last, the \
         last scanned region is [68, 6b), [6b, 7a) is missing"
    );
    let nothing = batch(&map, &[(b"p", b"q")], 0, true).expect_err("a hole");
    assert!(
        nothing
            .to_string()
            .contains("the last scanned region is [, 70), [70, 71) is missing")
    );

    // What PD does not see: a hole before the first region of a range that starts at the first
    // key, and a missing tail of one without end; nor what the limit has cut off.
    assert_eq!(batch(&map, &[(b"", b"c")], 0, true), Ok(vec![1]));
    assert_eq!(batch(&map, &[(b"h", b"")], 0, true), Ok(vec![4]));
    assert_eq!(batch(&map, &[(b"b", b"z")], 2, true), Ok(vec![1, 2]));
    // Allowed holes are skipped.
    assert_eq!(batch(&map, &[(b"a", b"z")], 0, false), Ok(vec![1, 2, 4]));
}

#[test]
fn a_limit_counts_for_each_range_and_for_the_total_before_the_next() {
    let map = map_of(&[
        (1, b"a", b"b"),
        (2, b"b", b"c"),
        (4, b"c", b"d"),
        (5, b"d", b"e"),
        (7, b"e", b"f"),
    ]);
    let two = [(&b"a"[..], &b"b1"[..]), (b"b2", b"z")];
    assert_eq!(batch(&map, &two, 0, false), Ok(vec![1, 2, 4, 5, 7]));
    assert_eq!(batch(&map, &two, -1, false), Ok(vec![1, 2, 4, 5, 7]));
    assert_eq!(batch(&map, &two, i32::MAX, false), Ok(vec![1, 2, 4, 5, 7]));
    assert_eq!(batch(&map, &two, 2, false), Ok(vec![1, 2]));
    // The second range is scanned with the whole limit, and nothing is cut after the last one:
    // [1, 2] and [2, 4, 5] without the repeated 2.
    assert_eq!(batch(&map, &two, 3, false), Ok(vec![1, 2, 4, 5]));
    let three = [(&b"a"[..], &b"b1"[..]), (b"b2", b"d"), (b"d1", b"e")];
    assert_eq!(batch(&map, &three, 3, false), Ok(vec![1, 2, 4]));
}

#[test]
fn a_scan_fills_both_lists_and_puts_an_empty_peer_for_an_unknown_leader() {
    let map = map_of(&[(1, b"", b"b"), (3, b"b", b"c"), (4, b"e", b"")]);
    let snapshot = map.pin();
    let lookup = Lookup::new(&snapshot);
    let scan = |start: &[u8], end: &[u8], limit| {
        let request = ScanRegionsRequest {
            start_key: start.to_vec().into(),
            end_key: end.to_vec().into(),
            limit,
            ..ScanRegionsRequest::default()
        };
        lookup.scan(&request)
    };
    let all = scan(b"", b"", 0);
    assert_eq!(
        all.region_metas.iter().map(|r| r.id).collect::<Vec<_>>(),
        [1, 3, 4]
    );
    assert_eq!(
        all.leaders.iter().map(|p| p.id).collect::<Vec<_>>(),
        [10, 0, 40]
    );
    assert_eq!(all.regions.len(), 3);
    for (i, region) in all.regions.iter().enumerate() {
        assert_eq!(region.region.as_ref(), Some(&all.region_metas[i]));
        assert_eq!(region.leader.as_ref(), Some(&all.leaders[i]));
        assert_eq!(region.buckets, None);
    }
    let ids = |response: ScanRegionsResponse| {
        response
            .region_metas
            .iter()
            .map(|r| r.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(scan(b"", b"", 2)), [1, 3]);
    assert_eq!(ids(scan(b"", b"", -5)), [1, 3, 4]);
    assert_eq!(ids(scan(b"c", b"", 1)), [4], "a start in a hole");
    assert_eq!(ids(scan(b"c", b"e", 0)), [0u64; 0], "nothing but a hole");
    assert_eq!(ids(scan(b"b", b"b", 0)), [0u64; 0]);
    assert_eq!(
        ids(scan(b"bb", b"ba", 0)),
        [3],
        "inverted, yet its region starts before the end"
    );
}

#[test]
fn a_single_lookup_leaves_an_unknown_leader_unset_and_buckets_out_unless_asked_for() {
    let map = map_of(&[(1, b"", b"b"), (3, b"b", b"c")]);
    let snapshot = map.pin();
    let lookup = Lookup::new(&snapshot);
    let key = |key: &[u8], need_buckets| GetRegionRequest {
        region_key: key.to_vec().into(),
        need_buckets,
        ..GetRegionRequest::default()
    };
    let third = lookup.get(&key(b"b", true)).expect("found");
    assert_eq!(third.header, None);
    assert_eq!(third.leader, None);
    let buckets = third.buckets.expect("asked for");
    assert_eq!(
        (buckets.region_id, buckets.version, buckets.keys.len()),
        (3, 7, 2)
    );
    assert_eq!(lookup.get(&key(b"b", false)).expect("found").buckets, None);
    let first = lookup.prev(&key(b"b", false)).expect("found");
    assert_eq!(first.region.expect("set").id, 1);
    assert_eq!(first.leader.expect("known").id, 10);
    assert_eq!(
        lookup.prev(&key(b"a", false)),
        None,
        "the first has none before it"
    );
    assert_eq!(lookup.get(&key(b"x", false)), None, "a hole");
    assert_eq!(lookup.prev(&key(b"x", false)), None, "a hole");
    let id = |region_id| GetRegionByIdRequest {
        region_id,
        ..GetRegionByIdRequest::default()
    };
    assert_eq!(
        lookup.by_id(&id(3)).expect("found").region.expect("set").id,
        3
    );
    assert_eq!(lookup.by_id(&id(0)), None);
    assert_eq!(lookup.by_id(&id(2)), None);
}

#[test]
fn a_query_keeps_order_and_length_and_gives_a_missing_id_an_empty_element() {
    let map = map_of(&[(1, b"", b"b"), (3, b"b", b"c")]);
    let snapshot = map.pin();
    let bytes = |keys: &[&[u8]]| keys.iter().map(|k| k.to_vec().into()).collect::<Vec<_>>();
    let queried = Lookup::new(&snapshot).query(&QueryRegionRequest {
        keys: bytes(&[b"b", b"x", b"a", b"b1"]),
        prev_keys: bytes(&[b"b", b"a"]),
        ids: vec![3, 0, 9, 9],
        ..QueryRegionRequest::default()
    });
    assert_eq!(queried.response.key_id_map, [3, 0, 1, 3]);
    assert_eq!(queried.response.prev_key_id_map, [1, 0]);
    assert_eq!(queried.missed, 3, "the key x, what is before a, the id 9");
    assert_eq!(
        queried
            .response
            .regions_by_id
            .keys()
            .copied()
            .collect::<BTreeSet<_>>(),
        [1, 3, 9].into()
    );
    assert_eq!(
        queried.response.regions_by_id[&9],
        RegionResponse::default()
    );
    assert_eq!(
        queried.response.regions_by_id[&3]
            .region
            .as_ref()
            .expect("set")
            .id,
        3
    );
    let many = |count| QueryRegionRequest {
        ids: vec![0; count],
        keys: bytes(&[b"a"]),
        ..QueryRegionRequest::default()
    };
    assert!(check_items(&many(query::MOST_ITEMS - 1)).is_ok());
    let more = check_items(&many(query::MOST_ITEMS)).expect_err("one too many");
    assert_eq!(more.code(), tonic::Code::InvalidArgument);
    assert!(more.message().starts_with("a batch of 100001 keys"));
    let empty = Lookup::new(&snapshot).query(&QueryRegionRequest::default());
    assert_eq!((empty.missed, empty.response), (0, Default::default()));
}

/// Up to 16 regions with holes, on keys of one byte; the ends may be open.
fn layouts() -> impl Strategy<Value = Vec<Meta>> {
    let cut = prop::collection::btree_set(0u8..32, 0..16);
    (cut, prop::collection::vec(prop::bool::weighted(0.8), 17)).prop_map(|(cuts, present)| {
        let mut bounds: Vec<Vec<u8>> = vec![vec![]];
        bounds.extend(cuts.into_iter().map(|cut| vec![cut]));
        bounds.push(vec![]);
        let pairs = bounds
            .windows(2)
            .enumerate()
            .filter(|&(i, _)| present[i % present.len()]);
        pairs
            .map(|(i, pair)| region(i as u64 + 1, &pair[0], &pair[1]))
            .collect()
    })
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![1 => Just(vec![]), 8 => (0u8..34).prop_map(|k| vec![k]), 4 => (0u8..34, 0u8..2).prop_map(|(k, t)| vec![k, t])]
}

/// The naive scan: every region, in order, asked whether it belongs.
fn naive_scan<'r>(all: &[&'r Meta], start: &[u8], end: &[u8]) -> Vec<&'r Meta> {
    let ends_after_start = |r: &Meta| r.end().is_empty() || r.end().as_bytes() > start;
    let starts_before_end = |r: &Meta| end.is_empty() || r.start().as_bytes() < end;
    all.iter()
        .copied()
        .filter(|r| ends_after_start(r) && starts_before_end(r))
        .collect()
}

fn ids(regions: &[&Meta]) -> Vec<u64> {
    regions.iter().map(|r| r.id()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lookups_agree_with_a_naive_scan(
        layout in layouts(),
        asked in prop::collection::vec(keys(), 1..8),
        cuts in prop::collection::btree_set(keys(), 0..7),
        limit in -1i32..6,
        contain_all in any::<bool>(),
    ) {
        let mut oracle = SequentialMap::new();
        let map = RegionMap::new();
        for region in layout {
            let _ = oracle.put(region.clone(), STREAM);
            let _ = map.put(region, STREAM);
        }
        let all: Vec<&Meta> = oracle.iter().map(|entry| entry.region()).collect();
        let snapshot = map.pin();
        let lookup = Lookup::new(&snapshot);

        let at = |key: &[u8]| all.iter().position(|r| r.range().contains(key));
        let before = |key: &[u8]| {
            let i = at(key)?.checked_sub(1)?;
            (all[i].end() == all[i + 1].start()).then_some(i)
        };
        let id = |i: Option<usize>| i.map_or(0, |i| all[i].id());
        for key in &asked {
            let request = GetRegionRequest { region_key: key.clone().into(), ..Default::default() };
            let got = |found: Option<GetRegionResponse>| found.map_or(0, |r| r.region.expect("set").id);
            prop_assert_eq!(got(lookup.get(&request)), id(at(key)));
            prop_assert_eq!(got(lookup.prev(&request)), id(before(key)));
        }
        let queried = lookup.query(&QueryRegionRequest {
            keys: asked.iter().cloned().map(Into::into).collect(),
            prev_keys: asked.iter().cloned().map(Into::into).collect(),
            ids: (0..20).collect(),
            ..Default::default()
        });
        let of_keys = QueryRegionRequest {
            keys: asked.iter().cloned().map(Into::into).collect(),
            ids: all.iter().map(|r| r.id()).chain([0]).collect(),
            ..Default::default()
        };
        let complete = Some(lookup.query(&of_keys)).filter(|all| all.missed == 0);
        let whole = lookup.query_whole(&of_keys, Reach::within(Bounds::NONE));
        let whole = whole.map(|whole| whole.map(|whole| whole.decoded().1));
        prop_assert_eq!(whole, Ok(complete.map(|all| all.response)));
        let expected: Vec<u64> = asked.iter().map(|key| id(at(key))).collect();
        let expected_prev: Vec<u64> = asked.iter().map(|key| id(before(key))).collect();
        let unknown = (1..20).filter(|&wanted| !all.iter().any(|r| r.id() == wanted)).count();
        let zeros = expected.iter().chain(&expected_prev).filter(|&&id| id == 0).count();
        prop_assert_eq!(queried.missed, zeros + unknown);
        prop_assert_eq!(queried.response.regions_by_id.len(), 19);
        prop_assert_eq!(queried.response.key_id_map, expected);
        prop_assert_eq!(queried.response.prev_key_id_map, expected_prev);

        let (start, end) = (&asked[0], asked.last().expect("one at least"));
        let mut expected = ids(&naive_scan(&all, start, end));
        if limit > 0 { expected.truncate(limit as usize); }
        let request = ScanRegionsRequest {
            start_key: start.clone().into(), end_key: end.clone().into(), limit, ..Default::default()
        };
        let scanned = lookup.scan(&request);
        let endless = Reach::within(Bounds::NONE);
        let written = lookup.scan_written(&request, endless).expect("within bounds");
        prop_assert_eq!(written.to_vec(), scanned.encode_to_vec());
        prop_assert_eq!(scanned.region_metas.iter().map(|r| r.id).collect::<Vec<_>>(), expected);

        // Ordered pairs of cuts are valid ranges, some of which touch.
        let cuts: Vec<&[u8]> = cuts.iter().map(|cut| &cut[..]).collect();
        let pairs: Vec<(&[u8], &[u8])> = cuts.windows(2).map(|pair| (pair[0], pair[1])).step_by(1 + cuts.len() % 2).collect();
        let got = batch(&map, &pairs, limit, contain_all);
        prop_assert_eq!(got.is_err(), contain_all && has_hole(&all, &pairs, limit));
        if let Ok(got) = got {
            prop_assert_eq!(got, naive_batch(&all, &pairs, limit));
        }
    }
}

/// Ranges that touch, as one.
fn merged(pairs: &[(&[u8], &[u8])]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut merged: Vec<(Vec<u8>, Vec<u8>)> = vec![];
    for (start, end) in pairs {
        if merged.last().is_some_and(|(_, last)| last == start) {
            let (start, _) = merged.pop().expect("just seen");
            merged.push((start, end.to_vec()));
        } else {
            merged.push((start.to_vec(), end.to_vec()));
        }
    }
    merged
}

fn naive_batch(all: &[&Meta], pairs: &[(&[u8], &[u8])], limit: i32) -> Vec<u64> {
    let limit = if limit > 0 {
        limit as usize
    } else {
        usize::MAX
    };
    let mut total: Vec<u64> = vec![];
    for (start, end) in merged(pairs) {
        if total.len() >= limit {
            total.truncate(limit);
            return total;
        }
        let found = ids(&naive_scan(all, &start, &end));
        let found = found.into_iter().take(limit);
        let last = total.last().copied();
        total.extend(
            found
                .enumerate()
                .filter(|&(i, id)| i > 0 || Some(id) != last)
                .map(|(_, id)| id),
        );
    }
    total
}

/// Whether any scanned range has a hole, by looking at each key that could lie in one: a boundary
/// of a region or of the range.
fn has_hole(all: &[&Meta], pairs: &[(&[u8], &[u8])], limit: i32) -> bool {
    let limit = if limit > 0 {
        limit as usize
    } else {
        usize::MAX
    };
    let mut total = 0;
    let mut last_id = 0;
    for (start, end) in merged(pairs) {
        if total >= limit {
            return false;
        }
        let whole = naive_scan(all, &start, &end);
        let found = &whole[..whole.len().min(limit)];
        let covered = |key: &[u8]| found.iter().any(|r| r.range().contains(key));
        // A stopped scan is judged up to the last region it found.
        let until = if found.len() >= limit {
            found.last().map_or(vec![], |r| r.end().to_vec())
        } else {
            end.clone()
        };
        let inside = |key: &[u8]| key >= &start[..] && (until.is_empty() || key < &until[..]);
        // The open start and the open end are not judged.
        let starts = (!start.is_empty()).then(|| start.clone());
        let ends = found
            .iter()
            .map(|r| r.end().to_vec())
            .filter(|e| !e.is_empty());
        let last_end = found.last().map(|r| r.end().to_vec());
        let mut candidates = starts.into_iter().chain(ends);
        if candidates.any(|key| {
            inside(&key) && !covered(&key) && !(end.is_empty() && Some(&key) == last_end.as_ref())
        }) {
            return true;
        }
        let repeated = found
            .first()
            .is_some_and(|r| total > 0 && r.id() == last_id);
        total += found.len() - usize::from(repeated);
        last_id = found.last().map_or(last_id, |r| r.id());
    }
    false
}
