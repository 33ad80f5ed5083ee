//! Three real members, each behind a second address that can be cut off.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate::proto::pdpb;
use tokio::time::{Instant, sleep};
use tonic::transport::{Channel, Endpoint};

use crate::client::connect;
use crate::error::InteropError;
use crate::pd::front::Way;
use crate::pd::relay::Relay;
use crate::pd::server::{Server, kill_all, leading};
use crate::pd::veil::{Names, Veil};

/// How many members there are at the start.
const MEMBERS: usize = 3;
/// For the members to do what they are asked for.
const TURN_LIMIT: Duration = Duration::from_secs(30);
/// For a follower of PD to have all that its leader was told: it hears it over PD's own sync stream.
const IN_STEP: Duration = Duration::from_secs(1);

/// The members and who leads.
#[derive(Debug)]
pub struct Real {
    cluster_id: u64,
    servers: Vec<Server>,
    /// The second addresses, in the same order.
    doors: Vec<Door>,
    names: Arc<Names>,
    leading: usize,
}

/// A member's second address and the network before it.
#[derive(Debug)]
struct Door {
    relay: Relay,
    _veil: Veil,
}

impl Real {
    /// Three members, one of which leads.
    pub async fn start(program: &Path, dir: &Path) -> Result<Self, InteropError> {
        let mut servers = Server::cluster(program, dir, MEMBERS)?;
        let (at, cluster_id) = leading(&mut servers, false).await?;
        let (mut bound, mut urls) = (Vec::new(), HashMap::new());
        for server in &servers {
            let (listener, relay) = Relay::before_listener().await?;
            urls.insert(server.name().to_owned(), relay.url());
            bound.push((listener, relay));
        }
        let names = Arc::new(Names::new(cluster_id, urls));
        let mut doors = Vec::new();
        for (server, (listener, relay)) in servers.iter().zip(bound) {
            let way = Way::to(server.url().to_owned())?;
            let veil = Veil::start(listener, way, Arc::clone(&names))?;
            doors.push(Door { relay, _veil: veil });
        }
        Ok(Self {
            cluster_id,
            servers,
            doors,
            names,
            leading: at,
        })
    }

    /// The cluster's id, which PD has chosen.
    pub fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// The addresses that the replica is told.
    pub fn endpoints(&self) -> Vec<String> {
        self.doors.iter().map(|door| door.relay.url()).collect()
    }

    /// The leading member's own address, which nothing cuts off.
    pub fn leader_url(&self) -> String {
        self.servers[self.leading].url().to_owned()
    }

    /// Which member leads.
    pub fn leading(&self) -> usize {
        self.leading
    }

    /// Hands the lead to another member, once its followers have what it was told.
    pub async fn transfer(&mut self, to: usize) -> Result<(), InteropError> {
        if to == self.leading {
            return Ok(());
        }
        sleep(IN_STEP).await;
        let path = format!("/pd/api/v1/leader/transfer/{}", self.servers[to].name());
        let begun = Instant::now();
        while self.leading != to {
            if begun.elapsed() > TURN_LIMIT {
                return Err(InteropError::Timeout {
                    what: "the transfer of PD's lead",
                    limit: TURN_LIMIT,
                    detail: format!(
                        "; the leader's last lines:\n{}",
                        self.servers[self.leading].tail()
                    ),
                });
            }
            self.servers[self.leading]
                .order("POST", &path, TURN_LIMIT)
                .await?;
            // The order is taken at once and carried out later, or not: then it is given again.
            for _ in 0..30 {
                sleep(Duration::from_millis(100)).await;
                (self.leading, _) = leading(&mut self.servers, true).await?;
                if self.leading == to {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Kills all members and starts them again: the index goes back to what was last written down of it.
    pub async fn restart(&mut self) -> Result<(), InteropError> {
        self.away().await?;
        self.back().await
    }

    /// Kills the leader, once its followers have what it was told.
    pub async fn kill_leader(&mut self) -> Result<(), InteropError> {
        sleep(IN_STEP).await;
        self.servers[self.leading].kill().await
    }

    /// Waits for another leader.
    pub async fn succeed(&mut self) -> Result<(), InteropError> {
        (self.leading, _) = leading(&mut self.servers, true).await?;
        Ok(())
    }

    /// Takes a member that does not lead out of the cluster, and ends its process.
    pub async fn remove(&mut self, seat: usize) -> Result<(), InteropError> {
        let path = format!("/pd/api/v1/members/name/{}", self.servers[seat].name());
        self.servers[self.leading]
            .order("DELETE", &path, TURN_LIMIT)
            .await?;
        let begun = Instant::now();
        while lists(self.servers[self.leading].url(), self.servers[seat].name()).await
            != Some(false)
        {
            if begun.elapsed() > TURN_LIMIT {
                return Err(InteropError::Timeout {
                    what: "the removal of a member",
                    limit: TURN_LIMIT,
                    detail: format!(": the leader lists {}", self.servers[seat].name()),
                });
            }
            sleep(Duration::from_millis(20)).await;
        }
        self.servers[seat].kill().await
    }

    /// Turns the replica's way to every member into a black hole, or back.
    pub fn cut(&self, cut: bool) {
        for door in &self.doors {
            door.relay.cut(cut);
        }
    }

    /// Refuses sync streams at the second addresses, or no longer.
    pub fn withhold_sync(&self, withheld: bool) {
        self.names.withhold_sync(withheld);
    }

    /// Kills all members: etcd is in them.
    pub async fn away(&mut self) -> Result<(), InteropError> {
        kill_all(&mut self.servers).await
    }

    /// Starts all members again.
    pub async fn back(&mut self) -> Result<(), InteropError> {
        for server in &mut self.servers {
            server.start()?;
        }
        self.succeed().await
    }

    /// The way to the leader's etcd.
    pub fn etcd_channel(&self) -> Result<Channel, InteropError> {
        let endpoint = Endpoint::from_shared(self.leader_url())
            .map_err(|e| InteropError::Pd(e.to_string()))?;
        Ok(endpoint
            .connect_timeout(Duration::from_secs(1))
            .connect_lazy())
    }

    /// Ends all of it; nobody needs its data any more.
    pub async fn stop(mut self) -> Result<(), InteropError> {
        self.away().await
    }
}

/// Whether the member at `url` lists one of this name.
async fn lists(url: &str, name: &str) -> Option<bool> {
    let mut client = connect(url).await.ok()?;
    let answer = client.get_members(pdpb::GetMembersRequest::default()).await;
    let members = answer.ok()?.into_inner().members;
    Some(members.iter().any(|member| member.name == name))
}
