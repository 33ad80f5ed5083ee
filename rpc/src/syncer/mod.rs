//! What every server of `SyncRegions` needs, the embedded leader and a replica that others follow: frames, one seat
//! for each member name, and a stream that can be ended beside its messages.

pub(crate) mod frame;
pub(crate) mod outlet;
pub(crate) mod registry;

use tonic::Status;

use crate::proto::header::check_cluster;
use crate::proto::pdpb::SyncRegionRequest;

/// The handshake: whether the stream may open, and its member's name.
pub(crate) fn handshake(cluster_id: u64, request: &SyncRegionRequest) -> Result<String, Status> {
    check_cluster(request.header.as_ref(), cluster_id)?;
    let Some(member) = &request.member else {
        return Err(Status::invalid_argument(
            "the sync request has no member: set its name and client urls",
        ));
    };
    if member.client_urls.is_empty() {
        return Err(Status::invalid_argument(format!(
            "the sync request of member {:?} has no client urls: set its own address",
            member.name
        )));
    }
    Ok(member.name.clone())
}
