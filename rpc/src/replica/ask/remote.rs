//! [`LeaderCalls`] over gRPC.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use super::{LeaderCalls, MARK, QueryLink};
use crate::pd::{Lane, PdTransport, Remote, Term};
use crate::proto::pdpb::pd_client::PdClient;
use crate::proto::pdpb::{
    BatchScanRegionsRequest, BatchScanRegionsResponse, GetRegionByIdRequest, GetRegionRequest,
    GetRegionResponse, QueryRegionRequest, QueryRegionResponse, ScanRegionsRequest,
    ScanRegionsResponse,
};
use crate::replica::serve::SOURCE;

fn client(remote: &Remote, url: &str) -> Result<PdClient<Channel>, Status> {
    let channel = remote.lane(url, Lane::Questions);
    let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
    Ok(PdClient::new(channel).max_decoding_message_size(remote.receive_limit()))
}

fn marked<M>(message: M) -> Request<M> {
    let mut request = Request::new(message);
    let value = AsciiMetadataValue::from_static("1");
    request.metadata_mut().insert(MARK, value);
    request
}

/// Only PD's own answers count: a replica's may be older than the question.
fn pds_own(metadata: &MetadataMap) -> Result<(), Status> {
    if metadata.contains_key(SOURCE) {
        return Err(Status::failed_precondition(
            "a replica answered, not the PD leader; give PD's own client URLs as backend-endpoints",
        ));
    }
    Ok(())
}

macro_rules! unary {
    ($($method:ident: $request:ty => $response:ty;)*) => {
        $(
            async fn $method(&self, url: &str, request: $request) -> Result<$response, Status> {
                let answer = client(self, url)?.$method(marked(request)).await?;
                pds_own(answer.metadata())?;
                Ok(answer.into_inner())
            }
        )*
    };
}

impl LeaderCalls for Remote {
    type Queries = RemoteQueries;

    async fn queries(&self, url: &str) -> Result<RemoteQueries, Status> {
        let mut client = client(self, url)?;
        let (sender, receiver) = mpsc::channel(1);
        let requests = marked(ReceiverStream::new(receiver));
        // PD sends its headers with its first answer: nobody waits for them before there is a question.
        let opening = Box::pin(async move { client.query_region(requests).await });
        Ok(RemoteQueries {
            sender,
            answers: Answers::Opening(opening),
        })
    }

    unary! {
        get_region: GetRegionRequest => GetRegionResponse;
        get_prev_region: GetRegionRequest => GetRegionResponse;
        get_region_by_id: GetRegionByIdRequest => GetRegionResponse;
        scan_regions: ScanRegionsRequest => ScanRegionsResponse;
        batch_scan_regions: BatchScanRegionsRequest => BatchScanRegionsResponse;
    }

    async fn leads(&self, url: &str, cluster_id: u64, term: Term) -> bool {
        let key = self.leader_key(url, cluster_id).await;
        matches!(key, Ok(Some(key)) if key.term == term && key.is_held_by(url))
    }
}

type Opening =
    Pin<Box<dyn Future<Output = Result<Response<Streaming<QueryRegionResponse>>, Status>> + Send>>;

/// A stream of QueryRegion to a real leader.
pub struct RemoteQueries {
    sender: mpsc::Sender<QueryRegionRequest>,
    answers: Answers,
}

enum Answers {
    Opening(Opening),
    Open(Box<Streaming<QueryRegionResponse>>),
}

impl fmt::Debug for RemoteQueries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = matches!(self.answers, Answers::Open(_));
        f.debug_struct("RemoteQueries")
            .field("open", &open)
            .finish_non_exhaustive()
    }
}

impl QueryLink for RemoteQueries {
    async fn query(&mut self, request: QueryRegionRequest) -> Result<QueryRegionResponse, Status> {
        let closed = || Status::unavailable("the stream has ended");
        self.sender.send(request).await.map_err(|_| closed())?;
        if let Answers::Opening(opening) = &mut self.answers {
            let opened = opening.await?;
            pds_own(opened.metadata())?;
            self.answers = Answers::Open(Box::new(opened.into_inner()));
        }
        match &mut self.answers {
            Answers::Open(answers) => answers.message().await?.ok_or_else(closed),
            Answers::Opening(_) => Err(closed()),
        }
    }
}
