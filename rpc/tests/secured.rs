//! A replica and a PD leader that speak nothing but TLS, each with a certificate that the other demands.

mod support;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use support::{CLUSTER, PATIENCE, Served, header, leader_with, refusal, run, serving_on};
use tidegate::config::{SecurityConfig, ServeConfig};
use tidegate::leader::LeaderConfig;
use tidegate::pd::{ChannelSettings, Remote};
use tidegate::proto::pdpb::pd_client::PdClient;
use tidegate::proto::pdpb::{AllocIdRequest, GetMembersRequest};
use tidegate::replica::Replica;
use tidegate::replica::hooks::Hooks;
use tidegate::tls::Tls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Code;

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    /// An authority and one certificate for loopback.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
        params.distinguished_name.push(DnType::CommonName, "member");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("signed");
        for (file, text) in [
            ("ca.pem", issuer.pem()),
            ("cert.pem", certificate.pem()),
            ("key.pem", key.serialize_pem()),
        ] {
            std::fs::write(dir.path().join(file), text).expect("written");
        }
        Self { dir }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    fn config(&self) -> SecurityConfig {
        SecurityConfig {
            ca: Some(self.path("ca.pem")),
            cert: Some(self.path("cert.pem")),
            key: Some(self.path("key.pem")),
            allowed_cn: vec!["member".to_owned()],
        }
    }

    fn tls(&self) -> Arc<Tls> {
        Arc::new(Tls::load(self.config()).expect("good files"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_follows_serves_and_forwards_under_mutual_tls() {
    let files = Files::new();
    let config = LeaderConfig {
        cluster_id: CLUSTER,
        keepalive: Duration::from_secs(1),
        tls: Some(files.tls()),
        ..LeaderConfig::default()
    };
    let leader = leader_with(config, 10).await;
    assert!(leader.url().starts_with("https://"));
    let config = ServeConfig {
        backend_endpoints: vec![leader.url().parse().expect("a URL")],
        listen: "https://127.0.0.1:0".parse().expect("a URL"),
        probe_interval: Duration::from_millis(100),
        security: files.config(),
        ..ServeConfig::default()
    };
    let replica = Replica::start(config, Hooks::default())
        .await
        .expect("a free port");
    assert!(replica.url().starts_with("https://"));

    let clients = Remote::secured(ChannelSettings::default(), None, Some(files.tls()));
    let channel = clients.channel(replica.url()).expect("an address");
    serving_on(channel.clone()).await;
    let mut pd = PdClient::new(channel);
    let members = pd.get_members(GetMembersRequest { header: None }).await;
    let members = members.expect("members").into_inner();
    assert_eq!(
        members.leader.expect("a leader").client_urls,
        [leader.url()]
    );
    let request = AllocIdRequest {
        header: header(),
        count: 1,
    };
    assert!(
        pd.alloc_id(request)
            .await
            .expect("passed on")
            .into_inner()
            .id
            > 0
    );

    // An audit of the one against the other, with the same files.
    let (path, leader_url, url) = (
        |file: &str| files.path(file).to_str().expect("text").to_owned(),
        leader.url(),
        replica.url().to_owned(),
    );
    let (ca, cert, key) = (path("ca.pem"), path("cert.pem"), path("key.pem"));
    let audit = tokio::task::spawn_blocking(move || {
        let servers = ["audit", "--leader", &leader_url, "--against", &url];
        let files = ["--cacert", &ca, "--cert", &cert, "--key", &key];
        let plain = refusal(&servers);
        let how = ["--duration", "1s", "--output", "json"];
        (plain, run(&[&servers[..], &files, &how].concat()))
    });
    let (plain, audited) = audit.await.expect("ended");
    assert!(plain.contains("--cacert"), "{plain}");
    let report: serde_json::Value = serde_json::from_slice(&audited.stdout).expect("JSON");
    assert_eq!(audited.status.code(), Some(0), "{report}");
    assert!(report["compared"].as_u64() > Some(0), "{report}");

    // In plain text, and with a certificate of another authority, nobody gets in.
    let plain = replica.url().replace("https://", "http://");
    for (url, tls) in [
        (plain.as_str(), None),
        (replica.url(), Some(Files::new().tls())),
    ] {
        let strangers = Remote::secured(ChannelSettings::default(), None, tls);
        let channel = strangers.channel(url).expect("an address");
        let answer = PdClient::new(channel)
            .get_members(GetMembersRequest { header: None })
            .await;
        assert_ne!(answer.expect_err("not let in").code(), Code::Ok);
    }
    assert!(replica.status().connections.refused_handshake >= 2);
}

/// What a GET of the settings at `addr` brings, with the certificates of `files`, or with none.
async fn settings(addr: SocketAddr, authority: &Files, own: bool) -> std::io::Result<String> {
    let security = authority.config();
    let security = match own {
        true => security,
        false => SecurityConfig {
            ca: security.ca,
            ..SecurityConfig::default()
        },
    };
    let tls = Tls::load(security).expect("good files");
    let mut client = (*tls.client().expect("an authority")).clone();
    // Not asked for: then it is HTTP/1.
    client.alpn_protocols.clear();
    let exchange = async {
        let stream = TcpStream::connect(addr).await?;
        let name = "127.0.0.1".try_into().expect("a name");
        let mut stream = TlsConnector::from(Arc::new(client))
            .connect(name, stream)
            .await?;
        let request = "GET /router/api/v1/config HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    };
    tokio::time::timeout(PATIENCE, exchange)
        .await
        .expect("in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_address_speaks_tls_under_the_same_rules() {
    let files = Files::new();
    let path = |file: &str| files.path(file).to_str().expect("text").to_owned();
    let config = files.path("tidegate.toml");
    std::fs::write(&config, "admin-addr = 'https://127.0.0.1:0'\n").expect("written");
    let (config, ca) = (config.to_str().expect("text"), path("ca.pem"));
    let line = refusal(&["serve", "--config", config]);
    assert!(
        line.contains("admin-addr is https and there is no certificate"),
        "{line}"
    );
    let served = Served::start(&[
        "--backend-endpoints",
        "http://127.0.0.1:1",
        "--config",
        config,
        "--cacert",
        &ca,
        "--cert",
        &path("cert.pem"),
        "--key",
        &path("key.pem"),
    ]);
    let line = served.line_with("admin=");
    let addr = line
        .split("admin=\"https://")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let addr: SocketAddr = addr.expect("its address").parse().expect("an address");
    let page = settings(addr, &files, true).await.expect("let in");
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("\"max-age\": \"10s\""),
        "{page}"
    );
    assert!(
        settings(addr, &files, false).await.is_err(),
        "no certificate is shown"
    );
    assert!(
        settings(addr, &Files::new(), true).await.is_err(),
        "another authority"
    );
    let mut plain = TcpStream::connect(addr).await.expect("a listener");
    plain
        .write_all(b"GET /router/api/v1/config HTTP/1.1\r\n\r\n")
        .await
        .expect("sent");
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, plain.read_to_end(&mut answer)).await;
    let _ = read.expect("cut");
    assert!(
        !String::from_utf8_lossy(&answer).contains("max-age"),
        "in plain text"
    );
}

#[test]
fn files_that_cannot_be_used_end_the_start_with_one_line() {
    let files = Files::new();
    let path = |file: &str| files.path(file).to_str().expect("text").to_owned();
    let (ca, cert, key) = (path("ca.pem"), path("cert.pem"), path("key.pem"));
    let listen = ["serve", "--listen-addr", "https://127.0.0.1:0"];
    let with = |more: &[&str]| refusal(&[&listen[..], more].concat());
    let line = with(&["--cert", &cert]);
    assert!(
        line.contains("key-path") && line.contains("give both"),
        "{line}"
    );
    let line = with(&["--cacert", &ca]);
    assert!(line.contains("--cert, --key"), "{line}");
    let line = with(&["--cert", &cert, "--key", "/nonexistent/key.pem"]);
    assert!(line.contains("key-path /nonexistent/key.pem"), "{line}");
    let line = with(&["--cert", &cert, "--key", &ca]);
    assert!(line.contains("no private key"), "{line}");
    let line = with(&["--cacert", &key, "--cert", &cert, "--key", &key]);
    assert!(
        line.contains("cacert-path") && line.contains("no certificate"),
        "{line}"
    );
    let line = refusal(&["serve", "--backend-endpoints", "https://127.0.0.1:1"]);
    assert!(line.contains("--cacert"), "{line}");
}
