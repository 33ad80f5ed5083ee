//! A follower's request: whether it may follow, and what it is.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::history::Answer;
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use crate::pd::told::{CALLER, LONGEST_PATH, NOTHING_YET};
use crate::pd::{Term, Told};
use crate::proto::pdpb::{SyncRegionRequest, SyncRegionResponse};
use crate::replica::persist::Reign;
use crate::replica::state::Shared;
use crate::syncer::outlet::{Outflow, outlet};
use crate::syncer::{frame, handshake};

use super::Chain;
use super::ring::{At, Ring};
use super::stream::{Downstream, End};

/// How long a follower may take for its request.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Regions in a frame.
pub(super) const MAX_BATCH: usize = 1_000;

/// An accepted request.
#[derive(Debug)]
pub(in crate::replica) struct Opened {
    pub(in crate::replica) told: Told,
    pub(in crate::replica) frames: Outflow<SyncRegionResponse>,
}

/// Answers a follower. Only the first request counts; later ones are not read.
pub(in crate::replica) async fn open<S>(
    shared: &Arc<Shared>,
    chain: &Arc<Chain>,
    mut requests: S,
) -> Result<Opened, Status>
where
    S: Stream<Item = Result<SyncRegionRequest, Status>> + Send + Unpin + 'static,
{
    let Some(ring) = &chain.ring else {
        return Err(Status::failed_precondition(
            "this replica has no followers: max-downstreams is 0; follow PD or another replica",
        ));
    };
    let request = match timeout(HANDSHAKE, requests.next()).await {
        Err(_) => return Err(Status::deadline_exceeded("no sync request came")),
        Ok(None) => return Err(Status::cancelled("no sync request came")),
        Ok(Some(request)) => request?,
    };
    // Received now: all that is told about age counts from here.
    let asked = shared.clock.now();
    let Some(cluster_id) = shared.cluster_id() else {
        return Err(not_yet());
    };
    let name = handshake(cluster_id, &request)?;
    chain.refuse_circles(&name)?;
    let at = ring.at();
    let Some(reign) = at.reign.clone() else {
        return Err(not_yet());
    };
    let same_term = term_in(&request) == Some(reign.term);
    if is_probe(&name) {
        if !same_term {
            // What is told says it; there is no frame to go with it.
            let (_, flow) = outlet(1);
            return Ok(Opened {
                told: chain.told(&reign, Duration::ZERO),
                frames: flow,
            });
        }
        let Ok(_room) = chain.probes.try_acquire() else {
            return Err(Status::resource_exhausted("too many probes at once"));
        };
        let behind = chain.asking.behind(shared, at.generation, asked).await;
        let behind = behind.ok_or_else(not_fresh)?;
        // The proof was looked at before the records: those that it counts are there.
        let frame = answer(ring, &at, cluster_id, request.start_index)?;
        let (frames, flow) = outlet(1);
        let _ = frames.send(frame).await;
        return Ok(Opened {
            told: chain.told(&reign, behind),
            frames: flow,
        });
    }
    if !is_open(shared) {
        return Err(not_fresh());
    }
    // An index of another term, or of none that is told, is no index here.
    let start_index = if same_term { request.start_index } else { 0 };
    if start_index > at.next {
        return Err(End::Ahead { next: at.next }.status());
    }
    let Some(seat) = chain.streams.sit_within(&name, chain.downstreams) else {
        return Err(Status::resource_exhausted(format!(
            "{} replicas follow this one, which is its limit; raise max-downstreams or follow another",
            chain.downstreams
        )));
    };
    let told = chain.told(&reign, Duration::ZERO);
    let (frames, flow) = outlet(1);
    let (shared, chain) = (Arc::clone(shared), Arc::clone(chain));
    tokio::spawn(async move {
        tracing::info!(follower = %name, start_index, "a replica follows");
        let end = match &chain.ring {
            Some(ring) => {
                let mut stream = Downstream {
                    shared: &shared,
                    chain: &chain,
                    ring,
                    frames: &frames,
                    seat: &seat,
                    cluster_id,
                    at: ring.subscribe(),
                    generation: at.generation,
                    cursor: ring.history().cursor(ring.history().next_index()),
                };
                stream.run(start_index).await
            }
            None => End::Stopped,
        };
        chain.streams.leave(&name, &seat);
        tracing::info!(follower = %name, %end, "a replica follows no more");
        if end != End::Left {
            frames.finish(end.status());
        }
        // Kept until here: to drop them would tell the follower to stop.
        drop(requests);
    });
    Ok(Opened { told, frames: flow })
}

/// The one frame that a probe gets.
fn answer(ring: &Ring, at: &At, cluster_id: u64, start: u64) -> Result<SyncRegionResponse, Status> {
    let frame = match ring.history().read(start, MAX_BATCH) {
        Answer::CaughtUp => frame::empty(cluster_id, start),
        Answer::Records { first, records } => frame::regions(cluster_id, first, records.iter()),
        Answer::Ahead { next } => return Err(End::Ahead { next }.status()),
        Answer::Gap { first } => return Err(End::Overflowed { next: start, first }.status()),
    };
    // Looked at last: what was read is of the generation that was proven.
    if ring.at().generation != at.generation {
        return Err(End::Renewed.status());
    }
    Ok(frame)
}

/// The term in which a follower has learnt its index.
fn term_in(request: &SyncRegionRequest) -> Option<Term> {
    let header = request.header.as_ref()?;
    let told = (header.caller_component == CALLER).then_some(&header.caller_id)?;
    told.parse().ok().map(Term::from_create_revision)
}

/// Whether a name is that of a probe of ours. What else asks is taken for a stream, whose frames prove nothing.
fn is_probe(name: &str) -> bool {
    name.ends_with("-probe")
}

/// The id of the process in the name of its stream or probe.
fn id_in(name: &str) -> Option<&str> {
    let name = name.strip_suffix("-probe").unwrap_or(name);
    let (_, id) = name.rsplit_once('-')?;
    (id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(id)
}

pub(super) fn is_open(shared: &Shared) -> bool {
    shared
        .gate
        .decide(
            shared.map.generation(),
            shared.clock.now(),
            &shared.thresholds.get().into(),
        )
        .is_serve()
}

fn not_yet() -> Status {
    Status::unavailable(NOTHING_YET)
}

fn not_fresh() -> Status {
    Status::unavailable("this replica is not proven to be fresh; follow PD or another replica")
}

impl Chain {
    fn told(&self, reign: &Reign, behind: Duration) -> Told {
        let mut path = vec![self.id.clone()];
        path.extend(self.path());
        Told {
            term: reign.term,
            leader_id: reign.member_id,
            path,
            behind,
        }
    }

    fn refuse_circles(&self, name: &str) -> Result<(), Status> {
        let path = self.path();
        let circle = id_in(name).is_some_and(|id| id == self.id || path.iter().any(|on| on == id));
        if circle {
            return Err(Status::failed_precondition(
                "replicas would follow each other in a circle; let one of them follow PD",
            ));
        }
        if path.len() >= LONGEST_PATH {
            return Err(Status::failed_precondition(format!(
                "{} replicas are between this one and PD already; follow one that is nearer",
                path.len()
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod names {
    use super::*;

    #[test]
    fn the_id_is_found_in_the_names_of_streams_and_probes() {
        let id = "0123456789abcdef";
        assert_eq!(id_in(&format!("my-replica-{id}")), Some(id));
        assert_eq!(id_in(&format!("my-replica-{id}-probe")), Some(id));
        for other in ["pd-1", "pd", "", "x-0123456789abcdeg", "x-0123"] {
            assert_eq!(id_in(other), None, "{other}");
        }
        assert!(is_probe(&format!("x-{id}-probe")) && !is_probe(&format!("x-{id}")));
    }
}
