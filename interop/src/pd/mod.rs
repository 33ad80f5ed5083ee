//! The PD of the drills: three members that can be moved, killed, removed and cut off.
//!
//! They are played around an embedded leader ([`played`], with [`front`] at each member's address and [`etcd`] beside
//! them), or real ones ([`real`], started by [`server`] and seen by the replica through a [`veil`]). Either way the
//! replica's way to them is a [`relay`].

pub mod etcd;
pub mod front;
pub mod played;
pub mod real;
pub mod relay;
pub mod server;
pub mod veil;

use std::path::PathBuf;

use tidegate::pd::Dialect;
use tonic::transport::Channel;

use self::etcd::Etcd;
use self::played::{Play, Played};
use self::real::Real;
use crate::authority::bootstrap;
use crate::client::connect;
use crate::cluster::ModelRegion;
use crate::error::InteropError;
use crate::feeder::Stores;

/// Identifies the cluster of played members.
const CLUSTER: u64 = 7;

/// Which PD is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// A pd-server to run; members are played without one.
    pub pd_server: Option<PathBuf>,
    /// How the leader serves its sync streams. A pd-server has its own way, which this has to be.
    pub dialect: Dialect,
    /// A program that plays a leader that can be killed; one that is played leads in this process without it.
    pub player: Option<PathBuf>,
    /// An etcd beside played members.
    pub etcd: Option<PathBuf>,
    /// For data and logs.
    pub dir: PathBuf,
}

/// Three members, played or real.
#[derive(Debug)]
pub enum Pd {
    /// See [`Played`].
    Played(Box<Played>),
    /// See [`Real`].
    Real(Real),
}

impl Pd {
    /// Starts them; one of them leads a cluster that has no store yet.
    pub async fn start(wanted: &Wanted) -> Result<Self, InteropError> {
        if let Some(program) = &wanted.pd_server {
            return Ok(Self::Real(Real::start(program, &wanted.dir).await?));
        }
        let etcd = match &wanted.etcd {
            Some(program) => Some(Etcd::start(program, &wanted.dir).await?),
            None => None,
        };
        let play = Play {
            cluster_id: CLUSTER,
            dialect: wanted.dialect,
            program: wanted.player.clone(),
            dir: wanted.dir.clone(),
        };
        Ok(Self::Played(Box::new(Played::start(play, etcd).await?)))
    }

    /// Makes it a cluster, and lets the stores report these regions.
    pub async fn settle(&self, regions: &[ModelRegion]) -> Result<Stores, InteropError> {
        let (url, cluster_id) = (self.leader_url(), self.cluster_id());
        bootstrap(&mut connect(&url).await?, cluster_id).await?;
        let mut stores = Stores::open(&url, cluster_id).await?;
        stores.tell(regions).await?;
        Ok(stores)
    }

    /// Whether they are real ones.
    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real(_))
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> u64 {
        match self {
            Self::Played(_) => CLUSTER,
            Self::Real(real) => real.cluster_id(),
        }
    }

    /// The addresses that the replica is told, each behind a relay.
    pub fn endpoints(&self) -> String {
        match self {
            Self::Played(played) => played.endpoints(),
            Self::Real(real) => real.endpoints(),
        }
        .join(",")
    }

    /// The leading member's own address, which nothing cuts off. While nobody leads, that of the last who did.
    pub fn leader_url(&self) -> String {
        match self {
            Self::Played(played) => played.leader_url(),
            Self::Real(real) => real.leader_url(),
        }
    }

    /// Which member leads.
    pub fn leading(&self) -> usize {
        match self {
            Self::Played(played) => played.leading(),
            Self::Real(real) => real.leading(),
        }
    }

    /// Which members do not.
    pub fn others(&self) -> [usize; 2] {
        [1, 2].map(|step| (self.leading() + step) % 3)
    }

    /// Hands the lead to another member. The index goes back by `rewind`, where PD itself has no say in that.
    pub async fn transfer(&mut self, to: usize, rewind: u64) -> Result<(), InteropError> {
        match self {
            Self::Played(played) => played.transfer(to, rewind).await,
            Self::Real(real) => real.transfer(to).await,
        }
    }

    /// Starts the leader again, or all real members, of which another one might lead else. The index goes back by
    /// `rewind`, or by what a pd-server had not written down.
    pub async fn restart(&mut self, rewind: u64) -> Result<(), InteropError> {
        match self {
            Self::Played(played) => played.transfer(played.leading(), rewind).await,
            Self::Real(real) => real.restart().await,
        }
    }

    /// Kills the leader (SIGKILL).
    pub async fn kill_leader(&mut self) -> Result<(), InteropError> {
        match self {
            Self::Played(played) => played.kill_leader().await,
            Self::Real(real) => real.kill_leader().await,
        }
    }

    /// Another member leads after a kill. A played one begins with `regions`.
    pub async fn succeed(&mut self, regions: &[ModelRegion]) -> Result<(), InteropError> {
        let [next, _] = self.others();
        match self {
            Self::Played(played) => played.succeed(next, regions).await,
            Self::Real(real) => real.succeed().await,
        }
    }

    /// Takes a member that does not lead out of the cluster.
    pub async fn remove(&mut self, seat: usize) -> Result<(), InteropError> {
        match self {
            Self::Played(played) => {
                played.remove(seat);
                Ok(())
            }
            Self::Real(real) => real.remove(seat).await,
        }
    }

    /// Refuses sync streams from now on, or no longer.
    pub fn withhold_sync(&self, withheld: bool) {
        match self {
            Self::Played(played) => played.withhold_sync(withheld),
            Self::Real(real) => real.withhold_sync(withheld),
        }
    }

    /// Turns the replica's way to every member into a black hole, or back.
    pub fn cut(&self, cut: bool) {
        match self {
            Self::Played(played) => played.cut(cut),
            Self::Real(real) => real.cut(cut),
        }
    }

    /// Kills etcd; real members have it in themselves.
    pub async fn etcd_away(&mut self) -> Result<(), InteropError> {
        match self {
            Self::Played(played) => played.etcd()?.kill().await,
            Self::Real(real) => real.away().await,
        }
    }

    /// Starts it again on what it left.
    pub async fn etcd_back(&mut self) -> Result<(), InteropError> {
        match self {
            Self::Played(played) => played.etcd()?.resume().await,
            Self::Real(real) => real.back().await,
        }
    }

    /// The way to it.
    pub fn etcd_channel(&mut self) -> Result<Channel, InteropError> {
        match self {
            Self::Played(played) => Ok(played.etcd()?.channel()),
            Self::Real(real) => real.etcd_channel(),
        }
    }

    /// How many keys and ids the leader was asked for, where it counts them.
    pub fn lookups(&self) -> Option<u64> {
        match self {
            Self::Played(played) => played.lookups(),
            Self::Real(_) => None,
        }
    }

    /// Ends all of it.
    pub async fn stop(self) -> Result<(), InteropError> {
        match self {
            Self::Played(played) => played.stop().await,
            Self::Real(real) => real.stop().await,
        }
    }
}
