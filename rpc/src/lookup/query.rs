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

use bytes::Bytes;
use std::collections::HashSet;
use std::collections::hash_map::Entry as Slot;
use std::hash::{BuildHasherDefault, Hasher};

use tidegate_core::{EntryRef, Snapshot};
use tonic::Status;

use super::error::LookupError;
use super::item;
use super::reach::Reach;
use crate::proto::pdpb::{QueryRegionRequest, QueryRegionResponse, RegionResponse};
use crate::proto::wire::{Tags, Told, put_element, put_numbers};
use crate::proto::written::Written;

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

/// Bytes that a batch takes while it is held.
pub(crate) fn size(request: &QueryRegionRequest) -> usize {
    let QueryRegionRequest {
        keys,
        prev_keys,
        ids,
        ..
    } = request;
    let held = |keys: &[Bytes]| keys.iter().map(Bytes::len).sum::<usize>() + size_of_val(keys);
    held(keys) + held(prev_keys) + size_of_val(&ids[..])
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

/// The answer written; `None` if anything is missing.
pub(super) fn query_whole(
    snapshot: &Snapshot<'_>,
    request: &QueryRegionRequest,
    reach: &mut Reach<'_>,
) -> Result<Option<Written<QueryRegionResponse>>, LookupError> {
    let keys = snapshot.get_many(&request.keys);
    let Some(keys) = keys.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let prev_keys = snapshot.prev_many(&request.prev_keys);
    let Some(prev_keys) = prev_keys.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let asked = request.ids.iter().zip(snapshot.by_id_many(&request.ids));
    let ids = asked.filter(|(id, _)| **id != 0).map(|(_, found)| found);
    let Some(ids) = ids.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let count = keys.len() + prev_keys.len() + ids.len();
    let mut bytes = Vec::with_capacity(count * USUAL);
    put_numbers(2, keys.iter().map(|entry| entry.region().id()), &mut bytes);
    let prev_ids = prev_keys.iter().map(|entry| entry.region().id());
    put_numbers(3, prev_ids, &mut bytes);
    let mut written = HashSet::with_capacity_and_hasher(count, ById::default());
    for entry in keys.iter().chain(&prev_keys).chain(&ids) {
        let region = entry.region();
        if !written.insert(region.id()) {
            continue;
        }
        let told = Told {
            region,
            with_buckets: request.need_buckets,
            always_led: false,
            tags: Tags::ITEM,
        };
        reach.take_len(|| told.len(), 1)?;
        put_element(4, region.id(), Some(&told), &mut bytes);
    }
    let first = keys.first().or(prev_keys.first()).or(ids.first());
    let a_region = first.map_or(0, |entry| entry.region().id());
    Ok(Some(Written::bytes(bytes, a_region)))
}

/// What a region usually takes in an answer.
const USUAL: usize = 160;

type ById = BuildHasherDefault<IdHasher>;

/// Spreads the ids of regions. They are PD's and in the map, so that no caller can choose them.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The golden ratio's, folded, since a table looks at both ends.
        let spread = u128::from(self.0 ^ id) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (spread as u64) ^ ((spread >> 64) as u64);
    }
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
