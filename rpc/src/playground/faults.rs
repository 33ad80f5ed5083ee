//! What goes wrong on purpose: a link that is too slow, an apply that stands still, a leader that
//! restarts.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::replica::hooks::ApplyLayer;

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Nothing
    #[default]
    Steady,
    /// The leader's bytes reach replica 2 more slowly than the churn makes them
    Throttle,
    /// Replica 2 receives and does not apply
    Stall,
    /// The PD leader is away for a second, and comes back under a new term
    LeaderRestart,
    /// Replica 2 is cut off until the leader has forgotten what it needs to go on
    RingOverflow,
}

impl Scenario {
    /// The name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Throttle => "throttle",
            Self::Stall => "stall",
            Self::LeaderRestart => "leader-restart",
            Self::RingOverflow => "ring-overflow",
        }
    }
}

/// Kernel buffers of a relay's sockets: small, so that a backlog waits at the leader.
const RELAY_BUFFER: u32 = 16 << 10;
/// The most that a throttled relay passes on in one piece.
const RELAY_PIECE: usize = 512;

/// A TCP relay in front of a server that can limit what the server sends, over all connections, and cut them all off.
#[derive(Debug)]
pub struct Relay {
    addr: SocketAddr,
    throttle: Arc<Throttle>,
    cut: watch::Sender<bool>,
    stop: CancellationToken,
}

/// A rate that can be set and lifted while bytes flow.
#[derive(Debug)]
pub struct Throttle {
    bytes_per_second: watch::Sender<Option<u64>>,
    /// When the next byte may pass.
    next: Mutex<Instant>,
}

/// An apply layer that can be shut.
#[derive(Debug)]
pub struct Stall(watch::Sender<bool>);

// === impl Relay ===

impl Relay {
    /// Listens on a free port of loopback, in front of `server`.
    ///
    /// # Errors
    ///
    /// No port can be had.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        // Accepted sockets inherit it.
        socket.set_send_buffer_size(RELAY_BUFFER)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let listener = socket.listen(64)?;
        let addr = listener.local_addr()?;
        let throttle = Arc::new(Throttle::new());
        let cut = watch::Sender::new(false);
        let stop = CancellationToken::new();
        tokio::spawn(accept(
            listener,
            server,
            Arc::clone(&throttle),
            cut.subscribe(),
            stop.clone(),
        ));
        Ok(Self {
            addr,
            throttle,
            cut,
            stop,
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Closes every connection and refuses new ones; or lets them pass again.
    pub fn cut(&self, off: bool) {
        self.cut.send_replace(off);
    }

    /// Its limit.
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    throttle: Arc<Throttle>,
    cut: watch::Receiver<bool>,
    stop: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((client, _)) => {
                let (throttle, mut cut, stop) = (Arc::clone(&throttle), cut.clone(), stop.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        _ = cut.wait_for(|off| *off) => {}
                        // A broken connection is passed on by closing the other half.
                        _ = relay(client, server, &throttle) => {}
                        () = stop.cancelled() => {}
                    }
                });
            }
            Err(error) => {
                tracing::debug!(%error, "the relay could not accept a connection");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn relay(client: TcpStream, server: SocketAddr, throttle: &Throttle) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RELAY_BUFFER)?;
    let server = socket.connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        tokio::io::copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    let down = async {
        let mut piece = vec![0; 64 << 10];
        loop {
            let most = if throttle.is_limited() {
                RELAY_PIECE
            } else {
                piece.len()
            };
            let read = from_server.read(&mut piece[..most]).await?;
            if read == 0 {
                return to_client.shutdown().await;
            }
            throttle.wait_for(read).await;
            to_client.write_all(&piece[..read]).await?;
        }
    };
    tokio::try_join!(up, down).map(|_| ())
}

// === impl Throttle ===

impl Throttle {
    fn new() -> Self {
        Self {
            bytes_per_second: watch::Sender::new(None),
            next: Mutex::new(Instant::now()),
        }
    }

    /// Limits what passes; `None` lifts the limit, also for what is waiting.
    pub fn limit(&self, bytes_per_second: Option<u64>) {
        self.bytes_per_second
            .send_replace(bytes_per_second.map(|rate| rate.max(1)));
    }

    fn is_limited(&self) -> bool {
        self.bytes_per_second.borrow().is_some()
    }

    /// Waits until `bytes` may pass.
    async fn wait_for(&self, bytes: usize) {
        let mut changed = self.bytes_per_second.subscribe();
        let Some(rate) = *changed.borrow_and_update() else {
            return;
        };
        let mut next = self.next.lock().await;
        let until =
            (*next).max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        tokio::select! {
            () = sleep_until(until) => *next = until,
            // Lifted: what was waiting passes.
            _ = changed.wait_for(Option::is_none) => {}
        }
    }
}

// === impl Stall ===

impl Stall {
    /// An open layer.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Shuts it, or opens it again.
    pub fn set(&self, stalled: bool) {
        self.0.send_replace(stalled);
    }
}

impl Default for Stall {
    fn default() -> Self {
        Self::new()
    }
}

impl ApplyLayer for Stall {
    fn before_apply(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut stalled = self.0.subscribe();
        Box::pin(async move {
            // An error means that the layer is gone, and with it the stall.
            let _ = stalled.wait_for(|stalled| !stalled).await;
        })
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_throttle_passes_its_rate_over_all_connections() {
        let throttle = Throttle::new();
        let started = Instant::now();
        throttle.wait_for(1 << 30).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        throttle.limit(Some(1_000));
        tokio::join!(throttle.wait_for(500), throttle.wait_for(1_500));
        assert!(
            started.elapsed() >= Duration::from_secs(2)
                && started.elapsed() < Duration::from_secs(3)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn lifting_the_limit_lets_pass_what_waits() {
        let throttle = Throttle::new();
        throttle.limit(Some(1));
        let started = Instant::now();
        let lift = async {
            sleep(Duration::from_secs(1)).await;
            throttle.limit(None);
        };
        tokio::join!(throttle.wait_for(1_000), throttle.wait_for(1_000), lift);
        assert_eq!(started.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test]
    async fn a_relay_passes_both_ways_and_ends_with_either_end() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port");
        let relay = Relay::start(server.local_addr().expect("an address"))
            .await
            .expect("a port");
        let mut client = TcpStream::connect(relay.addr())
            .await
            .expect("the relay listens");
        let (mut accepted, _) = server.accept().await.expect("the relay connects");
        client.write_all(b"ping").await.expect("written");
        let mut bytes = [0; 4];
        accepted.read_exact(&mut bytes).await.expect("passed on");
        assert_eq!(&bytes, b"ping");
        relay.throttle().limit(Some(1_000_000));
        accepted.write_all(&[7; 2_000]).await.expect("written");
        drop(accepted);
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.expect("passed on");
        assert_eq!(received, [7; 2_000]);

        let mut client = TcpStream::connect(relay.addr())
            .await
            .expect("the relay listens");
        let (_accepted, _) = server.accept().await.expect("the relay connects");
        relay.cut(true);
        assert_eq!(client.read(&mut bytes).await.ok(), Some(0), "closed");
    }

    #[tokio::test]
    async fn a_stall_holds_an_apply_until_it_is_opened() {
        let stall = Stall::new();
        stall.before_apply().await;
        stall.set(true);
        let mut held = stall.before_apply();
        let waits =
            std::future::poll_fn(|cx| Poll::Ready(held.as_mut().poll(cx).is_pending())).await;
        assert!(waits);
        stall.set(false);
        held.await;
    }
}
