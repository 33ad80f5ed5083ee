//! `tidegate audit` against a replica, a leader that poses as a follower, and what cannot be audited.

mod support;

use support::{CLUSTER, Served, leader, refusal, run, serving};

fn audit(leader: &str, against: &str, more: &[&str]) -> (Option<i32>, serde_json::Value) {
    let arguments = [
        "audit",
        "--leader",
        leader,
        "--against",
        against,
        "--output",
        "json",
    ];
    let output = run(&[&arguments[..], more].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.is_empty(), "{stderr}");
    let report = serde_json::from_slice(&output.stdout).expect("JSON");
    (output.status.code(), report)
}

#[tokio::test(flavor = "multi_thread")]
async fn f2_a_replica_that_follows_is_fresh_and_a_server_with_older_regions_is_not() {
    let pd = leader(CLUSTER, 2_000).await;
    let served = Served::start(&["--backend-endpoints", &pd.url()]);
    serving(served.addr).await;
    let against = format!("http://{}", served.addr);
    let (code, report) = audit(&pd.url(), &against, &["--duration", "2s"]);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["verdict"], "fresh", "{report}");
    assert_eq!(report["against_is"], "PD follower or replica");
    assert!(report["compared"].as_u64() > Some(0), "{report}");
    assert_eq!(report["behind"], 0, "{report}");

    // Another leader of the same cluster that has never heard of most regions, and of one in an older epoch.
    let other = leader(CLUSTER, 500).await;
    let (code, report) = audit(
        &pd.url(),
        &other.url(),
        &["--duration", "5s", "--max-age", "1ms"],
    );
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(report["verdict"], "stale", "{report}");
    assert!(
        report["kinds"]["missing"]["count"].as_u64() > Some(0),
        "{report}"
    );
    assert!(
        report["kinds"]["range_differs"]["still"].as_u64() > Some(0),
        "{report}"
    );
    assert!(report["age"]["max_ms"].as_u64() > Some(1), "{report}");
    assert!(
        report["examples"]
            .as_array()
            .is_some_and(|examples| !examples.is_empty()),
        "{report}"
    );
    pd.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_audited_is_told_in_one_line() {
    let pd = leader(CLUSTER, 3).await;
    let foreign = leader(CLUSTER + 1, 3).await;
    let with =
        |leader: &str, against: &str| refusal(&["audit", "--leader", leader, "--against", against]);
    assert!(refusal(&["audit"]).contains("--leader"));
    assert!(with("pd:2379", &pd.url()).starts_with("tidegate: --leader: "));
    assert!(with(&pd.url(), "nobody").starts_with("tidegate: --against: "));
    let line = with(&pd.url(), "http://127.0.0.1:1");
    assert!(
        line.contains("--against: http://127.0.0.1:1 cannot be reached"),
        "{line}"
    );
    let line = with("http://127.0.0.1:1", &pd.url());
    assert!(
        line.contains("--leader: http://127.0.0.1:1 cannot be reached"),
        "{line}"
    );
    let line = with(&pd.url(), &pd.url());
    assert!(line.contains("is the PD leader itself"), "{line}");
    let line = with(&pd.url(), &foreign.url());
    assert!(line.contains("is of cluster 8, not of cluster 7"), "{line}");
    let line = refusal(&[
        "audit",
        "--leader",
        "http://a:1",
        "--against",
        "http://b:1",
        "--duration",
        "5",
    ]);
    assert!(line.contains("20s, 500ms, 1m"), "{line}");
    let line = refusal(&[
        "audit",
        "--leader",
        "http://a:1",
        "--against",
        "http://b:1",
        "--rate",
        "0",
    ]);
    assert!(line.contains("from 1 to 1000000"), "{line}");
    pd.stop().await;
    foreign.stop().await;
}
