//! Three members played around one embedded leader.
//!
//! One leader runs at a time, in this process or in one of its own; which member it stands for changes. A transfer
//! hands its state on as PD's storage and etcd would; a killed leader takes its memory with it, and its successor
//! begins with what the stores report.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate::leader::{EmbeddedLeader, LeaderConfig};
use tidegate::pd::Dialect;
use tidegate::proto::pdpb;
use tokio::time::sleep;

use crate::authority::wait_for_leader;
use crate::cluster::ModelRegion;
use crate::error::InteropError;
use crate::pd::etcd::Etcd;
use crate::pd::front::{Council, Front, Way};
use crate::pd::relay::Relay;
use crate::process::{Process, free_port};
use crate::seeding::report;

/// How many members there are at the start.
pub const MEMBERS: usize = 3;
/// The life of a PD leader's lease: for so long nobody can succeed one that was killed.
pub const LEASE: Duration = Duration::from_secs(3);
/// Empty frames on a quiet stream; shorter than PD's 10 s, so that a drill need not last.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// How the leader is run.
#[derive(Clone, Debug)]
pub struct Play {
    /// The cluster's id.
    pub cluster_id: u64,
    /// How its sync streams are served.
    pub dialect: Dialect,
    /// The program that plays the leader, for one that can be killed; in this process without it.
    pub program: Option<PathBuf>,
    /// For its log.
    pub dir: PathBuf,
}

/// The members and their leader.
#[derive(Debug)]
pub struct Played {
    play: Play,
    council: Arc<Council>,
    seats: Vec<Seat>,
    leading: usize,
    leader: Option<Leader>,
    etcd: Option<Etcd>,
}

/// A member's place. Clients of the replica reach the front through the relay, the harness itself goes straight to it.
#[derive(Debug)]
struct Seat {
    member: pdpb::Member,
    relay: Relay,
    front: Option<Front>,
}

#[derive(Debug)]
enum Leader {
    Here(EmbeddedLeader),
    Process(Process, String),
}

impl Leader {
    fn url(&self) -> String {
        match self {
            Self::Here(leader) => leader.url(),
            Self::Process(_, url) => url.clone(),
        }
    }
}

impl Played {
    /// Three members, the first of which leads.
    pub async fn start(play: Play, etcd: Option<Etcd>) -> Result<Self, InteropError> {
        let mut listeners = Vec::new();
        let mut seats = Vec::new();
        for i in 0..MEMBERS {
            let (listener, relay) = Relay::before_listener().await?;
            let member = pdpb::Member {
                name: format!("pd-{i}"),
                member_id: 100 + i as u64,
                peer_urls: vec![relay.url()],
                client_urls: vec![relay.url()],
                ..Default::default()
            };
            listeners.push(listener);
            seats.push(Seat {
                member,
                relay,
                front: None,
            });
        }
        let members = seats.iter().map(|seat| seat.member.clone()).collect();
        let way = etcd.as_ref().map(Etcd::channel);
        let council = Arc::new(Council::new(play.cluster_id, members, way));
        for (seat, listener) in seats.iter_mut().zip(listeners) {
            let id = seat.member.member_id;
            seat.front = Some(Front::start(listener, id, Arc::clone(&council))?);
        }
        let mut played = Self {
            play,
            council,
            seats,
            leading: 0,
            leader: None,
            etcd,
        };
        let leader = match played.play.program.clone() {
            Some(program) => played.spawn(program).await?,
            None => Leader::Here(start(played.config(0)).await?),
        };
        played.crown(0, leader).await?;
        Ok(played)
    }

    fn config(&self, seat: usize) -> LeaderConfig {
        config(
            &self.play,
            &self.seats[seat].member.name,
            SocketAddr::from(([127, 0, 0, 1], 0)),
            self.seats[seat].relay.url(),
        )
    }

    async fn spawn(&self, program: PathBuf) -> Result<Leader, InteropError> {
        let port = free_port()?;
        let url = format!("http://127.0.0.1:{port}");
        let args = [
            "lead".to_owned(),
            format!("--port={port}"),
            format!("--name={}", self.seats[0].member.name),
            format!("--advertise={}", self.seats[0].relay.url()),
            format!("--dialect={}", self.play.dialect),
            format!("--cluster-id={}", self.play.cluster_id),
        ];
        let mut process = Process::start(&program, &args, self.play.dir.join("leader.out"))?;
        wait_for_leader(&url, Some(&mut process)).await?;
        Ok(Leader::Process(process, url))
    }

    async fn crown(&mut self, seat: usize, leader: Leader) -> Result<(), InteropError> {
        if let Some(etcd) = &self.etcd {
            etcd.begin_reign(self.play.cluster_id, &self.seats[seat].member)
                .await?;
        }
        let way = Way::to(leader.url())?;
        self.leading = seat;
        self.leader = Some(leader);
        self.council
            .crown(Some((self.seats[seat].member.member_id, way)));
        Ok(())
    }

    /// The addresses that the replica is told, each behind a relay.
    pub fn endpoints(&self) -> Vec<String> {
        self.seats
            .iter()
            .filter(|seat| seat.front.is_some())
            .map(|seat| seat.relay.url())
            .collect()
    }

    /// The leading member's own address, which nothing cuts off. While nobody leads, that of the last who did.
    pub fn leader_url(&self) -> String {
        self.seats[self.leading]
            .front
            .as_ref()
            .map_or_else(String::new, Front::url)
    }

    /// Which member leads.
    pub fn leading(&self) -> usize {
        self.leading
    }

    /// The real etcd beside it.
    pub fn etcd(&mut self) -> Result<&mut Etcd, InteropError> {
        self.etcd
            .as_mut()
            .ok_or_else(|| InteropError::Leader("there is no etcd beside it".to_owned()))
    }

    /// Hands the lead to another member, or to the same again as a restart does. The next index goes back by `rewind`.
    pub async fn transfer(&mut self, to: usize, rewind: u64) -> Result<(), InteropError> {
        let Some(Leader::Here(leader)) = self.leader.take() else {
            return Err(InteropError::Leader(
                "a leader in a process of its own cannot hand over".to_owned(),
            ));
        };
        self.council.crown(None);
        if let Some(etcd) = &self.etcd {
            etcd.end_reign(self.play.cluster_id).await?;
        }
        let mut state = leader.stop().await;
        state.rewind_index(rewind);
        // It listens where the one before did, so that it needs no new address.
        let leader = EmbeddedLeader::start_with(self.config(to), state)
            .await
            .map_err(|e| InteropError::Leader(e.to_string()))?;
        self.crown(to, Leader::Here(leader)).await
    }

    /// Kills the leader's process and waits until its lease has run out; nobody leads then.
    pub async fn kill_leader(&mut self) -> Result<(), InteropError> {
        match self.leader.take() {
            Some(Leader::Process(process, _)) => process.kill().await?,
            other => {
                self.leader = other;
                return Err(InteropError::Leader(
                    "a leader in this process cannot be killed".to_owned(),
                ));
            }
        }
        sleep(LEASE).await;
        self.council.crown(None);
        match &self.etcd {
            Some(etcd) => etcd.end_reign(self.play.cluster_id).await,
            None => Ok(()),
        }
    }

    /// Lets a leader that knows no more than `regions` lead as `seat`.
    pub async fn succeed(
        &mut self,
        seat: usize,
        regions: &[ModelRegion],
    ) -> Result<(), InteropError> {
        let leader = start(self.config(seat)).await?;
        report(&leader, regions)?;
        self.crown(seat, Leader::Here(leader)).await
    }

    /// Takes a member out of the cluster: nobody names it any more, and nobody is at its address.
    pub fn remove(&mut self, seat: usize) {
        self.council.remove(self.seats[seat].member.member_id);
        self.seats[seat].front = None;
    }

    /// Refuses sync streams from now on, or no longer.
    pub fn withhold_sync(&self, withheld: bool) {
        self.council.withhold_sync(withheld);
    }

    /// How many keys and ids the leader was asked for; `None` where it runs in a process of its own.
    pub fn lookups(&self) -> Option<u64> {
        match &self.leader {
            Some(Leader::Here(leader)) => Some(leader.lookups()),
            _ => None,
        }
    }

    /// Turns the replica's way to every member into a black hole, or back.
    pub fn cut(&self, cut: bool) {
        for seat in &self.seats {
            seat.relay.cut(cut);
        }
    }

    /// Stops all of it.
    pub async fn stop(mut self) -> Result<(), InteropError> {
        match self.leader.take() {
            Some(Leader::Here(leader)) => drop(leader.stop().await),
            Some(Leader::Process(process, _)) => process.kill().await?,
            None => {}
        }
        match &mut self.etcd {
            Some(etcd) => etcd.kill().await,
            None => Ok(()),
        }
    }
}

/// How a leader of the drills behaves. Like releases up to 8.5.6 it waits for a slow follower for ever, and on
/// release 8.5 everybody waits with it.
pub fn config(play: &Play, name: &str, listen: SocketAddr, advertise: String) -> LeaderConfig {
    LeaderConfig {
        cluster_id: play.cluster_id,
        listen,
        advertise: Some(advertise),
        name: name.to_owned(),
        dialect: play.dialect,
        keepalive: KEEPALIVE,
        send_timeout: match play.dialect {
            Dialect::Master => LeaderConfig::default().send_timeout,
            Dialect::Release85 => Duration::MAX,
        },
        ..LeaderConfig::default()
    }
}

async fn start(config: LeaderConfig) -> Result<EmbeddedLeader, InteropError> {
    EmbeddedLeader::start(config)
        .await
        .map_err(|e| InteropError::Leader(e.to_string()))
}
