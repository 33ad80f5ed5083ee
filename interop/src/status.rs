//! Pages over HTTP/1.1: the replica's status, and what a pd-server is asked to do that it has no call for.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// For one answer.
const LIMIT: Duration = Duration::from_secs(5);

/// What the server at `url` (`http://host:port`) says of itself; `None` when it does not, or not in time.
pub async fn status(url: &str) -> Option<Value> {
    let (_, body) = http("GET", url, "/status").await?;
    serde_json::from_str(&body).ok()
}

/// The status and the body of an answer; `None` when there is none in time. Bodies in chunks come with their marks.
pub async fn http(method: &str, url: &str, path: &str) -> Option<(u16, String)> {
    let read = async {
        let addr = url.strip_prefix("http://")?;
        let mut stream = TcpStream::connect(addr).await.ok()?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let code = head.split_whitespace().nth(1)?.parse().ok()?;
        Some((code, body.to_owned()))
    };
    timeout(LIMIT, read).await.ok().flatten()
}
