//! The leader as a client on loopback meets it.

mod lifecycle;
mod lookups;
mod reports;
mod services;
mod streams;

use tidegate_core::{KeyRange, Peer, PeerRole, Region, RegionEpoch};
use tonic::transport::Channel;

use super::{EmbeddedLeader, LeaderConfig};
use crate::proto::metapb;
use crate::proto::pdpb::RequestHeader;
use crate::proto::pdpb::pd_client::PdClient;

const CLUSTER: u64 = 7;

fn config() -> LeaderConfig {
    LeaderConfig {
        cluster_id: CLUSTER,
        ..LeaderConfig::default()
    }
}

async fn leader() -> EmbeddedLeader {
    EmbeddedLeader::start(config()).await.unwrap()
}

async fn channel(leader: &EmbeddedLeader) -> Channel {
    Channel::from_shared(leader.url())
        .unwrap()
        .connect()
        .await
        .unwrap()
}

async fn client(leader: &EmbeddedLeader) -> PdClient<Channel> {
    PdClient::new(channel(leader).await)
}

fn header() -> Option<RequestHeader> {
    Some(RequestHeader {
        cluster_id: CLUSTER,
        ..RequestHeader::default()
    })
}

fn store(id: u64) -> metapb::Store {
    metapb::Store {
        id,
        address: format!("127.0.0.1:{}", 20160 + id),
        ..metapb::Store::default()
    }
}

fn region(id: u64, start: &str, end: &str, version: u64) -> Region {
    let peer = Peer {
        id: id * 10,
        store_id: 1,
        role: PeerRole::Voter,
        is_witness: false,
    };
    Region::builder(
        id,
        KeyRange::new(start, end).unwrap(),
        RegionEpoch {
            conf_ver: 1,
            version,
        },
    )
    .peers([peer])
    .leader(Some(peer))
    .build()
    .unwrap()
}
