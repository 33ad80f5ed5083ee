//! The ways to a real pd-server, taken with a stand-in: three processes that are started, moved, killed and removed.

use std::path::{Path, PathBuf};

use tidegate::pd::Dialect;
use tidegate::proto::pdpb;
use tidegate_interop::client::{Answer, Asker, Question, connect};
use tidegate_interop::cluster::Cluster;
use tidegate_interop::error::InteropError;
use tidegate_interop::pd::server::version;
use tidegate_interop::pd::{Pd, Wanted};

fn stand_in() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_pd-stand-in"))
}

async fn start(dir: &Path) -> Pd {
    let wanted = Wanted {
        pd_server: Some(stand_in()),
        dialect: Dialect::Master,
        player: None,
        etcd: None,
        dir: dir.to_owned(),
    };
    Pd::start(&wanted)
        .await
        .expect("three members and a leader")
}

/// What the leader says of a region, at its own address.
async fn told(pd: &Pd, id: u64) -> Answer {
    let client = connect(&pd.leader_url()).await.expect("the leader listens");
    let mut asker = Asker::new(client, pd.cluster_id());
    asker
        .ask(&Question::Id(id))
        .await
        .expect("the leader answers")
}

/// The client URLs of the members and of the leader, as the replica is told them.
async fn seen(pd: &Pd) -> (Vec<String>, String) {
    let endpoints = pd.endpoints();
    let leader = endpoints.split(',').nth(pd.leading());
    let url = leader.expect("an address for each member");
    let mut client = connect(url).await.expect("it listens");
    let answer = client
        .get_members(pdpb::GetMembersRequest::default())
        .await
        .expect("a member answers")
        .into_inner();
    let url = |member: &pdpb::Member| member.client_urls.concat();
    let leader = answer.leader.as_ref().map(url).expect("one leads");
    (answer.members.iter().map(url).collect(), leader)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lead_moves_between_processes_and_takes_the_regions_along() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut pd = start(dir.path()).await;
    let cluster = Cluster::new(50, 1_000);
    let region = cluster.regions()[17].found();
    let stores = pd.settle(cluster.regions()).await.expect("it is a new one");
    stores.close();
    let meant = Answer::Regions(vec![region.clone()]);
    assert_eq!(told(&pd, region.id).await, meant);

    // The replica is told of the second addresses, and of nothing else.
    let endpoints: Vec<_> = pd.endpoints().split(',').map(str::to_owned).collect();
    let (members, leader) = seen(&pd).await;
    assert_eq!(members, endpoints);
    assert_eq!(leader, endpoints[pd.leading()]);
    assert_ne!(leader, pd.leader_url());

    let [next, follower] = pd.others();
    pd.transfer(next, 0).await.expect("it is handed over");
    assert_eq!(pd.leading(), next);
    assert_eq!(told(&pd, region.id).await, meant);

    pd.remove(follower).await.expect("it does not lead");
    let (members, leader) = seen(&pd).await;
    assert_eq!(members.len(), 2);
    assert_eq!(leader, endpoints[next]);

    pd.kill_leader().await.expect("it runs");
    pd.succeed(cluster.regions()).await.expect("one is left");
    assert_ne!(pd.leading(), next);
    assert_eq!(told(&pd, region.id).await, meant);
    pd.stop().await.expect("they can be killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_members_come_back_with_what_they_had() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut pd = start(dir.path()).await;
    let id = pd.cluster_id();
    let cluster = Cluster::new(10, 1_000);
    let region = cluster.regions()[3].found();
    let stores = pd.settle(cluster.regions()).await.expect("it is a new one");
    stores.close();
    pd.restart(0).await.expect("they start again");
    assert_eq!(pd.cluster_id(), id);
    assert_eq!(told(&pd, region.id).await, Answer::Regions(vec![region]));
    pd.stop().await.expect("they can be killed");
}

#[tokio::test]
async fn what_is_no_pd_server_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let asked = |program: &'static str| version(Path::new(program), dir.path());
    let missing = asked("/nowhere/pd-server")
        .await
        .expect_err("nothing there");
    assert!(
        missing
            .to_string()
            .starts_with("pd-server: cannot start /nowhere/pd-server: "),
        "{missing}"
    );
    let other = asked("/bin/false").await.expect_err("something else");
    assert!(matches!(other, InteropError::Pd(_)));
    assert_eq!(
        other.to_string(),
        "pd-server: /bin/false is none: -V ended with exit status: 1; give the path of a pd-server"
    );
    let stand_in = version(&stand_in(), dir.path()).await.expect("it has one");
    assert_eq!(stand_in, "pd-server none, a stand-in of master");
}
