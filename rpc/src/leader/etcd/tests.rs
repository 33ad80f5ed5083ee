use std::time::Duration;

use super::*;
use crate::proto::etcdserverpb::*;

fn etcd() -> Etcd {
    let mut keys = Keys::at(100);
    keys.begin_reign(Bytes::from_static(b"/leader"), Bytes::from_static(b"me"));
    Etcd::new(7, 1, keys)
}

fn put(key: &'static str, value: &'static str, lease: i64) -> PutRequest {
    PutRequest {
        key: key.into(),
        value: value.into(),
        lease,
        prev_kv: true,
        ..PutRequest::default()
    }
}

fn get(etcd: &Etcd, key: &'static str) -> Option<KeyValue> {
    let request = RangeRequest {
        key: key.into(),
        ..RangeRequest::default()
    };
    etcd.range(&request).expect("a key").kvs.pop()
}

fn granted(etcd: &Etcd, ttl: i64) -> i64 {
    let request = LeaseGrantRequest { ttl, id: 0 };
    etcd.grant(&request).expect("granted").id
}

#[tokio::test(start_paused = true)]
async fn each_change_has_the_next_revision_and_a_key_remembers_its_first() {
    let etcd = etcd();
    assert_eq!(
        get(&etcd, "/leader")
            .expect("put at the start")
            .create_revision,
        102
    );
    let first = etcd.put(put("a", "1", 0)).expect("put");
    assert_eq!(first.header.expect("set").revision, 103);
    assert_eq!(first.prev_kv, None);
    let second = etcd.put(put("a", "2", 0)).expect("put");
    assert_eq!(second.prev_kv.expect("the first").value, "1");
    let kv = get(&etcd, "a").expect("there");
    assert_eq!(
        (kv.create_revision, kv.mod_revision, kv.version),
        (103, 104, 2)
    );
    let gone = DeleteRangeRequest {
        key: "a".into(),
        ..DeleteRangeRequest::default()
    };
    assert_eq!(etcd.delete(&gone).expect("deleted").deleted, 1);
    assert_eq!(
        etcd.delete(&gone)
            .expect("nothing")
            .header
            .expect("set")
            .revision,
        105
    );
    etcd.put(put("a", "3", 0)).expect("put");
    let kv = get(&etcd, "a").expect("a new key");
    assert_eq!((kv.create_revision, kv.version), (106, 1));
}

#[tokio::test(start_paused = true)]
async fn ranges_are_etcds() {
    let etcd = etcd();
    for key in ["a", "aa", "b", "c"] {
        etcd.put(put(key, key, 0)).expect("put");
    }
    let range = |key: &'static str, end: &'static str, limit: i64| {
        let request = RangeRequest {
            key: key.into(),
            range_end: end.into(),
            limit,
            ..RangeRequest::default()
        };
        let found = etcd.range(&request).expect("a range");
        let keys: Vec<_> = found.kvs.into_iter().map(|kv| kv.key).collect();
        (keys, found.more, found.count)
    };
    assert_eq!(range("a", "b", 0).0, ["a", "aa"]);
    assert_eq!(range("b", "\0", 0).0, ["b", "c"]);
    assert_eq!(range("c", "a", 0).2, 0);
    assert_eq!(
        range("a", "d", 3),
        (vec!["a".into(), "aa".into(), "b".into()], true, 4)
    );
    assert!(etcd.range(&RangeRequest::default()).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_kept_alive_takes_its_keys_with_it() {
    let etcd = etcd();
    let lease = granted(&etcd, 5);
    etcd.put(put("a", "1", lease)).expect("put");
    etcd.put(put("b", "1", 0)).expect("put");
    let keep = LeaseKeepAliveRequest { id: lease };
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(etcd.keep_alive(&keep).ttl, 5);
    }
    tokio::time::sleep(Duration::from_millis(4_999)).await;
    assert!(get(&etcd, "a").is_some());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(get(&etcd, "a"), None);
    assert!(get(&etcd, "b").is_some());
    assert_eq!(etcd.keep_alive(&keep).ttl, 0);
    assert!(
        etcd.put(put("a", "1", lease)).is_err(),
        "there is no such lease"
    );

    // A key that another put has taken from its lease stays.
    let lease = granted(&etcd, 5);
    etcd.put(put("a", "1", lease)).expect("put");
    etcd.put(put("a", "2", 0)).expect("put");
    let revoke = LeaseRevokeRequest { id: lease };
    etcd.revoke(&revoke).expect("revoked");
    assert!(get(&etcd, "a").is_some());
    assert!(etcd.revoke(&revoke).is_err());
}

#[tokio::test(start_paused = true)]
async fn keys_and_leases_outlive_a_leader() {
    let etcd = etcd();
    let lease = granted(&etcd, 5);
    etcd.put(put("a", "1", lease)).expect("put");
    let keys = etcd.keys();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let next = Etcd::new(7, 1, keys);
    assert!(
        get(&next, "a").is_some(),
        "the next leader gives it its time again"
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(get(&next, "a"), None);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_does_one_of_two_things_under_one_revision_or_nothing() {
    let etcd = etcd();
    let op = |request| RequestOp {
        request: Some(request),
    };
    let absent = Compare {
        key: "a".into(),
        target: compare::CompareTarget::Create.into(),
        target_union: Some(compare::TargetUnion::CreateRevision(0)),
        ..Compare::default()
    };
    let campaign = |value| TxnRequest {
        compare: vec![absent.clone()],
        success: vec![
            op(request_op::Request::RequestPut(put("a", value, 0))),
            op(request_op::Request::RequestPut(put("b", value, 0))),
        ],
        failure: vec![op(request_op::Request::RequestRange(RangeRequest {
            key: "a".into(),
            ..RangeRequest::default()
        }))],
    };
    let won = etcd.txn(campaign("one")).expect("done");
    assert!(won.succeeded);
    assert_eq!(won.header.expect("set").revision, 103);
    assert_eq!(get(&etcd, "b").expect("put").mod_revision, 103);
    let lost = etcd.txn(campaign("two")).expect("done");
    assert!(!lost.succeeded);
    let Some(response_op::Response::ResponseRange(found)) = &lost.responses[0].response else {
        panic!("{lost:?}");
    };
    assert_eq!(found.kvs[0].value, "one");
    let half = TxnRequest {
        success: vec![
            op(request_op::Request::RequestPut(put("c", "1", 0))),
            op(request_op::Request::RequestPut(put("d", "1", 999))),
        ],
        ..TxnRequest::default()
    };
    assert!(etcd.txn(half).is_err(), "there is no such lease");
    assert_eq!(get(&etcd, "c"), None);
}
