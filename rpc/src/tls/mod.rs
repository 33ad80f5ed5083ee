//! TLS, with files that may change while we run.
//!
//! | | shows | asks of the other side |
//! |---|---|---|
//! | listener | `cert-path`, `key-path` | with `cacert-path`: a certificate of one of its authorities, and with `cert-allowed-cn` one of these common names; without: nothing |
//! | connections to PD | `cert-path`, `key-path` if given | a certificate of one of the authorities in `cacert-path`, for the host that was dialled |
//!
//! A client's certificate is demanded, not only looked at where there is one: what a client asks may be passed on to PD
//! under our own name, so whoever is let in has our rights there.
//!
//! The files are read again every [`RELOAD_INTERVAL`], and compared by content, so that a file that is replaced under
//! the same time, or through a link, is noticed. New connections use what is new; open ones stay as they are. Files that
//! cannot be used, such as a key that does not fit because only one of two files has been replaced so far, leave the old
//! ones in use, and are reported once. A certificate of ours or of an authority that ends within two weeks, or has
//! ended, is warned of once a day.

mod common_name;
mod connect;
mod error;
mod expiry;
mod files;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;

use self::common_name::AllowedNames;
pub(crate) use self::connect::connector;
pub use self::error::TlsError;
pub use self::expiry::Ends;
use self::files::Files;
use crate::config::SecurityConfig;
use crate::leader::{SystemWall, WallClock};
use crate::regular_file::PATIENCE;

/// How often the files are looked at.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// The protocols that are spoken inside, the best first.
const GRPC: &[u8] = b"h2";
const HTTP: &[u8] = b"http/1.1";

/// What connections are made with at the moment.
#[derive(Debug)]
pub struct Tls {
    config: SecurityConfig,
    current: Mutex<Arc<Loaded>>,
}

/// One state of the files, ready for use.
#[derive(Debug)]
struct Loaded {
    files: Files,
    /// With a certificate.
    server: Option<Arc<ServerConfig>>,
    /// With authorities to trust.
    client: Option<Arc<ClientConfig>>,
    ends: Ends,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`]: one of them cannot be read or used.
    pub fn load(config: SecurityConfig) -> Result<Self, TlsError> {
        let files = Files::read(&config)?;
        let loaded = Loaded::new(files, &config)?;
        Ok(Self {
            config,
            current: Mutex::new(Arc::new(loaded)),
        })
    }

    /// For connections that are accepted from now on; `None` without a certificate.
    pub fn server(&self) -> Option<Arc<ServerConfig>> {
        self.current().server.clone()
    }

    /// For connections that are made from now on; `None` without authorities to trust.
    pub fn client(&self) -> Option<Arc<ClientConfig>> {
        self.current().client.clone()
    }

    /// Reads the files again; true if they have changed.
    ///
    /// # Errors
    /// [`TlsError`]; what was in use stays in use.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let files = Files::read(&self.config)?;
        if files == self.current().files {
            return Ok(false);
        }
        let loaded = Arc::new(Loaded::new(files, &self.config)?);
        // A poisoned cell still holds a whole state.
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(true)
    }

    /// Reloads until `stop`.
    pub async fn keep_fresh(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = interval_at(Instant::now() + RELOAD_INTERVAL, RELOAD_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported = None;
        let mut reminded = [None; 2];
        loop {
            self.remind(&mut reminded);
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let tls = Arc::clone(&self);
            // The files may be on a disk that does not answer.
            let mut reading = tokio::task::spawn_blocking(move || tls.reload());
            let reloaded = match timeout(PATIENCE, &mut reading).await {
                Ok(reloaded) => reloaded,
                Err(_) => {
                    let late = format!(
                        "they cannot be read within {PATIENCE:?}; the disk does not answer"
                    );
                    report(&mut reported, late);
                    // One thread that waits is enough.
                    tokio::select! {
                        () = stop.cancelled() => return,
                        reloaded = reading => reloaded,
                    }
                }
            };
            match reloaded {
                Ok(Ok(changed)) => {
                    if changed {
                        tracing::info!("certificates have changed and are in use from now on");
                    }
                    reported = None;
                }
                Ok(Err(error)) => report(&mut reported, error.to_string()),
                Err(_) => return,
            }
        }
    }

    /// Warns of certificates that are about to end or have, once a day.
    fn remind(&self, reminded: &mut [Option<Instant>; 2]) {
        let now = Duration::from_nanos(u64::try_from(SystemWall.unix_nanos()).unwrap_or_default());
        let Ends { own, authorities } = self.ends();
        let files = [(expiry::OWN, own), (expiry::AUTHORITY, authorities)];
        for ((words, end), reminded) in files.into_iter().zip(reminded) {
            match end.and_then(|end| expiry::notice(words, end, now)) {
                None => *reminded = None,
                Some(notice) if reminded.is_none_or(|last| last.elapsed() >= expiry::REMIND) => {
                    tracing::warn!("{notice}");
                    *reminded = Some(Instant::now());
                }
                Some(_) => {}
            }
        }
    }

    /// When the certificates in use end.
    #[must_use]
    pub fn ends(&self) -> Ends {
        self.current().ends
    }

    fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tells why the files cannot be used, once for each reason.
fn report(reported: &mut Option<String>, error: String) {
    if reported.as_ref() != Some(&error) {
        tracing::error!(%error, "the files of TLS cannot be used; what was read before stays in use");
        *reported = Some(error);
    }
}

impl Loaded {
    fn new(files: Files, config: &SecurityConfig) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = files.authorities()?.map(Arc::new);
        let identity = files.identity()?;
        let ends = files.ends();
        let server = match identity {
            Some(identity) => Some(Arc::new(server(
                &provider,
                &files,
                identity,
                roots.clone(),
                config,
            )?)),
            None => None,
        };
        let client = match roots {
            Some(roots) => Some(Arc::new(client(&provider, &files, roots)?)),
            None => None,
        };
        Ok(Self {
            files,
            server,
            client,
            ends,
        })
    }
}

fn server(
    provider: &Arc<CryptoProvider>,
    files: &Files,
    identity: files::Identity,
    roots: Option<Arc<RootCertStore>>,
    config: &SecurityConfig,
) -> Result<ServerConfig, TlsError> {
    let unusable = |error: rustls::Error| files.unusable_identity(&error);
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let builder = match roots {
        None => builder.with_no_client_auth(),
        Some(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider))
                .build()
                .map_err(|error| files.unusable_authorities(&error))?;
            builder.with_client_cert_verifier(AllowedNames::over(verifier, &config.allowed_cn))
        }
    };
    let mut server = builder
        .with_single_cert(identity.chain, identity.key)
        .map_err(unusable)?;
    server.alpn_protocols = vec![GRPC.to_vec(), HTTP.to_vec()];
    Ok(server)
}

fn client(
    provider: &Arc<CryptoProvider>,
    files: &Files,
    roots: Arc<RootCertStore>,
) -> Result<ClientConfig, TlsError> {
    let unusable = |error: rustls::Error| files.unusable_identity(&error);
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(roots);
    let mut client = match files.identity()? {
        Some(identity) => builder
            .with_client_auth_cert(identity.chain, identity.key)
            .map_err(unusable)?,
        None => builder.with_no_client_auth(),
    };
    client.alpn_protocols = vec![GRPC.to_vec()];
    Ok(client)
}

#[cfg(test)]
mod tests;
