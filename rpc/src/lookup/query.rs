//! QueryRegion: one batch of its stream.
//!
//! `key_id_map` and `prev_key_id_map` have exactly as many elements as there were keys, in their
//! order, 0 for a key without a region: the stock client indexes them without a check.
//! `regions_by_id` has one element per distinct region found; an id that was asked for and does
//! not exist gets an empty one. Id 0 is ignored.
//!
//! A batch may have no more than [`MOST_ITEMS`] items, which PD bounds by nothing but the size of a
//! message.
//!
//! PD resolves a batch in chunks, each under its own lock, so that one answer may mix two states
//! of its map; here it is one snapshot.

use std::collections::hash_map::Entry as Slot;

use tidegate_core::{EntryRef, Snapshot};
use tonic::Status;

use super::error::LookupError;
use super::item;
use super::reach::Reach;
use crate::proto::pdpb::{QueryRegionRequest, QueryRegionResponse, RegionResponse};

/// The most items of one batch; stock clients send 10,000 at most.
pub(super) const MOST_ITEMS: usize = 100_000;

/// The answer to a batch, and what it lacks.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Queried {
    /// The answer as a leader gives it; the header is unset.
    pub response: QueryRegionResponse,
    /// How many keys, previous keys and ids other than 0 have no region.
    pub missed: usize,
}

/// How many items a batch asks for; an id of 0 counts too.
pub(crate) fn items(request: &QueryRegionRequest) -> usize {
    request.keys.len() + request.prev_keys.len() + request.ids.len()
}

/// Whether a batch has few enough items to be answered.
///
/// # Errors
/// InvalidArgument, to end the stream with.
pub(crate) fn check_items(request: &QueryRegionRequest) -> Result<(), Status> {
    let items = items(request);
    if items <= MOST_ITEMS {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "a batch of {items} keys and ids has more than the {MOST_ITEMS} that one may have; send \
         them in several"
    )))
}

pub(super) fn query(
    snapshot: &Snapshot<'_>,
    request: &QueryRegionRequest,
    reach: &mut Reach<'_>,
) -> Result<Queried, LookupError> {
    let mut answer = Answer::within(reach);
    for found in snapshot.get_many(&request.keys) {
        let id = answer.take(found, request.need_buckets)?;
        answer.response.key_id_map.push(id.unwrap_or(0));
    }
    for found in snapshot.prev_many(&request.prev_keys) {
        let id = answer.take(found, request.need_buckets)?;
        answer.response.prev_key_id_map.push(id.unwrap_or(0));
    }
    for (&id, found) in request.ids.iter().zip(snapshot.by_id_many(&request.ids)) {
        if id == 0 || answer.response.regions_by_id.contains_key(&id) {
            continue;
        }
        if answer.take(found, request.need_buckets)?.is_none() {
            let nothing = RegionResponse::default();
            answer.response.regions_by_id.insert(id, nothing);
        }
    }
    Ok(Queried {
        response: answer.response,
        missed: answer.missed,
    })
}

pub(super) fn query_whole(
    snapshot: &Snapshot<'_>,
    request: &QueryRegionRequest,
    reach: &mut Reach<'_>,
) -> Result<Option<QueryRegionResponse>, LookupError> {
    let mut answer = Answer::within(reach);
    for found in snapshot.get_many(&request.keys) {
        let Some(id) = answer.take(found, request.need_buckets)? else {
            return Ok(None);
        };
        answer.response.key_id_map.push(id);
    }
    for found in snapshot.prev_many(&request.prev_keys) {
        let Some(id) = answer.take(found, request.need_buckets)? else {
            return Ok(None);
        };
        answer.response.prev_key_id_map.push(id);
    }
    for (&id, found) in request.ids.iter().zip(snapshot.by_id_many(&request.ids)) {
        if id != 0 && answer.take(found, request.need_buckets)?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(answer.response))
}

/// An answer in the making.
struct Answer<'r, 'g> {
    reach: &'r mut Reach<'g>,
    response: QueryRegionResponse,
    missed: usize,
}

impl<'r, 'g> Answer<'r, 'g> {
    fn within(reach: &'r mut Reach<'g>) -> Self {
        Self {
            reach,
            response: QueryRegionResponse::default(),
            missed: 0,
        }
    }

    /// Puts a region in, once; its id, or `None` for a miss.
    fn take(
        &mut self,
        entry: Option<EntryRef<'_>>,
        need_buckets: bool,
    ) -> Result<Option<u64>, LookupError> {
        let Some(entry) = entry else {
            self.missed += 1;
            return Ok(None);
        };
        let id = entry.region().id();
        if let Slot::Vacant(slot) = self.response.regions_by_id.entry(id) {
            let item = item(&entry, need_buckets);
            self.reach.take(&item, 1)?;
            slot.insert(item);
        }
        Ok(Some(id))
    }
}
