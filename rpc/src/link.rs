//! A connection that the server can cut.
//!
//! A server that stops lets open streams end by themselves. A reader that does not read would keep its connection, and
//! with it a part of a server that is gone, for as long as it likes; so each connection ends when the server cuts it.
//!
//! A connection on which nobody says anything, or nobody ends a question, keeps a place that others could have. So a
//! link ends, too, when its client does not come to the point:
//!
//! | so far | within | else |
//! |---|---|---|
//! | nothing, or a part of what HTTP/2 opens with | [`OPENING`] | the link ends |
//! | anything else: it is HTTP/1 | [`OPENING`] after a question has begun, an answer has | the link ends |
//! | HTTP/2 | | pings and the bounds on streams are the server's |

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

/// How long a client may take to say what it speaks; with HTTP/1, for each question too, until its answer begins.
const OPENING: Duration = Duration::from_secs(10);
/// What HTTP/2 opens with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

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
    speech: Speech,
    /// While something is owed by the client, or to it by the server.
    deadline: Option<Pin<Box<Sleep>>>,
}

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speech {
    /// It has said so much of what HTTP/2 opens with.
    Opening(usize),
    Http1,
    Http2,
}

impl Speech {
    /// After these bytes more.
    fn after(self, bytes: &[u8]) -> Self {
        let Self::Opening(heard) = self else {
            return self;
        };
        let expected = &PREFACE[heard..];
        let both = expected.len().min(bytes.len());
        if expected[..both] != bytes[..both] {
            Self::Http1
        } else if both == expected.len() {
            Self::Http2
        } else {
            Self::Opening(heard + both)
        }
    }
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
            speech: Speech::Opening(0),
            deadline: Some(Box::pin(sleep(OPENING))),
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

    /// Looks at what a read brought; nothing yet is `None`.
    fn heard(&mut self, bytes: Option<&[u8]>, cx: &mut Context<'_>) -> io::Result<()> {
        if self.speech == Speech::Http2 {
            return Ok(());
        }
        if let Some(bytes) = bytes {
            self.speech = self.speech.after(bytes);
            match self.speech {
                Speech::Http2 => self.deadline = None,
                Speech::Http1 if !bytes.is_empty() => {
                    self.deadline
                        .get_or_insert_with(|| Box::pin(sleep(OPENING)));
                }
                Speech::Http1 | Speech::Opening(_) => {}
            }
        } else if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Looks at a write: to a question in HTTP/1 it is the answer. Before, it is a greeting, to which nothing is owed.
    fn said(&mut self) {
        if self.speech == Speech::Http1 {
            self.deadline = None;
        }
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
        self.heard(read.is_ready().then(|| &buf.filled()[before..]), cx)?;
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

    /// The client says `text`, and the server reads it.
    async fn say(client: &mut TcpStream, link: &mut Link, text: &[u8]) {
        client.write_all(text).await.expect("sent");
        let mut heard = vec![0; text.len()];
        link.read_exact(&mut heard).await.expect("received");
        assert_eq!(heard, text);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_say_what_it_speaks_is_cut() {
        let (_silent, mut link) = pair().await;
        link.write_all(b"a greeting").await.expect("sent");
        assert_eq!(lasts(&mut link).await, Some(OPENING));

        let (mut hesitant, mut link) = pair().await;
        say(&mut hesitant, &mut link, b"PRI * HT").await;
        assert_eq!(lasts(&mut link).await, Some(OPENING));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_speaks_http2_may_be_silent() {
        let (mut client, mut link) = pair().await;
        let (one, other) = PREFACE.split_at(7);
        say(&mut client, &mut link, one).await;
        say(&mut client, &mut link, &[other, b"frames"].concat()).await;
        assert_eq!(lasts(&mut link).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_in_http1_has_to_end() {
        let (mut client, mut link) = pair().await;
        let begun = b"POST /router/api/v1/config HTTP/1.1\r\nhost: x\r\nx-y: ";
        say(&mut client, &mut link, begun).await;
        tokio::time::advance(OPENING / 2).await;
        say(&mut client, &mut link, b"a little at a time").await;
        assert_eq!(lasts(&mut link).await, Some(OPENING / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn each_question_in_http1_has_its_own_time_and_between_them_there_is_no_hurry() {
        let (mut client, mut link) = pair().await;
        for _ in 0..2 {
            say(&mut client, &mut link, b"GET / HTTP/1.1\r\n\r\n").await;
            link.write_all(b"an answer").await.expect("sent");
            assert_eq!(lasts(&mut link).await, None);
        }
        say(&mut client, &mut link, b"GET /").await;
        assert_eq!(lasts(&mut link).await, Some(OPENING));
    }
}
