//! What is checked before the gate is asked, in order; the first check that fails answers.
//!
//! | check | `pdpb.PD`, unary lookups | `pdpb.PD`, QueryRegion | `routerpb.Router` |
//! |---|---|---|---|
//! | forwarded host | the leader's client URLs only, else InvalidArgument | not looked at | not looked at |
//! | closed | Unavailable | Unavailable | Unavailable |
//! | `pd-allow-follower-handle` | absent: PD's not-leader error | not needed | not needed |
//! | cluster id | mismatch: FailedPrecondition | the same | the same |
//! | size | - | too many items: InvalidArgument | the same, for QueryRegion |
//!
//! A request whose forwarded host is the leader's does not come here: it has been passed on by
//! then, and so has one without `pd-allow-follower-handle` when we present ourselves as the
//! leader. PD's own router checks nothing of this; a request
//! for another cluster gets another cluster's answer there.
//!
//! Until some PD member has told us the cluster's id there is nothing to compare with. The gate
//! has nothing proven then, and refuses.

use tonic::Status;
use tonic::metadata::MetadataMap;

use super::counters::Rejection;
use super::{Serving, metadata, refusal};
use crate::lookup::check_items;
use crate::proto::header::check_cluster;
use crate::proto::pdpb::{QueryRegionRequest, RequestHeader};
use crate::replica::state::Shared;

/// A request turned away: how it is counted, and what the caller gets.
pub(super) type Rejected = (Rejection, Status);

impl Serving {
    /// For a unary lookup on `pdpb.PD`.
    pub(super) fn check_pd(
        &self,
        metadata: &MetadataMap,
        header: Option<&RequestHeader>,
    ) -> Result<(), Rejected> {
        if let Some(host) = metadata::forwarded_host(metadata.as_ref()) {
            return Err((
                Rejection::ForwardedHost,
                refuse_to_forward(&self.shared, &host),
            ));
        }
        self.check_open()?;
        if !metadata::allows_follower(metadata.as_ref()) {
            return Err((Rejection::FollowerHandle, refusal::follower_not_allowed()));
        }
        self.check_cluster(header)
    }

    /// For a batch of QueryRegion on either service.
    pub(super) fn check_batch(&self, request: &QueryRegionRequest) -> Result<(), Rejected> {
        self.check_router(request.header.as_ref())?;
        check_items(request).map_err(|status| (Rejection::TooLarge, status))
    }

    /// For any other lookup on `routerpb.Router`.
    pub(super) fn check_router(&self, header: Option<&RequestHeader>) -> Result<(), Rejected> {
        self.check_open()?;
        self.check_cluster(header)
    }

    fn check_open(&self) -> Result<(), Rejected> {
        if self.is_closed() {
            return Err((Rejection::Closed, refusal::closed()));
        }
        Ok(())
    }

    fn check_cluster(&self, header: Option<&RequestHeader>) -> Result<(), Rejected> {
        match self.shared.cluster_id() {
            Some(ours) => {
                check_cluster(header, ours).map_err(|status| (Rejection::ClusterId, status))
            }
            None => Ok(()),
        }
    }
}

/// The answer to a call that is to be passed on, and is not.
pub(in crate::replica) fn refuse_to_forward(shared: &Shared, host: &str) -> Status {
    match shared.pd().as_deref().and_then(|pd| pd.leader.as_ref()) {
        Some(leader) if !metadata::is_client_url(&leader.member, host) => {
            refusal::forwarded_host_is_no_leader(host)
        }
        _ => refusal::not_leader(),
    }
}
