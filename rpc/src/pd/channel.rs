//! Connections to PD members, one for each address and lane.
//!
//! Short calls do not share a connection with the sync stream: a stream whose bytes are throttled or backed up would
//! hold up the probe that is to show how far behind it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use tonic::transport::{Channel, Endpoint};

use super::error::CallError;
use crate::tls::{Tls, connector};

/// Which connection a call takes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Lane {
    /// Short calls: members, term, probes.
    Calls,
    /// The sync stream.
    Stream,
    /// The sync stream of a replica that is followed in place of PD. There may be others to follow, so one that stands
    /// still is to be noticed soon; unlike PD it takes pings as often as that needs.
    Chain,
    /// Calls of others that are passed on. Those who do not read their answers hold up each other at most.
    Forward,
    /// Questions on behalf of clients: a large answer holds up no probe.
    Questions,
}

/// Interval of pings to a replica that is followed, and how long one may stay unanswered.
const CHAIN_PING: Duration = Duration::from_secs(2);

/// What one forwarded call may have in flight before its reader has to take it.
const FORWARD_STREAM_WINDOW: u32 = 256 << 10;

/// What all of them together may; as many readers that stand still as it takes to fill it hold up the rest.
const FORWARD_WINDOW: u32 = 64 << 20;

/// How connections are made and kept.
#[derive(Clone, Copy, Debug)]
pub struct ChannelSettings {
    /// How long a TCP connection may take.
    pub connect_timeout: Duration,
    /// Interval of HTTP/2 pings while a call is open. PD closes a connection that pings more often than every 5 s.
    pub ping_interval: Duration,
    /// How long a ping may stay unanswered.
    pub ping_timeout: Duration,
    /// Bytes that may be in flight on one stream before the receiver has to take them.
    pub stream_window: u32,
    /// The largest message accepted, in bytes. A frame of 1,000 regions with buckets can exceed 8 MiB.
    pub receive_limit: usize,
}

impl Default for ChannelSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(3),
            stream_window: 2 << 20,
            receive_limit: 64 << 20,
        }
    }
}

/// A pool of connections that are dialled on first use and dialled again after they broke.
#[derive(Debug)]
pub struct Channels {
    settings: ChannelSettings,
    /// For `https://` addresses.
    tls: Option<Arc<Tls>>,
    open: Mutex<HashMap<(String, Lane), Channel>>,
}

impl Channels {
    /// An empty pool.
    #[must_use]
    pub fn new(settings: ChannelSettings, tls: Option<Arc<Tls>>) -> Self {
        Self {
            settings,
            tls,
            open: Mutex::new(HashMap::new()),
        }
    }

    /// The settings of all its connections.
    #[must_use]
    pub fn settings(&self) -> &ChannelSettings {
        &self.settings
    }

    /// The connection to `url` in `lane`. Does not wait: the first call on it dials.
    ///
    /// # Errors
    ///
    /// [`CallError::Address`] when `url` is not an address that can be dialled.
    pub fn get(&self, url: &str, lane: Lane) -> Result<Channel, CallError> {
        // A poisoned map is still a map of connections.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = open.get(&(url.to_owned(), lane)) {
            return Ok(channel.clone());
        }
        let channel = self.dial(url, lane)?;
        open.insert((url.to_owned(), lane), channel.clone());
        Ok(channel)
    }

    /// Closes the connections to `url` once the calls on them have ended.
    pub fn forget(&self, url: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(address, _), _| address != url);
    }

    fn dial(&self, url: &str, lane: Lane) -> Result<Channel, CallError> {
        let address = |reason: String| CallError::Address {
            url: url.to_owned(),
            reason,
        };
        let plain = match url.strip_prefix("https://") {
            // The connector puts TLS under what the channel takes for plain.
            Some(rest) => format!("http://{rest}"),
            None => url.to_owned(),
        };
        let endpoint = Endpoint::from_shared(plain)
            .map_err(|error| address(format!("{error}; expected http://host:port")))?;
        let settings = &self.settings;
        let (stream_window, window) = match lane {
            Lane::Forward => (FORWARD_STREAM_WINDOW, FORWARD_WINDOW),
            Lane::Calls | Lane::Stream | Lane::Chain | Lane::Questions => {
                let window = settings.stream_window;
                (window, window.saturating_mul(2))
            }
        };
        let (interval, timeout) = match lane {
            Lane::Chain => (CHAIN_PING, CHAIN_PING),
            _ => (settings.ping_interval, settings.ping_timeout),
        };
        let endpoint = endpoint
            .connect_timeout(settings.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(interval)
            .keep_alive_timeout(timeout)
            .keep_alive_while_idle(false)
            .initial_stream_window_size(stream_window)
            .initial_connection_window_size(window);
        if !url.starts_with("https://") {
            return Ok(endpoint.connect_lazy());
        }
        let Some(tls) = &self.tls else {
            return Err(address(
                "it is https and no authority is trusted; give cacert-path (--cacert)".to_owned(),
            ));
        };
        let origin = Uri::try_from(url).map_err(|error| address(error.to_string()))?;
        let connector = connector(Arc::clone(tls));
        Ok(endpoint
            .origin(origin)
            .connect_with_connector_lazy(connector))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_dialled_is_a_value_that_names_it() {
        let channels = Channels::new(ChannelSettings::default(), None);
        let error = channels.get("https://pd:2379", Lane::Calls).unwrap_err();
        assert!(error.to_string().contains("https://pd:2379"), "{error}");
        assert!(channels.get("not an address", Lane::Calls).is_err());
    }

    #[test]
    fn the_receive_limit_is_at_least_64_mib() {
        assert!(ChannelSettings::default().receive_limit >= 64 << 20);
    }
}
