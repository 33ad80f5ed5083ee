//! Stores that answer raw reads: enough of a TiKV for a stock client to show which region it has been told.
//!
//! Each judges by the model, as TiKV does by what it knows: a read for a region of another epoch, or at a store that does
//! not lead it, gets a region error, and the client has to ask PD again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prost::Message;
use tidegate::proto::metapb;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::{Request, Response, Status};

use crate::cluster::STORES;
use crate::drill::world::World;
use crate::error::InteropError;
use crate::pd::front::serve;
use crate::process::listen;

#[derive(Clone, PartialEq, Message)]
struct RawGet {
    #[prost(message, optional, tag = "1")]
    context: Option<Context>,
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Context {
    #[prost(uint64, tag = "1")]
    region_id: u64,
    #[prost(message, optional, tag = "2")]
    region_epoch: Option<metapb::RegionEpoch>,
}

#[derive(Clone, PartialEq, Message)]
struct RawGot {
    #[prost(message, optional, tag = "1")]
    region_error: Option<RegionError>,
    #[prost(bytes = "vec", tag = "3")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RegionError {
    #[prost(string, tag = "1")]
    message: String,
    #[prost(message, optional, tag = "5")]
    epoch_not_match: Option<EpochNotMatch>,
}

#[derive(Clone, PartialEq, Message)]
struct EpochNotMatch {}

/// The stores, and what was read of them.
#[derive(Debug)]
pub struct Stores {
    addresses: Vec<String>,
    seen: Arc<Seen>,
    serving: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    reads: AtomicU64,
    outdated: AtomicU64,
    outside: AtomicU64,
}

impl Stores {
    /// Starts one server for each store of the model.
    pub async fn start(world: &Arc<World>) -> Result<Self, InteropError> {
        let seen = Arc::new(Seen::default());
        let (mut addresses, mut serving) = (Vec::new(), Vec::new());
        for store in STORES {
            let (listener, addr) = listen("listen for a store")?;
            addresses.push(addr.to_string());
            let (world, seen) = (Arc::clone(world), Arc::clone(&seen));
            serving.push(serve(listener, move |request| {
                let read = Read {
                    world: Arc::clone(&world),
                    seen: Arc::clone(&seen),
                    store,
                };
                read.answer(request)
            }));
        }
        Ok(Self {
            addresses,
            seen,
            serving,
        })
    }

    /// They as PD is told of them.
    pub fn meta(&self) -> Vec<metapb::Store> {
        STORES
            .into_iter()
            .zip(&self.addresses)
            .map(|(id, address)| metapb::Store {
                id,
                address: address.clone(),
                version: "9.0.0-alpha".to_owned(),
                ..Default::default()
            })
            .collect()
    }

    /// Reads, those that named an outdated region, and those for a key outside the region that they named.
    pub fn counts(&self) -> (u64, u64, u64) {
        // Relaxed: counts of a report.
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (
            read(&self.seen.reads),
            read(&self.seen.outdated),
            read(&self.seen.outside),
        )
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        for serving in &self.serving {
            serving.abort();
        }
    }
}

#[derive(Clone)]
struct Read {
    world: Arc<World>,
    seen: Arc<Seen>,
    store: u64,
}

impl Read {
    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        if request.uri().path() != "/tikvpb.Tikv/RawGet" {
            return Status::unimplemented("only raw reads").into_http();
        }
        let mut grpc = tonic::server::Grpc::new(tonic_prost::ProstCodec::default());
        grpc.unary(self, request).await
    }
}

impl tonic::server::UnaryService<RawGet> for Read {
    type Response = RawGot;
    type Future = std::future::Ready<Result<Response<RawGot>, Status>>;

    fn call(&mut self, request: Request<RawGet>) -> Self::Future {
        let RawGet { context, key } = request.into_inner();
        let context = context.unwrap_or_default();
        let epoch = context.region_epoch.unwrap_or_default();
        let count = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
        count(&self.seen.reads);
        let region = self.world.last(context.region_id);
        let holds = region.is_some_and(|region| {
            let current = region.version == epoch.version
                && region.conf_ver == epoch.conf_ver
                && region
                    .peers
                    .iter()
                    .any(|(id, store, ..)| *id == region.leader && *store == self.store);
            let inside = region.start <= key && (region.end.is_empty() || key < region.end);
            if current && !inside {
                count(&self.seen.outside);
            }
            current && inside
        });
        let mut answer = RawGot::default();
        if !holds {
            count(&self.seen.outdated);
            answer.region_error = Some(RegionError {
                message: "epoch not match".to_owned(),
                epoch_not_match: Some(EpochNotMatch {}),
            });
        }
        std::future::ready(Ok(Response::new(answer)))
    }
}
