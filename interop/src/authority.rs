//! The PD that has the last word: a real pd-server when its path is given, else the embedded leader.
//!
//! Either way everything reaches it over gRPC alone, so that both runs exercise the same paths.

use std::path::Path;
use std::time::Duration;

use tidegate::leader::{EmbeddedLeader, LeaderConfig};
use tidegate::pd::Dialect;
use tidegate::proto::{metapb, pdpb};
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::client::{PdClient, connect};
use crate::cluster::STORES;
use crate::error::InteropError;
use crate::pd::server::{Server, leading};
use crate::process::Process;

/// How long a PD may take from its start to its leadership.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The PD under comparison.
#[derive(Debug)]
pub struct Authority {
    kind: Kind,
    url: String,
    cluster_id: u64,
}

#[derive(Debug)]
enum Kind {
    Real(Vec<Server>),
    Embedded(EmbeddedLeader),
}

impl Authority {
    /// Starts a pd-server in `dir` and waits until it leads.
    pub async fn real(program: &Path, dir: &Path) -> Result<Self, InteropError> {
        let mut servers = Server::cluster(program, dir, 1)?;
        let (at, cluster_id) = leading(&mut servers, false).await?;
        Ok(Self {
            url: servers[at].url().to_owned(),
            kind: Kind::Real(servers),
            cluster_id,
        })
    }

    /// Starts the embedded leader.
    pub async fn embedded(dialect: Dialect) -> Result<Self, InteropError> {
        let config = LeaderConfig {
            dialect,
            ..LeaderConfig::default()
        };
        let leader = EmbeddedLeader::start(config)
            .await
            .map_err(|e| InteropError::Leader(e.to_string()))?;
        let url = leader.url();
        let cluster_id = wait_for_leader(&url, None).await?;
        Ok(Self {
            kind: Kind::Embedded(leader),
            url,
            cluster_id,
        })
    }

    /// What the run is compared with, for the report.
    pub fn describe(&self) -> &'static str {
        match self.kind {
            Kind::Real(_) => "pd-server",
            Kind::Embedded(_) => "embedded leader",
        }
    }

    /// Its client URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its cluster id.
    pub fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// Stops it.
    pub async fn stop(self) -> Result<(), InteropError> {
        match self.kind {
            Kind::Real(mut servers) => {
                for server in &mut servers {
                    server.stop().await?;
                }
                Ok(())
            }
            Kind::Embedded(leader) => {
                leader.stop().await;
                Ok(())
            }
        }
    }
}

/// Registers the stores and the first region, as a new cluster does.
pub async fn bootstrap(
    client: &mut PdClient<Channel>,
    cluster_id: u64,
) -> Result<(), InteropError> {
    let store = |id: u64| metapb::Store {
        id,
        address: format!("127.0.0.1:{}", 20160 + id),
        version: "9.0.0-alpha".to_owned(),
        ..Default::default()
    };
    let answer = client
        .bootstrap(first_region(cluster_id, store(STORES[0])))
        .await
        .map_err(InteropError::call("Bootstrap"))?;
    reject("Bootstrap", answer.get_ref().header.as_ref())?;
    put_stores(client, cluster_id, STORES.map(store)).await
}

/// What makes a new cluster: its first store, and the region of everything on it.
pub fn first_region(cluster_id: u64, store: metapb::Store) -> pdpb::BootstrapRequest {
    pdpb::BootstrapRequest {
        header: Some(pdpb::RequestHeader {
            cluster_id,
            ..Default::default()
        }),
        region: Some(metapb::Region {
            id: 10,
            region_epoch: Some(metapb::RegionEpoch {
                conf_ver: 1,
                version: 1,
            }),
            peers: vec![metapb::Peer {
                id: 11,
                store_id: store.id,
                ..Default::default()
            }],
            ..Default::default()
        }),
        store: Some(store),
    }
}

/// Registers stores, or what has changed of them.
pub async fn put_stores(
    client: &mut PdClient<Channel>,
    cluster_id: u64,
    stores: impl IntoIterator<Item = metapb::Store>,
) -> Result<(), InteropError> {
    for store in stores {
        let answer = client
            .put_store(pdpb::PutStoreRequest {
                header: Some(pdpb::RequestHeader {
                    cluster_id,
                    ..Default::default()
                }),
                store: Some(store),
            })
            .await
            .map_err(InteropError::call("PutStore"))?;
        reject("PutStore", answer.get_ref().header.as_ref())?;
    }
    Ok(())
}

/// An error for a header that carries one.
pub fn reject(
    call: &'static str,
    header: Option<&pdpb::ResponseHeader>,
) -> Result<(), InteropError> {
    match header.and_then(|h| h.error.as_ref()) {
        Some(error) => Err(InteropError::Answer {
            call,
            message: error.message.clone(),
        }),
        None => Ok(()),
    }
}

/// Asks for the members until one leads; returns the cluster id.
pub async fn wait_for_leader(
    url: &str,
    mut process: Option<&mut Process>,
) -> Result<u64, InteropError> {
    let started = Instant::now();
    loop {
        if let Ok(mut client) = connect(url).await
            && let Ok(answer) = client.get_members(pdpb::GetMembersRequest::default()).await
        {
            let answer = answer.into_inner();
            if let (Some(header), Some(leader)) = (answer.header, answer.leader)
                && header.cluster_id != 0
                && !leader.client_urls.is_empty()
            {
                return Ok(header.cluster_id);
            }
        }
        if let Some(process) = process.as_deref_mut()
            && let Some(status) = process.ended()
        {
            return Err(InteropError::Leader(format!(
                "it ended with {status}:\n{}",
                process.tail()
            )));
        }
        if started.elapsed() > READY_LIMIT {
            let detail = process
                .map(|p| format!("; its last lines:\n{}", p.tail()))
                .unwrap_or_default();
            return Err(InteropError::Timeout {
                what: "PD's leadership",
                limit: READY_LIMIT,
                detail,
            });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
