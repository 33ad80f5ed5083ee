//! What becomes of a call, by its path and its metadata.
//!
//! | forwarded host | answer |
//! |---|---|
//! | none, or empty | by the method |
//! | ourselves | the same |
//! | a client URL of the leader | the call is the leader's |
//! | another, or one while no leader is known | turned away |
//!
//! MetaStorage and the services that are not PD's ignore the key, and so does QueryRegion.

use http::{HeaderMap, HeaderValue};
use tonic::Status;

use super::stores::Ask;
use super::{Gateway, headers};
use crate::config::PresentAs;
use crate::replica::ask::MARK;
use crate::replica::serve::{
    MAX_AGE, allows_follower, closed, forwarded_host, is_client_url, refuse_to_forward,
};

/// Where a call goes.
#[derive(Debug)]
pub(super) enum Route {
    /// It is answered here.
    Here,
    /// It is answered here, and an answer from a follower will do although the caller has not said so.
    HereAsFollower,
    /// It is answered here with what the leader says now: asked together with the questions of others.
    HereFromLeader,
    /// It goes to the leader.
    Leader,
    /// It asks for stores: the leader's answer, which may be a moment old.
    Stores(Ask),
    /// It asks for the members, and we are the only one.
    Myself,
    /// It goes nowhere.
    Refused(Status),
    /// There is no such method.
    Unknown,
}

/// What a router answers, beside questions about stores.
const ROUTER: [&str; 5] = [
    "GetRegion",
    "GetPrevRegion",
    "GetRegionByID",
    "BatchScanRegions",
    "QueryRegion",
];

/// The services whose calls go to the leader whole.
const FORWARDED: [&str; 6] = [
    "etcdserverpb.KV",
    "etcdserverpb.Lease",
    "etcdserverpb.Watch",
    "keyspacepb.Keyspace",
    "meta_storagepb.MetaStorage",
    "resource_manager.ResourceManager",
];

/// Whether a path that has no handler here is of one of PD's services.
pub(super) fn is_forwarded(path: &str) -> bool {
    let service = path
        .strip_prefix('/')
        .and_then(|path| path.split_once('/'))
        .map(|(service, _)| service);
    service.is_some_and(|service| FORWARDED.contains(&service))
}

impl Gateway {
    /// Decides on a call of `pdpb.PD` or `routerpb.Router`. May take a forwarded host away that names nobody else.
    pub(super) fn route(&self, path: &str, headers: &mut HeaderMap) -> Route {
        if let Some(method) = path.strip_prefix("/routerpb.Router/") {
            return match stores(method) {
                Some(_) if self.serving.is_closed() => Route::Refused(closed()),
                Some(ask) => Route::Stores(ask),
                None if ROUTER.contains(&method) => Route::Here,
                None => Route::Unknown,
            };
        }
        let method = path.strip_prefix("/pdpb.PD/").unwrap_or_default();
        match method {
            "GetRegion" | "GetPrevRegion" | "GetRegionByID" | "ScanRegions"
            | "BatchScanRegions" => self.route_lookup(headers),
            "QueryRegion" => self.route_by_follower_key(headers, Route::Here),
            "GetClusterInfo" => Route::Here,
            // Who asks us for a sync stream wants to follow us; the leader's it would open at the leader.
            "SyncRegions" => Route::Here,
            "GetMembers" if self.presence.present_as == PresentAs::Backend => Route::Here,
            _ if self.serving.is_closed() => Route::Refused(closed()),
            "GetMembers" => Route::Myself,
            _ => match self.forwarded_host(headers) {
                Host::Nobody | Host::Leader => match stores(method) {
                    Some(ask) => Route::Stores(ask),
                    None => Route::Leader,
                },
                Host::Refused(host) => {
                    self.counters.refused.add(1);
                    Route::Refused(refuse_to_forward(&self.shared, &host))
                }
            },
        }
    }

    fn route_lookup(&self, headers: &mut HeaderMap) -> Route {
        match self.forwarded_host(headers) {
            Host::Leader => Route::Leader,
            // Turned away there, and counted by method.
            Host::Refused(_) => Route::Here,
            Host::Nobody => self.route_by_follower_key(headers, Route::Here),
        }
    }

    /// A lookup whose caller has not said that a follower's answer will do means the leader's.
    fn route_by_follower_key(&self, headers: &HeaderMap, as_follower: Route) -> Route {
        match self.presence.present_as {
            PresentAs::Backend => as_follower,
            PresentAs::Me if allows_follower(headers) => as_follower,
            PresentAs::Me if self.presence.allow_bounded_staleness => Route::HereAsFollower,
            // A replica that asks is asked back nothing; its call goes on as it is.
            PresentAs::Me if self.presence.reads_through && !headers.contains_key(MARK) => {
                Route::HereFromLeader
            }
            PresentAs::Me => Route::Leader,
        }
    }

    fn forwarded_host(&self, headers: &mut HeaderMap) -> Host {
        let Some(host) = forwarded_host(headers) else {
            return Host::Nobody;
        };
        if headers::same_address(&host, &self.presence.advertise) {
            headers.remove("pd-forwarded-host");
            return Host::Nobody;
        }
        let pd = self.shared.pd();
        let leader = pd.as_deref().and_then(|pd| pd.leader.as_ref());
        match leader {
            Some(leader) if is_client_url(&leader.member, &host) => Host::Leader,
            _ => Host::Refused(host),
        }
    }
}

/// Which question about stores a method asks, if any.
fn stores(method: &str) -> Option<Ask> {
    match method {
        "GetStore" => Some(Ask::One),
        "GetAllStores" => Some(Ask::All),
        _ => None,
    }
}

/// Whether a call changes what those questions are about.
pub(super) fn changes_stores(path: &str) -> bool {
    matches!(path, "/pdpb.PD/PutStore" | "/pdpb.PD/Bootstrap")
}

/// Whom a call is to be passed on to.
enum Host {
    Nobody,
    Leader,
    Refused(String),
}

/// Says in a caller's stead that only what the leader says now will do.
pub(super) fn demand_the_leaders(headers: &mut HeaderMap) {
    allow_follower(headers);
    headers.insert(MAX_AGE, HeaderValue::from_static("0"));
}

/// Says in a caller's stead that an answer from a follower will do.
pub(super) fn allow_follower(headers: &mut HeaderMap) {
    headers.insert("pd-allow-follower-handle", HeaderValue::from_static(""));
}
