//! The end of a certificate.

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// How long before its end a certificate is warned of.
const NOTICE: Duration = Duration::from_secs(14 * 86_400);
/// How often.
pub(super) const REMIND: Duration = Duration::from_secs(86_400);

/// When it ends, since 1970; `None` if that cannot be read.
pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Duration> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let end = certificate.tbs_certificate().validity().not_after;
    Some(end.to_unix_duration())
}

/// When the first certificate of each file ends, since 1970; `None` without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Of ours and its chain (`cert-path`): what clients, PD and upstreams are shown.
    pub own: Option<Duration>,
    /// Of the authorities that we trust (`cacert-path`).
    pub authorities: Option<Duration>,
}

/// The files in words, and what helps.
pub(super) const OWN: [&str; 2] = [
    "the certificate",
    "replace the files of cert-path and key-path; they are read again by themselves",
];
pub(super) const AUTHORITY: [&str; 2] = [
    "a certificate of an authority in cacert-path",
    "replace it in the file, or take it out if nobody is certified by it any more; it is read again by itself",
];

/// What to say at `now` of a file's certificate that ends at `end`, if anything.
pub(super) fn notice([what, remedy]: [&str; 2], end: Duration, now: Duration) -> Option<String> {
    let days = |time: Duration| time.as_secs() / 86_400;
    match end.checked_sub(now) {
        Some(left) if left > NOTICE => None,
        Some(left) => Some(format!("{what} ends in {} days: {remedy}", days(left))),
        None => Some(format!(
            "{what} ended {} days ago and nobody trusts it any more: {remedy}",
            days(now - end)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_from_two_weeks_before_it_on() {
        const DAY: Duration = Duration::from_secs(86_400);
        let end = DAY * 100;
        assert_eq!(notice(OWN, end, DAY * 85), None);
        let said = |day| notice(OWN, end, DAY * day).expect("a warning");
        assert!(said(86).starts_with("the certificate ends in 14 days: replace"));
        assert!(said(100).starts_with("the certificate ends in 0 days"));
        assert!(said(103).starts_with("the certificate ended 3 days ago"));
        let said = notice(AUTHORITY, end, DAY * 103).expect("a warning");
        assert!(said.starts_with("a certificate of an authority in cacert-path ended 3 days ago"));
    }
}
