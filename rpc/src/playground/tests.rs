//! Short runs of the whole playground, over real sockets.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::view::View;
use super::*;
use crate::pd::Dialect;

fn short(scenario: Scenario) -> Args {
    Args {
        regions: 300,
        clients: 3,
        duration: Some(Duration::from_millis(2_500)),
        scenario,
        output: Output::Json,
        churn: 500,
        ..Args::default()
    }
}

async fn played(args: Args) -> Report {
    let mut view = View::new(Output::Json);
    play(args, &mut view, CancellationToken::new())
        .await
        .expect("the run ends")
}

/// What holds of every run, however slow the machine.
fn assert_sound(report: &Report) {
    assert_sound_with(report, 2);
}

fn assert_sound_with(report: &Report, replicas: usize) {
    assert_eq!(report.errors, 0, "{:?}", report.error_examples);
    assert!(
        report.checked > 0 && report.lookups > 0 && report.changes > 0,
        "{report}"
    );
    let roles: Vec<&str> = report.servers.iter().map(|server| server.role).collect();
    let expected = [&["leader"][..], &vec!["replica"; replicas]].concat();
    assert_eq!(roles, expected);
    // What the leader says is never behind the leader.
    assert_eq!(report.servers[0].behind_served, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_steady_run_serves_from_every_server_and_nothing_stale() {
    let report = played(short(Scenario::Steady)).await;
    assert_sound(&report);
    assert_eq!(
        (report.stale_served, report.time_to_recover_ms),
        (0, None),
        "{report}"
    );
    assert!(
        report.servers.iter().all(|server| server.served > 0),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p0_under_load_the_leader_is_relieved_and_the_followers_share_the_lookups_without_errors() {
    let report = played(short(Scenario::Steady)).await;
    assert_sound(&report);
    assert_eq!(report.stale_served, 0, "{report}");
    let [first, second] = [&report.servers[1], &report.servers[2]].map(|server| server.served);
    assert!(first < 2 * second && second < 2 * first, "{report}");
    // A third is asked of it directly; the gates leave little else to it.
    assert!(report.leader_share < 0.5, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_a_replica_that_follows_a_replica_serves_and_nothing_stale() {
    let args = Args {
        chain: true,
        ..short(Scenario::Stall)
    };
    let report = played(args).await;
    assert_sound_with(&report, 3);
    assert_eq!(report.stale_served, 0, "{report}");
    assert!(report.servers[3].served > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_restart_is_survived_without_a_wrong_answer() {
    let report = played(short(Scenario::LeaderRestart)).await;
    assert_sound(&report);
    assert_eq!(report.stale_served, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_apply_is_refused_and_not_served_stale() {
    let report = played(short(Scenario::Stall)).await;
    assert_sound(&report);
    assert_eq!(report.stale_served, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_the_leader_has_no_history_for_recovers_in_both_dialects() {
    for dialect in [Dialect::Master, Dialect::Release85] {
        let args = Args {
            dialect,
            ..short(Scenario::RingOverflow)
        };
        let report = played(args).await;
        assert_sound(&report);
        assert_eq!(report.stale_served, 0, "{report}");
        assert!(
            report.servers[2].full_syncs >= 2,
            "cut off for as long as it takes: {report}"
        );
    }
}

#[tokio::test]
async fn a_run_that_is_stopped_early_says_so() {
    let stop = CancellationToken::new();
    stop.cancel();
    let mut view = View::new(Output::Json);
    let stopped = play(
        Args {
            duration: None,
            ..short(Scenario::Steady)
        },
        &mut view,
        stop,
    )
    .await;
    match stopped {
        Err(PlaygroundError::Interrupted) => {}
        // The replicas were proven at once.
        Ok(report) => assert_sound(&Report {
            checked: 1,
            lookups: 1,
            changes: 1,
            ..report
        }),
        Err(error) => panic!("{error}"),
    }
}
