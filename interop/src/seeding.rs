//! Telling an embedded leader of this process all that the stores know, at once.

use tidegate::leader::EmbeddedLeader;
use tidegate::proto::convert::region_from_pb;
use tidegate::proto::metapb;

use crate::cluster::{ModelRegion, STORES};
use crate::error::InteropError;

/// Puts the stores and reports the regions.
pub fn report(leader: &EmbeddedLeader, regions: &[ModelRegion]) -> Result<(), InteropError> {
    let failed = |e: &dyn std::fmt::Display| InteropError::Leader(e.to_string());
    for id in STORES {
        leader
            .put_store(metapb::Store {
                id,
                address: format!("127.0.0.1:{}", 20160 + id),
                version: "9.0.0-alpha".to_owned(),
                ..Default::default()
            })
            .map_err(|e| failed(&e))?;
    }
    let told: Result<Vec<_>, _> = regions
        .iter()
        .map(|region| region_from_pb(&region.meta(), Some(&region.leader_peer()), None, None))
        .collect();
    for outcome in leader.report_regions(told.map_err(|e| failed(&e))?) {
        outcome.map_err(|e| failed(&e))?;
    }
    Ok(())
}
