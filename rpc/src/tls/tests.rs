//! Certificates made for the test, on loopback.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::link::Link;

/// An authority, and a directory with the certificates that it has given.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("ca.pem"), issuer.pem()).expect("written");
        Self { issuer, dir }
    }

    /// Writes a certificate for loopback with this common name, over the one before.
    fn certify(&self, common_name: &str) {
        self.certify_until(common_name, 4_000);
    }

    /// The same, good until the beginning of a year.
    fn certify_until(&self, common_name: &str, year: i32) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        self.write("cert.pem", &certificate.pem());
        self.write("key.pem", &key.serialize_pem());
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.dir.path().join(file), text).expect("written");
    }

    /// All three files, and whom to let in.
    fn config(&self, allowed_cn: &[&str]) -> SecurityConfig {
        let file = |name: &str| Some(self.dir.path().join(name));
        SecurityConfig {
            ca: file("ca.pem"),
            cert: file("cert.pem"),
            key: file("key.pem"),
            allowed_cn: allowed_cn.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn load(&self, allowed_cn: &[&str]) -> Arc<Tls> {
        Arc::new(Tls::load(self.config(allowed_cn)).expect("good files"))
    }
}

/// One connection from `client` to `server`, a byte there and back; the common name that the client was shown.
async fn exchange(server: &Tls, client: &Tls) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let config = server.server().expect("a certificate");
    let accepted = async {
        let (stream, _) = listener.accept().await?;
        let mut link = Link::secured(stream, config, CancellationToken::new()).await?;
        let byte = link.read_u8().await?;
        link.write_u8(byte + 1).await?;
        link.flush().await?;
        std::io::Result::Ok(())
    };
    let config = client.client().expect("an authority");
    let dialled = async {
        let stream = TcpStream::connect(addr).await?;
        let name = addr.ip().into();
        let connector = tokio_rustls::TlsConnector::from(config);
        let mut stream = connector.connect(name, stream).await?;
        stream.write_u8(1).await?;
        stream.flush().await?;
        assert_eq!(stream.read_u8().await?, 2);
        let shown = stream.get_ref().1.peer_certificates().expect("shown");
        std::io::Result::Ok(common_name::common_name(&shown[0]).unwrap_or_default())
    };
    let (accepted, dialled) = tokio::join!(accepted, dialled);
    accepted?;
    dialled
}

#[tokio::test]
async fn both_sides_show_a_certificate_that_the_other_trusts() {
    let ours = Authority::new();
    ours.certify("tidegate");
    let tls = ours.load(&[]);
    assert_eq!(exchange(&tls, &tls).await.expect("let in"), "tidegate");

    let others = Authority::new();
    others.certify("tidegate");
    let stranger = others.load(&[]);
    assert!(
        exchange(&tls, &stranger).await.is_err(),
        "neither trusts the other"
    );

    // One that shows nothing where a certificate is demanded.
    let nameless = SecurityConfig {
        cert: None,
        key: None,
        ..ours.config(&[])
    };
    let nameless = Tls::load(nameless).expect("an authority alone");
    assert!(nameless.server().is_none());
    assert!(exchange(&tls, &nameless).await.is_err());
    // And where none is.
    let open = SecurityConfig {
        ca: None,
        ..ours.config(&[])
    };
    let open = Tls::load(open).expect("a certificate alone");
    assert_eq!(
        exchange(&open, &nameless).await.expect("let in"),
        "tidegate"
    );
}

#[tokio::test]
async fn only_clients_whose_common_name_is_allowed_are_let_in() {
    let authority = Authority::new();
    authority.certify("tidb");
    let tidb = authority.load(&[]);
    let server = authority.load(&["tikv", "tidb"]);
    assert!(exchange(&server, &tidb).await.is_ok());
    let server = authority.load(&["tikv"]);
    let refused = exchange(&server, &tidb).await.expect_err("not its name");
    assert!(refused.to_string().contains("NotAllowed"), "{refused}");
    let server = authority.load(&["tid", "tidbs"]);
    assert!(exchange(&server, &tidb).await.is_err());
}

#[tokio::test]
async fn files_that_change_are_used_for_new_connections_and_bad_ones_are_not() {
    let authority = Authority::new();
    authority.certify("first");
    let tls = authority.load(&[]);
    assert!(!tls.reload().expect("the same files"));
    let client = authority.load(&[]);
    authority.certify("second");
    assert_eq!(exchange(&tls, &client).await.expect("let in"), "first");
    assert!(tls.reload().expect("good files"));
    assert_eq!(exchange(&tls, &client).await.expect("let in"), "second");

    // The key of the next certificate is there before the certificate.
    let key = KeyPair::generate().expect("a key");
    authority.write("key.pem", &key.serialize_pem());
    let error = tls.reload().expect_err("they do not fit").to_string();
    assert!(error.contains("cert.pem"), "{error}");
    authority.write("key.pem", "");
    let error = tls.reload().expect_err("no key").to_string();
    assert!(error.contains("key.pem"), "{error}");
    assert_eq!(exchange(&tls, &client).await.expect("let in"), "second");
    authority.certify("third");
    assert!(tls.reload().expect("good files"));
    assert_eq!(exchange(&tls, &client).await.expect("let in"), "third");
}

#[tokio::test(start_paused = true)]
async fn the_files_are_looked_at_by_themselves() {
    let authority = Authority::new();
    authority.certify("first");
    let tls = authority.load(&[]);
    let before = tls.server().expect("a certificate");
    let stop = CancellationToken::new();
    let kept = tokio::spawn(Arc::clone(&tls).keep_fresh(stop.clone()));
    authority.certify("second");
    while Arc::ptr_eq(&before, &tls.server().expect("a certificate")) {
        tokio::time::sleep(RELOAD_INTERVAL).await;
    }
    stop.cancel();
    kept.await.expect("no panic");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    authority.certify("tidegate");
    let error = |config: SecurityConfig| {
        let error = Tls::load(config).expect_err("unusable").to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let missing = SecurityConfig {
        ca: Some(Path::new("/nonexistent/ca.pem").to_owned()),
        ..authority.config(&[])
    };
    let line = error(missing);
    assert!(
        line.starts_with("cacert-path /nonexistent/ca.pem: "),
        "{line}"
    );
    let no_certificate = SecurityConfig {
        ca: authority.config(&[]).key,
        ..authority.config(&[])
    };
    let line = error(no_certificate);
    assert!(
        line.starts_with("cacert-path") && line.contains("there is no certificate"),
        "{line}"
    );
    let no_key = SecurityConfig {
        key: authority.config(&[]).cert,
        ..authority.config(&[])
    };
    let line = error(no_key);
    assert!(
        line.starts_with("key-path") && line.contains("no private key"),
        "{line}"
    );
    authority.write(
        "ca.pem",
        "-----BEGIN CERTIFICATE-----\nnot base64!\n-----END CERTIFICATE-----\n",
    );
    let line = error(authority.config(&[]));
    assert!(line.starts_with("cacert-path"), "{line}");
}

#[test]
fn the_ends_of_the_certificates_are_known_and_follow_the_files() {
    let authority = Authority::new();
    authority.certify_until("tidegate", 2031);
    let tls = authority.load(&[]);
    assert_eq!(tls.ends().own, Some(Duration::from_secs(1_924_992_000)));
    authority.certify_until("tidegate", 2032);
    assert!(tls.reload().expect("good"));
    assert_eq!(tls.ends().own, Some(Duration::from_secs(1_956_528_000)));
    // Of many, the first to end; where only others are trusted, none is ours.
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(2030, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let ends = params.self_signed(&key).expect("an authority").pem();
    authority.write("ca.pem", &(authority.issuer.pem() + &ends));
    let trusting = SecurityConfig {
        cert: None,
        key: None,
        ..authority.config(&[])
    };
    let expected = Ends {
        own: None,
        authorities: Some(Duration::from_secs(1_893_456_000)),
    };
    assert_eq!(Tls::load(trusting).expect("good").ends(), expected);
}
