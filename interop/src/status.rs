//! The replica's status page, read as an operator's program reads it.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// For one answer.
const LIMIT: Duration = Duration::from_secs(5);

/// What the server at `url` (`http://host:port`) says of itself; `None` when it does not, or not in time.
pub async fn status(url: &str) -> Option<Value> {
    let read = async {
        let addr = url.strip_prefix("http://")?;
        let mut stream = TcpStream::connect(addr).await.ok()?;
        let request = b"GET /status HTTP/1.1\r\nHost: replica\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    };
    timeout(LIMIT, read).await.ok().flatten()
}
