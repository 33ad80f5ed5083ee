//! What the replica sees of a real member: the member itself, at another address.
//!
//! The replica learns addresses from PD and goes there, past anything that was put in between. So each member gets a
//! second address, and whatever tells of addresses tells of that one: the member list, and the leader key in etcd.
//! Everything else goes through as it comes. PD itself must not be told of these addresses: it reaches its own etcd by
//! what it advertises, and a network that is cut for the replica would be cut for the members.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prost::Message;
use tidegate::pd::leader_key_name;
use tidegate::proto::etcdserverpb::kv_client::KvClient;
use tidegate::proto::etcdserverpb::{RangeRequest, RangeResponse};
use tidegate::proto::pdpb;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::client::PdClient;
use crate::error::InteropError;
use crate::pd::front::{GET_MEMBERS, SYNC_REGIONS, Way, pass, serve};

const RANGE: &str = "/etcdserverpb.KV/Range";

/// The second addresses of all members, by name.
#[derive(Debug)]
pub struct Names {
    cluster_id: u64,
    urls: HashMap<String, String>,
    sync_withheld: AtomicBool,
}

impl Names {
    /// Members of this cluster are at these addresses.
    pub fn new(cluster_id: u64, urls: HashMap<String, String>) -> Self {
        Self {
            cluster_id,
            urls,
            sync_withheld: AtomicBool::new(false),
        }
    }

    /// Refuses sync streams from now on, or no longer.
    pub fn withhold_sync(&self, withheld: bool) {
        // Relaxed: a switch; nothing is published with it.
        self.sync_withheld.store(withheld, Ordering::Relaxed);
    }

    fn veil(&self, member: &mut pdpb::Member) {
        if let Some(url) = self.urls.get(&member.name) {
            member.client_urls = vec![url.clone()];
        }
    }

    fn veil_members(&self, answer: &mut pdpb::GetMembersResponse) {
        let told = answer.members.iter_mut();
        for member in told
            .chain(&mut answer.leader)
            .chain(&mut answer.etcd_leader)
        {
            self.veil(member);
        }
    }

    fn veil_keys(&self, answer: &mut RangeResponse) {
        let leader_key = leader_key_name(self.cluster_id);
        for pair in &mut answer.kvs {
            if pair.key[..] == *leader_key.as_bytes()
                && let Ok(mut member) = pdpb::Member::decode(pair.value.clone())
            {
                self.veil(&mut member);
                pair.value = member.encode_to_vec().into();
            }
        }
    }
}

/// A second address. Dropping it ends it.
#[derive(Debug)]
pub struct Veil {
    addr: SocketAddr,
    serving: JoinHandle<()>,
}

impl Veil {
    /// Lets through what comes to `listener`.
    pub fn start(
        listener: TcpListener,
        member: Way,
        names: Arc<Names>,
    ) -> Result<Self, InteropError> {
        let addr = listener
            .local_addr()
            .map_err(InteropError::system("read a port"))?;
        let serving = serve(listener, move |request| {
            let (way, names) = (member.clone(), Arc::clone(&names));
            async move { answer(&way, names, request).await }
        });
        Ok(Self { addr, serving })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Veil {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(
    way: &Way,
    names: Arc<Names>,
    request: http::Request<Body>,
) -> http::Response<Body> {
    let path = request.uri().path();
    let channel = way.channel(path);
    match path {
        GET_MEMBERS => {
            let mut grpc = tonic::server::Grpc::new(tonic_prost::ProstCodec::default());
            grpc.unary(Members { channel, names }, request).await
        }
        RANGE => {
            let mut grpc = tonic::server::Grpc::new(tonic_prost::ProstCodec::default());
            grpc.unary(Keys { channel, names }, request).await
        }
        // Relaxed: see `Names::withhold_sync`.
        SYNC_REGIONS if names.sync_withheld.load(Ordering::Relaxed) => {
            Status::unavailable("nobody may follow").into_http()
        }
        _ => pass(channel, request).await,
    }
}

type Answered<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

struct Members {
    channel: Channel,
    names: Arc<Names>,
}

impl tonic::server::UnaryService<pdpb::GetMembersRequest> for Members {
    type Response = pdpb::GetMembersResponse;
    type Future = Answered<Self::Response>;

    fn call(&mut self, request: Request<pdpb::GetMembersRequest>) -> Self::Future {
        let mut client = PdClient::new(self.channel.clone());
        let names = Arc::clone(&self.names);
        Box::pin(async move {
            let mut answer = client.get_members(request).await?;
            names.veil_members(answer.get_mut());
            Ok(answer)
        })
    }
}

struct Keys {
    channel: Channel,
    names: Arc<Names>,
}

impl tonic::server::UnaryService<RangeRequest> for Keys {
    type Response = RangeResponse;
    type Future = Answered<Self::Response>;

    fn call(&mut self, request: Request<RangeRequest>) -> Self::Future {
        let mut client = KvClient::new(self.channel.clone());
        let names = Arc::clone(&self.names);
        Box::pin(async move {
            let mut answer = client.range(request).await?;
            names.veil_keys(answer.get_mut());
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use tidegate::proto::mvccpb::KeyValue;

    use super::*;

    fn member(name: &str) -> pdpb::Member {
        pdpb::Member {
            name: name.to_owned(),
            member_id: 3,
            peer_urls: vec!["http://127.0.0.1:2380".to_owned()],
            client_urls: vec!["http://127.0.0.1:2379".to_owned()],
            ..Default::default()
        }
    }

    fn names() -> Names {
        let urls = HashMap::from([("pd-0".to_owned(), "http://127.0.0.1:9".to_owned())]);
        Names::new(7, urls)
    }

    #[test]
    fn the_members_are_told_of_at_their_second_addresses() {
        let mut answer = pdpb::GetMembersResponse {
            members: vec![member("pd-0"), member("pd-9")],
            leader: Some(member("pd-0")),
            ..Default::default()
        };
        names().veil_members(&mut answer);
        assert_eq!(answer.members[0].client_urls, ["http://127.0.0.1:9"]);
        assert_eq!(answer.members[0].peer_urls, ["http://127.0.0.1:2380"]);
        assert_eq!(answer.members[1].client_urls, ["http://127.0.0.1:2379"]);
        let leader = answer.leader.expect("it is told");
        assert_eq!(leader.client_urls, ["http://127.0.0.1:9"]);
        assert_eq!(leader.member_id, 3);
    }

    #[test]
    fn the_leader_key_names_the_second_address_and_keeps_its_revision() {
        let pair = |key: &str, value: Vec<u8>| KeyValue {
            key: key.as_bytes().to_vec().into(),
            value: value.into(),
            create_revision: 42,
            ..Default::default()
        };
        let mut answer = RangeResponse {
            kvs: vec![
                pair("/pd/7/leader", member("pd-0").encode_to_vec()),
                pair("/pd/8/leader", member("pd-0").encode_to_vec()),
            ],
            ..Default::default()
        };
        names().veil_keys(&mut answer);
        let urls = |at: usize| {
            let pair: &KeyValue = &answer.kvs[at];
            pdpb::Member::decode(pair.value.clone())
                .expect("a member")
                .client_urls
        };
        assert_eq!(urls(0), ["http://127.0.0.1:9"]);
        assert_eq!(urls(1), ["http://127.0.0.1:2379"]);
        assert_eq!(answer.kvs[0].create_revision, 42);
    }
}
