//! GetMembers of a replica that presents itself as the cluster's only member and leader.
//!
//! Any client, of release 8.5 or in another language, then keeps us as its endpoint: it has no other to go to. What it
//! asks of a leader is passed on to the real one.

use tonic::Status;

use super::Gateway;
use crate::pd::Membership;
use crate::proto::header::ok_header;
use crate::proto::pdpb::{GetMembersResponse, Member};

impl Gateway {
    /// The member list with nobody but us.
    ///
    /// # Errors
    /// The cluster is not known yet.
    pub(super) fn myself(&self) -> Result<GetMembersResponse, Status> {
        let Some(cluster_id) = self.shared.cluster_id() else {
            return Err(Status::unavailable(
                "server not started: no PD member has answered yet",
            ));
        };
        let pd = self.shared.pd();
        let leader = pd.as_deref().and_then(|pd| pd.leader.as_ref());
        let member = Member {
            name: self.presence.name.clone(),
            member_id: member_id(&self.presence.advertise),
            peer_urls: vec![self.presence.advertise.clone()],
            client_urls: vec![self.presence.advertise.clone()],
            // What answers is the leader's version.
            binary_version: leader.map_or_else(String::new, |leader| {
                let members = pd.as_deref().map_or(&[][..], |pd| &pd.members);
                Membership::version_of(&leader.member, members).to_owned()
            }),
            ..Member::default()
        };
        Ok(GetMembersResponse {
            header: Some(ok_header(cluster_id)),
            members: vec![member.clone()],
            leader: Some(member.clone()),
            etcd_leader: Some(member),
        })
    }
}

/// The same for the same address, so that a restart is no new member. Never zero, which stands for no member.
fn member_id(advertise: &str) -> u64 {
    // FNV-1a: short, and the same in every build.
    let hash = advertise
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_id_belongs_to_an_address() {
        assert_eq!(member_id("http://a:1"), member_id("http://a:1"));
        assert_ne!(member_id("http://a:1"), member_id("http://b:1"));
        assert_ne!(member_id(""), 0);
    }
}
