//! Clients by the common name of their certificate, as PD's `cert-allowed-cn` has it.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// Lets a client in whose certificate is good and has one of these names.
#[derive(Debug)]
pub(super) struct AllowedNames {
    good: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

/// The certificate is good, its name is not one of those.
#[derive(Debug, thiserror::Error)]
#[error("the common name {name:?} is not allowed; it is not in cert-allowed-cn")]
struct NotAllowed {
    name: String,
}

impl AllowedNames {
    /// Adds the check to `good`, unless there are no names to check for.
    pub(super) fn over(
        good: Arc<dyn ClientCertVerifier>,
        names: &[String],
    ) -> Arc<dyn ClientCertVerifier> {
        if names.is_empty() {
            return good;
        }
        Arc::new(Self {
            good,
            names: names.to_vec(),
        })
    }
}

/// The subject's first common name; `None` if it has none that can be read.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let subject = certificate.tbs_certificate().subject();
    let name = subject.common_name().ok()??;
    Some(name.value().into_owned())
}

impl ClientCertVerifier for AllowedNames {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .good
            .verify_client_cert(end_entity, intermediates, now)?;
        let name = common_name(end_entity).unwrap_or_default();
        if self.names.contains(&name) {
            return Ok(verified);
        }
        let refused = OtherError(Arc::new(NotAllowed { name }));
        Err(CertificateError::Other(refused).into())
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.good.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.good.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.good.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.good.supported_verify_schemes()
    }
}
