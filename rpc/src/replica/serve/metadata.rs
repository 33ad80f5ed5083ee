//! The two keys of gRPC metadata by which PD's clients say whom a request is for.

use http::HeaderMap;

use crate::proto::pdpb::Member;

/// Whom the request is to be passed on to: a client URL of the PD leader. Empty or absent: to
/// nobody.
const FORWARDED_HOST: &str = "pd-forwarded-host";
/// Present, whatever its value: an answer from a follower will do.
const ALLOW_FOLLOWER: &str = "pd-allow-follower-handle";

/// The host to pass the request on to, if it names one.
pub(in crate::replica) fn forwarded_host(metadata: &HeaderMap) -> Option<String> {
    let value = metadata.get(FORWARDED_HOST)?;
    if value.is_empty() {
        return None;
    }
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Whether an answer from a follower will do.
pub(in crate::replica) fn allows_follower(metadata: &HeaderMap) -> bool {
    metadata.contains_key(ALLOW_FOLLOWER)
}

/// Whether `host` is one of the member's client URLs. Clients write the scheme that suits their
/// own TLS settings, so it is not compared.
pub(in crate::replica) fn is_client_url(member: &Member, host: &str) -> bool {
    member
        .client_urls
        .iter()
        .any(|url| without_scheme(url) == without_scheme(host))
}

fn without_scheme(url: &str) -> &str {
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"))
        .unwrap_or(url);
    rest.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn presence_counts_for_one_key_and_the_value_for_the_other() {
        let mut metadata = HeaderMap::new();
        assert!(!allows_follower(&metadata));
        assert_eq!(forwarded_host(&metadata), None);
        metadata.insert(ALLOW_FOLLOWER, HeaderValue::from_static(""));
        metadata.insert(FORWARDED_HOST, HeaderValue::from_static(""));
        assert!(allows_follower(&metadata));
        assert_eq!(forwarded_host(&metadata), None);
        metadata.insert(FORWARDED_HOST, HeaderValue::from_static("http://pd-0:2379"));
        assert_eq!(
            forwarded_host(&metadata).as_deref(),
            Some("http://pd-0:2379")
        );
    }

    #[test]
    fn client_urls_are_compared_without_their_scheme() {
        let member = Member {
            client_urls: vec!["http://pd-0:2379".into(), "https://pd-0.dc:2379".into()],
            ..Member::default()
        };
        for url in [
            "http://pd-0:2379",
            "https://pd-0:2379",
            "pd-0.dc:2379",
            "http://pd-0:2379/",
        ] {
            assert!(is_client_url(&member, url), "{url}");
        }
        for url in [
            "http://pd-1:2379",
            "http://pd-0:2380",
            "ftp://pd-0:2379",
            "",
        ] {
            assert!(!is_client_url(&member, url), "{url}");
        }
    }
}
