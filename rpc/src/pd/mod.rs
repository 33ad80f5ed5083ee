//! The way to the PD leader: its members, the leader among them, and the term of its reign.
//!
//! A leader is identified by its *term*, not by its address: the create-revision of the key that a PD member holds
//! while it leads. Two sessions with the same address may belong to different terms, and index spaces belong to a term.
//!
//! Every call has a deadline. What can fail is a value: an endpoint that does not answer is asked again by the caller,
//! with [`Backoff`] between the rounds. The only failure that no retry heals is a list of endpoints that belong to
//! different clusters.

mod backoff;
mod channel;
mod dialect;
mod error;
mod members;
mod remote;
mod term;
pub(crate) mod told;
mod transport;

pub use backoff::{Backoff, BackoffLimits};
pub use channel::{ChannelSettings, Channels, Lane};
pub use dialect::Dialect;
pub use error::{CallError, DifferentClusters, ResolveError};
pub use members::{ClusterProof, Membership, ResolveLimits, resolve};
pub use remote::{Redial, Remote};
pub use term::{LeaderKey, Term, leader_key_name};
pub use told::Told;
pub use transport::{FrameSource, PdTransport};

use std::future::Future;
use std::time::Duration;

/// Runs a call under a deadline.
///
/// # Errors
///
/// [`CallError::Deadline`] when it passes, otherwise the call's own.
pub async fn within<T>(
    deadline: Duration,
    url: &str,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(deadline, call).await {
        Ok(outcome) => outcome,
        Err(_) => Err(CallError::Deadline {
            url: url.to_owned(),
            after: deadline,
        }),
    }
}
