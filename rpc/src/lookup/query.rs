//! QueryRegion: one batch of its stream.
//!
//! `key_id_map` and `prev_key_id_map` have exactly as many elements as there were keys, in their
//! order, 0 for a key without a region: the stock client indexes them without a check.
//! `regions_by_id` has one element per distinct region found; an id that was asked for and does
//! not exist gets an empty one. Id 0 is ignored.
//!
//! PD resolves a batch in chunks, each under its own lock, so that one answer may mix two states
//! of its map; here it is one snapshot.

use std::collections::hash_map::Entry as Slot;

use tidegate_core::{EntryRef, Snapshot};

use super::item;
use crate::proto::pdpb::{QueryRegionRequest, QueryRegionResponse, RegionResponse};

/// The answer to a batch, and what it lacks.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Queried {
    /// The answer as a leader gives it; the header is unset.
    pub response: QueryRegionResponse,
    /// How many keys, previous keys and ids other than 0 have no region.
    pub missed: usize,
}

pub(super) fn query(snapshot: &Snapshot<'_>, request: &QueryRegionRequest) -> Queried {
    let mut response = QueryRegionResponse::default();
    let mut missed = 0;
    let mut resolve = |entry: Option<EntryRef<'_>>| match entry {
        Some(entry) => {
            let id = entry.region().id();
            if let Slot::Vacant(slot) = response.regions_by_id.entry(id) {
                slot.insert(item(&entry, request.need_buckets));
            }
            id
        }
        None => {
            missed += 1;
            0
        }
    };
    let keys = request
        .keys
        .iter()
        .map(|key| resolve(snapshot.get(key)))
        .collect();
    let prev_keys = request
        .prev_keys
        .iter()
        .map(|key| resolve(snapshot.prev(key)))
        .collect();
    response.key_id_map = keys;
    response.prev_key_id_map = prev_keys;
    for &id in request.ids.iter().filter(|&&id| id != 0) {
        let Slot::Vacant(slot) = response.regions_by_id.entry(id) else {
            continue;
        };
        slot.insert(match snapshot.by_id(id) {
            Some(entry) => item(&entry, request.need_buckets),
            None => {
                missed += 1;
                RegionResponse::default()
            }
        });
    }
    Queried { response, missed }
}
