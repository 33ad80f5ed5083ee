//! Paths that lead to something other than a file: each is told in one line, and none is waited for.

mod support;

use std::path::Path;
use std::process::Command;

use support::{CLUSTER, Served, get, leader, refusal};

fn pipe(path: &Path) -> String {
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo");
    assert!(made.success());
    text(path)
}

fn text(path: &Path) -> String {
    path.to_str().expect("text").to_owned()
}

/// A start with these arguments beside those that keep it from others.
fn refused(arguments: &[&str]) -> String {
    let start = [
        "serve",
        "--listen-addr",
        "http://127.0.0.1:0",
        "--backend-endpoints",
        "http://127.0.0.1:1",
    ];
    refusal(&[&start[..], arguments].concat())
}

#[test]
fn what_is_no_file_is_named_with_what_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = pipe(&dir.path().join("pipe"));
    let here = text(dir.path());
    let cases = [
        (
            "--config",
            pipe.as_str(),
            "a pipe (FIFO)",
            "check the path given with --config",
        ),
        ("--config", &here, "a directory", "check the path"),
        ("--config", "/dev/zero", "a device", "check the path"),
        (
            "--log-file",
            &pipe,
            "a pipe (FIFO)",
            "give another with --log-file",
        ),
        ("--log-file", "/dev/null", "a device", "or none for stderr"),
        (
            "--log-file",
            &here,
            "a directory",
            "give another with --log-file",
        ),
        ("--cacert", &pipe, "a pipe (FIFO)", "check the path"),
    ];
    for (flag, path, kind, remedy) in cases {
        let line = refused(&[flag, path]);
        let told = format!("it is {kind} and not a file");
        assert!(
            line.contains(path) && line.contains(&told) && line.contains(remedy),
            "{flag} {path}: {line}"
        );
    }
}

#[test]
fn a_config_file_that_is_no_text_is_told_with_its_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidegate.toml");
    std::fs::write(&path, b"name = 'a'\nmax-age = '\xff'\n").expect("written");
    let line = refused(&["--config", &text(&path)]);
    assert!(
        line.contains("line 2") && line.contains("not UTF-8 text; save it as UTF-8"),
        "{line}"
    );
}

#[test]
fn a_data_directory_that_cannot_be_one_is_told_with_what_stands_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "text").expect("written");
    let line = refused(&["--data-dir", &text(&file)]);
    assert!(line.contains("is no directory; give another"), "{line}");

    let holds = |name: &str| {
        let data = dir.path().join(name);
        std::fs::create_dir_all(&data).expect("made");
        data
    };
    let data = holds("with-pipe");
    pipe(&data.join("regions.redb"));
    let line = refused(&["--data-dir", &text(&data)]);
    assert!(
        line.contains("with-pipe/regions.redb: it is a pipe (FIFO) and not a file")
            && line.contains("move it away, or give another data-dir"),
        "{line}"
    );
    let data = holds("with-directory");
    std::fs::create_dir(data.join("regions.redb")).expect("made");
    let line = refused(&["--data-dir", &text(&data)]);
    assert!(line.contains("it is a directory and not a file"), "{line}");

    // What cannot be used has no place to go.
    let data = holds("crowded");
    std::fs::write(data.join("regions.redb"), vec![7; 10_000]).expect("written");
    std::fs::create_dir(data.join("regions.redb.unusable")).expect("made");
    let line = refused(&["--data-dir", &text(&data)]);
    assert!(
        line.contains("cannot be renamed to") && line.contains("move one of them away"),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_set_aside_is_logged_and_shown() {
    let pd = leader(CLUSTER, 3).await;
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("regions.redb"), vec![7; 10_000]).expect("written");
    let data = text(dir.path());
    let served = Served::start_quiet(&["--backend-endpoints", &pd.url(), "--data-dir", &data]);
    let line = served.line_with("were set aside");
    for part in [
        "ERROR",
        "regions.redb\"",
        "regions.redb.unusable\"",
        "a full sync takes their place",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let listening = served.line_with("serving");
    let addr = listening
        .split("listen=")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let addr = addr.expect("its address").parse().expect("an address");
    let page = get(addr, "/status").await;
    assert!(
        page.contains("\"last_set_aside\": {") && page.contains("regions.redb.unusable"),
        "{page}"
    );
    assert_eq!(
        std::fs::read(dir.path().join("regions.redb.unusable")).expect("kept"),
        vec![7; 10_000]
    );
    pd.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_file_sizes_is_an_error_as_a_full_disk_is() {
    let pd = leader(CLUSTER, 9_000).await;
    let dir = tempfile::tempdir().expect("a directory");
    // In blocks of 512 bytes: less than the regions take, more than an empty store does.
    let line = "ulimit -f 1024; exec \"$@\"";
    let child = Command::new("sh")
        .args(["-c", line, "sh", env!("CARGO_BIN_EXE_tidegate"), "serve"])
        .args([
            "--listen-addr",
            "http://127.0.0.1:0",
            "--backend-endpoints",
            &pd.url(),
        ])
        .args(["--data-dir", &text(dir.path())])
        .stdout(std::process::Stdio::null())
        .stderr(std::fs::File::create(dir.path().join("log")).expect("made"))
        .spawn()
        .expect("the program");
    let mut child = Killed(child);
    let log = dir.path().join("log");
    wait_for(&log, "regions could not be written to disk").await;
    wait_for(&log, "File too large").await;
    support::signal(child.0.id(), "TERM");
    assert_eq!(child.0.wait().expect("ended").code(), Some(0));
    pd.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_that_finds_pipes_freezes_nothing() {
    let pd = leader(CLUSTER, 3).await;
    let dir = tempfile::tempdir().expect("a directory");
    let (config, log) = (dir.path().join("t.toml"), dir.path().join("t.log"));
    std::fs::write(&config, "max-age = '9s'\n").expect("written");
    let arguments = [
        "--backend-endpoints",
        &pd.url(),
        "--config",
        &text(&config),
        "--log-file",
        &text(&log),
    ];
    let served = Served::start_quiet(&arguments);
    let said = |what: &'static str| {
        let log = dir.path().join("kept.log");
        async move { wait_for(&log, what).await }
    };
    wait_for(&log, "serving").await;
    // What is open goes on taking lines.
    std::fs::rename(&log, dir.path().join("kept.log")).expect("moved");
    pipe(&log);
    std::fs::remove_file(&config).expect("removed");
    pipe(&config);
    served.signal("HUP");
    said("the log file cannot be opened again").await;
    said("it is a pipe (FIFO) and not a file").await;
    said("the settings cannot be reloaded and stay as they are").await;
    std::fs::remove_file(&config).expect("removed");
    std::fs::write(&config, "max-age = '9s'\n").expect("written");
    served.signal("HUP");
    said("the settings were reloaded; none has changed").await;
    served.signal("TERM");
    assert_eq!(served.wait(), Some(0));
    said("stopped").await;
    pd.stop().await;
}

/// Ends with the test.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the file has `text` in it.
async fn wait_for(path: &Path, text: &str) {
    let wait = async {
        while !std::fs::read_to_string(path).is_ok_and(|log| log.contains(text)) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(support::PATIENCE, wait).await;
    assert!(waited.is_ok(), "no {text} in {}", path.display());
}
