//! Settings of a running replica: shown and changed over HTTP, reloaded at SIGHUP; and its log file.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::{CLUSTER, PATIENCE, Served, get, leader, refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CONFIG: &str = "/router/api/v1/config";

async fn post(addr: SocketAddr, body: &str) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(addr).await?;
        let length = body.len();
        let request = format!(
            "POST {CONFIG} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        std::io::Result::Ok(text)
    };
    tokio::time::timeout(PATIENCE, exchange)
        .await
        .expect("in time")
        .expect("an answer")
}

fn admin_of(served: &Served) -> SocketAddr {
    let line = served.line_with("admin=");
    let addr = line
        .split("admin=\"http://")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    addr.expect("its address").parse().expect("an address")
}

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new(text: &str) -> Self {
        let files = Self {
            dir: tempfile::tempdir().expect("a directory"),
        };
        files.write(text);
        files
    }

    fn path(&self, name: &str) -> String {
        self.dir
            .path()
            .join(name)
            .to_str()
            .expect("text")
            .to_owned()
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path("tidegate.toml"), text).expect("written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_shown_and_changed_on_an_address_of_their_own() {
    let pd = leader(CLUSTER, 3).await;
    let files =
        Files::new("admin-addr = 'http://127.0.0.1:0'\nadmin-writable = true\nmax-age = '7s'\n");
    let served = Served::start(&[
        "--backend-endpoints",
        &pd.url(),
        "--config",
        &files.path("tidegate.toml"),
    ]);
    let admin = admin_of(&served);
    let page = get(admin, CONFIG).await;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(
        page.contains("\"max-age\": \"7s\"") && page.contains("\"level\": \"info\""),
        "{page}"
    );

    let answer = post(
        admin,
        r#"{"max-age": "9s", "log": {"level": "debug"}, "audit-pass": "off"}"#,
    )
    .await;
    assert!(
        answer.starts_with("HTTP/1.1 200")
            && answer.contains("The config is updated: max-age, audit-pass, log.level."),
        "{answer}"
    );
    let page = get(admin, CONFIG).await;
    assert!(
        page.contains("\"max-age\": \"9s\"") && page.contains("\"level\": \"debug\""),
        "{page}"
    );
    assert!(page.contains("\"audit-pass\": \"off\""), "{page}");

    let answer = post(
        admin,
        r#"{"max-aeg": "9s", "name": "x", "stall-threshold": "1s"}"#,
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(
        answer.contains("max-aeg: no such setting") && answer.contains("name: cannot be changed"),
        "{answer}"
    );
    assert!(
        get(admin, CONFIG)
            .await
            .contains("\"stall-threshold\": \"3s\""),
        "nothing was changed"
    );
    let answer = post(admin, "{").await;
    assert!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("post an object, as"),
        "{answer}"
    );
    // More than fits into the buffers between us: it has to be read for its sender to hear the answer.
    for size in [100_000, 5 << 20] {
        let answer = post(admin, &" ".repeat(size)).await;
        assert!(
            answer.starts_with("HTTP/1.1 413")
                && answer.contains("JSON object of 65536 bytes at most"),
            "{answer}"
        );
    }
    for (twice, key) in [
        (r#"{"max-age": "9s", "max-age": "8s"}"#, "max-age"),
        (
            r#"{"log.level": "warn", "log": {"level": "info"}}"#,
            "log.level",
        ),
    ] {
        let answer = post(admin, twice).await;
        assert!(
            answer.starts_with("HTTP/1.1 400")
                && answer.contains(key)
                && answer.contains("given twice"),
            "{answer}"
        );
    }
    let answer = post(admin, r#"{"max-age": "4s"}"#).await;
    assert!(
        answer.contains(
            "The config is updated: max-age. Warning: max-age 4s is less than three times"
        ),
        "{answer}"
    );
    for (change, said) in [
        ("{}", "There is nothing to change."),
        // What was unwise before is not said again.
        (
            r#"{"log.level": "warn"}"#,
            "The config is updated: log.level.\"",
        ),
        (
            r#"{"audit-pass": "5m"}"#,
            "The config is updated: audit-pass.\"",
        ),
    ] {
        let answer = post(admin, change).await;
        assert!(answer.contains(said), "{change}: {answer}");
    }
    // Who watches the log sees it at that level too.
    let line = served.line_with("changed=\"audit-pass\"");
    assert!(line.contains("settings were changed over HTTP"), "{line}");
    let answer = get(admin, "/status").await;
    assert!(
        answer.starts_with("HTTP/1.1 404") && answer.contains("at listen-addr"),
        "{answer}"
    );
    let (leader, against) = (pd.url(), format!("http://{admin}"));
    let audit = move || {
        let one = refusal(&["audit", "--leader", &leader, "--against", &against]);
        (
            one,
            refusal(&["audit", "--leader", &against, "--against", &leader]),
        )
    };
    let (against, as_leader) = tokio::task::spawn_blocking(audit).await.expect("ended");
    for line in [against, as_leader] {
        assert!(
            line.contains("this is the admin address of a replica")
                && line.contains("at its listen-addr"),
            "{line}"
        );
    }
    // Not on the port of the lookups.
    assert!(get(served.addr, CONFIG).await.starts_with("HTTP/1.1 404"));

    files.write("admin-addr = 'http://127.0.0.1:0'\nadmin-writable = true\nmax-age = '11s'\nname = 'other'\n");
    served.signal("HUP");
    let line = served.line_with("need a start");
    assert!(line.contains("name"), "{line}");
    assert!(get(admin, CONFIG).await.contains("\"max-age\": \"11s\""));
    files.write("max-age = 'long'\n");
    served.signal("HUP");
    assert!(served.line_with("cannot be reloaded").contains("max-age"));
    assert!(get(admin, CONFIG).await.contains("\"max-age\": \"11s\""));
    pd.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_changed_where_nothing_was_said_about_it() {
    let pd = leader(CLUSTER, 3).await;
    let files = Files::new("admin-addr = 'http://127.0.0.1:0'\n");
    let served = Served::start(&[
        "--backend-endpoints",
        &pd.url(),
        "--config",
        &files.path("tidegate.toml"),
    ]);
    let admin = admin_of(&served);
    let answer = post(admin, r#"{"max-age": "9s"}"#).await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("admin-writable"),
        "{answer}"
    );
    assert!(get(admin, CONFIG).await.contains("\"max-age\": \"10s\""));
    pd.stop().await;
}

#[test]
fn an_admin_address_or_a_log_file_that_cannot_be_had_is_told_in_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", taken.local_addr().expect("its address"));
    let files = Files::new(&format!("admin-addr = '{url}'\n"));
    let config = files.path("tidegate.toml");
    let start = [
        "serve",
        "--listen-addr",
        "http://127.0.0.1:0",
        "--backend-endpoints",
        "http://127.0.0.1:1",
    ];
    let line = refusal(&[&start[..], &["--config", &config]].concat());
    assert!(line.contains(&url) && line.contains("admin-addr"), "{line}");
    let line = refusal(&[&start[..], &["--log-file", "/dev/null/log"]].concat());
    assert!(
        line.contains("/dev/null/log") && line.contains("--log-file"),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn log_lines_go_to_the_file_and_to_a_new_one_after_a_hangup() {
    let pd = leader(CLUSTER, 3).await;
    let files = Files::new("");
    let (log, moved) = (files.path("logs/tidegate.log"), files.path("moved.log"));
    let url = pd.url();
    let arguments = ["--backend-endpoints", &url, "--log-file", &log];
    let served = Served::start_quiet(&arguments);
    wait_for(&log, "serving").await;
    std::fs::rename(&log, &moved).expect("moved");
    served.signal("HUP");
    wait_for(&log, "reloaded").await;
    pd.stop().await;
}

/// Waits until the file has `text` in it.
async fn wait_for(path: &str, text: &str) {
    let wait = async {
        while !std::fs::read_to_string(path).is_ok_and(|log| log.contains(text)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    assert!(waited.is_ok(), "no {text} in {path}");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_leave_clients_nowhere_to_go_are_said_in_the_log_and_in_the_status() {
    let pd = leader(CLUSTER, 3).await;
    let files = Files::new(
        "present-as = 'self'\nallow-bounded-staleness = true\nadmin-addr = 'http://127.0.0.1:0'\nadmin-writable = true\n",
    );
    // It refuses what the map may not answer.
    let served = Served::start_quiet(&[
        "--backend-endpoints",
        &pd.url(),
        "--config",
        &files.path("tidegate.toml"),
    ]);
    let line = served.line_with("present-as = self with allow-bounded-staleness");
    assert!(line.contains("WARN") && line.contains("set when-stale = read-through"));
    let line = served.line_with("serving");
    let addr = line
        .split("listen=")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let addr: SocketAddr = addr.expect("its address").parse().expect("an address");
    let admin = admin_of(&served);
    let warnings = async || {
        let status = get(addr, "/status").await;
        let body = status.split("\r\n\r\n").nth(1).expect("a body");
        let status: serde_json::Value = serde_json::from_str(body).expect("a status");
        let lines = status["warnings"].as_array().expect("a list").clone();
        let text = |line: &serde_json::Value| line.as_str().expect("text").to_owned();
        lines.iter().map(text).collect::<Vec<_>>()
    };
    let at_first = warnings().await;
    assert_eq!(at_first.len(), 1, "{at_first:?}");
    assert!(at_first[0].starts_with("present-as = self"), "{at_first:?}");
    // What is unwise about a change comes, and goes.
    post(admin, r#"{"max-outage": "200h"}"#).await;
    let more = warnings().await;
    assert_eq!(more.len(), 2, "{more:?}");
    assert!(more[0].starts_with("max-outage 720000s"), "{more:?}");
    post(admin, r#"{"max-outage": null}"#).await;
    assert_eq!(warnings().await, at_first);
    pd.stop().await;
}
