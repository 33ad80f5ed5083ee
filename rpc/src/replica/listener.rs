//! The one port: binding it, accepting on it, and letting go of it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, lookup_host};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::link::Link;

/// The pause after a failed accept: most failures are a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// Listens at the address that `url` names.
///
/// # Errors
/// That the name cannot be resolved, or that the system refuses the address.
pub(super) async fn bind(url: &Url) -> io::Result<TcpListener> {
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

/// The connections accepted on `listener` until `stop`; the port is free again when the task has
/// ended. `cut` breaks all of them.
pub(super) fn accept(
    listener: TcpListener,
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
                Ok((stream, _)) => {
                    let connection = Link::new(stream, cut.clone());
                    if sender.send(Ok(connection)).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    ReceiverStream::new(receiver)
}
