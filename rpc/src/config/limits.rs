//! What clients may take of a replica.

use super::ConfigError;
use crate::lookup::Bounds;

/// Bounds on connections, calls and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Connections that may be open (`max-connections`); one beyond is closed as soon as it is accepted.
    pub connections: usize,
    /// Calls that one connection may have open (`max-concurrent-streams`); a client waits with the next.
    pub streams: u32,
    /// The largest request, in bytes (`max-message-size`); a larger one gets ResourceExhausted. Forwarded messages are not
    /// held whole and have the PD leader's own limit.
    pub message: usize,
    /// The most that one scan may answer (`max-scan-regions`, `max-scan-size` in bytes); who asks for more gets
    /// ResourceExhausted, never a list cut short.
    pub scan: Bounds,
}

impl Default for LimitsConfig {
    /// 10,000 connections; 1,000 calls on each, far more than a stock client has; requests of 16 MiB: a batch of 10,000
    /// keys stays far below; scans of 100,000 regions and 64 MiB: the largest page of a stock client has 10,000, and
    /// few clients receive more than 4 MiB.
    fn default() -> Self {
        Self {
            connections: 10_000,
            streams: 1_000,
            message: 16 << 20,
            scan: Bounds {
                regions: 100_000,
                bytes: 64 << 20,
            },
        }
    }
}

impl LimitsConfig {
    /// Sets the limit of that name; false if there is none.
    pub(super) fn set(&mut self, key: &str, value: Option<i64>) -> Result<bool, ConfigError> {
        let within = |least: i64, most: i64, unit: &str| match value {
            Some(count) if (least..=most).contains(&count) => Ok(count),
            _ => Err(ConfigError::value(
                key,
                value.map_or_else(
                    || "not a whole number".to_owned(),
                    |count| count.to_string(),
                ),
                &format!("a whole number of {unit} from {least} to {most}, without quotes"),
            )),
        };
        // The casts keep what is within the bounds.
        match key {
            "max-connections" => self.connections = within(1, 1_000_000, "connections")? as usize,
            "max-concurrent-streams" => self.streams = within(1, 1_000_000, "calls")? as u32,
            "max-message-size" => self.message = within(1_024, 1 << 30, "bytes")? as usize,
            "max-scan-regions" => {
                self.scan.regions = within(1_024, i64::from(u32::MAX), "regions")? as usize;
            }
            "max-scan-size" => self.scan.bytes = within(1 << 20, 1 << 31, "bytes")? as usize,
            _ => return Ok(false),
        }
        Ok(true)
    }
}
