//! Region lookups as the leader answers them: a miss is an answer, and so is an empty scan.

use tonic::{Response, Status};

use super::cluster::{Cluster, Counters};
use super::converse::Step;
use crate::lookup::{Lookup, check_items, items};
use crate::proto::header::check_cluster;
use crate::proto::pdpb::{
    BatchScanRegionsRequest, BatchScanRegionsResponse, GetRegionByIdRequest, GetRegionRequest,
    GetRegionResponse, QueryRegionRequest, QueryRegionResponse, RequestHeader, ResponseHeader,
    ScanRegionsRequest, ScanRegionsResponse,
};

type Answer<T> = Result<Response<T>, Status>;

/// Checks the request and counts it. `Some` is the header of a refusal.
fn refusal(
    cluster: &Cluster,
    header: Option<&RequestHeader>,
) -> Result<Option<ResponseHeader>, Status> {
    cluster.admit(header)?;
    Counters::count(&cluster.counters.lookups, 1);
    Ok(cluster.unless_bootstrapped())
}

pub(super) fn get(cluster: &Cluster, request: GetRegionRequest) -> Answer<GetRegionResponse> {
    one(cluster, request.header.as_ref(), |lookup| {
        lookup.get(&request)
    })
}

pub(super) fn prev(cluster: &Cluster, request: GetRegionRequest) -> Answer<GetRegionResponse> {
    one(cluster, request.header.as_ref(), |lookup| {
        lookup.prev(&request)
    })
}

pub(super) fn by_id(cluster: &Cluster, request: GetRegionByIdRequest) -> Answer<GetRegionResponse> {
    one(cluster, request.header.as_ref(), |lookup| {
        lookup.by_id(&request)
    })
}

fn one(
    cluster: &Cluster,
    header: Option<&RequestHeader>,
    find: impl FnOnce(Lookup<'_, '_>) -> Option<GetRegionResponse>,
) -> Answer<GetRegionResponse> {
    if let Some(header) = refusal(cluster, header)? {
        return Ok(Response::new(GetRegionResponse {
            header: Some(header),
            ..Default::default()
        }));
    }
    let found = find(Lookup::new(&cluster.regions.map().pin()));
    let header = cluster.ok();
    Ok(Response::new(GetRegionResponse {
        header,
        ..found.unwrap_or_default()
    }))
}

pub(super) fn scan(cluster: &Cluster, request: ScanRegionsRequest) -> Answer<ScanRegionsResponse> {
    if let Some(header) = refusal(cluster, request.header.as_ref())? {
        let header = Some(header);
        return Ok(Response::new(ScanRegionsResponse {
            header,
            ..Default::default()
        }));
    }
    let found = Lookup::new(&cluster.regions.map().pin()).scan(&request);
    Ok(Response::new(ScanRegionsResponse {
        header: cluster.ok(),
        ..found
    }))
}

pub(super) fn batch_scan(
    cluster: &Cluster,
    request: BatchScanRegionsRequest,
) -> Answer<BatchScanRegionsResponse> {
    if let Some(header) = refusal(cluster, request.header.as_ref())? {
        let header = Some(header);
        return Ok(Response::new(BatchScanRegionsResponse {
            header,
            ..Default::default()
        }));
    }
    let found = Lookup::new(&cluster.regions.map().pin()).batch_scan(&request);
    Ok(Response::new(match found {
        Ok(found) => BatchScanRegionsResponse {
            header: cluster.ok(),
            ..found
        },
        Err(error) => {
            let header = Some(error.header(cluster.config.cluster_id));
            BatchScanRegionsResponse {
                header,
                ..Default::default()
            }
        }
    }))
}

/// Answers one batch of a query stream.
pub(super) fn query(cluster: &Cluster, request: QueryRegionRequest) -> Step<QueryRegionResponse> {
    if let Err(status) = check_cluster(request.header.as_ref(), cluster.config.cluster_id) {
        return Step::End(status);
    }
    if let Err(status) = check_items(&request) {
        return Step::End(status);
    }
    Counters::count(&cluster.counters.lookups, items(&request));
    if let Some(header) = cluster.unless_bootstrapped() {
        let header = Some(header);
        return Step::Answer(QueryRegionResponse {
            header,
            ..Default::default()
        });
    }
    let found = Lookup::new(&cluster.regions.map().pin()).query(&request);
    Step::Answer(QueryRegionResponse {
        header: cluster.ok(),
        ..found.response
    })
}
