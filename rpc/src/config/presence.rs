//! How clients see a replica.

use super::ConfigError;

/// What GetMembers tells, and thereby what the replica is to a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PresentAs {
    /// `backend`: the real members. Clients find the replica as a router, or ask it beside PD's members.
    #[default]
    Backend,
    /// `self`: that the replica is the only member and the leader. Any client keeps it as its endpoint; what it asks of
    /// a leader is passed on to the real one.
    Me,
}

impl PresentAs {
    /// Reads the value of the flag or key `setting`.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for another word.
    pub fn parse(setting: &str, text: &str) -> Result<Self, ConfigError> {
        match text {
            "backend" => Ok(Self::Backend),
            "self" => Ok(Self::Me),
            _ => Err(ConfigError::value(setting, text, "backend or self")),
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backend => "backend",
            Self::Me => "self",
        }
    }
}
