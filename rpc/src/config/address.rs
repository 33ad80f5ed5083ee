//! Addresses are URLs with their scheme, as in PD's own flags.

use url::{Host, Url};

use super::ConfigError;

const EXPECTED: &str = "a URL with scheme, host and port, as http://127.0.0.1:2379";

/// Reads one address. `setting` is the flag or key it came from.
///
/// # Errors
/// [`ConfigError::Value`] for text that is no URL, for another scheme than `http`, for a missing
/// host or port, and for anything behind the port.
pub fn parse_endpoint(setting: &str, text: &str) -> Result<Url, ConfigError> {
    let text = text.trim();
    let bad = |expected: &str| ConfigError::value(setting, text, expected);
    let url = Url::parse(text).map_err(|_| bad(EXPECTED))?;
    match url.scheme() {
        "http" => {}
        "https" => return Err(bad("an http URL, TLS is not built yet")),
        _ => return Err(bad(EXPECTED)),
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
    if !has_host || url.port_or_known_default().is_none() || !bare {
        return Err(bad(EXPECTED));
    }
    Ok(url)
}

/// Reads a comma-separated list of addresses, at least one; repetitions count once.
///
/// # Errors
/// As [`parse_endpoint`], for the first bad one, and for an empty list.
pub fn parse_endpoints(setting: &str, list: &str) -> Result<Vec<Url>, ConfigError> {
    let mut urls = Vec::new();
    for text in list.split(',').map(str::trim).filter(|t| !t.is_empty()) {
        let url = parse_endpoint(setting, text)?;
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
            "http://h",
        ] {
            assert!(parse_endpoint("--listen-addr", good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "127.0.0.1:2379",
            "pd-0:2379",
            "https://127.0.0.1:2379",
            "ftp://127.0.0.1:2379",
            "http://",
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
    fn a_list_of_addresses_is_comma_separated() {
        let urls = parse_endpoints("x", "http://a:1, http://b:2,http://a:1,").expect("good");
        assert_eq!(
            urls.iter().map(Url::as_str).collect::<Vec<_>>(),
            ["http://a:1/", "http://b:2/"]
        );
        assert!(parse_endpoints("x", "").is_err());
        assert!(parse_endpoints("x", "http://a:1,b:2").is_err());
    }
}
