//! Questions in one QueryRegion: the request, and what its answer says to each of them and to the map.

use std::collections::HashSet;
use std::sync::Arc;

use super::flights::Flight;
use super::say::{Target, header, region_of};
use super::{Answer, AskError, Outcome, Point, Question, Told};
use crate::lookup::fit::{self, Item, Items, Misfit};
use crate::proto::pdpb::{QueryRegionRequest, QueryRegionResponse};
use crate::replica::heal::{Asked, Said};

/// The one request for points, or for a batch alone.
pub(super) fn request_of(flights: &[Flight], target: &Target) -> QueryRegionRequest {
    let mut request = QueryRegionRequest::default();
    for flight in flights {
        match &flight.question {
            Question::Batch(batch) => request = batch.clone(),
            Question::Point {
                point,
                with_buckets,
            } => {
                request.need_buckets = *with_buckets;
                match point {
                    Point::Key(key) => request.keys.push(key.clone()),
                    Point::Prev(key) => request.prev_keys.push(key.clone()),
                    Point::Id(id) => request.ids.push(*id),
                }
            }
            // Carried elsewhere.
            Question::Scan(_) | Question::BatchScan(_) => {}
        }
    }
    request.header = header(target);
    request
}

/// What an answer says.
#[derive(Debug)]
pub(super) struct Read {
    /// To each flight.
    pub(super) outcomes: Vec<Outcome>,
    /// To the map.
    pub(super) said: Said,
    /// The first that does not fit: the questions and answers of that stream may not belong together.
    pub(super) misfit: Option<Misfit>,
}

/// Reads the answer to `request`, which was made of `flights`. What does not fit is answered to nobody, and does not get
/// into the map.
pub(super) fn read(
    flights: &[Flight],
    request: &QueryRegionRequest,
    response: &QueryRegionResponse,
    asked: &Asked,
) -> Read {
    let told = |answer| {
        Ok(Arc::new(Told {
            answer,
            asked_at: asked.at(),
        }))
    };
    let header = response.header.as_ref();
    if let Some(header) = header.filter(|header| header.error.is_some()) {
        let answer = |flight: &Flight| match flight.question {
            Question::Batch(_) => Answer::Batch(response.clone()),
            _ => Answer::Error(header.clone()),
        };
        return Read {
            outcomes: flights.iter().map(answer).map(told).collect(),
            said: Said::default(),
            misfit: None,
        };
    }
    let items = match fit::query(request, response) {
        Ok(items) => items,
        Err(misfit) => {
            return Read {
                outcomes: flights.iter().map(|_| Err(AskError::Unfit)).collect(),
                said: Said::default(),
                misfit: Some(misfit),
            };
        }
    };
    let misfit = items.misfit();
    let (mut keys, mut prev_keys, mut ids) =
        (items.keys.iter(), items.prev_keys.iter(), items.ids.iter());
    let outcome = |flight: &Flight| match &flight.question {
        Question::Batch(_) if misfit.is_some() => Err(AskError::Unfit),
        Question::Batch(_) => told(Answer::Batch(response.clone())),
        Question::Point { point, .. } => {
            let item = match point {
                Point::Key(_) => keys.next(),
                Point::Prev(_) => prev_keys.next(),
                Point::Id(_) => ids.next(),
            };
            match item {
                Some(Ok(Some(found))) => told(Answer::Region((*found).clone())),
                Some(Ok(None)) => told(Answer::Nothing),
                Some(Err(_)) | None => Err(AskError::Unfit),
            }
        }
        // Carried elsewhere.
        Question::Scan(_) | Question::BatchScan(_) => Err(AskError::Failed),
    };
    Read {
        outcomes: flights.iter().map(outcome).collect(),
        said: said_by(&items, request),
        misfit,
    }
}

fn said_by(items: &Items<'_>, request: &QueryRegionRequest) -> Said {
    let mut told = HashSet::new();
    let fitting = items.each().filter_map(|item| item.ok().flatten());
    let regions = fitting
        .filter(|found| {
            let id = found.region.as_ref().map(|region| region.id);
            id.is_some_and(|id| told.insert(id))
        })
        .filter_map(region_of)
        .collect();
    let is_nothing = |item: &Item<'_>| matches!(item, Ok(None));
    let (ids, keys) = (request.ids.iter(), request.keys.iter());
    let unknown_ids = ids
        .zip(&items.ids)
        .filter(|(id, item)| **id != 0 && is_nothing(item));
    let unknown_keys = keys.zip(&items.keys).filter(|(_, item)| is_nothing(item));
    Said {
        regions,
        with_buckets: request.need_buckets,
        whole: Vec::new(),
        unknown_ids: unknown_ids.map(|(id, _)| *id).collect(),
        unknown_keys: unknown_keys.map(|(key, _)| key[..].into()).collect(),
    }
}
