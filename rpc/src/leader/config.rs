//! What an embedded leader is told when it starts, and why it may not start.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::clock::{BootClock, Clock};

use super::observer::ChangeObserver;
use super::wall::{SystemWall, WallClock};
use crate::pd::Dialect;
use crate::tls::Tls;

/// How an embedded leader behaves. The defaults are PD's.
#[derive(Clone, Debug)]
pub struct LeaderConfig {
    /// Identifies the cluster; requests for another are refused. Never 0.
    pub cluster_id: u64,
    /// The address to listen on. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// The client URL that others are told, where they are to come another way; the address listened on when absent.
    pub advertise: Option<String>,
    /// The member's name.
    pub name: String,
    /// How sync streams are served, and which version the member says that it is.
    pub dialect: Dialect,
    /// How many changes the history keeps for streams that lag behind; it grows while one needs more, on master.
    pub ring_capacity: usize,
    /// How many changes the history keeps at most. A stream that is further behind, or a full sync that more changes
    /// under, is ended. Rounded down to `ring_capacity` times a power of two, and never below it. Without effect on
    /// release 8.5, whose history does not grow.
    pub ring_limit: usize,
    /// The most regions in one frame of a sync stream. On release 8.5 a live frame may have one more, and one of its
    /// history all that there is.
    pub max_batch: usize,
    /// How long a sync stream may be silent before it gets an empty frame.
    pub keepalive: Duration,
    /// How long a frame may wait for its reader before the stream is dropped. On release 8.5 all other streams wait
    /// with it; its patch releases up to 8.5.6 wait for ever, which is [`Duration::MAX`].
    pub send_timeout: Duration,
    /// How long a new sync stream may take to say what it wants.
    pub handshake_timeout: Duration,
    /// What all full syncs together may send, in bytes a second; also the size of the largest burst, which no single
    /// frame may exceed. 0 lifts the limit.
    pub full_sync_rate: u64,
    /// How long open streams may take to end when the leader stops.
    pub stop_grace: Duration,
    /// Speaks TLS with these; plain text when absent.
    pub tls: Option<Arc<Tls>>,
    /// Hears of every change of the map.
    pub observer: Option<Arc<dyn ChangeObserver>>,
    /// Stamps what the map takes in.
    pub clock: Arc<dyn Clock>,
    /// The time of day, from which timestamps are made.
    pub wall: Arc<dyn WallClock>,
}

impl Default for LeaderConfig {
    fn default() -> Self {
        Self {
            cluster_id: 1,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertise: None,
            name: "tidegate-pd".to_owned(),
            dialect: Dialect::Master,
            ring_capacity: 10_000,
            ring_limit: 80_000,
            max_batch: 1000,
            keepalive: Duration::from_secs(10),
            send_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            full_sync_rate: 20 << 20,
            stop_grace: Duration::from_secs(1),
            tls: None,
            observer: None,
            clock: Arc::new(BootClock),
            wall: Arc::new(SystemWall),
        }
    }
}

/// Why a leader did not start. Nothing was left running.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// The address is taken or not ours.
    #[error("cannot listen on {addr}: {source}; give another address or stop what uses this one")]
    Listen {
        /// The address that was asked for.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// TLS without a certificate to show.
    #[error("tls has no certificate; give cert and key")]
    NoCertificate,
    /// A setting that cannot work.
    #[error("{setting} must not be 0")]
    Zero {
        /// The name of the setting.
        setting: &'static str,
    },
}

impl LeaderConfig {
    /// How its address begins.
    pub(super) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub(super) fn check(&self) -> Result<(), LeaderError> {
        if self.tls.as_ref().is_some_and(|tls| tls.server().is_none()) {
            return Err(LeaderError::NoCertificate);
        }
        let settings = [
            ("cluster_id", self.cluster_id == 0),
            ("ring_capacity", self.ring_capacity == 0),
            ("max_batch", self.max_batch == 0),
            ("keepalive", self.keepalive.is_zero()),
        ];
        match settings.into_iter().find(|(_, zero)| *zero) {
            Some((setting, _)) => Err(LeaderError::Zero { setting }),
            None => Ok(()),
        }
    }
}
