//! Region heartbeats: where a leader learns of every split, merge and move.
//!
//! PD does not answer a heartbeat that it took. What is wrong with one is said in a message with an error in its header;
//! only a leader peer on a store that does not exist ends the stream.

use super::cluster::Cluster;
use super::converse::Step;
use crate::proto::convert::region_from_heartbeat;
use crate::proto::pdpb::{ErrorType, RegionHeartbeatRequest, RegionHeartbeatResponse};
use tonic::Status;

/// Takes one heartbeat.
pub(super) fn take(
    cluster: &Cluster,
    report: RegionHeartbeatRequest,
) -> Step<RegionHeartbeatResponse> {
    if let Some(header) = cluster.unless_bootstrapped() {
        let header = Some(header);
        return Step::Last(RegionHeartbeatResponse {
            header,
            ..Default::default()
        });
    }
    if let Err(status) = cluster.admit(report.header.as_ref()) {
        return Step::End(status);
    }
    // Without a leader it comes from store 0, which does not exist.
    let store_id = report.leader.as_ref().map_or(0, |leader| leader.store_id);
    match cluster.stores.is_alive(store_id) {
        Ok(true) => {}
        Ok(false) => return Step::Silent,
        Err(error) => return Step::End(Status::unknown(error.to_string())),
    }
    if report
        .region
        .as_ref()
        .is_some_and(|region| region.peers.is_empty())
    {
        return fault(cluster, "invalid region, zero region peer count");
    }
    let region = match region_from_heartbeat(&report) {
        Ok(region) => region,
        Err(malformed) => return fault(cluster, malformed),
    };
    match cluster.regions.report(region, report.term) {
        Ok(_) => Step::Silent,
        Err(stale) => fault(cluster, stale),
    }
}

fn fault(cluster: &Cluster, text: impl ToString) -> Step<RegionHeartbeatResponse> {
    let header = cluster.error(ErrorType::Unknown, text);
    Step::Answer(RegionHeartbeatResponse {
        header,
        ..Default::default()
    })
}
