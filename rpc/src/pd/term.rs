//! The term of a PD leader.
//!
//! A member that campaigns writes `/pd/{cluster_id}/leader` in a transaction that requires the key's create-revision to
//! be zero, under a lease that it keeps alive while it leads. The create-revision is therefore new for each reign and
//! constant within one, even when leadership goes from A to B and back to A without a restart. PD's client port answers
//! etcd's own `KV/Range` for it; PD's `MetaStorage/Get` leaves revisions out.

use prost::Message;

use crate::proto::etcdserverpb::RangeResponse;
use crate::proto::pdpb::Member;

/// One reign of a PD leader.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Term(i64);

impl Term {
    /// The term whose leader key was created at this revision.
    #[must_use]
    pub const fn from_create_revision(revision: i64) -> Self {
        Self(revision)
    }

    /// The create-revision of the leader key.
    #[must_use]
    pub const fn create_revision(self) -> i64 {
        self.0
    }
}

/// The leader key as a member reported it.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaderKey {
    /// The reign.
    pub term: Term,
    /// Who reigns; `None` when the value could not be read as a member.
    pub leader: Option<Member>,
}

impl LeaderKey {
    /// Reads etcd's answer. `None` means that there is no leader now.
    #[must_use]
    pub fn from_range(answer: &RangeResponse) -> Option<Self> {
        let pair = answer.kvs.first()?;
        let leader = Member::decode(pair.value.as_ref())
            .ok()
            .filter(|member| !member.client_urls.is_empty());
        Some(Self {
            term: Term(pair.create_revision),
            leader,
        })
    }

    /// Whether the member at `url` is the one that reigns. A key whose value cannot be read contradicts nobody.
    ///
    /// A deposed leader that has not noticed yet still answers at its address, while the key names its successor: a
    /// stream from it must not be taken for the successor's term.
    #[must_use]
    pub fn is_held_by(&self, url: &str) -> bool {
        self.leader
            .as_ref()
            .is_none_or(|member| member.client_urls.iter().any(|own| same_address(own, url)))
    }
}

/// The etcd key that the leader of a cluster holds.
#[must_use]
pub fn leader_key_name(cluster_id: u64) -> String {
    format!("/pd/{cluster_id}/leader")
}

/// PD compares addresses without their scheme.
fn same_address(one: &str, other: &str) -> bool {
    fn bare(url: &str) -> &str {
        let url = url.split_once("://").map_or(url, |(_, rest)| rest);
        url.trim_end_matches('/')
    }
    bare(one) == bare(other)
}

#[cfg(test)]
mod tests {
    use crate::proto::mvccpb::KeyValue;

    use super::*;

    fn answer(value: Vec<u8>) -> RangeResponse {
        RangeResponse {
            kvs: vec![KeyValue {
                create_revision: 42,
                mod_revision: 99,
                value: value.into(),
                ..KeyValue::default()
            }],
            count: 1,
            ..RangeResponse::default()
        }
    }

    #[test]
    fn the_term_is_the_create_revision_and_not_the_last_modification() {
        let member = Member {
            client_urls: vec!["http://pd-1:2379".to_owned()],
            ..Member::default()
        };
        let key = LeaderKey::from_range(&answer(member.encode_to_vec())).unwrap();
        assert_eq!(key.term, Term::from_create_revision(42));
        assert!(key.is_held_by("http://pd-1:2379/"));
        assert!(!key.is_held_by("http://pd-2:2379"));
    }

    #[test]
    fn an_absent_key_is_no_leader_and_an_unreadable_value_contradicts_nobody() {
        assert_eq!(LeaderKey::from_range(&RangeResponse::default()), None);
        let key = LeaderKey::from_range(&answer(vec![0xff; 3])).unwrap();
        assert_eq!(key.leader, None);
        assert!(key.is_held_by("http://anyone:2379"));
    }
}
