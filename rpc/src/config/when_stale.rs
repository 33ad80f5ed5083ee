//! What happens to a lookup that the map may not answer.

use super::ConfigError;

/// What happens to a lookup while the gate is shut, or where the map has no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenStale {
    /// `refuse`: PD's own `REGION_NOT_FOUND` header, which sends stock clients to the leader, each for itself.
    Refuse,
    /// `read-through`: the replica asks the leader, equal lookups once and the rest in batches.
    #[default]
    ReadThrough,
}

impl WhenStale {
    /// Reads the value of the flag or key `setting`.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for another word.
    pub fn parse(setting: &str, text: &str) -> Result<Self, ConfigError> {
        match text {
            "refuse" => Ok(Self::Refuse),
            "read-through" => Ok(Self::ReadThrough),
            _ => Err(ConfigError::value(setting, text, "read-through or refuse")),
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::ReadThrough => "read-through",
        }
    }
}
