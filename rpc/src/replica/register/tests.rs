//! A registrar beside an embedded leader, whose leases expire by virtual time.

use tidegate_core::clock::{Clock, ManualClock, Moment};
use tidegate_core::gate::Thresholds;

use super::*;
use crate::leader::{EmbeddedLeader, LeaderConfig};
use crate::pd::ChannelSettings;
use crate::proto::etcdserverpb::kv_client::KvClient;
use crate::proto::etcdserverpb::{PutRequest, RangeRequest};
use crate::proto::mvccpb::KeyValue;
use crate::replica::state::Shared;

const CLUSTER: u64 = 7;
const ADDRESS: &str = "http://127.0.0.1:3379";
const KEY: &str = "/ms/7/router/registry/http://127.0.0.1:3379";

struct Bench {
    leader: EmbeddedLeader,
    remote: Arc<Remote>,
    serving: Arc<Serving>,
    registrar: Arc<Registrar>,
    clock: ManualClock,
}

fn config() -> LeaderConfig {
    LeaderConfig {
        cluster_id: CLUSTER,
        ..LeaderConfig::default()
    }
}

impl Bench {
    async fn new() -> Self {
        let leader = EmbeddedLeader::start(config()).await.expect("a free port");
        let clock = ManualClock::new(Moment::from_nanos(1_000_000_000));
        let shared = Shared::new(Arc::new(clock.clone()), Thresholds::default());
        assert!(shared.settle_cluster(CLUSTER));
        let settings = ChannelSettings {
            // Virtual time runs ahead of answers to pings.
            ping_interval: Duration::from_secs(1 << 30),
            ..ChannelSettings::default()
        };
        let remote = Arc::new(Remote::new(settings, None));
        let endpoints = vec![leader.url()];
        let timeout = Duration::from_secs(3);
        let serving = Serving::new(
            Arc::new(shared),
            Arc::clone(&remote),
            endpoints,
            timeout,
            false,
        );
        let serving = Arc::new(serving);
        let entry = Entry::new("under-test", ADDRESS, 1);
        let registrar = Registrar::new(entry, Arc::clone(&serving), Arc::clone(&remote));
        Self {
            leader,
            remote,
            serving,
            registrar: Arc::new(registrar),
            clock,
        }
    }

    /// Lookups are answered from now on, for `max-age`.
    fn ready(&self) {
        let shared = &self.serving.shared;
        let now = self.clock.now();
        shared.gate.begin(1);
        shared.gate.head_received(1, 10);
        shared.gate.apply_started(1, now);
        shared.gate.apply_finished(1, 10, now);
        shared.gate.probe_answered(1, now, 10);
        shared.map.replace_with(tidegate_core::RegionMap::new(), 1);
        shared.gate.publish(1);
        assert!(self.serving.is_serving());
    }

    async fn key(&self) -> Option<KeyValue> {
        let channel = self.remote.channel(&self.leader.url()).expect("an address");
        let request = RangeRequest {
            key: KEY.into(),
            ..RangeRequest::default()
        };
        let found = KvClient::new(channel).range(request).await.ok()?;
        found.into_inner().kvs.pop()
    }

    /// Waits until the key is there, or is not.
    async fn until(&self, there: bool) -> Option<KeyValue> {
        loop {
            let key = self.key().await;
            if key.is_some() == there {
                return key;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_is_there_while_lookups_are_answered_and_gone_at_the_stop() {
    let bench = Bench::new().await;
    let registering = Arc::clone(&bench.registrar).spawn();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.key().await, None, "nothing is answered yet");

    bench.ready();
    let key = bench.until(true).await.expect("there");
    assert_ne!(key.lease, 0);
    let value: serde_json::Value = serde_json::from_slice(&key.value).expect("JSON");
    assert_eq!(value["service-addr"], ADDRESS);
    assert_eq!(bench.registrar.status().key.as_deref(), Some(KEY));
    // Twelve lives of its lease later it is still the same key.
    tokio::time::sleep(TTL * 12).await;
    let later = bench.key().await.expect("kept alive");
    assert_eq!(
        (later.create_revision, later.version),
        (key.create_revision, 1)
    );

    registering.end().await;
    assert_eq!(
        bench.key().await,
        None,
        "gone at once, not when the lease expires"
    );
    assert_eq!(bench.registrar.status().key, None);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_no_longer_answers_takes_its_key_away_and_puts_it_again_later() {
    let bench = Bench::new().await;
    bench.ready();
    let registering = Arc::clone(&bench.registrar).spawn();
    bench.until(true).await;
    // The proof grows old.
    bench.clock.advance(Duration::from_secs(60));
    assert!(!bench.serving.is_serving());
    tokio::time::sleep(UNREADY / 2).await;
    assert!(
        bench.key().await.is_some(),
        "a short pause is the health check's"
    );
    bench.until(false).await;
    bench.ready();
    bench.until(true).await;
    registering.end().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_of_etcd_the_key_comes_back() {
    let mut bench = Bench::new().await;
    bench.ready();
    let registering = Arc::clone(&bench.registrar).spawn();
    let before = bench.until(true).await.expect("there");
    // The next leader remembers the key, and has never heard of its lease.
    let addr = bench.leader.addr();
    drop(bench.leader.stop().await);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(bench.registrar.status().key, None);
    assert!(bench.registrar.status().last_error.is_some());
    let again = LeaderConfig {
        listen: addr,
        ..config()
    };
    bench.leader = EmbeddedLeader::start(again).await.expect("its port again");
    let after = bench.until(true).await.expect("there again");
    assert_ne!(after.create_revision, before.create_revision);
    assert_eq!(bench.registrar.status().last_error, None);
    registering.end().await;
    assert_eq!(bench.key().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_has_started_at_the_same_address_since_keeps_its_key() {
    let bench = Bench::new().await;
    bench.ready();
    let registering = Arc::clone(&bench.registrar).spawn();
    bench.until(true).await;
    let channel = bench
        .remote
        .channel(&bench.leader.url())
        .expect("an address");
    let others = PutRequest {
        key: KEY.into(),
        value: "the next process".into(),
        ..PutRequest::default()
    };
    KvClient::new(channel).put(others).await.expect("put");
    registering.end().await;
    assert_eq!(
        bench.key().await.expect("the other's").value,
        "the next process"
    );
}

/// Against etcd itself, whose program is named by `ETCD`.
#[tokio::test]
#[ignore = "needs etcd: ETCD=/usr/bin/etcd cargo test -p tidegate --lib register -- --ignored"]
async fn etcd_itself_takes_the_key_keeps_it_and_lets_it_go() {
    let program = std::env::var("ETCD").expect("ETCD names the program");
    let dir = tempfile::tempdir().expect("a directory");
    let free = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        format!("http://{}", listener.local_addr().expect("an address"))
    };
    let (client, peer) = (free(), free());
    let mut etcd = std::process::Command::new(program)
        .arg("--data-dir")
        .arg(dir.path())
        .args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("etcd");
    let bench = Bench::new().await;
    bench.ready();
    let timeout = Duration::from_secs(3);
    let remote = Arc::new(Remote::new(ChannelSettings::default(), None));
    let shared = Arc::clone(&bench.serving.shared);
    let serving = Serving::new(
        shared,
        Arc::clone(&remote),
        vec![client.clone()],
        timeout,
        false,
    );
    let entry = Entry::new("under-test", ADDRESS, 1);
    let registrar = Arc::new(Registrar::new(
        entry,
        Arc::new(serving),
        Arc::clone(&remote),
    ));
    let registering = Arc::clone(&registrar).spawn();
    let mut keys = KvClient::new(remote.channel(&client).expect("an address"));
    let mut found = async || {
        let request = RangeRequest {
            key: KEY.into(),
            ..RangeRequest::default()
        };
        let answer = keys.range(request).await.ok()?;
        answer.into_inner().kvs.pop()
    };
    let began = Instant::now();
    let first = loop {
        if let Some(key) = found().await {
            break key;
        }
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{:?}",
            registrar.status()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    // Longer than a lease lives that is not kept alive.
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(
        found().await.expect("kept alive").create_revision,
        first.create_revision
    );
    registering.end().await;
    assert_eq!(found().await, None);
    etcd.kill().expect("killed");
    etcd.wait().expect("its end");
}
