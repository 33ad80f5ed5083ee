//! Finding the leader among several endpoints.
//!
//! All endpoints are asked at once. Every one that answers must be of the same cluster; the leader is the member that
//! most of them name, the first endpoint's in a tie, because a member that lost contact may still name the last one.
//! While the cluster is not known yet, each endpoint gets the whole deadline, so that a mistake in the list shows at
//! the start. Later a member that hangs must not hold up a failover: once one has named a leader, the others get
//! [`ResolveLimits::settle`] more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::proto::pdpb::{GetMembersResponse, Member};

use super::error::{CallError, DifferentClusters, ResolveError};
use super::transport::PdTransport;
use super::within;

/// The members of a cluster and the leader among them, as the endpoints told.
#[derive(Clone, Debug, PartialEq)]
pub struct Membership {
    /// The cluster's id, never zero.
    pub cluster_id: u64,
    /// The endpoint that told the id first.
    pub told_by: String,
    /// All members.
    pub members: Vec<Member>,
    /// The leader; it has at least one client URL.
    pub leader: Member,
}

impl Membership {
    /// The leader's client URL to use on this attempt: attempts go round its URLs.
    #[must_use]
    pub fn leader_url(&self, attempt: usize) -> &str {
        let urls = &self.leader.client_urls;
        urls.get(attempt % urls.len().max(1))
            .map_or("", String::as_str)
    }

    /// A member's version, told by itself or in a member list; empty when it is told nowhere.
    #[must_use]
    pub fn version_of<'m>(member: &'m Member, members: &'m [Member]) -> &'m str {
        std::iter::once(member)
            .chain(members)
            .filter(|other| other.member_id == member.member_id)
            .map(|member| member.binary_version.as_str())
            .find(|version| !version.is_empty())
            .unwrap_or_default()
    }
}

/// A cluster that has been settled on, and the endpoint that it is known from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterProof {
    /// An endpoint of the cluster.
    pub url: String,
    /// The cluster's id.
    pub cluster_id: u64,
}

/// Deadlines of one round of questions.
#[derive(Clone, Copy, Debug)]
pub struct ResolveLimits {
    /// For each endpoint.
    pub deadline: Duration,
    /// For the rest, once a leader has been named in a known cluster.
    pub settle: Duration,
}

/// Asks `endpoints` for their members and picks the leader.
///
/// # Errors
///
/// See [`ResolveError`]; only [`ResolveError::DifferentClusters`] is a mistake that no retry heals.
pub async fn resolve<T: PdTransport>(
    transport: &Arc<T>,
    endpoints: &[String],
    known: Option<&ClusterProof>,
    limits: ResolveLimits,
) -> Result<Membership, ResolveError> {
    let mut asked = JoinSet::new();
    for (order, url) in endpoints.iter().cloned().enumerate() {
        let transport = Arc::clone(transport);
        asked.spawn(async move {
            let answer = within(limits.deadline, &url, transport.members(&url)).await;
            (order, url, answer)
        });
    }
    let mut answers = Vec::new();
    let mut last_error = None;
    let mut nobody_there = 0;
    let mut give_up = Instant::now() + limits.deadline;
    while let Ok(Some(joined)) = timeout_at(give_up, asked.join_next()).await {
        let Ok((order, url, answer)) = joined else {
            continue;
        };
        match answer.and_then(|answer| member_list(&url, answer)) {
            Ok((cluster_id, answer)) => {
                if known.is_some() && leader_of(&answer).is_some() {
                    give_up = give_up.min(Instant::now() + limits.settle);
                }
                answers.push((order, url, cluster_id, answer));
            }
            Err(error) => {
                nobody_there += usize::from(error.is_nobody_there());
                last_error = Some(error);
            }
        }
    }
    answers.sort_by_key(|(order, ..)| *order);
    one_cluster(known, &answers)?;
    let silent = endpoints.len().saturating_sub(answers.len() + nobody_there);
    let Some((_, told_by, cluster_id, _)) = answers.first() else {
        return Err(ResolveError::Unreachable {
            asked: endpoints.len(),
            silent,
            last: last_error.map_or_else(
                || "the deadline passed".to_owned(),
                |error| error.to_string(),
            ),
        });
    };
    let (told_by, cluster_id, answered) = (told_by.clone(), *cluster_id, answers.len());
    match elect(answers.into_iter().map(|(.., answer)| answer).collect()) {
        Some((members, leader)) => Ok(Membership {
            cluster_id,
            told_by,
            members,
            leader,
        }),
        None => Err(ResolveError::NoLeader { answered, silent }),
    }
}

/// An answer counts when it tells a cluster.
fn member_list(
    url: &str,
    answer: GetMembersResponse,
) -> Result<(u64, GetMembersResponse), CallError> {
    match answer.header.as_ref().map_or(0, |header| header.cluster_id) {
        0 => Err(CallError::Refused {
            url: url.to_owned(),
            message: "it does not know its cluster yet".to_owned(),
        }),
        cluster_id => Ok((cluster_id, answer)),
    }
}

fn one_cluster(
    known: Option<&ClusterProof>,
    answers: &[(usize, String, u64, GetMembersResponse)],
) -> Result<(), DifferentClusters> {
    let told = answers.iter().map(|(_, url, id, _)| (url.as_str(), *id));
    let mut all = known
        .map(|known| (known.url.as_str(), known.cluster_id))
        .into_iter()
        .chain(told);
    let Some((first_url, first_id)) = all.next() else {
        return Ok(());
    };
    match all.find(|(_, id)| *id != first_id) {
        Some((second_url, second_id)) => Err(DifferentClusters {
            first_url: first_url.to_owned(),
            first_id,
            second_url: second_url.to_owned(),
            second_id,
        }),
        None => Ok(()),
    }
}

/// A leader that can be called: a placeholder without an id or without an address is none.
fn leader_of(answer: &GetMembersResponse) -> Option<&Member> {
    answer
        .leader
        .as_ref()
        .filter(|leader| leader.member_id != 0 && !leader.client_urls.is_empty())
}

/// The member list and leader of the first answer that names the most named leader.
fn elect(answers: Vec<GetMembersResponse>) -> Option<(Vec<Member>, Member)> {
    let mut votes: HashMap<u64, usize> = HashMap::new();
    for leader in answers.iter().filter_map(leader_of) {
        *votes.entry(leader.member_id).or_default() += 1;
    }
    let most = votes.values().copied().max()?;
    answers.into_iter().find_map(|answer| {
        let leader = leader_of(&answer)?.clone();
        (votes.get(&leader.member_id) == Some(&most)).then_some((answer.members, leader))
    })
}

#[cfg(test)]
mod tests;
