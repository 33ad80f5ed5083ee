//! A start that fails ends with 2 and one line that names the thing and the remedy.

mod support;

use std::net::TcpListener;

use support::{CLUSTER, Served, get, leader, refusal, run};

fn config_file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidegate.toml");
    std::fs::write(&path, text).expect("written");
    let path = path.to_str().expect("text").to_owned();
    (dir, path)
}

#[test]
fn no_command() {
    assert_eq!(
        refusal(&[]),
        "tidegate: no command given; see `tidegate --help`\n"
    );
}

#[test]
fn an_unknown_command() {
    let line = refusal(&["follow"]);
    assert!(
        line.contains("'follow'") && line.contains("tidegate --help"),
        "{line}"
    );
}

#[test]
fn an_unknown_flag() {
    let line = refusal(&["serve", "--listen-adr", "http://127.0.0.1:0"]);
    assert!(
        line.contains("'--listen-adr'") && line.contains("tidegate serve --help"),
        "{line}"
    );
    assert!(line.contains("did you mean --listen-addr?"), "{line}");
    let line = refusal(&["serve", "--endpoints", "http://127.0.0.1:2379"]);
    assert!(line.contains("did you mean --backend-endpoints?"), "{line}");
}

#[test]
fn a_value_that_begins_with_a_dash() {
    let line = refusal(&["serve", "--name", "-one"]);
    assert!(line.contains("write --name=-one"), "{line}");
    for flag in ["--regions", "--clients", "--churn"] {
        let line = refusal(&["playground", flag, "-5"]);
        assert!(
            line.contains(&format!("'-5' for '{flag}"))
                && line.contains("a whole number from 1 to"),
            "{line}"
        );
    }
    let line = refusal(&["playground", "--duration", "-5s"]);
    assert!(line.contains("'-5s' for '--duration"), "{line}");
    assert!(line.contains("20s, 500ms, 1m"), "{line}");
}

#[test]
fn an_address_without_a_port() {
    for (flag, port) in [("--listen-addr", 3379), ("--backend-endpoints", 2379)] {
        let line = refusal(&["serve", flag, "http://127.0.0.1"]);
        let example = format!("the port too, as http://127.0.0.1:{port}");
        assert!(line.contains(flag) && line.contains(&example), "{line}");
    }
}

#[test]
fn a_flag_without_its_value() {
    let line = refusal(&["serve", "--config"]);
    assert!(
        line.contains("--config <FILE>") && line.contains("tidegate serve --help"),
        "{line}"
    );
}

#[test]
fn an_address_to_listen_on_that_is_no_url() {
    let line = refusal(&["serve", "--listen-addr", "127.0.0.1:3379"]);
    assert!(
        line.contains("--listen-addr: \"127.0.0.1:3379\"") && line.contains("http://"),
        "{line}"
    );
}

#[test]
fn an_endpoint_that_is_no_url() {
    let line = refusal(&["serve", "--backend-endpoints", "http://pd-0:2379,pd-1:2379"]);
    assert!(
        line.contains("--backend-endpoints: \"pd-1:2379\"") && line.contains("http://"),
        "{line}"
    );
}

#[test]
fn an_advertised_address_that_is_no_url() {
    let line = refusal(&["serve", "--advertise-listen-addr", "me"]);
    assert!(line.contains("--advertise-listen-addr: \"me\""), "{line}");
}

#[test]
fn a_path_of_nothing() {
    for flag in [
        "--data-dir",
        "--cacert",
        "--cert",
        "--key",
        "--log-file",
        "--config",
    ] {
        let line = refusal(&["serve", flag, ""]);
        let expected = format!("a value is required for '{flag} <");
        assert!(
            line.contains(&expected) && line.contains("see `tidegate serve --help`"),
            "{line}"
        );
    }
}

#[test]
fn an_admin_address_that_is_the_one_of_the_lookups() {
    let (_dir, path) = config_file("admin-addr = \"http://127.0.0.1:3379\"\n");
    let line = refusal(&["serve", "--config", &path]);
    assert!(
        line.contains("admin-addr http://127.0.0.1:3379 is what listen-addr names")
            && line.contains("give admin-addr a port of its own"),
        "{line}"
    );
}

#[test]
fn a_name_of_nothing() {
    let line = refusal(&["serve", "--name", ""]);
    assert!(line.contains("--name: \"\""), "{line}");
}

#[test]
fn an_unknown_log_level() {
    let line = refusal(&["serve", "-L", "loud"]);
    assert!(
        line.contains("--log-level: \"loud\"") && line.contains("debug, info"),
        "{line}"
    );
}

#[test]
fn a_config_file_that_cannot_be_read() {
    let line = refusal(&["serve", "--config", "/nonexistent/tidegate.toml"]);
    assert!(
        line.contains("/nonexistent/tidegate.toml") && line.contains("check the path"),
        "{line}"
    );
}

#[test]
fn a_config_file_that_is_no_toml() {
    let (_dir, path) = config_file("name = \"x\"\nmax-age 3\n");
    let line = refusal(&["serve", "--config", &path]);
    assert!(line.contains(&path) && line.contains("line 2"), "{line}");
}

#[test]
fn a_config_key_that_neither_pds_router_nor_we_know() {
    let (_dir, path) = config_file("max-agee = \"3s\"\n");
    let line = refusal(&["serve", "--config", &path]);
    assert!(
        line.contains("`max-agee`") && line.contains("did you mean `max-age`"),
        "{line}"
    );
}

#[test]
fn a_config_value_that_its_key_cannot_have() {
    let (_dir, path) = config_file("max-age = \"soon\"\n");
    let line = refusal(&["serve", "--config", &path]);
    assert!(
        line.contains("max-age: \"soon\"") && line.contains("a duration"),
        "{line}"
    );
    assert!(line.contains(&path) && line.contains("500ms"), "{line}");
    let (_dir, path) = config_file("when-stale = \"wait\"\n");
    let line = refusal(&["serve", "--config", &path]);
    assert!(
        line.contains("when-stale: \"wait\"") && line.contains("refuse"),
        "{line}"
    );
}

#[test]
fn settings_that_contradict_each_other() {
    let (_dir, path) = config_file("max-age = \"3s\"\nprobe-interval = \"3s\"\n");
    let line = refusal(&["serve", "--config", &path]);
    assert!(
        line.contains("probe-interval 3s (the default)") && line.contains("max-age 3s"),
        "{line}"
    );
    assert!(line.contains(&path), "{line}");
}

#[test]
fn an_occupied_port() {
    let occupied = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", occupied.local_addr().expect("bound"));
    let line = refusal(&[
        "serve",
        "--listen-addr",
        &url,
        "--backend-endpoints",
        "http://127.0.0.1:1",
    ]);
    assert!(
        line.contains(&url) && line.contains("the port is taken") && line.contains("--listen-addr"),
        "{line}"
    );
}

#[test]
fn an_address_that_is_nobodys() {
    let line = refusal(&[
        "serve",
        "--listen-addr",
        "http://192.0.2.1:3379",
        "--backend-endpoints",
        "http://127.0.0.1:1",
    ]);
    assert!(
        line.contains("http://192.0.2.1:3379") && line.contains("--listen-addr"),
        "{line}"
    );
    assert!(line.contains("not an address of this machine"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_of_different_clusters() {
    let (one, other) = (leader(CLUSTER, 1).await, leader(CLUSTER + 1, 1).await);
    let endpoints = format!("{},{}", one.url(), other.url());
    let line = tokio::task::spawn_blocking(move || {
        refusal(&[
            "serve",
            "--listen-addr",
            "http://127.0.0.1:0",
            "--backend-endpoints",
            &endpoints,
        ])
    });
    let line = line.await.expect("a line");
    assert!(
        line.contains(&one.url()) && line.contains(&other.url()),
        "{line}"
    );
    assert!(
        line.contains("cluster 7") && line.contains("one cluster only"),
        "{line}"
    );
}

#[test]
fn playground_arguments_out_of_their_range() {
    for (flag, value) in [
        ("--regions", "0"),
        ("--clients", "none"),
        ("--duration", "soon"),
        ("--scenario", "flood"),
        ("--gate", "ajar"),
        ("--output", "xml"),
    ] {
        let line = refusal(&["playground", flag, value]);
        assert!(
            line.contains(&format!("'{value}'")) && line.contains(flag),
            "{line}"
        );
        assert!(line.contains("tidegate playground --help"), "{line}");
    }
}

#[test]
fn help_and_version_are_no_failures() {
    for arguments in [
        &["--help"][..],
        &["-V"],
        &["serve", "--help"],
        &["serve", "-V"],
        &["playground", "--help"],
        &["help"],
        &["help", "serve"],
        &["--version"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(text.contains("tidegate"), "{text}");
    }
    let help = String::from_utf8(run(&["serve", "--help"]).stdout).expect("text");
    for flag in [
        "--name",
        "--backend-endpoints",
        "--listen-addr",
        "--advertise-listen-addr",
        "--config",
        "-L, --log-level",
        "max-age",
    ] {
        assert!(help.contains(flag), "{flag}");
    }
    let version = String::from_utf8(run(&["serve", "-V"]).stdout).expect("text");
    let commit = version
        .strip_prefix(concat!("tidegate ", env!("CARGO_PKG_VERSION"), " ("))
        .and_then(|rest| rest.strip_suffix(")\n"))
        .unwrap_or_else(|| panic!("{version}"));
    let is_commit = commit.len() == 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_commit || commit == "unknown", "{version}");
    assert_eq!(commit, tidegate::COMMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pd_that_cannot_be_reached_is_no_failure() {
    let (_dir, path) = config_file("[log.file]\ncompression = true\n[log]\ndevelopment = true\n");
    let served = tokio::task::spawn_blocking(move || {
        Served::start(&[
            "--backend-endpoints",
            "http://127.0.0.1:1",
            "--config",
            &path,
        ])
    });
    let served = served.await.expect("started");
    let health = get(served.addr, "/health").await;
    assert!(health.starts_with("HTTP/1.1 503"), "{health}");
    assert!(health.contains("not_proven"), "{health}");
    served.signal("TERM");
    served.line_with("stopped");
    assert_eq!(served.wait(), Some(0));
}
