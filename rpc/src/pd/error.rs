//! What can go wrong on the way to PD: the cause, whose it is, and what helps.

use std::time::Duration;

use thiserror::Error;
use tonic::Status;

/// One call to one PD member failed. Asking again, or asking another member, may help.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// The member did not answer in time.
    #[error("no answer from {url} within {after:?}")]
    Deadline {
        /// The member that was asked.
        url: String,
        /// How long it had.
        after: Duration,
    },
    /// The address cannot be used at all.
    #[error("{url} cannot be dialled: {reason}")]
    Address {
        /// The address as it was given.
        url: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// The member answered with a gRPC status, or the connection failed under the call.
    #[error("{url} {}", explained(status))]
    Status {
        /// The member that was asked.
        url: String,
        /// Its status.
        status: Box<Status>,
    },
    /// The member answered, with an error in the header.
    #[error("{url} refused: {message}")]
    Refused {
        /// The member that was asked.
        url: String,
        /// The header's message.
        message: String,
    },
}

impl CallError {
    /// Wraps the status of a call to `url`.
    #[must_use]
    pub fn status(url: &str, status: Status) -> Self {
        Self::Status {
            url: url.to_owned(),
            status: Box::new(status),
        }
    }
}

/// A status in words. Three quite different things come as one: nobody listens, somebody else listens, PD says no.
fn explained(status: &Status) -> String {
    let mut cause = std::error::Error::source(status);
    let mut deepest = None;
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return format!("cannot be reached: {error}");
        }
        deepest = Some(error.to_string());
        cause = error.source();
    }
    let message = status.message();
    let is_foreign = status.code() == tonic::Code::Unimplemented
        || message.contains("grpc-status header missing")
        || message.contains("invalid content-type")
        || deepest
            .iter()
            .any(|deepest| deepest.contains("frame with invalid size"));
    if is_foreign {
        return format!("is not a PD member: something else answers there ({message})");
    }
    match deepest {
        Some(deepest) if message != deepest => {
            format!("answered {:?}: {message}: {deepest}", status.code())
        }
        _ => format!("answered {:?}: {message}", status.code()),
    }
}

/// Two endpoints belong to different clusters: following either would be a guess.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(
    "endpoints of different clusters: {first_url} is of cluster {first_id}, {second_url} of cluster {second_id}; name endpoints of one cluster only"
)]
pub struct DifferentClusters {
    /// One endpoint.
    pub first_url: String,
    /// The cluster that it belongs to.
    pub first_id: u64,
    /// The other endpoint.
    pub second_url: String,
    /// The cluster that the other belongs to.
    pub second_id: u64,
}

/// No leader was found among the endpoints.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// A mistake in the list of endpoints; see [`DifferentClusters`].
    #[error(transparent)]
    DifferentClusters(#[from] DifferentClusters),
    /// Members answered, and none of them knows a leader.
    #[error("{answered} PD members answered and none knows a leader")]
    NoLeader {
        /// How many answered.
        answered: usize,
        /// How many did not, although something was there to be asked, or may have been.
        silent: usize,
    },
    /// No endpoint answered.
    #[error("none of {asked} endpoints answered; the last error: {last}")]
    Unreachable {
        /// How many were asked.
        asked: usize,
        /// How many of them may be there all the same: all but those at whose address nobody listens.
        silent: usize,
        /// The last of their errors.
        last: String,
    },
}

impl ResolveError {
    /// Whether each endpoint has said that there is no leader, or has nobody listening at its address. A member that
    /// does not answer may be leading behind a network that is cut.
    #[must_use]
    pub fn leaves_nobody_to_lead(&self) -> bool {
        match self {
            Self::NoLeader { silent, .. } | Self::Unreachable { silent, .. } => *silent == 0,
            Self::DifferentClusters(_) => false,
        }
    }
}

impl CallError {
    /// Whether the call failed because nobody listens at the member's address.
    pub(super) fn is_nobody_there(&self) -> bool {
        let Self::Status { status, .. } = self else {
            return false;
        };
        let mut cause = std::error::Error::source(&**status);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<std::io::Error>() {
                return error.kind() == std::io::ErrorKind::ConnectionRefused;
            }
            cause = error.source();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn told(status: Status) -> String {
        CallError::status("http://pd-1:2379", status).to_string()
    }

    #[test]
    fn nobody_there_somebody_else_there_and_a_refusal_are_told_apart() {
        let mut refused = Status::unavailable("tcp connect error");
        refused.set_source(std::sync::Arc::new(io::Error::from(
            io::ErrorKind::ConnectionRefused,
        )));
        let call = CallError::status("http://pd-1:2379", refused.clone());
        assert!(call.is_nobody_there());
        assert!(!CallError::status("x", Status::unavailable("no leader")).is_nobody_there());
        assert_eq!(
            told(refused),
            "http://pd-1:2379 cannot be reached: connection refused"
        );
        let foreign = told(Status::unimplemented("unknown service"));
        assert!(foreign.contains("is not a PD member"), "{foreign}");
        assert_eq!(
            told(Status::unavailable("no leader")),
            "http://pd-1:2379 answered Unavailable: no leader"
        );
    }
}
