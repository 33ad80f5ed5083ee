//! The `[security]` table, with PD's keys, and the flags for it.

use std::path::PathBuf;

use super::ConfigError;

/// Files of TLS, and whose certificates are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityConfig {
    /// Certificates of the authorities that we trust, PEM (`cacert-path`, `--cacert`).
    pub ca: Option<PathBuf>,
    /// Our certificate with its chain, PEM (`cert-path`, `--cert`).
    pub cert: Option<PathBuf>,
    /// The certificate's key, PEM (`key-path`, `--key`).
    pub key: Option<PathBuf>,
    /// Common names of clients that may connect; empty lets every client in whose certificate is good
    /// (`cert-allowed-cn`).
    pub allowed_cn: Vec<String>,
}

impl SecurityConfig {
    /// Whether any file is named.
    #[must_use]
    pub fn names_files(&self) -> bool {
        self.ca.is_some() || self.cert.is_some() || self.key.is_some()
    }

    /// What contradicts itself, or the address that lookups or settings are listened for on and those that are dialled.
    pub(super) fn check(
        &self,
        listens: bool,
        admin_listens: bool,
        dials: bool,
    ) -> Result<(), ConfigError> {
        let conflict = |what: &str, remedy| {
            Err(ConfigError::Conflict {
                what: what.to_owned(),
                remedy,
            })
        };
        if self.cert.is_some() != self.key.is_some() {
            return conflict(
                "cert-path and key-path belong together and one is missing",
                "give both, or neither",
            );
        }
        if listens && self.cert.is_none() {
            return conflict(
                "listen-addr is https and there is no certificate for it",
                "give cert-path and key-path (--cert, --key), or an http:// address",
            );
        }
        if admin_listens && self.cert.is_none() {
            return conflict(
                "admin-addr is https and there is no certificate for it",
                "give cert-path and key-path (--cert, --key), or an http:// address",
            );
        }
        if dials && self.ca.is_none() {
            return conflict(
                "backend-endpoints or an upstream are https and nothing says whose certificates to trust",
                "give cacert-path (--cacert)",
            );
        }
        if !self.allowed_cn.is_empty() && (self.ca.is_none() || !(listens || admin_listens)) {
            return conflict(
                "cert-allowed-cn is about clients' certificates, and none would be asked for",
                "give cacert-path (--cacert) and an https:// listen-addr or admin-addr, or remove it",
            );
        }
        Ok(())
    }
}
