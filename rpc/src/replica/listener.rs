//! The one port: binding it, accepting on it, and letting go of it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::state::Counter;
use crate::link::Link;
use crate::tls::Tls;

/// The pause after a failed accept: most failures are a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// Listens at the address that `url` names.
///
/// # Errors
/// That the name cannot be resolved, or that the system refuses the address.
pub(crate) async fn bind(url: &Url) -> io::Result<TcpListener> {
    let host = url.host_str().unwrap_or_default();
    // An IPv6 address is written in brackets in a URL.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or_default();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host((host, port)).await? {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A listener whose connections are probed by the system, so that one whose client has vanished ends even where HTTP
/// has no pings.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // Else a server that starts again would have to wait for the connections of the one before.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    // What is accepted inherits it.
    socket.set_keepalive(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Who is let in.
#[derive(Debug)]
pub(crate) struct Door {
    /// For a port that speaks TLS.
    tls: Option<Arc<Tls>>,
    places: Arc<Semaphore>,
    limit: usize,
    counters: DoorCounters,
}

/// Connections that were not let in.
#[derive(Debug, Default)]
pub(crate) struct DoorCounters {
    /// There were as many as there may be.
    pub(crate) full: Counter,
    /// No TLS was agreed on.
    pub(crate) handshake: Counter,
}

impl Door {
    pub(crate) fn new(tls: Option<Arc<Tls>>, limit: usize) -> Self {
        Self {
            tls,
            places: Arc::new(Semaphore::new(limit)),
            limit,
            counters: DoorCounters::default(),
        }
    }

    pub(crate) fn counters(&self) -> &DoorCounters {
        &self.counters
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.limit.saturating_sub(self.places.available_permits())
    }

    /// Makes a link of a connection, unless there are too many.
    fn admit(
        self: &Arc<Self>,
        stream: TcpStream,
        from: SocketAddr,
        links: &mpsc::Sender<io::Result<Link>>,
        cut: &CancellationToken,
    ) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.counters.full.add(1);
            // Whoever is turned away at once can go elsewhere at once.
            tracing::debug!(%from, limit = self.limit, "turned away: too many connections");
            return;
        };
        let (door, links, cut) = (Arc::clone(self), links.clone(), cut.clone());
        // A client that is slow to shake hands holds up nobody else.
        tokio::spawn(async move {
            let link = match door.tls.as_deref().and_then(Tls::server) {
                None => Link::new(stream, cut),
                Some(config) => match Link::secured(stream, config, cut).await {
                    Ok(link) => link,
                    Err(error) => {
                        door.counters.handshake.add(1);
                        tracing::debug!(%from, %error, "turned away: no TLS");
                        return;
                    }
                },
            };
            let _ = links.send(Ok(link.holding(place))).await;
        });
    }
}

/// The connections accepted on `listener` until `stop`; the port is free again when the task has
/// ended. `cut` breaks all of them.
pub(crate) fn accept(
    listener: TcpListener,
    door: Arc<Door>,
    stop: CancellationToken,
    cut: CancellationToken,
) -> ReceiverStream<io::Result<Link>> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sender.closed() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => door.admit(stream, from, &sender, &cut),
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    ReceiverStream::new(receiver)
}
