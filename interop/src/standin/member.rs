//! One member of a stand-in's cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::Method;
use tidegate::leader::{EmbeddedLeader, LeaderConfig};
use tidegate::pd::Dialect;
use tidegate::proto::convert::region_from_pb;
use tidegate::proto::pdpb;
use tidegate::proto::pdpb::pd_client::PdClient;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tonic::Status;
use tonic::body::Body;

use super::table::{Lead, Recorder, Table};
use crate::authority::{first_region, put_stores, reject};
use crate::client::connect;
use crate::error::InteropError;
use crate::pd::front::{GET_MEMBERS, Told, Way, pass, serve};

/// Between two looks at the table.
const LOOK: Duration = Duration::from_millis(20);
/// What a follower answers as well, if it may.
const FOLLOWER_TOO: [&str; 6] = [
    "/pdpb.PD/GetRegion",
    "/pdpb.PD/GetPrevRegion",
    "/pdpb.PD/GetRegionByID",
    "/pdpb.PD/ScanRegions",
    "/pdpb.PD/BatchScanRegions",
    "/pdpb.PD/QueryRegion",
];
/// What tells the leader of stores.
const TELLS_OF_STORES: [&str; 2] = ["/pdpb.PD/Bootstrap", "/pdpb.PD/PutStore"];
const GET_ALL_STORES: &str = "/pdpb.PD/GetAllStores";
const TRANSFER: &str = "/pd/api/v1/leader/transfer/";
const MEMBER: &str = "/pd/api/v1/members/name/";

/// What a member is started with.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its data.
    pub data_dir: PathBuf,
    /// Where it listens, and where it is to be found, as client URL and as peer URL.
    pub client_url: String,
    /// See above.
    pub advertised: String,
    /// See above.
    pub peer_url: String,
    /// How it serves sync streams when it leads.
    pub dialect: Dialect,
}

/// What the member's address answers by.
#[derive(Clone, Debug, Default)]
struct Now {
    cluster_id: u64,
    members: Vec<pdpb::Member>,
    leader: Option<(String, Way)>,
}

/// The member while it leads.
#[derive(Debug)]
struct Reign {
    server: EmbeddedLeader,
    lead: Lead,
}

/// Runs until it is removed from the cluster or told to end.
pub async fn run(member: &Member, stop: impl Future<Output = ()>) -> Result<(), InteropError> {
    let failed = InteropError::system("use the stand-in's directory");
    let table = Table::of(&member.data_dir).map_err(failed)?;
    let cluster_id = table
        .cluster_id()
        .map_err(InteropError::system("take the cluster's id"))?;
    let own = pdpb::Member {
        name: member.name.clone(),
        member_id: member
            .name
            .bytes()
            .fold(100, |id, byte| id * 31 + u64::from(byte)),
        peer_urls: vec![member.peer_url.clone()],
        client_urls: vec![member.advertised.clone()],
        ..Default::default()
    };
    let at: SocketAddr = member
        .client_url
        .strip_prefix("http://")
        .and_then(|addr| addr.parse().ok())
        .ok_or_else(|| InteropError::Pd(format!("cannot listen on {}", member.client_url)))?;
    let listener = TcpListener::bind(at)
        .await
        .map_err(InteropError::system("listen on the client URL"))?;
    table
        .join(&own)
        .map_err(InteropError::system("join the cluster"))?;
    let now = Arc::new(RwLock::new(Now::default()));
    let (name, sight, files) = (member.name.clone(), Arc::clone(&now), table.clone());
    let telling = Arc::new(Mutex::new(()));
    let serving = serve(listener, move |request| {
        let now = sight.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (name, files, telling) = (name.clone(), files.clone(), Arc::clone(&telling));
        async move { answer(&name, &now, &files, &telling, request).await }
    });
    let outcome = tokio::select! {
        outcome = sit(member, &table, cluster_id, &now) => outcome,
        () = stop => Ok(()),
    };
    serving.abort();
    outcome
}

/// Leads whenever it can.
async fn sit(
    member: &Member,
    table: &Table,
    cluster_id: u64,
    now: &RwLock<Now>,
) -> Result<(), InteropError> {
    let (mut reign, mut known) = (None::<Reign>, None);
    loop {
        let members = table
            .members()
            .map_err(InteropError::system("read the members"))?;
        if !members.iter().any(|other| other.name == member.name) {
            return Err(InteropError::Pd(format!("{} was removed", member.name)));
        }
        match reign.take() {
            None => {
                let lead = table
                    .try_lead(&member.name)
                    .map_err(InteropError::system("take the lead"))?;
                if let Some(lead) = lead {
                    reign = Some(begin(member, table, cluster_id, lead).await?);
                }
            }
            Some(ended) if table.heir().is_some_and(|heir| heir != member.name) => {
                ended.server.stop().await;
                let left = ended.lead.resign();
                left.map_err(InteropError::system("leave the lead"))?;
            }
            going => reign = going,
        }
        let leader = table.leader();
        if leader != known {
            let way = leader
                .clone()
                .map(|(name, url)| Way::to(url).map(|way| (name, way)));
            let way = way.transpose()?;
            now.write().unwrap_or_else(PoisonError::into_inner).leader = way;
            known = leader;
        }
        {
            let mut now = now.write().unwrap_or_else(PoisonError::into_inner);
            (now.cluster_id, now.members) = (cluster_id, members);
        }
        sleep(LOOK).await;
    }
}

/// Leads with what the leader before was told.
async fn begin(
    member: &Member,
    table: &Table,
    cluster_id: u64,
    mut lead: Lead,
) -> Result<Reign, InteropError> {
    let failed = |e: &dyn std::fmt::Display| InteropError::Leader(e.to_string());
    let recorder: Arc<Recorder> = table
        .recorder()
        .map_err(InteropError::system("open the record of regions"))?
        .into();
    let server = EmbeddedLeader::start(LeaderConfig {
        cluster_id,
        advertise: Some(member.advertised.clone()),
        name: member.name.clone(),
        dialect: member.dialect,
        observer: Some(Arc::clone(&recorder) as _),
        ..LeaderConfig::default()
    })
    .await
    .map_err(|e| failed(&e))?;
    let stores = table.stores();
    if let Some(first) = stores.first() {
        let mut client = connect(&server.url()).await?;
        let answer = client
            .bootstrap(first_region(cluster_id, first.clone()))
            .await
            .map_err(InteropError::call("Bootstrap"))?;
        reject("Bootstrap", answer.get_ref().header.as_ref())?;
        put_stores(&mut client, cluster_id, stores.iter().cloned()).await?;
        let mut regions = Vec::new();
        for kept in table.regions() {
            let Some(meta) = &kept.region else { continue };
            let region = region_from_pb(meta, kept.leader.as_ref(), None, None);
            regions.push(region.map_err(|e| failed(&e))?);
        }
        // The first region of the cluster may be gone by now; its return is turned away as any old one.
        let _ = server.report_regions(regions);
    }
    recorder.begin();
    lead.announce(&member.name, &server.url())
        .map_err(InteropError::system("announce the lead"))?;
    Ok(Reign { server, lead })
}

/// Keeps the stores that the leader on this way was told of: PD has them in its storage before it says so.
async fn keep_stores(way: &Way, cluster_id: u64, table: &Table) -> Result<(), InteropError> {
    let question = pdpb::GetAllStoresRequest {
        header: Some(pdpb::RequestHeader {
            cluster_id,
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut client = PdClient::new(way.channel(GET_ALL_STORES));
    let answer = client
        .get_all_stores(question)
        .await
        .map_err(InteropError::call("GetAllStores"))?
        .into_inner();
    table
        .save_stores(&answer)
        .map_err(InteropError::system("keep the stores"))
}

async fn answer(
    name: &str,
    now: &Now,
    table: &Table,
    telling: &Mutex<()>,
    request: http::Request<Body>,
) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    if path == GET_MEMBERS {
        let mut grpc = tonic::server::Grpc::new(tonic_prost::ProstCodec::default());
        return grpc.unary(Told(members(now)), request).await;
    }
    let leads = now
        .leader
        .as_ref()
        .is_some_and(|(leader, _)| leader == name);
    if path.starts_with("/pd/api/") {
        return page(request.method(), &path, leads, now, table);
    }
    let follows = FOLLOWER_TOO.contains(&&*path)
        && (path.ends_with("QueryRegion")
            || request.headers().contains_key("pd-allow-follower-handle"));
    match &now.leader {
        Some((_, way)) if leads && TELLS_OF_STORES.contains(&&*path) => {
            // One after the other: what is kept last is what was told last.
            let _one = telling.lock().await;
            let answer = pass(way.channel(&path), request).await;
            match keep_stores(way, now.cluster_id, table).await {
                Ok(()) => answer,
                Err(error) => Status::internal(error.to_string()).into_http(),
            }
        }
        Some((_, way)) if leads || follows || path.starts_with("/etcdserverpb.") => {
            pass(way.channel(&path), request).await
        }
        _ => Status::unavailable("not leader").into_http(),
    }
}

fn members(now: &Now) -> pdpb::GetMembersResponse {
    let leader = now.leader.as_ref().and_then(|(name, _)| {
        let found = now.members.iter().find(|member| member.name == *name);
        found.cloned()
    });
    pdpb::GetMembersResponse {
        header: Some(pdpb::ResponseHeader {
            cluster_id: now.cluster_id,
            ..Default::default()
        }),
        members: now.members.clone(),
        etcd_leader: leader.clone(),
        leader,
    }
}

/// What PD does only over HTTP.
fn page(
    method: &Method,
    path: &str,
    leads: bool,
    now: &Now,
    table: &Table,
) -> http::Response<Body> {
    let known = |name: &str| now.members.iter().any(|member| member.name == name);
    let code = match (
        method,
        path.strip_prefix(TRANSFER),
        path.strip_prefix(MEMBER),
    ) {
        _ if !leads => 503,
        (&Method::POST, Some(name), _) if known(name) => match table.bequeath(name) {
            Ok(()) => 200,
            Err(_) => 500,
        },
        (&Method::DELETE, _, Some(name)) if table.remove(name) => 200,
        _ => 404,
    };
    let mut answer = http::Response::new(Body::empty());
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    answer
}
