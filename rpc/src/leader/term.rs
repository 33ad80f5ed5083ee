//! The term of the leader, as etcd tells it on PD's client port.
//!
//! A PD leader holds the key `/pd/{cluster_id}/leader`, whose value is its member message. It creates the key when its
//! reign begins, so the key's create revision is new with each reign and the same throughout one. The cluster id is
//! under `/pd/cluster_id`, as eight bytes, the highest first.

use bytes::Bytes;
use prost::Message;
use tonic::Status;

use super::cluster::Cluster;
use crate::proto::etcdserverpb::{RangeRequest, RangeResponse, ResponseHeader};
use crate::proto::mvccpb::KeyValue;

/// The key under which the leader of a cluster is found.
fn leader_key(cluster_id: u64) -> Bytes {
    Bytes::from(format!("/pd/{cluster_id}/leader"))
}

/// Answers a range request from the two keys that there are.
pub(super) fn range(cluster: &Cluster, request: &RangeRequest) -> Result<RangeResponse, Status> {
    if request.key.is_empty() {
        return Err(Status::invalid_argument("etcdserver: key is not provided"));
    }
    if request.revision > cluster.revision {
        let text = "etcdserver: mvcc: required revision is a future revision";
        return Err(Status::out_of_range(text));
    }
    let id = cluster.config.cluster_id;
    let pair = |key: Bytes, revision: i64, value: Bytes| KeyValue {
        key,
        create_revision: revision,
        mod_revision: revision,
        version: 1,
        value,
        lease: 0,
    };
    let leader = Bytes::from(cluster.member.encode_to_vec());
    // In the order of the keys: a digit sorts before a letter.
    let mut kvs = vec![
        pair(leader_key(id), cluster.revision, leader),
        pair(
            Bytes::from_static(b"/pd/cluster_id"),
            1,
            Bytes::copy_from_slice(&id.to_be_bytes()),
        ),
    ];
    kvs.retain(|pair| contains(request, &pair.key));
    let count = kvs.len() as i64;
    if request.count_only {
        kvs.clear();
    }
    let limit = usize::try_from(request.limit).unwrap_or(0);
    let more = limit > 0 && kvs.len() > limit;
    if more {
        kvs.truncate(limit);
    }
    if request.keys_only {
        kvs.iter_mut().for_each(|pair| pair.value.clear());
    }
    let header = ResponseHeader {
        cluster_id: id,
        member_id: cluster.member.member_id,
        revision: cluster.revision,
        raft_term: 1,
    };
    Ok(RangeResponse {
        header: Some(header),
        kvs,
        more,
        count,
    })
}

fn contains(request: &RangeRequest, key: &Bytes) -> bool {
    let RangeRequest {
        key: start,
        range_end: end,
        ..
    } = request;
    match &end[..] {
        [] => key == start,
        // From the key on.
        [0] => key >= start,
        _ => key >= start && key < end,
    }
}
