//! The program as a process, a PD leader for it to follow, and plain HTTP.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tidegate::leader::{EmbeddedLeader, LeaderConfig};
use tidegate::proto::health::HealthCheckRequest;
use tidegate::proto::health::health_client::HealthClient;
use tidegate::proto::pdpb::RequestHeader;
use tidegate_core::{KeyRange, Peer, PeerRole, Region, RegionEpoch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Channel;

pub const CLUSTER: u64 = 7;
/// No test takes this long; what does has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A leader with regions 1 to `regions`, which cover everything: region i starts at "i", 4 digits.
pub async fn leader(cluster_id: u64, regions: u64) -> EmbeddedLeader {
    let config = LeaderConfig {
        cluster_id,
        keepalive: Duration::from_secs(1),
        ..LeaderConfig::default()
    };
    leader_with(config, regions).await
}

/// The same, with settings of its own.
pub async fn leader_with(config: LeaderConfig, regions: u64) -> EmbeddedLeader {
    let leader = EmbeddedLeader::start(config).await.expect("a free port");
    let region = |id, version| {
        let bound = |i: u64| match i {
            1 => Vec::new(),
            i if i > regions => Vec::new(),
            i => format!("{i:04}").into_bytes(),
        };
        let peer = Peer {
            id: id * 10,
            store_id: 1,
            role: PeerRole::Voter,
            is_witness: false,
        };
        let range = KeyRange::new(bound(id), bound(id + 1)).expect("a range");
        Region::builder(
            id,
            range,
            RegionEpoch {
                conf_ver: 1,
                version,
            },
        )
        .peers([peer])
        .leader(Some(peer))
        .build()
        .expect("a region")
    };
    // A leader has more records than regions, but for its first minute: with as many its dialect does not show.
    leader.report_region(region(1, 1)).expect("a new region");
    let regions = (1..=regions).map(|id| region(id, 2));
    for reported in leader.report_regions(regions.collect()) {
        reported.expect("new regions");
    }
    leader
}

pub fn header() -> Option<RequestHeader> {
    Some(RequestHeader {
        cluster_id: CLUSTER,
        ..RequestHeader::default()
    })
}

pub async fn channel(addr: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{addr}")).expect("an address");
    endpoint.connect().await.expect("a listener")
}

/// Waits until lookups are answered.
pub async fn serving(addr: SocketAddr) {
    serving_on(channel(addr).await).await;
}

/// The same of the server at the other end of a channel.
pub async fn serving_on(channel: Channel) {
    let mut health = HealthClient::new(channel);
    let wait = async {
        let watch = health
            .watch(HealthCheckRequest::default())
            .await
            .expect("a watch");
        let mut watch = watch.into_inner();
        while watch
            .message()
            .await
            .expect("a status")
            .is_none_or(|status| status.status != 1)
        {}
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .expect("serving in time");
}

/// Status line, headers and body of a GET.
pub async fn get(addr: SocketAddr, path: &str) -> String {
    let fetch = async {
        let mut stream = TcpStream::connect(addr).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        std::io::Result::Ok(text)
    };
    tokio::time::timeout(PATIENCE, fetch)
        .await
        .expect("in time")
        .expect("an answer")
}

/// Runs the program to its end.
pub fn run(arguments: &[&str]) -> Output {
    let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let pid = child.id();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(PATIENCE) {
        Ok(output) => output.expect("its output"),
        Err(_) => {
            signal(pid, "KILL");
            panic!("{arguments:?} did not end");
        }
    }
}

/// The line that a start which failed is allowed.
pub fn refusal(arguments: &[&str]) -> String {
    let output = run(arguments);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    assert!(
        stderr.starts_with("tidegate: ") && stderr.ends_with('\n'),
        "{stderr}"
    );
    stderr
}

pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh")
        .arg("-c")
        .arg(format!("kill -{name} {pid}"))
        .status();
    assert!(sent.expect("a shell").success(), "{name} to {pid}");
}

/// `tidegate serve` as a process; killed when dropped.
pub struct Served {
    child: Child,
    pub addr: SocketAddr,
    log: mpsc::Receiver<String>,
}

impl Served {
    /// Starts it on a free port.
    pub fn start_quiet(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--listen-addr", "http://127.0.0.1:0"])
            // What the map cannot answer shows.
            .args(["--when-stale", "refuse"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        let stderr = child.stderr.take().expect("piped");
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stderr.take(1 << 20)).lines();
            lines
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line).ok())
        });
        Self {
            child,
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
            log,
        }
    }

    /// Starts it on a free port and waits until it listens.
    pub fn start(arguments: &[&str]) -> Self {
        let mut served = Self::start_quiet(arguments);
        let line = served.line_with("serving");
        let listen = line
            .split("listen=")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        served.addr = listen.expect("its address").parse().expect("an address");
        served
    }

    /// The next line of its log that has `text`.
    pub fn line_with(&self, text: &str) -> String {
        loop {
            let line = self.log.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no line with {text:?}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Its exit code.
    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("a status").code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
