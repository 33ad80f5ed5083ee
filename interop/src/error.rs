//! What can go wrong in a run, told apart by whose fault it is.

use std::path::PathBuf;
use std::time::Duration;

/// A run that did not end with a verdict, or ended with a bad one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InteropError {
    /// A program could not be started: the path or its permissions are wrong.
    #[error("cannot start {}: {source}; give the path of an executable", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The machine refused something that every run needs: a directory, a port, a signal.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A state did not come about in time.
    #[error("{what} did not happen within {limit:?}{detail}")]
    Timeout {
        /// The state waited for.
        what: &'static str,
        /// How long it was waited for.
        limit: Duration,
        /// What was seen last, with a leading separator, or nothing.
        detail: String,
    },
    /// A call that has to succeed did not.
    #[error("{call} failed: {source}")]
    Call {
        /// The method.
        call: &'static str,
        /// The status it ended with.
        #[source]
        source: Box<tonic::Status>,
    },
    /// A server said no in its header.
    #[error("{call} was answered with an error: {message}")]
    Answer {
        /// The method.
        call: &'static str,
        /// The header's text.
        message: String,
    },
    /// The embedded leader could not be run.
    #[error("embedded leader: {0}")]
    Leader(String),
    /// The pd-server that was given could not be run, or does not do what is asked of it.
    #[error("pd-server: {0}")]
    Pd(String),
    /// The replica's answers were wrong; the run's purpose is to find this.
    #[error("{0}")]
    Verdict(String),
}

impl InteropError {
    /// An error of a call.
    pub fn call(call: &'static str) -> impl FnOnce(tonic::Status) -> Self {
        move |source| Self::Call {
            call,
            source: Box::new(source),
        }
    }

    /// An error of the system.
    pub fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
