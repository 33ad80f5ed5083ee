//! Dialling PD under TLS, with the certificates of that moment.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::Tls;

/// What a channel dials with.
pub(crate) fn connector(tls: Arc<Tls>) -> Connector {
    Connector(tls)
}

/// See [`connector`].
#[derive(Clone, Debug)]
pub(crate) struct Connector(Arc<Tls>);

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let client = self.0.client();
        Box::pin(async move {
            let client = client.ok_or_else(|| {
                io::Error::other("no authority is trusted; give cacert-path (--cacert)")
            })?;
            let host = uri.host().unwrap_or_default();
            // An IPv6 address is written in brackets in a URL.
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await?;
            stream.set_nodelay(true)?;
            let stream = TlsConnector::from(client).connect(name, stream).await?;
            Ok(TokioIo::new(stream))
        })
    }
}
