//! GetStore and GetAllStores: the leader's answers, kept for a moment.
//!
//! Clients ask for stores far more often than stores change, and all of them at once when they start. So an answer is
//! given again for `store-cache-ttl` from when the leader was asked, and who asks while the leader is being asked
//! waits for that answer. What is kept are the answer's bytes, with fields that are not known here. An error is told to
//! those who waited for it and not kept. A call that changes stores and goes through here lets all of it be forgotten,
//! so that who puts a store finds it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::{Instant, timeout};
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};

use super::raw::RawCodec;
use super::{Gateway, body, headers};
use crate::proto::header::check_cluster;
use crate::proto::pdpb::{GetAllStoresRequest, GetStoreRequest, RequestHeader, ResponseHeader};

/// Questions that are kept at most; more make all of it be forgotten.
const QUESTIONS: usize = 4_096;

/// Which of the two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    One,
    All,
}

/// A question about stores, whoever asks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Question {
    One { store_id: u64 },
    All { exclude_tombstones: bool },
}

/// What the leader said to a question.
#[derive(Debug)]
struct Told {
    asked: Instant,
    ended: Instant,
    answer: Result<Bytes, Status>,
    /// It is no error.
    good: bool,
}

type Slot = Arc<tokio::sync::Mutex<Option<Told>>>;

/// The leader's answers of a moment ago.
#[derive(Debug)]
pub(super) struct StoreCache {
    ttl: Duration,
    slots: Mutex<HashMap<Question, Slot>>,
}

impl StoreCache {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            slots: Mutex::default(),
        }
    }

    /// The answer to a question: one that is young enough, or `ask`'s.
    pub(super) async fn answer(
        &self,
        question: Question,
        ask: impl Future<Output = Result<Bytes, Status>>,
    ) -> Result<Bytes, Status> {
        let arrived = Instant::now();
        let slot = self.slot(question);
        // Who holds it asks; the others wait here.
        let mut slot = slot.lock().await;
        if let Some(told) = &*slot {
            let young = Instant::now().duration_since(told.asked) < self.ttl;
            if (told.good && (young || told.asked >= arrived))
                || (!told.good && told.ended >= arrived)
            {
                return told.answer.clone();
            }
        }
        let asked = Instant::now();
        let answer = ask.await;
        *slot = Some(Told {
            asked,
            ended: Instant::now(),
            good: answer.as_ref().is_ok_and(is_good),
            answer: answer.clone(),
        });
        answer
    }

    /// Forgets all answers, those that are awaited included.
    pub(super) fn forget(&self) {
        self.slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    fn slot(&self, question: Question) -> Slot {
        // A poisoned map is still a map of answers.
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= QUESTIONS && !slots.contains_key(&question) {
            slots.clear();
        }
        Arc::clone(slots.entry(question).or_default())
    }
}

/// Whether an answer has no error in its header.
fn is_good(answer: &Bytes) -> bool {
    #[derive(Message)]
    struct Headed {
        #[prost(message, optional, tag = "1")]
        header: Option<ResponseHeader>,
    }
    let headed = Headed::decode(answer.as_ref());
    headed.is_ok_and(|headed| headed.header.is_some_and(|header| header.error.is_none()))
}

impl Gateway {
    /// Answers one of the two calls, of either service.
    pub(super) async fn stores(
        self: Arc<Self>,
        ask: Ask,
        request: http::Request<Body>,
    ) -> http::Response<Body> {
        let way = match headers::way(request.headers(), &self.mark) {
            Ok(way) => way,
            Err(status) => return status.into_http(),
        };
        let service = Stores {
            gateway: self,
            ask,
            way,
        };
        Grpc::new(RawCodec).unary(service, request).await
    }

    async fn answer_stores(
        &self,
        ask: Ask,
        message: Bytes,
        way: HeaderValue,
    ) -> Result<Bytes, Status> {
        let malformed = |error: prost::DecodeError| Status::invalid_argument(error.to_string());
        let (header, question, length) = match ask {
            Ask::One => {
                let request = GetStoreRequest::decode(message.as_ref()).map_err(malformed)?;
                let question = Question::One {
                    store_id: request.store_id,
                };
                let length = request.encoded_len();
                (request.header, question, length)
            }
            Ask::All => {
                let request = GetAllStoresRequest::decode(message.as_ref()).map_err(malformed)?;
                let question = Question::All {
                    exclude_tombstones: request.exclude_tombstone_stores,
                };
                let length = request.encoded_len();
                (request.header, question, length)
            }
        };
        let Some(cluster_id) = self.shared.cluster_id() else {
            return Err(Status::unavailable(
                "no leader: no PD member has answered yet",
            ));
        };
        check_cluster(header.as_ref(), cluster_id)?;
        if length != message.len() {
            // It asks for something that is not known here: the answer is for it alone.
            return self.ask_leader(ask, message, way).await;
        }
        let ours = Some(RequestHeader {
            cluster_id,
            caller_component: "tidegate".to_owned(),
            ..RequestHeader::default()
        });
        let message = match question {
            Question::One { store_id } => GetStoreRequest {
                header: ours,
                store_id,
            }
            .encode_to_vec(),
            Question::All { exclude_tombstones } => GetAllStoresRequest {
                header: ours,
                exclude_tombstone_stores: exclude_tombstones,
            }
            .encode_to_vec(),
        };
        let asking = self.ask_leader(ask, message.into(), way);
        self.stores.answer(question, asking).await
    }

    async fn ask_leader(
        &self,
        ask: Ask,
        message: Bytes,
        way: HeaderValue,
    ) -> Result<Bytes, Status> {
        let (_, url) = self.leader()?;
        let unreachable = |error| Status::unavailable(format!("no leader: {error}"));
        let channel = self.remote.forward_channel(&url).map_err(unreachable)?;
        let mut grpc = tonic::client::Grpc::new(channel)
            .max_decoding_message_size(self.remote.receive_limit());
        let path = PathAndQuery::from_static(match ask {
            Ask::One => "/pdpb.PD/GetStore",
            Ask::All => "/pdpb.PD/GetAllStores",
        });
        let mut request = Request::new(message);
        let metadata: &mut http::HeaderMap = request.metadata_mut().as_mut();
        headers::carry(metadata, way);
        self.counters.forwarded.add(1);
        let call = async {
            let ready = grpc.ready().await;
            ready.map_err(|error| Status::from_error(error.into()))?;
            grpc.unary(request, path, RawCodec).await
        };
        match timeout(self.backend_timeout, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => {
                // A status with a source is the transport's, not the leader's.
                if std::error::Error::source(&status).is_some() {
                    self.counters.broken.add(1);
                    return Err(body::broken(&url, status));
                }
                Err(status)
            }
            Err(_) => {
                self.counters.broken.add(1);
                Err(Status::deadline_exceeded(
                    "the PD leader did not answer in time",
                ))
            }
        }
    }
}

struct Stores {
    gateway: Arc<Gateway>,
    ask: Ask,
    way: HeaderValue,
}

impl UnaryService<Bytes> for Stores {
    type Response = Bytes;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Status>> + Send>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (gateway, ask, way) = (Arc::clone(&self.gateway), self.ask, self.way.clone());
        Box::pin(async move {
            let answer = gateway.answer_stores(ask, request.into_inner(), way).await;
            answer.map(Response::new)
        })
    }
}
