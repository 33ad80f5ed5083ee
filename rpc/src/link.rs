//! A connection that the server can cut.
//!
//! A server that stops lets open streams end by themselves. A reader that does not read would keep its connection, and
//! with it a part of a server that is gone, for as long as it likes; so each connection ends when the server cuts it.
//!
//! A connection on which nobody says anything costs a file descriptor for as long as it likes, too: HTTP's own
//! deadlines begin when it is known which HTTP is spoken. So a link ends, too, when it is not known by then: when
//! fewer bytes have come than HTTP/2 opens with, and the server has found nothing to answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long a client may take to say what it speaks.
const OPENING: Duration = Duration::from_secs(10);
/// The length of what HTTP/2 opens with.
const PREFACE: usize = 24;

/// What a connection is carried by.
#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection with a cut.
#[derive(Debug)]
pub(crate) struct Link {
    wire: Wire,
    /// Its place among the connections that there may be.
    _place: Option<OwnedSemaphorePermit>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Until the client has opened.
    opening: Option<Opening>,
}

#[derive(Debug)]
struct Opening {
    deadline: Pin<Box<Sleep>>,
    heard: usize,
}

impl Link {
    pub(crate) fn new(stream: TcpStream, cut: CancellationToken) -> Self {
        prepare(&stream);
        Self::over(Wire::Plain(stream), cut)
    }

    /// A link inside of TLS: the handshake is made here, within the time that a client has to open.
    ///
    /// # Errors
    /// The handshake failed, took too long or was cut.
    pub(crate) async fn secured(
        stream: TcpStream,
        config: Arc<ServerConfig>,
        cut: CancellationToken,
    ) -> io::Result<Self> {
        prepare(&stream);
        let handshake = timeout(OPENING, TlsAcceptor::from(config).accept(stream));
        let stream = tokio::select! {
            () = cut.cancelled() => return Err(io::ErrorKind::ConnectionAborted.into()),
            shaken = handshake => shaken??,
        };
        Ok(Self::over(Wire::Tls(Box::new(stream)), cut))
    }

    /// The same, with its place among the connections that there may be.
    pub(crate) fn holding(mut self, place: OwnedSemaphorePermit) -> Self {
        self._place = Some(place);
        self
    }

    fn over(wire: Wire, cut: CancellationToken) -> Self {
        Self {
            wire,
            _place: None,
            cut: Box::pin(cut.cancelled_owned()),
            opening: Some(Opening {
                deadline: Box::pin(sleep(OPENING)),
                heard: 0,
            }),
        }
    }

    fn tcp(&self) -> &TcpStream {
        match &self.wire {
            Wire::Plain(stream) => stream,
            Wire::Tls(stream) => stream.get_ref().0,
        }
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }

    /// Looks at the opening after a read that brought so many bytes, or none yet.
    fn heard(&mut self, bytes: Poll<usize>, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(opening) = &mut self.opening else {
            return Ok(());
        };
        match bytes {
            Poll::Ready(bytes) => {
                opening.heard += bytes;
                if opening.heard >= PREFACE {
                    self.opening = None;
                }
            }
            Poll::Pending => {
                if opening.deadline.as_mut().poll(cx).is_ready() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
        Ok(())
    }

    /// Looks at the opening before a write: an answer to something ends it, a greeting does not.
    fn said(&mut self) {
        self.opening.take_if(|opening| opening.heard > 0);
    }
}

/// Small frames are answers: none should wait for the next. Without it the link is slower, not broken.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl Connected for Link {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.tcp().connect_info()
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let before = buf.filled().len();
        let read = Pin::new(&mut self.wire).poll_read(cx, buf)?;
        self.heard(read.map(|()| buf.filled().len() - before), cx)?;
        read.map(Ok)
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        self.said();
        Pin::new(&mut self.wire).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        self.said();
        Pin::new(&mut self.wire).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    async fn pair() -> (TcpStream, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let (client, server) = tokio::join!(TcpStream::connect(addr), listener.accept());
        let (server, _) = server.expect("accepted");
        let link = Link::new(server, CancellationToken::new());
        (client.expect("connected"), link)
    }

    /// How long a read that finds nothing lasts; `None` if it is still waiting after an hour.
    async fn lasts(link: &mut Link) -> Option<Duration> {
        let began = Instant::now();
        let read = timeout(Duration::from_secs(3_600), link.read_u8()).await;
        let error = read.ok()?.expect_err("nothing was sent");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        Some(Duration::from_secs(began.elapsed().as_secs()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_say_what_it_speaks_is_cut() {
        let (_silent, mut link) = pair().await;
        link.write_all(b"a greeting").await.expect("sent");
        assert_eq!(lasts(&mut link).await, Some(OPENING));

        let (mut hesitant, mut link) = pair().await;
        hesitant.write_all(b"PRI * HT").await.expect("sent");
        link.read_exact(&mut [0; 8]).await.expect("received");
        assert_eq!(lasts(&mut link).await, Some(OPENING));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_opened_may_be_silent() {
        let (mut client, mut link) = pair().await;
        client.write_all(&[b'x'; PREFACE]).await.expect("sent");
        link.read_exact(&mut [0; PREFACE]).await.expect("received");
        assert_eq!(lasts(&mut link).await, None);

        let (mut client, mut link) = pair().await;
        client
            .write_all(b"GET / HTTP/1.1\r\n\r\n")
            .await
            .expect("sent");
        link.read_exact(&mut [0; 18]).await.expect("received");
        link.write_all(b"an answer").await.expect("sent");
        assert_eq!(lasts(&mut link).await, None);
    }
}
