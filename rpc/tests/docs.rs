//! What the operating guide, the alert rules and the dashboard say is what there is, and all of it.

mod support;

use std::collections::BTreeSet;

use support::{CLUSTER, Served, get, leader, serving};
use tidegate::config::{Overrides, load, shown};
use tidegate_core::gate::RefuseReason;

const METRICS: &str = include_str!("../src/replica/http/metrics.rs");
const GUIDE: &str = include_str!("../../docs/operating.md");
const ALERTS: &str = include_str!("../../docs/alerts.yml");
const DASHBOARD: &str = include_str!("../../docs/dashboard.json");

/// Every name of a metric in `text`.
fn named(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("tidegate_") && word.len() > "tidegate_".len())
        .collect()
}

/// What is absent until the map was compared, and a difference was found; and without TLS.
const LATER: [&str; 3] = [
    "tidegate_certificate_expiry_timestamp_seconds",
    "tidegate_audit_oldest_seconds",
    "tidegate_audit_pass_seconds",
];

/// Every metric of a replica that follows and keeps its regions on disk, so that none but those of [`LATER`] is absent.
async fn exposed() -> BTreeSet<String> {
    let pd = leader(CLUSTER, 3).await;
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("text");
    let served = Served::start(&["--backend-endpoints", &pd.url(), "--data-dir", data]);
    serving(served.addr).await;
    let page = get(served.addr, "/metrics").await;
    let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = kinds
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect();
    pd.stop().await;
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_documented_and_every_metric_that_is_documented_exists() {
    let exposed = exposed().await;
    let mut exposed: BTreeSet<&str> = exposed.iter().map(String::as_str).collect();
    assert!(exposed.len() > 20, "{exposed:?}");
    for name in LATER {
        assert!(METRICS.contains(&format!("\"{name}\",")), "{name}");
        assert!(exposed.insert(name), "{name}: unknown, and not absent");
    }
    let guide = named(GUIDE);
    let missing: Vec<_> = exposed.difference(&guide).collect();
    assert!(missing.is_empty(), "not in operating.md: {missing:?}");
    for (file, text) in [
        ("operating.md", GUIDE),
        ("alerts.yml", ALERTS),
        ("dashboard.json", DASHBOARD),
    ] {
        // A histogram is one metric with three kinds of series.
        let unknown: Vec<_> = named(text)
            .into_iter()
            .filter(|name| {
                let series = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end));
                !exposed.contains(name) && !series.is_some_and(|base| exposed.contains(base))
            })
            .collect();
        assert!(
            unknown.is_empty(),
            "{file} names what there is not: {unknown:?}"
        );
    }
}

#[test]
fn every_reason_and_every_setting_is_in_the_guide() {
    for reason in RefuseReason::ALL {
        let reason = reason.as_str();
        assert!(GUIDE.contains(&format!("`{reason}`")), "{reason}");
    }
    let parsed = load(&Overrides::default(), None).expect("defaults");
    for (key, _) in shown::entries(&parsed) {
        assert!(GUIDE.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn the_dashboard_is_json_with_a_query_in_each_panel() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    for panel in panels {
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            assert!(
                !named(target["expr"].as_str().expect("a query")).is_empty(),
                "{target}"
            );
        }
    }
}
