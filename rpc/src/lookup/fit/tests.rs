use proptest::prelude::*;
use tidegate_core::{KeyRange, Moment, Provenance, Region, RegionEpoch, RegionMap};

use super::*;
use crate::lookup::Lookup;
use crate::proto::pdpb::{KeyRange as PbRange, Region as Scanned};

fn region(id: u64, start: &str, end: &str) -> metapb::Region {
    metapb::Region {
        id,
        start_key: start.as_bytes().to_vec().into(),
        end_key: end.as_bytes().to_vec().into(),
        ..metapb::Region::default()
    }
}

fn fault(fit: Result<(), Misfit>) -> &'static str {
    fit.map_or_else(|misfit| misfit.fault, |()| "")
}

#[test]
fn a_region_fits_a_key_that_it_holds_and_no_other() {
    let of = |start, end, key: &str| fault(holds(&region(7, start, end), key.as_bytes()));
    for (start, end, key) in [
        ("", "", "k"),
        ("k", "", "k"),
        ("a", "k\0", "k"),
        ("", "a", ""),
    ] {
        assert_eq!(of(start, end, key), "", "{start} {end} {key}");
    }
    for (start, end, key) in [
        ("", "k", "k"),
        ("l", "", "k"),
        ("k\0", "", "k"),
        ("a", "b", ""),
    ] {
        assert_eq!(of(start, end, key), "does not hold the key");
    }
    assert_eq!(of("m", "a", "k"), "ends before it starts");
    let nameless = region(0, "", "");
    assert_eq!(fault(holds(&nameless, b"k")), "a region has no id");
}

#[test]
fn a_region_before_a_key_ends_there_or_earlier() {
    let of = |start, end| fault(precedes(&region(7, start, end), b"k"));
    assert_eq!((of("a", "k"), of("", "b")), ("", ""));
    for (start, end) in [("a", "l"), ("k", ""), ("", ""), ("l", "m")] {
        assert_eq!(of(start, end), "is not before the key");
    }
    assert_eq!(fault(has_id(&region(7, "", ""), 7)), "");
    let other = fault(has_id(&region(8, "", ""), 7));
    assert_eq!(other, "has another id than was asked");
}

fn scanned(regions: &[(u64, &str, &str)]) -> Vec<Scanned> {
    let region = |&(id, start, end): &(u64, &str, &str)| Scanned {
        region: Some(region(id, start, end)),
        ..Scanned::default()
    };
    regions.iter().map(region).collect()
}

fn of_scan(range: (&str, &str), limit: i32, found: &[(u64, &str, &str)]) -> &'static str {
    let request = ScanRegionsRequest {
        start_key: range.0.as_bytes().to_vec().into(),
        end_key: range.1.as_bytes().to_vec().into(),
        limit,
        ..ScanRegionsRequest::default()
    };
    let regions = scanned(found);
    let response = ScanRegionsResponse {
        region_metas: regions.iter().filter_map(|it| it.region.clone()).collect(),
        regions,
        ..ScanRegionsResponse::default()
    };
    let fit = fault(scan(&request, &response));
    let older = ScanRegionsResponse {
        regions: Vec::new(),
        ..response
    };
    assert_eq!(fault(scan(&request, &older)), fit, "{found:?}");
    fit
}

#[test]
fn a_scan_is_in_order_within_its_range_and_within_its_limit() {
    let found = [(1, "a", "d"), (2, "d", "g"), (3, "k", "")];
    assert_eq!(of_scan(("b", "z"), 3, &found), "");
    assert_eq!(
        of_scan(("", ""), 0, &found),
        "",
        "begins behind its start, as in PD"
    );
    assert_eq!(of_scan(("b", "k\0"), 0, &found), "");
    assert_eq!(of_scan(("h", "h"), 0, &[(1, "g", "i")]), "");
    assert_eq!(
        of_scan(("h", "c"), 0, &[(1, "b", "i")]),
        "",
        "inverted, as in PD"
    );
    assert_eq!(of_scan(("b", "z"), 2, &found), "too many regions");
    assert_eq!(of_scan(("d", "z"), 0, &found), "is in none of the ranges");
    assert_eq!(of_scan(("b", "k"), 0, &found), "is in none of the ranges");
    let follows = "does not follow the one before it";
    assert_eq!(of_scan(("", ""), 0, &[found[1], found[0]]), follows);
    assert_eq!(of_scan(("", ""), 0, &[found[0], found[0]]), follows);
    assert_eq!(
        of_scan(("", ""), 0, &[(1, "a", "e"), (2, "d", "g")]),
        follows
    );
    assert_eq!(
        of_scan(("", ""), 0, &[(3, "k", ""), (4, "x", "y")]),
        follows
    );
    assert_eq!(
        of_scan(("", ""), 0, &[(3, "k", "b")]),
        "ends before it starts"
    );
    assert_eq!(of_scan(("", ""), 0, &[(0, "", "")]), "a region has no id");
}

#[test]
fn the_two_lists_of_a_scan_are_of_the_same_regions() {
    let request = ScanRegionsRequest::default();
    let mut response = ScanRegionsResponse {
        region_metas: vec![region(1, "a", "d")],
        regions: scanned(&[(2, "a", "d")]),
        ..ScanRegionsResponse::default()
    };
    let differ = "its two lists are of different regions";
    assert_eq!(fault(scan(&request, &response)), differ);
    response.regions = vec![Scanned::default()];
    assert_eq!(fault(scan(&request, &response)), "an element has no region");
}

#[test]
fn a_batch_scan_has_regions_of_its_ranges_alone() {
    let of = |ranges: &[(&str, &str)], limit, found: &[(u64, &str, &str)]| {
        let bytes = |text: &str| text.as_bytes().to_vec().into();
        let range = |&(start, end): &(&str, &str)| PbRange {
            start_key: bytes(start),
            end_key: bytes(end),
        };
        let request = BatchScanRegionsRequest {
            ranges: ranges.iter().map(range).collect(),
            limit,
            ..BatchScanRegionsRequest::default()
        };
        let response = BatchScanRegionsResponse {
            regions: scanned(found),
            ..BatchScanRegionsResponse::default()
        };
        fault(batch_scan(&request, &response))
    };
    let found = [(1, "a", "d"), (2, "d", "g"), (3, "k", "")];
    assert_eq!(of(&[("b", "c"), ("e", "f"), ("x", "")], 0, &found), "");
    assert_eq!(
        of(&[("b", "f"), ("x", "")], 2, &found),
        "",
        "the last may exceed it"
    );
    assert_eq!(of(&[("b", "f"), ("x", "")], 1, &found), "too many regions");
    assert_eq!(of(&[("a", "m"), ("x", "")], 0, &found[..2]), "");
    let outside = "is in none of the ranges";
    assert_eq!(of(&[("b", "c"), ("x", "")], 0, &found), outside);
    assert_eq!(of(&[], 0, &found), outside);
    let back = [found[1], found[0]];
    let follows = "does not follow the one before it";
    assert_eq!(of(&[("", "")], 0, &back), follows);
    // Behind a range without end PD begins again.
    let twice = [found[2], found[2]];
    assert_eq!(of(&[("k", ""), ("x", "")], 0, &twice), "");
}

#[test]
fn an_item_of_a_query_fits_by_itself() {
    let request = QueryRegionRequest {
        keys: [&b"a"[..], b"e", b"h", b"x"]
            .map(|key| key.to_vec().into())
            .to_vec(),
        prev_keys: vec![b"e".to_vec().into()],
        ids: vec![2, 3, 9],
        ..QueryRegionRequest::default()
    };
    let found = |id, start, end| RegionResponse {
        region: Some(region(id, start, end)),
        ..RegionResponse::default()
    };
    let mut response = QueryRegionResponse {
        // The third is of a state before a split, the fourth of nowhere.
        key_id_map: vec![1, 2, 2, 7],
        prev_key_id_map: vec![2],
        ..QueryRegionResponse::default()
    };
    response.regions_by_id.insert(1, found(1, "", "d"));
    response.regions_by_id.insert(2, found(2, "d", "g"));
    response.regions_by_id.insert(3, found(4, "x", ""));
    response.regions_by_id.insert(9, RegionResponse::default());
    let items = query(&request, &response).expect("as many");
    let fates: Vec<_> = items
        .each()
        .map(|item| match item {
            Ok(found) => Ok(found.and_then(|it| it.region.as_ref()).map(|it| it.id)),
            Err(misfit) => Err(misfit.to_string()),
        })
        .collect();
    let misfit = |text: &str| Err(text.to_owned());
    let expected = [
        Ok(Some(1)),
        Ok(Some(2)),
        misfit("region 2 does not hold the key"),
        misfit("region 7 is named and not there"),
        misfit("region 2 is not before the key"),
        Ok(Some(2)),
        misfit("region 4 has another id than was asked"),
        Ok(None),
    ];
    assert_eq!(fates, expected);
    let first = items.misfit().map(|misfit| misfit.region_id);
    assert_eq!(first, Some(2));
    response.key_id_map.pop();
    let fault = query(&request, &response).expect_err("too few").fault;
    assert_eq!(fault, "there is not an element for each key");
}

/// A map of regions that begin at some of the keys "a".."z", with holes.
fn map_of(starts: &[u8], holes: u32) -> RegionMap {
    let map = RegionMap::new();
    let letter = |at: u8| vec![b'a' + at];
    for (n, pair) in starts.windows(2).enumerate() {
        if holes >> n & 1 == 1 {
            continue;
        }
        let range = KeyRange::new(letter(pair[0]), letter(pair[1])).expect("ascending");
        let region = Region::builder(n as u64 + 1, range, RegionEpoch::new(1, 1));
        let received_at = Moment::from_nanos(1);
        let region = region.build().expect("a region");
        let _ = map.put(region, Provenance::Stream { received_at });
    }
    map
}

proptest! {
    #[test]
    fn what_pds_rules_answer_fits(
        starts in prop::collection::btree_set(0u8..26, 2..20),
        holes in any::<u32>(),
        keys in prop::collection::vec(0u8..26, 1..8),
        limit in 0i32..6,
    ) {
        let starts: Vec<u8> = starts.into_iter().collect();
        let map = map_of(&starts, holes);
        let snapshot = map.pin();
        let lookup = Lookup::new(&snapshot);
        let letter = |at: &u8| bytes::Bytes::from(vec![b'a' + at]);
        let request = QueryRegionRequest {
            keys: keys.iter().map(letter).collect(),
            prev_keys: keys.iter().map(letter).collect(),
            ids: keys.iter().map(|at| u64::from(*at)).collect(),
            ..QueryRegionRequest::default()
        };
        let response = lookup.query(&request).response;
        let items = query(&request, &response).expect("as many");
        prop_assert_eq!(items.misfit(), None);
        let request = ScanRegionsRequest {
            start_key: letter(&keys[0]),
            end_key: keys.get(1).map(letter).unwrap_or_default(),
            limit,
            ..ScanRegionsRequest::default()
        };
        prop_assert_eq!(scan(&request, &lookup.scan(&request)), Ok(()));
        let mut ends = keys;
        ends.sort_unstable();
        let ranges = ends.chunks(2).map(|pair| PbRange {
            start_key: letter(&pair[0]),
            end_key: pair.get(1).map(letter).unwrap_or_default(),
        });
        let request = BatchScanRegionsRequest {
            ranges: ranges.collect(),
            limit,
            ..BatchScanRegionsRequest::default()
        };
        if let Ok(response) = lookup.batch_scan(&request) {
            prop_assert_eq!(batch_scan(&request, &response), Ok(()));
        }
    }
}
