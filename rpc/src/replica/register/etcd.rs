//! A key under a lease, at one PD member.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::FAREWELL;
use crate::pd::{CallError, Remote, within};
use crate::proto::etcdserverpb::kv_client::KvClient;
use crate::proto::etcdserverpb::lease_client::LeaseClient;
use crate::proto::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    PutRequest,
};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why a replica is not registered.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegisterError {
    #[error("no PD member is known")]
    NoMember,
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{url} granted no lease: {text}")]
    NotGranted { url: String, text: String },
    #[error("the lease has expired at {url}")]
    Expired { url: String },
}

/// A lease that is kept alive.
#[derive(Debug)]
pub(super) struct Lease {
    remote: Arc<Remote>,
    url: String,
    id: i64,
    renewals: mpsc::Sender<LeaseKeepAliveRequest>,
    renewed: Streaming<LeaseKeepAliveResponse>,
}

impl Lease {
    /// A new lease with the key under it.
    pub(super) async fn put(
        remote: &Arc<Remote>,
        url: &str,
        ttl: Duration,
        key: &str,
        value: &[u8],
    ) -> Result<Self, RegisterError> {
        let channel = remote.channel(url)?;
        let mut leases = LeaseClient::new(channel.clone());
        let failed = |status: Status| CallError::status(url, status);
        let request = LeaseGrantRequest {
            ttl: i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX),
            id: 0,
        };
        let grant = async { leases.lease_grant(request).await.map_err(failed) };
        let granted = within(PATIENCE, url, grant).await?.into_inner();
        if !granted.error.is_empty() || granted.id == 0 {
            return Err(RegisterError::NotGranted {
                url: url.to_owned(),
                text: granted.error,
            });
        }
        let request = PutRequest {
            key: key.as_bytes().to_vec().into(),
            value: value.to_vec().into(),
            lease: granted.id,
            ..PutRequest::default()
        };
        let mut keys = KvClient::new(channel);
        within(PATIENCE, url, async {
            keys.put(request).await.map_err(failed)
        })
        .await?;
        let (renewals, requests) = mpsc::channel(1);
        // The first is sent along: etcd may answer nothing at all before it has one.
        let first = LeaseKeepAliveRequest { id: granted.id };
        let open = async {
            let _ = renewals.send(first).await;
            let opened = leases.lease_keep_alive(ReceiverStream::new(requests)).await;
            opened.map_err(failed)
        };
        let renewed = within(PATIENCE, url, open).await?.into_inner();
        let mut lease = Self {
            remote: Arc::clone(remote),
            url: url.to_owned(),
            id: granted.id,
            renewals,
            renewed,
        };
        lease.answered(PATIENCE).await?;
        Ok(lease)
    }

    /// Gives it its whole life again.
    pub(super) async fn renew(&mut self, deadline: Duration) -> Result<(), RegisterError> {
        // Full means that one is on its way.
        let _ = self
            .renewals
            .try_send(LeaseKeepAliveRequest { id: self.id });
        self.answered(deadline).await
    }

    async fn answered(&mut self, deadline: Duration) -> Result<(), RegisterError> {
        let url = &self.url;
        let next = async {
            let answer = self.renewed.message().await;
            answer.map_err(|status| CallError::status(url, status))
        };
        match within(deadline, url, next).await? {
            Some(answer) if answer.ttl > 0 => Ok(()),
            _ => Err(RegisterError::Expired { url: url.clone() }),
        }
    }

    /// Ends the lease, and the key with it if it is still under it.
    pub(super) async fn revoke(self) {
        let Ok(channel) = self.remote.channel(&self.url) else {
            return;
        };
        let mut leases = LeaseClient::new(channel);
        let revoke = leases.lease_revoke(LeaseRevokeRequest { id: self.id });
        // It expires by itself where this fails.
        let _ = timeout(FAREWELL, revoke).await;
    }
}
