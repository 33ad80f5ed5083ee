use super::super::source::tests::{Is, Peer, remote};
use super::*;
use crate::proto::header::ok_header;

fn member(member_id: u64, urls: &[&str]) -> Member {
    Member {
        member_id,
        client_urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        ..Member::default()
    }
}

#[test]
fn the_leader_is_asked_where_it_was_named_if_it_listens_there() {
    let leader = member(1, &["http://a:1", "http://b:1"]);
    let answer = GetMembersResponse {
        header: Some(ok_header(7)),
        members: vec![leader.clone(), member(2, &["http://c:1"])],
        leader: Some(leader),
        ..GetMembersResponse::default()
    };
    let read = Leader::read(&answer, "http://b:1").expect("a leader");
    assert_eq!((read.cluster_id, read.url.as_str()), (7, "http://b:1"));
    assert_eq!(read.members, ["http://a:1", "http://b:1", "http://c:1"]);
    // A follower was named.
    assert_eq!(
        Leader::read(&answer, "http://c:1").expect("a leader").url,
        "http://a:1"
    );
    let none = GetMembersResponse {
        leader: Some(Member::default()),
        ..answer
    };
    assert!(Leader::read(&none, "http://a:1").is_none());
}

#[test]
fn a_rate_is_a_whole_number_above_zero() {
    assert_eq!(rate("1"), Ok(1));
    for bad in ["0", "-1", "1.5", "", "1000001"] {
        assert!(rate(bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn who_has_no_members_to_name_is_asked_as_a_router() {
    let (_leader, leader_url) = Peer::start(Is::Pd).await;
    let (_router, router_url) = Peer::start(Is::Router).await;
    let met = introduce(&remote(), &leader_url, &router_url).await;
    let (leader, router) = met.expect("both answer");
    assert_eq!(leader.url, leader_url);
    assert_eq!(router.service(), Service::Router);
    // An older leader does for one.
    let (_older, older_url) = Peer::start(Is::OlderPd).await;
    assert!(introduce(&remote(), &older_url, &router_url).await.is_ok());
    // What has neither service is neither.
    let (_older, older_url) = Peer::start(Is::OlderRouter).await;
    let refused = introduce(&remote(), &leader_url, &older_url).await;
    let refused = refused.expect_err("no router").to_string();
    assert!(refused.starts_with("--against: "), "{refused}");
    let (_replica, replica_url) = Peer::start(Is::Replica).await;
    let refused = introduce(&remote(), &replica_url, &router_url).await;
    let refused = refused.expect_err("no leader").to_string();
    assert!(
        refused.contains("is a replica and not the PD leader"),
        "{refused}"
    );
}
