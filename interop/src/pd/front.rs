//! What stands at a member's address: the leader's service where the member leads, else what a PD follower says.
//!
//! The embedded leader is the only member of its cluster. A front gives it neighbours: each member's address is a front,
//! all fronts know who leads, and calls reach the leader through the front of the member that leads alone. Calls are
//! handed on as they come; only the member list is a front's own. Keys and leases are the whole cluster's, so every
//! front answers them: from a real etcd where there is one, else from the leader's.

use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidegate::proto::pdpb;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tower_service::Service;

use crate::error::InteropError;

/// The call for the members.
pub const GET_MEMBERS: &str = "/pdpb.PD/GetMembers";
/// The call that opens a sync stream.
pub const SYNC_REGIONS: &str = "/pdpb.PD/SyncRegions";

/// Who is in the cluster, and who leads.
#[derive(Debug, Default)]
pub struct Council {
    state: RwLock<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    cluster_id: u64,
    members: Vec<pdpb::Member>,
    /// The leading member and the way to the server that plays it.
    leader: Option<(u64, Way)>,
    etcd: Option<Channel>,
    /// Nobody may follow the leader.
    sync_withheld: bool,
}

/// The way to a server.
#[derive(Clone, Debug)]
pub struct Way {
    endpoint: Endpoint,
    shared: Channel,
}

impl Way {
    /// The way to `url`, dialled on the first call.
    pub fn to(url: String) -> Result<Self, InteropError> {
        let endpoint = Endpoint::from_shared(url)
            .map_err(|e| InteropError::Leader(e.to_string()))?
            .connect_timeout(Duration::from_secs(1))
            .tcp_nodelay(true);
        let shared = endpoint.connect_lazy();
        Ok(Self { endpoint, shared })
    }

    /// A sync stream has a connection of its own, as each follower of a PD has: one that does not read must not take
    /// up the others' window.
    pub fn channel(&self, path: &str) -> Channel {
        if path == SYNC_REGIONS {
            self.endpoint.connect_lazy()
        } else {
            self.shared.clone()
        }
    }
}

impl Council {
    /// A cluster of these members, without a leader.
    pub fn new(cluster_id: u64, members: Vec<pdpb::Member>, etcd: Option<Channel>) -> Self {
        Self {
            state: RwLock::new(State {
                cluster_id,
                members,
                leader: None,
                etcd,
                sync_withheld: false,
            }),
        }
    }

    fn read(&self) -> State {
        self.state
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Names the leader, or says that there is none.
    pub fn crown(&self, leader: Option<(u64, Way)>) {
        self.change(|state| state.leader = leader);
    }

    /// Refuses sync streams from now on, or no longer.
    pub fn withhold_sync(&self, withheld: bool) {
        self.change(|state| state.sync_withheld = withheld);
    }

    /// Takes a member off the list.
    pub fn remove(&self, member_id: u64) {
        self.change(|state| state.members.retain(|member| member.member_id != member_id));
    }
}

/// A front that listens. Dropping it ends it with its connections.
#[derive(Debug)]
pub struct Front {
    addr: SocketAddr,
    serving: JoinHandle<()>,
}

impl Front {
    /// Listens on `listener` for the member.
    pub fn start(
        listener: TcpListener,
        member_id: u64,
        council: Arc<Council>,
    ) -> Result<Self, InteropError> {
        let addr = listener
            .local_addr()
            .map_err(InteropError::system("read a port"))?;
        let serving = serve(listener, move |request| {
            let council = Arc::clone(&council);
            async move { answer(member_id, &council.read(), request).await }
        });
        Ok(Self { addr, serving })
    }

    /// Where it listens, as a client URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Answers every request that comes to `listener`, until the task ends.
pub fn serve<A, F>(listener: TcpListener, answer: A) -> JoinHandle<()>
where
    A: Fn(http::Request<Body>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = http::Response<Body>> + Send + 'static,
{
    let pages = axum::Router::new().fallback(move |request: axum::extract::Request| {
        let answered = answer(request.map(Body::new));
        async move { answered.await.map(axum::body::Body::new) }
    });
    tokio::spawn(async move {
        // Its end is that of the task; what a connection suffers is for its two ends to see.
        let _ = Server::builder()
            .accept_http1(true)
            .add_routes(Routes::from(pages))
            .serve_with_incoming(incoming(listener))
            .await;
    })
}

/// Connections whose answers leave at once: held back for more to come, a small one waits 40 ms for its predecessor's
/// acknowledgement.
fn incoming(listener: TcpListener) -> impl Stream<Item = std::io::Result<TcpStream>> {
    TcpListenerStream::new(listener).map(|accepted| {
        let stream = accepted?;
        stream.set_nodelay(true)?;
        Ok(stream)
    })
}

async fn answer(
    member_id: u64,
    state: &State,
    request: http::Request<Body>,
) -> http::Response<Body> {
    let path = request.uri().path();
    if path == GET_MEMBERS {
        let told = Told(members(state));
        let mut grpc = tonic::server::Grpc::new(tonic_prost::ProstCodec::default());
        return grpc.unary(told, request).await;
    }
    if state.sync_withheld && path == SYNC_REGIONS {
        return Status::unavailable("nobody may follow").into_http();
    }
    let of_all = path.starts_with("/etcdserverpb.");
    let way = match (&state.etcd, &state.leader) {
        (Some(etcd), _) if of_all => Some(etcd.clone()),
        (_, Some((leader, way))) if of_all || *leader == member_id => Some(way.channel(path)),
        _ => None,
    };
    match way {
        Some(way) => pass(way, request).await,
        None => Status::unavailable("not leader").into_http(),
    }
}

/// Hands a call on as it came, and its answer back.
pub async fn pass(mut way: Channel, mut request: http::Request<Body>) -> http::Response<Body> {
    // The connection to the leader has an authority of its own.
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .parse();
    if let Ok(uri) = path {
        *request.uri_mut() = uri;
    }
    let sent = async {
        std::future::poll_fn(|cx| way.poll_ready(cx)).await?;
        way.call(request).await
    };
    match sent.await {
        Ok(answer) => answer,
        Err(error) => Status::unavailable(format!("the member is gone: {error}")).into_http(),
    }
}

fn members(state: &State) -> pdpb::GetMembersResponse {
    let by_id = |id: u64| state.members.iter().find(|member| member.member_id == id);
    let leader = state
        .leader
        .as_ref()
        .and_then(|(id, _)| by_id(*id))
        .cloned();
    pdpb::GetMembersResponse {
        header: Some(pdpb::ResponseHeader {
            cluster_id: state.cluster_id,
            ..Default::default()
        }),
        members: state.members.clone(),
        etcd_leader: leader.clone(),
        leader,
    }
}

/// One answer for one question.
#[derive(Clone, Debug)]
pub struct Told(pub pdpb::GetMembersResponse);

impl tonic::server::UnaryService<pdpb::GetMembersRequest> for Told {
    type Response = pdpb::GetMembersResponse;
    type Future = Ready<Result<Response<Self::Response>, Status>>;

    fn call(&mut self, _: Request<pdpb::GetMembersRequest>) -> Self::Future {
        ready(Ok(Response::new(self.0.clone())))
    }
}
