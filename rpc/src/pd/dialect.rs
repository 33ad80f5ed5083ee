//! Which dialect of the sync stream a PD speaks.
//!
//! Releases up to 8.5, and the betas of 9.0, mark no end of a full sync, answer an index that they cannot serve with
//! nothing at all, and feed all streams from one broadcaster that a slow follower holds up. PD master marks the end,
//! answers every index, and gives each stream a position of its own.
//!
//! No version string decides: a build from source often has none, and the betas of 9.0 speak the old dialect. A leader
//! counts as one of release 8.5 until its stream has shown what only master sends.

use std::fmt;

use serde::Serialize;

/// A dialect of the sync stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, clap::ValueEnum)]
pub enum Dialect {
    /// PD master's
    #[default]
    #[serde(rename = "master")]
    #[value(name = "master")]
    Master,
    /// That of releases up to 8.5
    #[serde(rename = "release-8.5")]
    #[value(name = "release-8.5")]
    Release85,
}

impl Dialect {
    /// The name on the command line, in metrics and in status pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Master => "master",
            Self::Release85 => "release-8.5",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
