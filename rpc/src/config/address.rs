//! Addresses are URLs with their scheme, as in PD's own flags.

use url::{Host, Url};

use super::ConfigError;
use crate::replica::sync::Upstream;

/// The port of an example: of the kind that the setting asks for.
fn example_port(setting: &str) -> u16 {
    if setting.contains("listen") || setting.contains("upstream") {
        3379
    } else {
        2379
    }
}

/// Reads one address. `setting` is the flag or key it came from.
///
/// # Errors
/// [`ConfigError::Value`] for text that is no URL, for another scheme than `http` and `https`, for a missing
/// host or port, and for anything behind the port.
pub fn parse_endpoint(setting: &str, text: &str) -> Result<Url, ConfigError> {
    let text = text.trim();
    let bad = |expected: &str| ConfigError::value(setting, text, expected);
    let port = example_port(setting);
    let whole = format!("a URL with scheme, host and port, as http://127.0.0.1:{port}");
    let url = Url::parse(text).map_err(|_| bad(&whole))?;
    match url.scheme() {
        "http" | "https" => {}
        _ => return Err(bad(&whole)),
    }
    let has_host = match url.host() {
        Some(Host::Domain(name)) => !name.is_empty(),
        Some(_) => true,
        None => false,
    };
    let bare = matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if !has_host || !bare {
        return Err(bad(&whole));
    }
    if !names_a_port(text) {
        let host = url.host_str().unwrap_or_default();
        return Err(bad(&format!("the port too, as http://{host}:{port}")));
    }
    Ok(url)
}

/// Reads an address that somebody dials. Port 0, which takes any free one to listen on, is none to dial.
///
/// # Errors
/// As [`parse_endpoint`], and for port 0.
pub fn parse_dialled(setting: &str, text: &str) -> Result<Url, ConfigError> {
    let url = parse_endpoint(setting, text)?;
    if url.port() == Some(0) {
        let host = url.host_str().unwrap_or_default();
        let port = example_port(setting);
        let expected = format!("the port that is listened on, as http://{host}:{port}");
        return Err(ConfigError::value(setting, text, &expected));
    }
    Ok(url)
}

/// Whether the URL stands for every address of a host, and thereby for none to others.
#[must_use]
pub fn names_no_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_unspecified(),
        Some(Host::Ipv6(address)) => address.is_unspecified(),
        _ => false,
    }
}

/// Whether the URL is of the host that it is used on, and thereby of none to others.
#[must_use]
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// A parsed URL does not tell port 80 from none.
fn names_a_port(text: &str) -> bool {
    let text = text.trim_end_matches('/');
    text.rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads a comma-separated list of addresses, at least one; repetitions count once.
///
/// # Errors
/// As [`parse_endpoint`], for the first bad one, and for an empty list.
pub fn parse_endpoints(setting: &str, list: &str) -> Result<Vec<Url>, ConfigError> {
    let mut urls = Vec::new();
    for text in list.split(',').map(str::trim).filter(|t| !t.is_empty()) {
        let url = parse_dialled(setting, text)?;
        if !urls.contains(&url) {
            urls.push(url);
        }
    }
    if urls.is_empty() {
        return Err(ConfigError::value(
            setting,
            list,
            "at least one PD client URL, as http://127.0.0.1:2379",
        ));
    }
    Ok(urls)
}

/// Whom to follow: `pd` or the URLs of replicas, with commas, at least one, none twice.
///
/// # Errors
/// [`ConfigError::Value`], naming `setting`.
pub fn parse_upstreams(setting: &str, list: &str) -> Result<Vec<Upstream>, ConfigError> {
    let mut upstreams = Vec::new();
    for item in list
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
    {
        let upstream = match item {
            "pd" => Upstream::Pd,
            url => {
                let url = parse_dialled(setting, url)?;
                Upstream::Replica(url.as_str().trim_end_matches('/').to_owned())
            }
        };
        if !upstreams.contains(&upstream) {
            upstreams.push(upstream);
        }
    }
    if upstreams.is_empty() {
        let expected = "pd, or the URLs of replicas with commas, as http://replica-1:3379,pd";
        return Err(ConfigError::value(setting, list, expected));
    }
    Ok(upstreams)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_with_scheme_host_and_port() {
        for good in [
            "http://127.0.0.1:2379",
            "http://pd-0.pd:2379/",
            "http://[::1]:2379",
            " http://h:1 ",
            "http://h:80",
            "https://127.0.0.1:2379",
        ] {
            assert!(parse_endpoint("--listen-addr", good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "127.0.0.1:2379",
            "pd-0:2379",
            "ftp://127.0.0.1:2379",
            "http://",
            "http://h",
            "http://h:",
            "http://h/",
            "http://[::1]",
            "http://127.0.0.1:99999",
            "http://127.0.0.1:2379/path",
            "http://user@127.0.0.1:2379",
            "http://127.0.0.1:2379?x=1",
        ] {
            let error = parse_endpoint("--listen-addr", bad)
                .expect_err(bad)
                .to_string();
            assert!(error.starts_with("--listen-addr: "), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_example_is_of_the_kind_that_is_asked_for() {
        let message = |setting, text| parse_endpoint(setting, text).expect_err(text).to_string();
        assert!(message("--listen-addr", "here").ends_with("http://127.0.0.1:3379"));
        assert!(message("--backend-endpoints", "pd").ends_with("http://127.0.0.1:2379"));
        assert!(message("listen-addr", "http://h").ends_with("the port too, as http://h:3379"));
    }

    #[test]
    fn a_list_of_addresses_is_comma_separated() {
        let urls = parse_endpoints("x", "http://a:1, http://b:2,http://a:1,").expect("good");
        assert_eq!(
            urls.iter().map(Url::as_str).collect::<Vec<_>>(),
            ["http://a:1/", "http://b:2/"]
        );
        assert!(parse_endpoints("x", "").is_err());
        let nobody = parse_endpoints("x", "http://a:0").expect_err("port 0");
        assert!(nobody.to_string().ends_with("as http://a:2379"), "{nobody}");
        assert!(parse_upstreams("upstream", "http://a:0").is_err());
        assert!(parse_endpoints("x", "http://a:1,b:2").is_err());
    }
}
