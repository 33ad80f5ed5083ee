use std::collections::HashMap;
use std::future::pending;

use tonic::Status;

use crate::pd::{FrameSource, Lane, LeaderKey};
use crate::proto::pdpb::{
    ResponseHeader, ScanRegionsResponse, SyncRegionRequest, SyncRegionResponse,
};

use super::*;

/// What each address answers; one that is missing never does.
#[derive(Debug, Default)]
struct Members(HashMap<String, Result<GetMembersResponse, Status>>);

struct NoFrames;

impl FrameSource for NoFrames {
    async fn next_frame(&mut self) -> Result<Option<SyncRegionResponse>, CallError> {
        Ok(None)
    }
}

impl PdTransport for Members {
    type Frames = NoFrames;

    async fn members(&self, url: &str) -> Result<GetMembersResponse, CallError> {
        match self.0.get(url) {
            Some(answer) => answer
                .clone()
                .map_err(|status| CallError::status(url, status)),
            None => pending().await,
        }
    }

    async fn leader_key(&self, _: &str, _: u64) -> Result<Option<LeaderKey>, CallError> {
        Ok(None)
    }

    async fn scan_regions(
        &self,
        _: &str,
        _: u64,
        _: bytes::Bytes,
        _: u32,
    ) -> Result<ScanRegionsResponse, CallError> {
        Ok(ScanRegionsResponse::default())
    }

    async fn sync_regions(
        &self,
        _: &str,
        _: Lane,
        _: SyncRegionRequest,
    ) -> Result<NoFrames, CallError> {
        Ok(NoFrames)
    }
}

const LIMITS: ResolveLimits = ResolveLimits {
    deadline: Duration::from_secs(3),
    settle: Duration::from_millis(300),
};

fn member(id: u64) -> Member {
    Member {
        member_id: id,
        client_urls: vec![url(id)],
        ..Member::default()
    }
}

fn url(id: u64) -> String {
    format!("http://pd-{id}:2379")
}

fn answer(cluster_id: u64, leader: Option<u64>) -> Result<GetMembersResponse, Status> {
    Ok(GetMembersResponse {
        header: Some(ResponseHeader {
            cluster_id,
            error: None,
        }),
        members: (1..=3).map(member).collect(),
        leader: leader.map(member),
        etcd_leader: None,
    })
}

async fn ask<const N: usize>(
    answers: [Option<Result<GetMembersResponse, Status>>; N],
    known: Option<u64>,
) -> Result<Membership, ResolveError> {
    let urls: Vec<String> = (1..=N as u64).map(url).collect();
    let answers = urls
        .iter()
        .cloned()
        .zip(answers)
        .filter_map(|(url, answer)| Some((url, answer?)));
    let known = known.map(|cluster_id| ClusterProof {
        url: "http://known:1".to_owned(),
        cluster_id,
    });
    let transport = Arc::new(Members(answers.collect()));
    resolve(&transport, &urls, known.as_ref(), LIMITS).await
}

#[tokio::test(start_paused = true)]
async fn endpoints_of_different_clusters_are_an_error_that_names_both() {
    let error = ask(
        [
            Some(answer(7, Some(1))),
            Some(Err(Status::unavailable("down"))),
            Some(answer(8, Some(1))),
        ],
        None,
    )
    .await
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "endpoints of different clusters: http://pd-1:2379 is of cluster 7, http://pd-3:2379 of cluster 8; \
         name endpoints of one cluster only"
    );
    let error = ask([Some(answer(7, Some(1)))], Some(9)).await.unwrap_err();
    assert!(
        matches!(error, ResolveError::DifferentClusters(_)),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_leader_is_the_one_that_most_name() {
    let found = ask(
        [
            Some(answer(7, Some(1))),
            Some(answer(7, Some(2))),
            Some(answer(7, Some(2))),
        ],
        None,
    )
    .await
    .unwrap();
    assert_eq!(found.leader.member_id, 2);
    assert_eq!(found.leader_url(5), url(2));
    assert_eq!(
        (found.cluster_id, found.told_by.as_str()),
        (7, "http://pd-1:2379")
    );
}

#[tokio::test(start_paused = true)]
async fn attempts_go_round_the_urls_of_the_leader() {
    let mut both = answer(7, Some(1)).unwrap();
    both.leader
        .as_mut()
        .unwrap()
        .client_urls
        .push("http://other:1".to_owned());
    let found = ask([Some(Ok(both))], None).await.unwrap();
    assert_eq!(found.leader_url(0), url(1));
    assert_eq!(found.leader_url(1), "http://other:1");
    assert_eq!(found.leader_url(2), url(1));
}

#[tokio::test(start_paused = true)]
async fn members_that_know_no_leader_are_told_from_members_that_do_not_answer() {
    let error = ask([Some(answer(7, None)), None], None).await.unwrap_err();
    assert!(
        matches!(error, ResolveError::NoLeader { answered: 1, .. }),
        "{error}"
    );
    let placeholder = answer(7, Some(0));
    let error = ask([Some(placeholder)], None).await.unwrap_err();
    assert!(matches!(error, ResolveError::NoLeader { .. }), "{error}");
    let down = Err(Status::unavailable("down"));
    let not_ready = answer(0, Some(1));
    let error = ask([Some(down), Some(not_ready), None], None)
        .await
        .unwrap_err();
    assert!(
        matches!(error, ResolveError::Unreachable { asked: 3, .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_member_that_hangs_holds_up_the_start_and_not_a_failover() {
    let begun = Instant::now();
    ask([Some(answer(7, Some(1))), None], None).await.unwrap();
    assert_eq!(begun.elapsed(), LIMITS.deadline);
    let begun = Instant::now();
    ask([None, Some(answer(7, Some(1)))], Some(7))
        .await
        .unwrap();
    assert_eq!(begun.elapsed(), LIMITS.settle);
}
