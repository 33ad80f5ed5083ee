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

/// Whether a member with this `binary_version` is known to speak the dialect before master's. A version that cannot be
/// read is not known to: builds from source often have none.
#[must_use]
pub fn speaks_old_dialect(binary_version: &str) -> bool {
    let version = binary_version.trim_start_matches('v');
    if matches!(version, "9.0.0-beta.1" | "9.0.0-beta.2") {
        return true;
    }
    let major = version.split('.').next().map(str::parse::<u32>);
    // Versions below 4 are not PD's: an embedded leader has one.
    matches!(major, Some(Ok(4..=8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_up_to_8_5_and_the_betas_of_9_0_are_told_from_master() {
        for old in [
            "v5.0.0",
            "v7.5.6",
            "v8.5.3",
            "8.5.7",
            "v8.5.7-20260801-gabcdef0",
            "v9.0.0-beta.1",
        ] {
            assert!(speaks_old_dialect(old), "{old}");
        }
        for other in [
            "",
            "None",
            "v9.0.0-alpha-123-gabcdef0",
            "v9.0.0-beta.2-510-ga186e0c",
            "v9.1.0",
            "v26.3.0",
            "v0.1.0-tidegate",
        ] {
            assert!(!speaks_old_dialect(other), "{other}");
        }
    }
}
