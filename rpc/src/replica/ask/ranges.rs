//! Carries scans: unary calls, a few at a time. A member that does not lead refuses them.

use std::sync::Arc;

use tidegate_core::{KeyRange, Region};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::flights::Flight;
use super::say::{Say, Target, header, is_leaders, region_of};
use super::{Answer, AskError, LeaderCalls, Outcome, Question, Told};
use crate::lookup::fit::{self, Misfit};
use crate::proto::pdpb::{
    BatchScanRegionsRequest, BatchScanRegionsResponse, Region as Scanned, RegionResponse,
    ResponseHeader, ScanRegionsRequest, ScanRegionsResponse,
};
use crate::replica::heal::{Asked, Said};

pub(super) async fn run<T: LeaderCalls>(say: Arc<Say<T>>, stop: CancellationToken) {
    let flights = say.flights();
    let places = Arc::new(Semaphore::new(flights.bounds.scans));
    loop {
        let next = async {
            // The place first: a question is stamped when it is sent, and joined until then.
            let place = Arc::clone(&places).acquire_owned().await;
            (place, flights.next_scan().await)
        };
        let (place, flight) = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            next = next => next,
        };
        let (say, stop) = (Arc::clone(&say), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                outcome = ask(&say, &flight) => say.flights().land([(flight, outcome)]),
            }
            drop(place);
        });
    }
}

async fn ask<T: LeaderCalls>(say: &Arc<Say<T>>, flight: &Flight) -> Outcome {
    let target = say.target().ok_or(AskError::NoLeader)?;
    let flights = say.flights();
    flights.counters.scans.add(1);
    let asked = say.stamp(std::slice::from_ref(flight));
    let deadline = flights.bounds.call_timeout;
    match &flight.question {
        Question::Scan(scan) => {
            let request = ScanRegionsRequest {
                header: header(&target),
                ..scan.clone()
            };
            let call = say.transport.scan_regions(&target.url, request);
            let answer = leaders(
                timeout(deadline, call).await,
                &target,
                say,
                |it: &ScanRegionsResponse| it.header.as_ref(),
                |it| fit::scan(scan, it),
            );
            settle(say, asked, answer, Answer::Scan, |answer| {
                said_by_scan(scan, answer)
            })
            .await
        }
        Question::BatchScan(scans) => {
            let scans = scans.message();
            let request = BatchScanRegionsRequest {
                header: header(&target),
                ..scans.clone()
            };
            let call = say.transport.batch_scan_regions(&target.url, request);
            let answer = leaders(
                timeout(deadline, call).await,
                &target,
                say,
                |it: &BatchScanRegionsResponse| it.header.as_ref(),
                |it| fit::batch_scan(&scans, it),
            );
            settle(say, asked, answer, Answer::BatchScan, |answer| {
                said_by_scans(&scans, answer)
            })
            .await
        }
        // Carried elsewhere.
        Question::Point { .. } | Question::Batch(_) => Err(AskError::Failed),
    }
}

/// Sorts answers from errors: a status that is about the question is the leader's answer, too. An answer has to fit.
fn leaders<T: LeaderCalls, A>(
    answer: Result<Result<A, Status>, tokio::time::error::Elapsed>,
    target: &Target,
    say: &Say<T>,
    header: impl Fn(&A) -> Option<&ResponseHeader>,
    fits: impl Fn(&A) -> Result<(), Misfit>,
) -> Result<Result<A, Status>, AskError> {
    match answer {
        Ok(Ok(answer)) if is_leaders(header(&answer), target) => {
            if !has_error(header(&answer)) {
                fits(&answer).map_err(|misfit| say.unfit(&target.url, misfit))?;
            }
            Ok(Ok(answer))
        }
        Ok(Ok(_)) => {
            say.flights().counters.disowned.add(1);
            Err(AskError::Failed)
        }
        Ok(Err(status)) => match status.code() {
            Code::InvalidArgument | Code::Unimplemented | Code::ResourceExhausted => {
                Ok(Err(status))
            }
            _ => {
                tracing::debug!(%status, url = target.url, "the PD leader could not be asked");
                Err(AskError::Failed)
            }
        },
        Err(_) => Err(AskError::Failed),
    }
}

async fn settle<T: LeaderCalls, A>(
    say: &Arc<Say<T>>,
    asked: Asked,
    answer: Result<Result<A, Status>, AskError>,
    as_answer: impl Fn(A) -> Answer,
    said: impl Fn(&A) -> (Said, Option<KeyRange>),
) -> Outcome {
    let asked_at = asked.at();
    let answer = match answer? {
        Ok(answer) => {
            let (said, about) = said(&answer);
            say.take_in(asked, said, about.as_ref()).await;
            as_answer(answer)
        }
        Err(status) => Answer::Status(status),
    };
    Ok(Arc::new(Told { answer, asked_at }))
}

fn said_by_scan(
    scan: &ScanRegionsRequest,
    answer: &ScanRegionsResponse,
) -> (Said, Option<KeyRange>) {
    let about = KeyRange::new(&scan.start_key[..], &scan.end_key[..]).ok();
    if has_error(answer.header.as_ref()) {
        return (Said::default(), about);
    }
    let regions: Vec<Region> = answer.regions.iter().filter_map(scanned).collect();
    let cut =
        usize::try_from(scan.limit).is_ok_and(|limit| limit > 0 && answer.regions.len() >= limit);
    // A scan that its limit has stopped says everything up to where it was stopped.
    let whole = match (&about, regions.last()) {
        (Some(about), _) if !cut => Some(about.clone()),
        (Some(about), Some(last)) => KeyRange::new(about.start().clone(), last.end().clone()).ok(),
        _ => None,
    };
    // One region that cannot be read may lie anywhere.
    let whole = whole.filter(|_| regions.len() == answer.regions.len());
    let whole = whole.into_iter().collect();
    (
        Said {
            regions,
            whole,
            ..Said::default()
        },
        about,
    )
}

fn said_by_scans(
    scans: &BatchScanRegionsRequest,
    answer: &BatchScanRegionsResponse,
) -> (Said, Option<KeyRange>) {
    if has_error(answer.header.as_ref()) {
        return (Said::default(), None);
    }
    let regions: Vec<Region> = answer.regions.iter().filter_map(scanned).collect();
    let cut =
        usize::try_from(scans.limit).is_ok_and(|limit| limit > 0 && answer.regions.len() >= limit);
    let whole = if cut || regions.len() != answer.regions.len() {
        Vec::new()
    } else {
        let range = |range: &crate::proto::pdpb::KeyRange| {
            KeyRange::new(&range.start_key[..], &range.end_key[..]).ok()
        };
        scans.ranges.iter().filter_map(range).collect()
    };
    let with_buckets = scans.need_buckets;
    (
        Said {
            regions,
            with_buckets,
            whole,
            ..Said::default()
        },
        None,
    )
}

fn has_error(header: Option<&ResponseHeader>) -> bool {
    header.is_none_or(|header| header.error.is_some())
}

fn scanned(found: &Scanned) -> Option<Region> {
    let Scanned {
        region,
        leader,
        down_peers,
        pending_peers,
        buckets,
    } = found.clone();
    region_of(&RegionResponse {
        region,
        leader,
        down_peers,
        pending_peers,
        buckets,
    })
}
