//! From what the leader says to what the waiters and the map get.

use std::sync::Arc;

use tidegate_core::{EntryRef, Key, KeyRange, Region, Snapshot};
use tokio::time::Instant;

use super::flights::{Flight, Flights};
use super::reign::{Looks, Reign};
use super::unfit::Warned;
use super::{AskError, Asker, LeaderCalls, Outcome, Point, Question};
use crate::lookup::fit::Misfit;
use crate::pd::Term;
use crate::proto::convert::{Extras, region_with};
use crate::proto::pdpb::{
    self, ErrorType, RegionResponse, RequestHeader, ResponseHeader, ScanRegionsRequest,
};
use crate::replica::heal::{Asked, Said, heal};
use crate::replica::state::Shared;

/// The most entries of a scan that are remembered; of what lies behind them the stamps tell.
const REMEMBERED: usize = 4_096;
/// Answers with more regions are taken in by a thread of their own.
const LIGHT: usize = 512;
/// The most regions of a question about what an answer has left open.
const FOLLOW_UP: i32 = 1_024;
/// The most such questions after one answer.
const FOLLOW_UPS: usize = 16;

/// Who is asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Target {
    pub(super) url: String,
    pub(super) cluster_id: u64,
    pub(super) term: Option<Term>,
}

/// What both carriers share.
#[derive(Debug)]
pub(super) struct Say<T> {
    asker: Arc<Asker>,
    shared: Arc<Shared>,
    pub(super) transport: Arc<T>,
    looks: Looks,
    warned: Warned,
}

impl<T: LeaderCalls> Say<T> {
    pub(super) fn new(asker: &Arc<Asker>, shared: &Arc<Shared>, transport: &Arc<T>) -> Self {
        Self {
            asker: Arc::clone(asker),
            shared: Arc::clone(shared),
            transport: Arc::clone(transport),
            looks: Looks::default(),
            warned: Warned::default(),
        }
    }

    pub(super) fn flights(&self) -> &Flights {
        &self.asker.flights
    }

    /// The leader, if one is known.
    pub(super) fn target(&self) -> Option<Target> {
        let pd = self.shared.pd()?;
        let leader = pd.leader.as_ref()?;
        Some(Target {
            url: leader.url.clone(),
            cluster_id: pd.cluster_id,
            term: leader.term,
        })
    }

    /// Remembers what the questions are about and stamps them. To be called at once before they are sent.
    pub(super) fn stamp(&self, flights: &[Flight]) -> Asked {
        let snapshot = self.shared.map.pin();
        let mut seen = Vec::with_capacity(flights.len());
        for flight in flights {
            look_at(&snapshot, &flight.question, &mut seen);
        }
        let asked = Asked::about(&self.shared, &snapshot, seen);
        drop(snapshot);
        self.flights().sent(flights, asked.at());
        asked
    }

    /// Whether the target led until `answered_at`.
    pub(super) async fn led(&self, target: &Target, answered_at: Instant) -> bool {
        let Some(term) = target.term else {
            return false;
        };
        let reign = Reign {
            url: target.url.clone(),
            cluster_id: target.cluster_id,
            term,
        };
        let flights = self.flights();
        let deadline = flights.bounds.call_timeout;
        let transport = &*self.transport;
        self.looks
            .stands(transport, &reign, answered_at, deadline, &flights.counters)
            .await
    }

    /// Tells of an answer that does not fit, now and then.
    pub(super) fn unfit(&self, url: &str, misfit: Misfit) -> AskError {
        self.warned.note(url, misfit, self.shared.clock.now());
        AskError::Unfit
    }

    /// Takes an answer into the map, and asks about what it leaves open.
    pub(super) async fn take_in(
        self: &Arc<Self>,
        asked: Asked,
        said: Said,
        about: Option<&KeyRange>,
    ) {
        let answered_at = self.shared.clock.now();
        let healed = if said.regions.len() <= LIGHT {
            heal(&self.shared, &asked, said, answered_at)
        } else {
            let shared = Arc::clone(&self.shared);
            let work = move || heal(&shared, &asked, said, answered_at);
            match tokio::task::spawn_blocking(work).await {
                Ok(healed) => healed,
                Err(_) => return,
            }
        };
        // An answer about the same range, or a part of it, would say the same again.
        let is_news = |open: &&KeyRange| {
            about.is_none_or(|about| !(about.contains(open.start()) && is_within(open, about)))
        };
        for open in healed.unsettled.iter().filter(is_news).take(FOLLOW_UPS) {
            let question = Question::Scan(ScanRegionsRequest {
                header: None,
                start_key: copied(open.start()),
                end_key: copied(open.end()),
                limit: FOLLOW_UP,
            });
            let say = Arc::clone(self);
            tokio::spawn(async move {
                let deadline = Instant::now() + say.flights().bounds.call_timeout * 2;
                let since = say.shared.clock.now();
                let _ = say.asker.ask(question, since, deadline).await;
            });
        }
    }
}

fn is_within(inner: &KeyRange, outer: &KeyRange) -> bool {
    outer.end().is_empty() || (!inner.end().is_empty() && inner.end() <= outer.end())
}

fn copied(key: &Key) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(key)
}

fn look_at<'s>(snapshot: &'s Snapshot<'_>, question: &Question, seen: &mut Vec<EntryRef<'s>>) {
    match question {
        Question::Point {
            point: Point::Key(key),
            ..
        } => seen.extend(snapshot.get(key)),
        Question::Point {
            point: Point::Prev(key),
            ..
        } => {
            seen.extend(snapshot.get(key));
            seen.extend(snapshot.prev(key));
        }
        Question::Point {
            point: Point::Id(id),
            ..
        } => seen.extend(snapshot.by_id(*id)),
        Question::Scan(scan) => {
            seen.extend(
                snapshot
                    .scan(&scan.start_key, &scan.end_key)
                    .take(REMEMBERED),
            );
        }
        Question::BatchScan(scans) => {
            for range in &scans.message().ranges {
                let left = REMEMBERED.saturating_sub(seen.len());
                seen.extend(snapshot.scan(&range.start_key, &range.end_key).take(left));
            }
        }
        Question::Batch(batch) => {
            seen.extend(batch.keys.iter().filter_map(|key| snapshot.get(key)));
            seen.extend(batch.prev_keys.iter().filter_map(|key| snapshot.prev(key)));
            seen.extend(batch.ids.iter().filter_map(|id| snapshot.by_id(*id)));
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as messages have it")]
pub(super) fn header(target: &Target) -> Option<RequestHeader> {
    Some(RequestHeader {
        cluster_id: target.cluster_id,
        ..RequestHeader::default()
    })
}

/// Whether that is a leader's answer: not one of a follower that must not answer, or of another cluster.
pub(super) fn is_leaders(header: Option<&ResponseHeader>, target: &Target) -> bool {
    let Some(header) = header else { return false };
    let refused = |error: &pdpb::Error| error.r#type == i32::from(ErrorType::RegionNotFound);
    header.cluster_id == target.cluster_id && !header.error.as_ref().is_some_and(refused)
}

/// A region as a lookup answered it; `None` if it is none, or malformed.
pub(super) fn region_of(found: &RegionResponse) -> Option<Region> {
    let extras = Extras {
        leader: found.leader.as_ref(),
        buckets: found.buckets.as_ref(),
        stats: None,
        down_peers: &found.down_peers,
        pending_peers: &found.pending_peers,
    };
    region_with(found.region.as_ref()?, extras).ok()
}

/// The outcome for all.
pub(super) fn all(
    flights: Vec<Flight>,
    error: AskError,
) -> impl Iterator<Item = (Flight, Outcome)> {
    flights.into_iter().map(move |flight| (flight, Err(error)))
}
