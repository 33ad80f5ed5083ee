//! The three files, as they are read.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::TlsError;
use super::expiry::{self, Ends};
use crate::config::SecurityConfig;
use crate::regular_file;

const CA: &str = "cacert-path";
const CERT: &str = "cert-path";
const KEY: &str = "key-path";

/// Their contents at one time.
#[derive(PartialEq, Eq)]
pub(super) struct Files {
    ca: Option<File>,
    cert: Option<File>,
    key: Option<File>,
}

#[derive(PartialEq, Eq)]
struct File {
    path: PathBuf,
    text: Vec<u8>,
}

/// A certificate with its chain, and its key.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A key is not for logs.
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

impl Files {
    pub(super) fn read(config: &SecurityConfig) -> Result<Self, TlsError> {
        Ok(Self {
            ca: File::read(CA, config.ca.as_deref())?,
            cert: File::read(CERT, config.cert.as_deref())?,
            key: File::read(KEY, config.key.as_deref())?,
        })
    }

    /// The authorities to trust; `None` if no file names any.
    pub(super) fn authorities(&self) -> Result<Option<RootCertStore>, TlsError> {
        let Some(file) = &self.ca else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for authority in file.certificates(CA)? {
            roots
                .add(authority)
                .map_err(|error| self.unusable_authorities(&error))?;
        }
        Ok(Some(roots))
    }

    /// Our certificate and its key; `None` if no file names any.
    pub(super) fn identity(&self) -> Result<Option<Identity>, TlsError> {
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else {
            return Ok(None);
        };
        let chain = cert.certificates(CERT)?;
        let key = PrivateKeyDer::from_pem_slice(&key.text).map_err(|error| {
            let expected = "a PEM file with one private key, not encrypted";
            key.unusable(
                KEY,
                &format!("there is no private key in it ({error})"),
                expected,
            )
        })?;
        Ok(Some(Identity { chain, key }))
    }

    /// When their certificates end.
    pub(super) fn ends(&self) -> Ends {
        let first = |file: &Option<File>, setting| {
            let certificates = file.as_ref()?.certificates(setting).ok()?;
            certificates.iter().filter_map(expiry::of).min()
        };
        Ends {
            own: first(&self.cert, CERT),
            authorities: first(&self.ca, CA),
        }
    }

    /// A certificate or key that is refused, or the two do not fit.
    pub(super) fn unusable_identity(&self, error: &rustls::Error) -> TlsError {
        let problem = format!("the certificate and its key cannot be used: {error}");
        let expected = "a certificate and the key that belongs to it";
        match &self.cert {
            Some(cert) => cert.unusable(CERT, &problem, expected),
            None => self.unusable_authorities(error),
        }
    }

    pub(super) fn unusable_authorities(&self, error: &dyn std::error::Error) -> TlsError {
        let path = self.ca.as_ref().map(|file| file.path.clone());
        TlsError::Unusable {
            setting: CA,
            path: path.unwrap_or_default(),
            problem: format!("it cannot be used: {error}"),
            expected: "the certificates of authorities",
        }
    }
}

impl File {
    fn read(setting: &'static str, path: Option<&Path>) -> Result<Option<Self>, TlsError> {
        let Some(path) = path else {
            return Ok(None);
        };
        let text = regular_file::read(path).map_err(|source| TlsError::Unreadable {
            setting,
            path: path.to_owned(),
            source,
        })?;
        Ok(Some(Self {
            path: path.to_owned(),
            text,
        }))
    }

    /// The certificates in it, at least one.
    fn certificates(
        &self,
        setting: &'static str,
    ) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let expected = "a PEM file with at least one certificate";
        let mut found = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(&self.text) {
            found.push(certificate.map_err(|error| {
                self.unusable(setting, &format!("it is no PEM: {error}"), expected)
            })?);
        }
        if found.is_empty() {
            return Err(self.unusable(setting, "there is no certificate in it", expected));
        }
        Ok(found)
    }

    fn unusable(&self, setting: &'static str, problem: &str, expected: &'static str) -> TlsError {
        TlsError::Unusable {
            setting,
            path: self.path.clone(),
            problem: problem.to_owned(),
            expected,
        }
    }
}
