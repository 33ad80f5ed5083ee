//! What following a leader needs to know.

use std::time::Duration;

use rand::Rng;
use thiserror::Error;

use crate::pd::BackoffLimits;

/// See [`SyncConfig::patience_with_replicas`].
const REPLICA_PATIENCE: Duration = Duration::from_secs(2);

/// Settings of the sync task. The thresholds of the gate are not here: they are the shared state's.
#[derive(Clone, Debug)]
pub struct SyncConfig {
    /// This process' identity on the leader. See [`SyncConfig::new`].
    stream_name: String,
    id: String,
    /// Where clients reach this replica.
    advertise_url: String,
    /// PD members to ask for the leader.
    endpoints: Vec<String>,
    /// Time between two probes, and between two looks at the term.
    pub probe_interval: Duration,
    /// Deadline of each short call.
    pub call_timeout: Duration,
    /// Waits between attempts.
    pub backoff: BackoffLimits,
    /// Frames that may wait between receive and apply. A busy leader sends hundreds of small ones in a second.
    pub queue_frames: usize,
    /// Bytes that may wait between receive and apply, as estimated from lists and keys.
    pub queue_bytes: usize,
    /// Regions in a full frame of the leader.
    pub batch_limit: u64,
    /// Records in the smallest ring that a leader has.
    pub smallest_ring: u64,
    /// How long a full sync may take, from its first frame until it is published. A leader sends 20 MiB in a second, so
    /// that one of ten million regions takes some minutes.
    pub full_sync_deadline: Duration,
    /// Whom to follow, in turn; PD alone when there is nobody else.
    pub upstreams: Vec<Upstream>,
}

/// Somebody to follow.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Upstream {
    /// The PD leader, whoever that is.
    Pd,
    /// The replica at this URL.
    Replica(String),
}

impl Upstream {
    /// As the settings have it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pd => "pd",
            Self::Replica(url) => url,
        }
    }
}

/// A setting without which no stream may be opened.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SyncConfigError {
    /// A leader that is given no address for a follower stops working.
    #[error("the advertised address is empty; give the address at which clients reach this server")]
    NoAdvertiseUrl,
    /// There is nobody to ask.
    #[error("no backend endpoint is given; name the client addresses of the PD members")]
    NoEndpoints,
}

impl SyncConfig {
    /// How long a replica that is followed may take for an answer. It waits for its own leader for a second at most.
    pub(super) fn patience_with_replicas(&self) -> Duration {
        self.call_timeout.min(REPLICA_PATIENCE)
    }

    /// Defaults of a served replica.
    ///
    /// A leader knows its streams by name and closes a stream when another comes with the same one, so `name`, which is
    /// the operator's and may be a host name shared by several processes, gets a random suffix here.
    ///
    /// # Errors
    ///
    /// See [`SyncConfigError`].
    pub fn new(
        name: &str,
        advertise_url: impl Into<String>,
        endpoints: Vec<String>,
    ) -> Result<Self, SyncConfigError> {
        let advertise_url = advertise_url.into();
        if advertise_url.is_empty() {
            return Err(SyncConfigError::NoAdvertiseUrl);
        }
        if endpoints.is_empty() {
            return Err(SyncConfigError::NoEndpoints);
        }
        let suffix: u64 = rand::rng().random();
        Ok(Self {
            id: format!("{suffix:016x}"),
            stream_name: format!("{name}-{suffix:016x}"),
            advertise_url,
            endpoints,
            probe_interval: Duration::from_secs(3),
            call_timeout: Duration::from_secs(3),
            backoff: BackoffLimits::default(),
            queue_frames: 16_384,
            queue_bytes: 64 << 20,
            batch_limit: 1_000,
            smallest_ring: 10_000,
            full_sync_deadline: Duration::from_secs(30 * 60),
            upstreams: vec![Upstream::Pd],
        })
    }

    /// The name of the sync stream on the leader, unique to this process.
    #[must_use]
    pub fn stream_name(&self) -> &str {
        &self.stream_name
    }

    /// What the stream's name ends in: unlike that of any other process.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name of a probe, which replaces nobody's stream but that of the probe before the last.
    #[must_use]
    pub fn probe_name(&self, number: usize) -> String {
        let other = if number.is_multiple_of(2) { "" } else { "-2" };
        format!("{}-probe{other}", self.stream_name)
    }

    /// The name under which the leader's dialect is asked for.
    #[must_use]
    pub fn who_name(&self) -> String {
        format!("{}-who", self.stream_name)
    }

    /// The name under which a copy of the leader's map is asked for, beside the stream.
    #[must_use]
    pub fn copy_name(&self) -> String {
        format!("{}-copy", self.stream_name)
    }

    /// Where clients reach this replica; never empty.
    #[must_use]
    pub fn advertise_url(&self) -> &str {
        &self.advertise_url
    }

    /// The PD members to ask; never empty.
    #[must_use]
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> SyncConfig {
        SyncConfig::new("router", "http://me:1", vec!["http://pd:2".to_owned()]).unwrap()
    }

    #[test]
    fn two_processes_with_one_name_have_two_stream_names() {
        let (one, other) = (config(), config());
        assert_ne!(one.stream_name(), other.stream_name());
        assert!(one.stream_name().starts_with("router-"));
        assert_ne!(one.stream_name(), one.probe_name(0));
    }

    #[test]
    fn nothing_is_opened_without_an_address_of_ours_or_without_endpoints() {
        let endpoints = vec!["http://pd:2".to_owned()];
        assert_eq!(
            SyncConfig::new("router", "", endpoints).unwrap_err(),
            SyncConfigError::NoAdvertiseUrl
        );
        assert_eq!(
            SyncConfig::new("router", "http://me:1", Vec::new()).unwrap_err(),
            SyncConfigError::NoEndpoints
        );
    }
}
