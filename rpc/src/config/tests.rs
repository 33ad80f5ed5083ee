use super::*;

fn from_text(text: &str) -> Result<Parsed, ConfigError> {
    let mut parsed = Parsed {
        serve: ServeConfig::default(),
        log: LogConfig::default(),
        admin: AdminConfig::default(),
        warnings: Vec::new(),
    };
    file::apply_text(Path::new("tidegate.toml"), text, &mut parsed)?;
    parsed.check()?;
    Ok(parsed)
}

fn error_of(text: &str) -> String {
    let error = from_text(text).expect_err(text).to_string();
    assert!(!error.contains('\n'), "one line: {error}");
    error
}

#[test]
fn the_command_line_wins_over_the_file_and_the_file_over_the_default() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidegate.toml");
    std::fs::write(
        &path,
        "name = 'from-file'\nlisten-addr = 'http://127.0.0.1:1'\nmax-age = '4s'\n[log]\nlevel = 'warn'\n",
    )
    .expect("written");

    let nothing = load(&Overrides::default(), None).expect("defaults");
    assert!(nothing.serve.name.starts_with("tidegate-"));
    assert_eq!(nothing.serve.listen.as_str(), "http://127.0.0.1:3379/");
    assert_eq!(
        nothing.serve.backend_endpoints[0].as_str(),
        "http://127.0.0.1:2379/"
    );
    assert_eq!(nothing.serve.thresholds(), Thresholds::default());
    assert_eq!(nothing.serve.shutdown_deadline, Duration::from_secs(5));

    let file = load(&Overrides::default(), Some(&path)).expect("file");
    assert_eq!(file.serve.name, "from-file");
    assert_eq!(file.serve.max_age, Duration::from_secs(4));
    assert_eq!(file.log.level, LogLevel::Warn);

    let flags = Overrides {
        name: Some("from-flag".into()),
        backend_endpoints: Some("http://a:1,http://b:2".into()),
        log_level: Some("debug".into()),
        advertise_listen_addr: Some("http://me:3".into()),
        ..Overrides::default()
    };
    let both = load(&flags, Some(&path)).expect("both");
    assert_eq!(both.serve.name, "from-flag");
    assert_eq!(both.serve.listen.as_str(), "http://127.0.0.1:1/");
    assert_eq!(both.serve.backend_endpoints.len(), 2);
    assert_eq!(both.serve.advertise.expect("set").as_str(), "http://me:3/");
    assert_eq!(both.serve.max_age, Duration::from_secs(4));
    assert_eq!(both.log.level, LogLevel::Debug);
}

#[test]
fn a_pd_routers_own_file_is_accepted_and_what_has_no_effect_is_said() {
    let parsed = from_text(
        r#"
        backend-endpoints = "http://127.0.0.1:2379"
        listen-addr = "http://127.0.0.1:3379"
        advertise-listen-addr = ""
        name = ""
        [metric]
        address = "push:9091"
        interval = "15s"
        [log]
        level = "info"
        format = "text"
        disable-error-verbose = true
        [log.file]
        filename = "/var/log/router.log"
        max-size = 300
        [security]
        cacert-path = ""
        cert-path = "/tls/cert.pem"
        key-path = "/tls/key.pem"
        cert-allowed-cn = []
        redact-info-log = "MARKER"
        [security.encryption]
        data-encryption-method = "plaintext"
        [security.encryption.master-key]
        type = "plaintext"
        "#,
    )
    .expect("PD's own keys");
    let warning = parsed.warnings.join("\n");
    for key in ["metric.address", "security.encryption.master-key.type"] {
        assert!(warning.contains(key), "{key} in {warning}");
    }
    assert!(
        !warning.contains("cacert-path"),
        "an empty value asks for nothing: {warning}"
    );
    assert!(!warning.contains("security.c"), "{warning}");
    assert!(!warning.contains("redact-info-log"), "{warning}");
    let file = parsed.log.file.expect("a log file");
    assert_eq!(file.filename, Path::new("/var/log/router.log"));
    assert_eq!(
        (file.max_size, file.max_days, file.max_backups),
        (300, 0, 0)
    );
    let security = parsed.serve.security;
    assert_eq!(security.ca, None);
    assert_eq!(security.key.as_deref(), Some(Path::new("/tls/key.pem")));
    assert!(from_text("").expect("empty").warnings.is_empty());
}

#[test]
fn a_key_that_nobody_knows_is_an_error_that_names_it() {
    assert!(error_of("max-agee = '3s'").contains("`max-agee`, did you mean `max-age`?"));
    assert!(error_of("[security]\ncert = 'x'").contains("`security.cert`"));
    assert!(error_of("[playground]\n").contains("`playground`"));
    assert!(error_of("[log.file]\nname = 'x'").contains("`log.file.name`"));
    assert!(from_text("[security]\n[log]\n").is_ok());
}

#[test]
fn values_that_a_key_cannot_have_are_errors_that_name_it() {
    for (text, setting) in [
        ("max-age = 3", "max-age"),
        ("max-age = '3'", "max-age"),
        ("probe-interval = '0s'", "probe-interval"),
        ("index-threshold = -1", "index-threshold"),
        ("index-threshold = '5'", "index-threshold"),
        ("audit-pass = 'never'", "audit-pass"),
        ("audit-pass = 600", "audit-pass"),
        ("audit-grace = 'off'", "audit-grace"),
        ("admin-addr = 'here'", "admin-addr"),
        ("admin-addr = 'https://127.0.0.1:1'", "admin-addr"),
        ("admin-writable = 'yes'", "admin-writable"),
        ("[log.file]\nmax-size = -1", "log.file.max-size"),
        ("[log.file]\nmax-days = '3'", "log.file.max-days"),
        (
            "[security]\nredact-info-log = 'some'",
            "security.redact-info-log",
        ),
        ("store-cache-ttl = 1", "store-cache-ttl"),
        ("store-cache-ttl = 'off'", "store-cache-ttl"),
        ("register = 'yes'", "register"),
        ("max-connections = 0", "max-connections"),
        ("max-concurrent-streams = '9'", "max-concurrent-streams"),
        ("max-message-size = 1", "max-message-size"),
        ("max-scan-regions = 0", "max-scan-regions"),
        ("max-scan-size = '64MiB'", "max-scan-size"),
        (
            "[security]\ncert-allowed-cn = 'tidb'",
            "security.cert-allowed-cn",
        ),
        ("[security]\ncert-allowed-cn = ['tidb']", "cert-allowed-cn"),
        (
            "[security]\ncert-allowed-cn = ['tidb', ' ']",
            "security.cert-allowed-cn",
        ),
        ("broadcast-max-age = 'max-age'", "broadcast-max-age"),
        ("'log.level' = 'warn'\n[log]\nlevel = 'info'", "`log.level`"),
        ("[security]\ncert-path = 'c.pem'", "cert-path"),
        ("listen-addr = 'https://127.0.0.1:1'", "listen-addr"),
        (
            "backend-endpoints = 'https://127.0.0.1:1'",
            "backend-endpoints",
        ),
        ("when-stale = 'ask'", "when-stale"),
        ("present-as = 'leader'", "present-as"),
        ("present-as = true", "present-as"),
        (
            "present-as = 'self'\nlisten-addr = 'http://0.0.0.0:3379'",
            "present-as",
        ),
        (
            "allow-bounded-staleness = 'true'",
            "allow-bounded-staleness",
        ),
        ("listen-addr = '127.0.0.1:3379'", "listen-addr"),
        ("backend-endpoints = []", "backend-endpoints"),
        ("backend-endpoints = [1]", "backend-endpoints"),
        ("name = 3", "name"),
        ("[log]\nlevel = 'loud'", "log.level"),
        ("[log]\nformat = 'xml'", "log.format"),
        ("probe-interval = '10s'", "probe-interval"),
    ] {
        let error = error_of(text);
        let named = error.strip_prefix("config file tidegate.toml: ");
        let named = named.unwrap_or(&error);
        assert!(named.starts_with(setting), "{text}: {error}");
        assert!(error.contains(';'), "no remedy: {error}");
    }
    let reached = "present-as = 'self'\nlisten-addr = 'http://0.0.0.0:3379'\n\
                   advertise-listen-addr = 'http://me:3379'\nallow-bounded-staleness = true";
    let reached = from_text(reached).expect("an address for others").serve;
    assert_eq!(reached.present_as, PresentAs::Me);
    assert!(reached.allow_bounded_staleness);
    let off = from_text("store-cache-ttl = '0s'").expect("off").serve;
    assert_eq!(off.store_cache_ttl, Duration::ZERO);
    let lists = from_text("backend-endpoints = ['http://a:1', 'http://b:2']").expect("a list");
    assert_eq!(lists.serve.backend_endpoints.len(), 2);
    let audit = |text| from_text(text).expect(text).serve.audit;
    assert_eq!(audit("audit-pass = 'off'").pass, None);
    assert_eq!(
        audit("audit-pass = '2m'").pass,
        Some(Duration::from_secs(120))
    );
    assert_eq!(audit("audit-grace = '2m'").grace, Duration::from_secs(120));
}

#[test]
fn a_file_that_is_no_toml_is_an_error_with_its_line() {
    let error = error_of("name = 'x'\nmax-age = = 3\n");
    assert!(error.contains("tidegate.toml line 2"), "{error}");
    let error = error_of("name = 'x'\nindex-threshold = 18446744073709551615\n");
    assert!(
        error.contains("line 2: index-threshold: ") && error.contains("too large for TOML"),
        "{error}"
    );
    let missing = load(
        &Overrides::default(),
        Some(Path::new("/nonexistent/tidegate.toml")),
    );
    let error = missing.expect_err("missing").to_string();
    assert!(
        error.contains("/nonexistent/tidegate.toml") && error.contains("--config"),
        "{error}"
    );
}

#[test]
fn scaling_divides_what_the_gate_goes_by() {
    let tenth = ServeConfig::default().scaled(10);
    assert_eq!(tenth.max_age, Duration::from_secs(1));
    assert_eq!(tenth.probe_interval, Duration::from_millis(300));
    assert_eq!(tenth.index_threshold, 2_000);
    assert_eq!(tenth.thresholds(), Thresholds::default().scaled(10));
    assert_eq!(tenth.shutdown_deadline, Duration::from_secs(5));
}

#[test]
fn every_key_of_ours_is_shown() {
    let parsed = from_text("").expect("empty");
    let shown: Vec<&str> = shown::entries(&parsed)
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    for key in file::OURS {
        assert!(shown.contains(key), "{key}");
    }
    assert_eq!(shown.len(), file::OURS.len());
    let page = shown::page(&parsed);
    assert_eq!(page["log"]["file"]["max-size"], 300);
    assert_eq!(page["max-age"], "10s");
    assert_eq!(page["broadcast-max-age"], "30s");
}

#[test]
fn the_age_allowed_on_release_85_is_30s_or_what_was_said_and_no_less_than_a_longer_max_age() {
    for (text, seconds) in [
        ("", 30),
        // A quiet leader could not be proven within it.
        ("max-age = '5s'", 30),
        ("max-age = '45s'", 45),
        ("max-age = '5s'\nbroadcast-max-age = '25s'", 25),
        ("max-age = '45s'\nbroadcast-max-age = '12s'", 12),
        ("max-age = '45s'\nbroadcast-max-age = 'auto'", 45),
    ] {
        let serve = from_text(text).expect(text).serve;
        let age = Duration::from_secs(seconds);
        assert_eq!(serve.broadcast_max_age(), age, "{text}");
        assert_eq!(serve.scaled(10).broadcast_max_age(), age / 10, "{text}");
    }
    assert!(error_of("broadcast-max-age = '2s'").contains("probe-interval"));
}

#[test]
fn what_an_empty_value_comes_to_is_said_where_something_could_be_expected_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidegate.toml");
    let text = "name = ''\nadvertise-listen-addr = ''\ndata-dir = ''\nadmin-addr = ''\n";
    std::fs::write(&path, text).expect("written");
    let said = |overrides: &Overrides| load(overrides, Some(&path)).expect("good").warnings;
    let warnings = said(&Overrides::default());
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].starts_with("data-dir is empty, as if it were left out: regions are not kept")
    );
    assert!(warnings[1].starts_with("admin-addr is empty"));
    let flag = Overrides {
        data_dir: Some("here".into()),
        ..Overrides::default()
    };
    assert_eq!(said(&flag).len(), 1, "a flag wins over it");
}
