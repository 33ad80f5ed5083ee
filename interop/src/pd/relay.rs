//! A TCP relay that can turn into a black hole.
//!
//! While it is cut, nothing that arrives is passed on and nothing is closed: to both ends the network between them has
//! gone. A reset would be noticed at once; this has to be noticed by its silence.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::InteropError;
use crate::process::listen;

/// Bytes that are taken at once.
const CHUNK: usize = 64 << 10;

/// A listener on loopback whose connections end at another address.
#[derive(Debug)]
pub struct Relay {
    addr: SocketAddr,
    cut: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// A listener on a free port and the relay to it: an address that can be cut off.
    pub async fn before_listener() -> Result<(TcpListener, Self), InteropError> {
        let (listener, addr) = listen("listen for a member")?;
        Ok((listener, Self::start(addr).await?))
    }

    /// Listens on a free port for connections to `target`, which may be nobody's yet.
    pub async fn start(target: SocketAddr) -> Result<Self, InteropError> {
        let (listener, addr) = listen("listen for a relay")?;
        let (cut, seen) = watch::channel(false);
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(join(near, target, seen.clone()));
            }
        });
        Ok(Self {
            addr,
            cut,
            accepting,
        })
    }

    /// Where it listens, as a client URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Lets nothing pass from now on, or lets it pass again.
    pub fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Ends when both directions have ended, or when the relay is gone while it was cut.
async fn join(near: TcpStream, target: SocketAddr, mut cut: watch::Receiver<bool>) {
    if cut.wait_for(|cut| !cut).await.is_err() {
        return;
    }
    let Ok(far) = TcpStream::connect(target).await else {
        return;
    };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    tokio::join!(
        pump(near_read, far_write, cut.clone()),
        pump(far_read, near_write, cut)
    );
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut cut: watch::Receiver<bool>) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let Ok(read) = from.read(&mut chunk).await else {
            return;
        };
        // Also for an end: it does not get through a black hole either.
        if cut.wait_for(|cut| !cut).await.is_err() {
            return;
        }
        if read == 0 || to.write_all(&chunk[..read]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_sent_while_it_is_cut_arrives_when_it_is_not() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let relay = Relay::start(listener.local_addr().expect("an address"))
            .await
            .expect("a port");
        let addr: SocketAddr = relay.url()["http://".len()..].parse().expect("an address");
        let mut near = TcpStream::connect(addr).await.expect("it listens");
        let (mut far, _) = listener.accept().await.expect("a connection");
        near.write_all(b"one").await.expect("open");
        let mut three = [0; 3];
        far.read_exact(&mut three).await.expect("open");
        assert_eq!(&three, b"one");

        relay.cut(true);
        near.write_all(b"two").await.expect("open");
        tokio::select! {
            biased;
            _ = far.read_exact(&mut three) => panic!("it came through a black hole"),
            () = async { for _ in 0..100 { tokio::task::yield_now().await } } => {}
        }
        relay.cut(false);
        far.read_exact(&mut three).await.expect("open");
        assert_eq!(&three, b"two");
    }
}
